//! A tool that is an HTTP service: one POST per call.
//!
//! The body is the arguments, byte for byte; who asks, and until when, stands in headers: `Idempotency-Key`,
//! `Leasehold-Run` and `Leasehold-Step` (percent-encoded, so that any id is a legal header), `Leasehold-Attempt`,
//! `Leasehold-Epoch`, `Leasehold-Seconds-Left`, `Leasehold-Deadline-Unix-Ms`.
//!
//! | the service | what that means |
//! |---|---|
//! | answers 2xx | done; the body is the result |
//! | answers otherwise with `Leasehold-Effect: nothing_happened`, `may_have_happened` or `abort` | what it says |
//! | answers otherwise without that | unclassified: the effect may have happened |
//! | cannot be connected to, until the time is nearly over | nothing happened, for nothing was sent |
//! | fails or is silent once a connection was there | unclassified, and never sent again |
//! | answers more than [`MAX_RESULT_BYTES`] | may have happened |

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::{
    HeaderMap, Response, Uri,
    body::Incoming,
    header::{CONTENT_TYPE, HeaderName, HeaderValue},
};
use leasehold_json::Digest;
use leasehold_tools::{Call, ProbeAnswer, ProbeError, ProbeQuestion, Tool, ToolError, ToolOutput};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use crate::{
    bounds::{MAX_EXCERPT_BYTES, MAX_RESULT_BYTES, readable},
    post::{HttpClient, Post, PostError},
    probe,
};

/// What stays as it is in a percent-encoded id: the unreserved characters of RFC 3986.
const ENCODED_IN_IDS: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

const EFFECT: HeaderName = HeaderName::from_static("leasehold-effect");

/// Why an address is no tool.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UrlError {
    /// It cannot be read.
    #[error("the url {url:?} is unusable: {reason}; write it as http://host:port/path")]
    Unusable {
        /// As given.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// This build has no TLS.
    #[error(
        "the url {url:?} needs https, which this build lacks; build with the feature `https`, or use http"
    )]
    NoHttps {
        /// As given.
        url: String,
    },
}

/// A [`Tool`] that posts to a service.
#[derive(Debug, Clone)]
pub struct HttpTool {
    client: HttpClient,
    url: Uri,
    probe_url: Option<Uri>,
}

impl HttpTool {
    /// A service at this address.
    pub fn new(client: &HttpClient, url: &str) -> Result<Self, UrlError> {
        Ok(Self {
            client: client.clone(),
            url: checked(url)?,
            probe_url: None,
        })
    }

    /// Where the service answers probes; the tool's spec declares of which kind they are.
    pub fn with_probe(mut self, url: &str) -> Result<Self, UrlError> {
        self.probe_url = Some(checked(url)?);
        Ok(self)
    }
}

fn checked(url: &str) -> Result<Uri, UrlError> {
    let unusable = |reason: &str| UrlError::Unusable {
        url: url.to_owned(),
        reason: reason.to_owned(),
    };
    let uri: Uri = url
        .parse()
        .map_err(|error: hyper::http::uri::InvalidUri| unusable(&error.to_string()))?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") if cfg!(feature = "https") => {}
        Some("https") => return Err(UrlError::NoHttps { url: url.into() }),
        Some(_) => return Err(unusable("only http and https are spoken")),
        None => return Err(unusable("it names no scheme")),
    }
    match uri.authority() {
        Some(authority) if authority.as_str().contains('@') => {
            Err(unusable("credentials in it would not be sent"))
        }
        Some(authority) if !authority.host().is_empty() => Ok(uri),
        _ => Err(unusable("it names no host")),
    }
}

/// Headers that call and probe have in common.
fn identity(run: &str, step: &str, attempt: u32, key: Digest) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let id = |text| utf8_percent_encode(text, ENCODED_IN_IDS).to_string();
    put(&mut headers, "idempotency-key", &key.to_string());
    put(&mut headers, "leasehold-run", &id(run));
    put(&mut headers, "leasehold-step", &id(step));
    put(&mut headers, "leasehold-attempt", &attempt.to_string());
    headers
}

/// Every value here is made of unreserved characters, so none is refused.
fn put(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(HeaderName::from_static(name), value);
    }
}

