//! HTTP/1.1 around the desk: paths, headers, and the faults that show on a connection.

use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use axum::routing::post;
use bytes::Bytes;

use super::caller::Caller;
use super::desk::{Desk, Outcome, Reply, Tool};
use super::line::{Cut, Doors};

/// Largest request body in bytes; arguments of these tools are some hundred bytes long.
const MAX_BODY: usize = 1024 * 1024;

/// What the `garbage` fault answers: neither JSON nor UTF-8, as a broken proxy might send it.
const GARBAGE: &[u8] = b"<html>502 \xff\xfe upstream";

/// Serves until the process dies.
pub(super) async fn serve(doors: Doors, desk: Arc<Desk>) -> anyhow::Result<()> {
    let service = router(desk).into_make_service_with_connect_info::<Cut>();
    axum::serve(doors, service)
        .await
        .context("serving payments")
}

fn router(desk: Arc<Desk>) -> Router {
    let mut router = Router::new().route("/faults", post(arm));
    for tool in [Tool::LookupOrder, Tool::RefundOrder, Tool::CloseCase] {
        router = router.route(
            &format!("/tools/{}", tool.name()),
            post(
                move |desk: State<Arc<Desk>>,
                      cut: ConnectInfo<Cut>,
                      headers: HeaderMap,
                      body: Bytes| call(tool, desk, cut, headers, body),
            ),
        );
    }
    for tool in [Tool::RefundOrder, Tool::CloseCase] {
        router = router.route(
            &format!("/probe/{}", tool.name()),
            post(move |desk: State<Arc<Desk>>, body: Bytes| probe(tool, desk, body)),
        );
    }
    router
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(desk)
}

async fn call(
    tool: Tool,
    State(desk): State<Arc<Desk>>,
    ConnectInfo(cut): ConnectInfo<Cut>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let caller = Caller::read(&headers);
    let outcome = blocking(move || desk.call(tool, &caller, &body)).await;
    match outcome {
        Some(Outcome::Answer(reply)) => answer(reply),
        Some(Outcome::Garbage) => respond(StatusCode::OK, false, Body::from(GARBAGE)),
        // The handler is dropped when the client goes away.
        Some(Outcome::Hang) => std::future::pending().await,
        Some(Outcome::Cut) => {
            cut.cut();
            respond(StatusCode::OK, false, Body::empty())
        }
        None => crashed(),
    }
}

async fn probe(tool: Tool, State(desk): State<Arc<Desk>>, body: Bytes) -> Response {
    blocking(move || desk.probe(tool, &body))
        .await
        .map_or_else(crashed, answer)
}

async fn arm(State(desk): State<Arc<Desk>>, body: Bytes) -> Response {
    blocking(move || desk.arm(&body))
        .await
        .map_or_else(crashed, answer)
}

/// Runs to its end even if the client is gone; `None` if it panicked.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}

fn answer(reply: Reply) -> Response {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    respond(status, reply.nothing_happened, Body::from(reply.body))
}

fn crashed() -> Response {
    respond(StatusCode::INTERNAL_SERVER_ERROR, false, Body::from("{}"))
}

fn respond(status: StatusCode, nothing_happened: bool, body: Body) -> Response {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/json"),
    );
    if nothing_happened {
        response.headers_mut().insert(
            "leasehold-effect",
            header::HeaderValue::from_static("nothing_happened"),
        );
    }
    response
}
