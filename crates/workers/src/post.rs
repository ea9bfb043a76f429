//! One HTTP POST, at most once: it is sent again only while it is certain that nothing was sent.
//!
//! That is certain exactly as long as the request was given no connection. Until then the connection is tried again
//! and again, with growing pauses, within the time left; from then on any failure is final. So a connection kept
//! from an earlier request which turns out to be dead ends the call as lost, although nobody may have read it.

use std::{error::Error, time::Duration};

use backon::{BackoffBuilder, ExponentialBuilder};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{HeaderMap, Method, Request, Response, Uri, body::Incoming, header::HeaderValue};
use hyper_util::{
    client::legacy::{
        Client,
        connect::{HttpConnector, capture_connection},
    },
    rt::{TokioExecutor, TokioTimer},
};
use thiserror::Error;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::bounds::{MAX_RESULT_BYTES, decimal_seconds};

/// How long one attempt to connect may take. A host that is up answers far sooner, and one that drops packets is
/// tried again.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The first pause after a refused connection: a service that is just being restarted is back within a few of them.
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// The longest pause: what a call waits at most longer than it must once the service is back.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long an unused connection is kept: less than the five seconds after which the most impatient servers in wide
/// use close theirs, because a request sent into a closing connection is lost.
const KEEP_IDLE: Duration = Duration::from_secs(4);

/// How many unused connections are kept per service: what a worker has in flight when it is busiest.
const MAX_IDLE_PER_HOST: usize = 256;

/// The part of the time left that is kept to say "nothing was sent" before the deadline makes a timeout of it: a
/// tenth, and no more than this.
const MOST_SPARE: Duration = Duration::from_millis(250);

#[cfg(not(feature = "https"))]
type Connector = HttpConnector;
#[cfg(feature = "https")]
type Connector = hyper_rustls::HttpsConnector<HttpConnector>;

/// The connections that HTTP tools share. Cheap to clone.
#[derive(Debug, Clone)]
pub struct HttpClient {
    client: Client<Connector, Full<Bytes>>,
}

impl Default for HttpClient {
    fn default() -> Self {
        Self::new()
    }
}

impl HttpClient {
    /// A client without connections yet.
    pub fn new() -> Self {
        let mut http = HttpConnector::new();
        http.set_connect_timeout(Some(CONNECT_TIMEOUT));
        http.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            // It would send a request again that was written into a dying connection.
            .retry_canceled_requests(false)
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(KEEP_IDLE)
            .pool_max_idle_per_host(MAX_IDLE_PER_HOST)
            .build(connector(http));
        Self { client }
    }

    /// Sends once and reads the answer, all of it within the time left.
    pub(crate) async fn post<T>(
        &self,
        post: Post<'_>,
        read: impl AsyncFnOnce(Response<Incoming>) -> Result<T, PostError>,
    ) -> Result<T, PostError> {
        let mut deadline = std::pin::pin!(sleep(post.time_left));
        let end = deadline.deadline();
        let spare = (post.time_left / 10).min(MOST_SPARE);
        let mut give_up = std::pin::pin!(sleep(post.time_left.saturating_sub(spare)));
        let mut pauses = ExponentialBuilder::default()
            .with_min_delay(FIRST_PAUSE)
            .with_max_delay(LONGEST_PAUSE)
            .with_jitter()
            .without_max_times()
            .build();
        let mut last = String::from("no connection was made in time");
        loop {
            let mut request = post.request(end.saturating_duration_since(Instant::now()));
            let connection = capture_connection(&mut request);
            let nothing_sent = || connection.connection_metadata().is_none();
            let mut answer = std::pin::pin!(self.client.request(request));
            let mut patient = true;
            let error = loop {
                tokio::select! {
                    biased;
                    answer = &mut answer => match answer {
                        Ok(response) => break Ok(response),
                        Err(error) => break Err(error),
                    },
                    () = post.cancel.cancelled() => return Err(given_up(nothing_sent(), "it was cancelled", &last)),
                    () = &mut deadline => return Err(given_up(nothing_sent(), "its time ran out", &last)),
                    () = &mut give_up, if patient => {
                        patient = false;
                        if nothing_sent() {
                            return Err(given_up(true, "its time ran out", &last));
                        }
                    }
                }
            };
            match error {
                Ok(response) => {
                    return tokio::select! {
                        biased;
                        read = read(response) => read,
                        () = post.cancel.cancelled() => Err(given_up(false, "it was cancelled", "")),
                        () = &mut deadline => Err(given_up(false, "its time ran out", "")),
                    };
                }
                Err(error) if !nothing_sent() => return Err(PostError::Lost(chain(&error))),
                Err(error) => last = chain(&error),
            }
            let pause = pauses.next().unwrap_or(LONGEST_PAUSE);
            tokio::select! {
                biased;
                () = post.cancel.cancelled() => return Err(given_up(true, "it was cancelled", &last)),
                () = &mut give_up => return Err(given_up(true, "its time ran out", &last)),
                () = sleep(pause) => {}
            }
        }
    }
}

#[cfg(not(feature = "https"))]
fn connector(http: HttpConnector) -> Connector {
    http
}

#[cfg(feature = "https")]
fn connector(mut http: HttpConnector) -> Connector {
    http.enforce_http(false);
    hyper_rustls::HttpsConnectorBuilder::new()
        .with_webpki_roots()
        .https_or_http()
        .enable_http1()
        .wrap_connector(http)
}

/// What is sent.
pub(crate) struct Post<'a> {
    pub(crate) url: &'a Uri,
    /// All headers but `Leasehold-Seconds-Left`, which is measured when the request is sent.
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) time_left: Duration,
    pub(crate) cancel: &'a CancellationToken,
}

impl Post<'_> {
    fn request(&self, time_left: Duration) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.url.clone();
        *request.headers_mut() = self.headers.clone();
        // Digits and a dot are never refused.
        if let Ok(seconds) = HeaderValue::from_str(&decimal_seconds(time_left)) {
            request
                .headers_mut()
                .insert("leasehold-seconds-left", seconds);
        }
        request
    }
}

/// How a POST failed.
#[derive(Debug, Error)]
pub(crate) enum PostError {
    /// Not a byte of it left.
    #[error("the service could not be reached, and nothing was sent: {0}")]
    NotSent(String),
    /// It may have arrived.
    #[error("the request may have arrived, but its answer is lost: {0}")]
    Lost(String),
    /// It arrived.
    #[error("the answer has more than {MAX_RESULT_BYTES} bytes and was not read further")]
    TooMuch,
}

fn given_up(nothing_sent: bool, why: &str, last: &str) -> PostError {
    if nothing_sent {
        PostError::NotSent(format!("{why}; {last}"))
    } else {
        PostError::Lost(why.to_owned())
    }
}

/// An error with its causes: the outermost alone says only "client error".
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    text
}