#[async_trait]
impl Tool for HttpTool {
    async fn call(&self, call: Call) -> Result<ToolOutput, ToolError> {
        let mut headers = identity(&call.run, &call.step, call.attempt, call.idempotency_key);
        put(&mut headers, "leasehold-epoch", &call.epoch.to_string());
        put(
            &mut headers,
            "leasehold-deadline-unix-ms",
            &call.deadline_unix_ms.to_string(),
        );
        let post = Post {
            url: &self.url,
            headers,
            body: Bytes::copy_from_slice(call.arguments.as_bytes()),
            time_left: call.time_left,
            cancel: &call.cancel,
        };
        let read = self.client.post(post, async |response| {
            if response.status().is_success() {
                whole_body(response).await.map(Ok)
            } else {
                Ok(Err(refusal(response).await))
            }
        });
        match read.await {
            Ok(Ok(body)) => Ok(ToolOutput::new(body)),
            Ok(Err(error)) => Err(error),
            Err(error @ PostError::NotSent(_)) => {
                Err(ToolError::nothing_happened(error.to_string()))
            }
            Err(error @ PostError::TooMuch) => Err(ToolError::may_have_happened(error.to_string())),
            Err(error @ PostError::Lost(_)) => Err(ToolError::Unclassified(error.to_string())),
        }
    }

    async fn probe(&self, question: ProbeQuestion) -> Result<ProbeAnswer, ProbeError> {
        let url = self.probe_url.as_ref().ok_or(ProbeError::NoProbe)?;
        let cancel = CancellationToken::new();
        let post = Post {
            url,
            headers: identity(
                &question.run,
                &question.step,
                question.attempt,
                question.idempotency_key,
            ),
            body: probe::question_bytes(&question).into(),
            time_left: question.time_left,
            cancel: &cancel,
        };
        let read = self.client.post(post, async |response| {
            if response.status().is_success() {
                whole_body(response).await.map(Ok)
            } else {
                let status = response.status();
                Ok(Err(format!(
                    "it answered {status}: {}",
                    excerpt(response).await
                )))
            }
        });
        match read.await {
            Ok(Ok(body)) => probe::read_answer(&body),
            Ok(Err(why)) => Err(ProbeError::Failed(why)),
            Err(error) => Err(ProbeError::Failed(error.to_string())),
        }
    }
}

/// What an answer that is no success says about the effect. Only exactly one known word counts.
async fn refusal(response: Response<Incoming>) -> ToolError {
    let mut words = response.headers().get_all(EFFECT).into_iter();
    let word = match (words.next(), words.next()) {
        (Some(only), None) => Some(only.as_bytes().trim_ascii().to_ascii_lowercase()),
        _ => None,
    };
    let status = response.status();
    let body = excerpt(response).await;
    let message = if body.is_empty() {
        format!("the service answered {status}")
    } else {
        format!("the service answered {status}: {body}")
    };
    match word.as_deref() {
        Some(b"nothing_happened") => ToolError::nothing_happened(message),
        Some(b"may_have_happened") => ToolError::may_have_happened(message),
        Some(b"abort") => ToolError::Abort { detail: message },
        _ => ToolError::Unclassified(message),
    }
}

async fn whole_body(response: Response<Incoming>) -> Result<Vec<u8>, PostError> {
    let (body, complete) = body_up_to(response, MAX_RESULT_BYTES).await?;
    if complete {
        Ok(body)
    } else {
        Err(PostError::TooMuch)
    }
}

/// The beginning of an error's body; what is missing of it is missing.
async fn excerpt(response: Response<Incoming>) -> String {
    match body_up_to(response, MAX_EXCERPT_BYTES).await {
        Ok((body, true)) => readable(&body),
        Ok((body, false)) => format!("{}...", readable(&body)),
        Err(_) => "(its text was lost)".into(),
    }
}

/// At most so many bytes of the body, and whether they are all.
async fn body_up_to(
    response: Response<Incoming>,
    bound: usize,
) -> Result<(Vec<u8>, bool), PostError> {
    let mut body = response.into_body();
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| {
            PostError::Lost(format!("the connection broke inside the answer: {error}"))
        })?;
        let Some(data) = frame.data_ref() else {
            continue;
        };
        let room = bound - bytes.len();
        bytes.extend_from_slice(data.get(..room).unwrap_or(data));
        if data.len() > room {
            return Ok((bytes, false));
        }
    }
    Ok((bytes, true))
}
