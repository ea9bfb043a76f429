//! HTTP/1.1 around the book: `POST /tools/<tool>` and `POST /probe/<tool>`, as `[tool.http]` of a tools file calls them.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

use super::book::{Answer, Applied, Book, Caller};
use super::mode::Mode;
use crate::clock;
use crate::json;
use crate::tools::Tool;

/// Largest request body in bytes: arguments of these tools are some dozen bytes long.
const MAX_BODY: usize = 64 * 1024;
/// How long after its caller's deadline a late effect comes.
pub(crate) const LATE: Duration = Duration::from_millis(1000);
/// The header that says what a failure means.
const EFFECT: &str = "leasehold-effect";

type Reply = Response<Full<Bytes>>;

/// What a request comes to.
enum Outcome {
    Answer(Reply),
    Hang,
    Reset,
}

/// Serves until the process dies.
pub(crate) async fn serve(listener: TcpListener, book: Arc<Book>) -> anyhow::Result<()> {
    let tasks = TaskTracker::new();
    loop {
        let (stream, _) = listener.accept().await.context("accepting a connection")?;
        let (book, late) = (book.clone(), tasks.clone());
        tasks.spawn(async move {
            // A connection that breaks is the client's affair.
            let _ = connection(stream, book, late).await;
        });
    }
}

async fn connection(stream: TcpStream, book: Arc<Book>, late: TaskTracker) -> anyhow::Result<()> {
    stream.set_nodelay(true)?;
    let stream = stream.into_std()?;
    // A second handle, because the connection keeps the first one: it turns a close into a reset.
    let handle = stream.try_clone()?;
    let cut = Arc::new(Notify::new());
    let service = {
        let cut = cut.clone();
        service_fn(move |request| {
            let (book, late, cut) = (book.clone(), late.clone(), cut.clone());
            async move {
                match answer(request, book, &late).await {
                    Outcome::Answer(reply) => Ok::<_, Infallible>(reply),
                    // Dropped when the client goes away.
                    Outcome::Hang => std::future::pending().await,
                    Outcome::Reset => {
                        cut.notify_one();
                        std::future::pending().await
                    }
                }
            }
        })
    };
    let io = TokioIo::new(TcpStream::from_std(stream)?);
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(io, service);
    tokio::select! {
        served = serving => served?,
        () = cut.notified() => rustix::net::sockopt::set_socket_linger(&handle, Some(Duration::ZERO))?,
    }
    Ok(())
}

async fn answer(request: Request<Incoming>, book: Arc<Book>, late: &TaskTracker) -> Outcome {
    let path = request.uri().path().to_owned();
    let headers = request.headers().clone();
    let body = Limited::new(request.into_body(), MAX_BODY).collect().await;
    let Ok(body) = body.map(|body| body.to_bytes()) else {
        return refused(StatusCode::BAD_REQUEST, "the body cannot be read");
    };
    let (kind, name) = path
        .trim_start_matches('/')
        .split_once('/')
        .unwrap_or_default();
    let Some(tool) = Tool::named(name) else {
        return refused(StatusCode::NOT_FOUND, "no such tool");
    };
    match kind {
        "tools" => call(tool, &headers, body, book, late).await,
        "probe" => probe(tool, body, book).await,
        _ => refused(StatusCode::NOT_FOUND, "no such path"),
    }
}

