//! A client that knows no rules, and what it tries.

use async_nats::{Client, ConnectOptions, Event, HeaderMap, Message, StatusCode};
use bytes::Bytes;
use futures_util::StreamExt as _;
use tokio::sync::mpsc;

use crate::common::Server;
use crate::{LONG, password};

/// A client that knows no rules, and what the server said against it.
pub(crate) struct Raw {
    user: String,
    pub(crate) client: Client,
    denied: mpsc::UnboundedReceiver<String>,
}

/// What came of an operation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Got {
    /// The server did not let the message pass, or nobody listens where it went.
    Refused,
    /// It was answered, and no error.
    Answered,
    /// It was answered with an error.
    Error,
    /// Nobody was asked for an answer.
    Sent,
}

impl Raw {
    pub(crate) async fn connect(server: &Server, user: &str) -> Self {
        let (tell, denied) = mpsc::unbounded_channel();
        let client = ConnectOptions::new()
            .user_and_password(user.to_owned(), password(user))
            .custom_inbox_prefix(format!("_INBOX.{user}"))
            .event_callback(move |event| {
                if let Event::ServerError(error) = event {
                    let _ = tell.send(error.to_string());
                }
                std::future::ready(())
            })
            .connect(server.url.split(',').collect::<Vec<_>>())
            .await
            .unwrap();
        let user = user.to_owned();
        Self {
            user,
            client,
            denied,
        }
    }

    pub(crate) async fn try_it(&mut self, operation: &Operation) -> Got {
        while self.denied.try_recv().is_ok() {}
        let Operation::Publish {
            subject,
            reply,
            headers,
            body,
        } = operation
        else {
            let Operation::Subscribe(subject) = operation else {
                unreachable!()
            };
            let _subscribed = self.client.subscribe(subject.clone()).await.unwrap();
            self.client.flush().await.unwrap();
            return match tokio::time::timeout(LONG, self.denied.recv()).await {
                Ok(_) => Got::Refused,
                Err(_) => Got::Sent,
            };
        };
        let mut with = HeaderMap::new();
        for (name, value) in headers {
            with.insert(*name, *value);
        }
        let (client, body) = (&self.client, Bytes::copy_from_slice(body.as_bytes()));
        let inbox = client.new_inbox();
        let mut answers = client.subscribe(inbox.clone()).await.unwrap();
        let to = reply.clone().unwrap_or(inbox);
        client
            .publish_with_reply_and_headers(subject.clone(), to, with, body)
            .await
            .unwrap();
        client.flush().await.unwrap();
        if reply.is_some() {
            return Got::Sent;
        }
        tokio::select! {
            _ = self.denied.recv() => Got::Refused,
            answer = answers.next() => got(&answer.unwrap()),
            () = tokio::time::sleep(LONG) => panic!("{}: neither refused nor answered: {operation:?}", self.user),
        }
    }
}

pub(crate) fn got(answer: &Message) -> Got {
    let has = |name: &str| {
        let headers = answer.headers.as_ref();
        headers.is_some_and(|headers| headers.get(name).is_some())
    };
    match answer.status {
        Some(StatusCode::NO_RESPONDERS) => Got::Refused,
        Some(status) if status.as_u16() >= 400 => Got::Error,
        _ if has("Lh-Failed") => Got::Error,
        _ if String::from_utf8_lossy(&answer.payload).contains("\"error\"") => Got::Error,
        _ => Got::Answered,
    }
}

#[derive(Debug)]
pub(crate) enum Operation {
    Publish {
        subject: String,
        reply: Option<String>,
        headers: Vec<(&'static str, &'static str)>,
        body: String,
    },
    Subscribe(String),
}

pub(crate) fn publish(subject: &str, body: &str) -> Operation {
    Operation::Publish {
        subject: subject.to_owned(),
        reply: None,
        headers: Vec::new(),
        body: body.to_owned(),
    }
}

impl Operation {
    pub(crate) fn header(mut self, name: &'static str, value: &'static str) -> Self {
        if let Operation::Publish { headers, .. } = &mut self {
            headers.push((name, value));
        }
        self
    }
    /// The server's answer is to go there.
    pub(crate) fn answered_at(mut self, subject: &str) -> Self {
        if let Operation::Publish { reply, .. } = &mut self {
            *reply = Some(subject.to_owned());
        }
        self
    }
}

pub(crate) fn subscribe(subject: &str) -> Operation {
    Operation::Subscribe(subject.to_owned())
}