async fn call(
    tool: Tool,
    headers: &HeaderMap,
    body: Bytes,
    book: Arc<Book>,
    late: &TaskTracker,
) -> Outcome {
    let caller = of_headers(headers);
    let wanted = Mode::named(json::text(&json::read(&body), "mode"));
    let sha256 = hex(&Sha256::digest(&body));
    let written = {
        let (book, caller) = (book.clone(), caller.clone());
        blocking(move || book.receive(tool, &caller, wanted, &sha256)).await
    };
    let Some(received) = written else {
        return refused(
            StatusCode::INTERNAL_SERVER_ERROR,
            "nothing could be written",
        );
    };
    match received.mode {
        Mode::Hang => return Outcome::Hang,
        Mode::ErrorWithoutEffect => {
            return refused(StatusCode::UNPROCESSABLE_ENTITY, "refused on purpose");
        }
        Mode::ErrorUnclassified => {
            let text = json!({"error": "failed on purpose"});
            return Outcome::Answer(reply(StatusCode::INTERNAL_SERVER_ERROR, &text));
        }
        Mode::LateEffect if tool.has_effects() => {
            let left = u64::try_from(caller.deadline.saturating_sub(clock::now())).unwrap_or(0);
            late.spawn(async move {
                tokio::time::sleep(Duration::from_millis(left) + LATE).await;
                blocking(move || book.apply(tool, &caller, received.n)).await;
            });
            return Outcome::Hang;
        }
        Mode::Ok | Mode::EffectThenHang | Mode::EffectThenReset | Mode::LateEffect => {}
    }
    let applied = if tool.has_effects() {
        blocking(move || book.apply(tool, &caller, received.n)).await
    } else {
        Some(Applied::Effect(0))
    };
    match (received.mode, applied) {
        (Mode::EffectThenHang, _) => Outcome::Hang,
        (Mode::EffectThenReset, _) => Outcome::Reset,
        (_, Some(Applied::Effect(n))) => {
            Outcome::Answer(reply(StatusCode::OK, &json!({"effect": n})))
        }
        (_, Some(Applied::Refused(why))) => refused(StatusCode::CONFLICT, why),
        // It may be on the disk: only a probe can tell.
        (_, None) => Outcome::Answer(reply(
            StatusCode::INTERNAL_SERVER_ERROR,
            &json!({"error": "the ledger's disk failed"}),
        )),
    }
}

async fn probe(tool: Tool, body: Bytes, book: Arc<Book>) -> Outcome {
    let asked = json::read(&body);
    let caller = Caller {
        key: json::text(&asked, "idempotency_key").to_owned(),
        run: json::text(&asked, "run").to_owned(),
        step: json::text(&asked, "step").to_owned(),
        attempt: json::number(&asked, "attempt"),
        ..Caller::default()
    };
    match blocking(move || book.probe(tool, &caller)).await {
        Some(Answer::Done(n)) => Outcome::Answer(reply(
            StatusCode::OK,
            &json!({"answer": "done", "result": {"effect": n}}),
        )),
        Some(Answer::NotDone) => {
            Outcome::Answer(reply(StatusCode::OK, &json!({"answer": "not_done"})))
        }
        Some(Answer::Nothing) => refused(StatusCode::NOT_FOUND, "this tool has no probe"),
        None => refused(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the ledger's disk failed",
        ),
    }
}

fn of_headers(headers: &HeaderMap) -> Caller {
    let text = |name: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let number = |name: &str| text(name).parse().unwrap_or(0);
    Caller {
        key: text("idempotency-key"),
        run: text("leasehold-run"),
        step: text("leasehold-step"),
        attempt: number("leasehold-attempt"),
        epoch: number("leasehold-epoch"),
        deadline: text("leasehold-deadline-unix-ms").parse().unwrap_or(0),
    }
}

/// Runs to its end whether or not the client is still there; nothing if the disk failed.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()?.ok()
}

fn refused(status: StatusCode, why: &str) -> Outcome {
    let mut reply = reply(status, &json!({"error": why}));
    let word = HeaderValue::from_static("nothing_happened");
    reply.headers_mut().insert(EFFECT, word);
    Outcome::Answer(reply)
}

fn reply(status: StatusCode, body: &Value) -> Reply {
    let mut reply = Response::new(Full::new(Bytes::from(body.to_string())));
    *reply.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    reply.headers_mut().insert(CONTENT_TYPE, json);
    reply
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
