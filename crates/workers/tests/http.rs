//! HTTP tools against a real server, and against bare sockets where a server would be too polite.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper of a test fails the test"
)]

mod support;

use std::{
    future::ready,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use leasehold_tools::{ProbeAnswer, ProbeError, Tool, ToolError};
use leasehold_workers::{HttpClient, HttpTool, MAX_EXCERPT_BYTES, MAX_RESULT_BYTES, UrlError};
use support::{ARGUMENTS, LONG, call, call_with, question, soon};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

const SHORT: Duration = Duration::from_millis(300);

/// Requests as the server saw them.
type Seen = Arc<Mutex<Vec<(HeaderMap, Bytes)>>>;

struct Server {
    url: String,
    seen: Seen,
    _serving: AbortOnDropHandle<()>,
}

impl Server {
    /// Answers every POST to `/` in this way.
    async fn answering<F>(answer: F) -> Self
    where
        F: Fn() -> Response + Clone + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::on(listener, answer)
    }

    fn on<F>(listener: TcpListener, answer: F) -> Self
    where
        F: Fn() -> Response + Clone + Send + Sync + 'static,
    {
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let seen = Seen::default();
        let handler = move |State(seen): State<Seen>, headers: HeaderMap, body: Bytes| {
            seen.lock().unwrap().push((headers, body));
            ready(answer())
        };
        let app = Router::new()
            .route("/", post(handler))
            .route("/get", get(|| ready("got")))
            .with_state(seen.clone());
        let serving = TaskTracker::new().spawn(async { axum::serve(listener, app).await.unwrap() });
        let _serving = AbortOnDropHandle::new(serving);
        Self {
            url,
            seen,
            _serving,
        }
    }

    fn tool(&self) -> HttpTool {
        tool(&self.url)
    }

    fn seen(&self) -> Vec<(HeaderMap, Bytes)> {
        self.seen.lock().unwrap().clone()
    }
}

fn tool(url: &str) -> HttpTool {
    HttpTool::new(&HttpClient::new(), url).unwrap()
}

#[tokio::test]
async fn s14_a_service_gets_its_identity_in_headers_and_the_exact_bytes() {
    let server = Server::answering(|| "{}".into_response()).await;
    let call = call();
    let key = call.idempotency_key.to_string();
    let output = server.tool().call(call).await.unwrap();
    assert_eq!(output.content, b"{}");
    let seen = server.seen();
    let [(headers, body)] = seen.as_slice() else {
        panic!("{seen:?}");
    };
    assert_eq!(body, ARGUMENTS.trim().as_bytes());
    for (name, value) in [
        ("content-type", "application/json"),
        ("idempotency-key", key.as_str()),
        ("leasehold-run", "r%20%C3%A9%2F1"),
        ("leasehold-step", "2%0D%0A0"),
        ("leasehold-attempt", "3"),
        ("leasehold-epoch", "4"),
        ("leasehold-deadline-unix-ms", "1700000000123"),
    ] {
        assert_eq!(headers.get(name).unwrap(), value, "{name}");
    }
    let left: f64 = headers["leasehold-seconds-left"]
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    assert!(left > 1.0 && left <= LONG.as_secs_f64(), "{left}");
}

#[tokio::test]
async fn s16_an_error_answer_means_what_its_header_says() {
    let text = "no such order";
    let message = format!("the service answered 409 Conflict: {text}");
    let unclassified = ToolError::Unclassified(message.clone());
    let rows = [
        (
            vec!["nothing_happened"],
            ToolError::nothing_happened(&message),
        ),
        (
            vec![" Nothing_Happened "],
            ToolError::nothing_happened(&message),
        ),
        (
            vec!["may_have_happened"],
            ToolError::may_have_happened(&message),
        ),
        (vec!["abort"], ToolError::Abort { detail: message }),
        (vec![], unclassified.clone()),
        (vec!["nothing"], unclassified.clone()),
        (vec!["nothing_happened", "may_have_happened"], unclassified),
    ];
    for (words, expected) in rows {
        let given = words.clone();
        let server = Server::answering(move || {
            let mut response = (StatusCode::CONFLICT, text).into_response();
            for word in &given {
                response
                    .headers_mut()
                    .append("leasehold-effect", word.parse().unwrap());
            }
            response
        })
        .await;
        assert_eq!(server.tool().call(call()).await, Err(expected), "{words:?}");
        assert_eq!(server.seen().len(), 1);
    }
}

#[tokio::test]
async fn s16_an_answer_that_is_no_success_is_not_followed_and_its_text_is_bounded() {
    let server = Server::answering(|| {
        let location = [("location", "/get")];
        (
            StatusCode::SEE_OTHER,
            location,
            "x".repeat(2 * MAX_EXCERPT_BYTES),
        )
            .into_response()
    })
    .await;
    match server.tool().call(call()).await {
        Err(ToolError::Unclassified(text)) => {
            assert!(text.contains("303") && text.ends_with("xxx..."), "{text}");
            assert!(text.len() < MAX_EXCERPT_BYTES + 100);
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn k50_k57_result_bytes_arrive_as_they_are() {
    let mut bytes = b"\xe2\x4d\x2d\x5e\xe4".to_vec();
    bytes.resize(2 * 1024 * 1024, 0xff);
    let given = bytes.clone();
    let server = Server::answering(move || given.clone().into_response()).await;
    let output = server.tool().call(call()).await.unwrap();
    assert!(output.content == bytes);

    let arguments = format!("\"{}\"", "x".repeat(2 * 1024 * 1024 - 10_000));
    server
        .tool()
        .call(call_with(&arguments, LONG))
        .await
        .unwrap();
    assert!(server.seen().last().unwrap().1 == arguments.as_bytes());
}

#[tokio::test]
async fn k57_an_answer_beyond_the_bound_may_have_happened() {
    let server =
        Server::answering(|| Body::from(vec![b' '; MAX_RESULT_BYTES + 1]).into_response()).await;
    let answer = server.tool().call(call()).await;
    assert!(
        matches!(&answer, Err(ToolError::MayHaveHappened { .. })),
        "{answer:?}"
    );
}

/// Reads one request from a socket, up to the end of the arguments.
async fn read_request(socket: &mut TcpStream) {
    let mut seen = Vec::new();
    while !seen.ends_with(ARGUMENTS.trim().as_bytes()) {
        assert!(socket.read_buf(&mut seen).await.unwrap() > 0);
    }
}

fn reset(socket: TcpStream) {
    socket.set_zero_linger().unwrap();
    drop(socket);
}

#[tokio::test]
async fn k28_an_effect_and_then_a_reset_is_unknown_and_is_not_asked_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tool = tool(&format!("http://{}/", listener.local_addr().unwrap()));
    let mut effects = 0;
    let effect_and_reset = async {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            read_request(&mut socket).await;
            effects += 1;
            reset(socket);
        }
    };
    let answer = tokio::select! {
        answer = tool.call(call()) => answer,
        () = effect_and_reset => unreachable!(),
    };
    assert!(
        matches!(&answer, Err(ToolError::Unclassified(_))),
        "{answer:?}"
    );
    assert_eq!(effects, 1);
    // Nobody knocks later either.
    let later = tokio::time::timeout(SHORT, listener.accept()).await;
    assert!(later.is_err(), "{later:?}");
}

#[tokio::test]
async fn k28_a_kept_connection_that_dies_under_a_request_is_unknown_and_is_not_asked_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tool = tool(&format!("http://{}/", listener.local_addr().unwrap()));
    let (first, mut socket) = tokio::join!(tool.call(call()), async {
        let (mut socket, _) = listener.accept().await.unwrap();
        read_request(&mut socket).await;
        let ok = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
        socket.write_all(ok).await.unwrap();
        socket
    });
    assert_eq!(first.unwrap().content, b"{}");
    let (second, ()) = tokio::join!(tool.call(call()), async {
        // The same connection: had a new one been made, this would wait in vain.
        soon(read_request(&mut socket)).await;
        reset(socket);
    });
    assert!(
        matches!(&second, Err(ToolError::Unclassified(_))),
        "{second:?}"
    );
    let later = tokio::time::timeout(SHORT, listener.accept()).await;
    assert!(later.is_err(), "{later:?}");
}

#[tokio::test]
async fn s16_an_answer_that_breaks_off_is_unknown() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tool = tool(&format!("http://{}/", listener.local_addr().unwrap()));
    let (answer, ()) = tokio::join!(tool.call(call()), async {
        let (mut socket, _) = listener.accept().await.unwrap();
        read_request(&mut socket).await;
        let cut = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{}";
        socket.write_all(cut).await.unwrap();
    });
    assert!(
        matches!(&answer, Err(ToolError::Unclassified(_))),
        "{answer:?}"
    );
}

#[tokio::test]
async fn k39_silence_until_the_deadline_or_a_cancellation_is_unknown() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tool = tool(&format!("http://{}/", listener.local_addr().unwrap()));
    let (late, _socket) = tokio::join!(tool.call(call_with("{}", SHORT)), listener.accept());
    assert!(
        matches!(&late, Err(ToolError::Unclassified(text)) if text.contains("time ran out")),
        "{late:?}"
    );

    let call = call();
    let cancel = call.cancel.clone();
    let (cancelled, gone) = tokio::join!(soon(tool.call(call)), async {
        let (mut socket, _) = listener.accept().await.unwrap();
        read_request(&mut socket).await;
        cancel.cancel();
        socket.read(&mut [0]).await.unwrap()
    });
    assert!(
        matches!(&cancelled, Err(ToolError::Unclassified(text)) if text.contains("cancelled")),
        "{cancelled:?}"
    );
    assert_eq!(gone, 0, "the connection of a cancelled call is closed");
}

/// An address where nobody listens, and will not until told to: bound, so that nobody else can take it.
fn reserved() -> (TcpSocket, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}/", socket.local_addr().unwrap());
    (socket, url)
}

#[tokio::test]
async fn s16_a_refused_connection_is_tried_again_until_the_service_is_up_and_asked_once() {
    let (socket, url) = reserved();
    let tool = tool(&url);
    let mut answer = Box::pin(tool.call(call()));
    let early = tokio::time::timeout(SHORT, &mut answer).await;
    assert!(
        early.is_err(),
        "nobody listens yet, and it gave up: {early:?}"
    );
    let server = Server::on(socket.listen(8).unwrap(), || "{}".into_response());
    assert_eq!(answer.await.unwrap().content, b"{}");
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn s16_a_service_that_never_comes_up_did_nothing() {
    let (_socket, url) = reserved();
    // It is told within the time, not as a timeout.
    let answer = tokio::time::timeout(SHORT, tool(&url).call(call_with("{}", SHORT))).await;
    match answer.expect("it is told before the deadline") {
        Err(ToolError::NothingHappened { message, .. }) => {
            assert!(
                message.contains("nothing was sent") && message.contains("refused"),
                "{message}"
            );
        }
        other => panic!("{other:?}"),
    }

    let call = call();
    call.cancel.cancel();
    let cancelled = tool(&url).call(call).await;
    assert!(
        matches!(&cancelled, Err(ToolError::NothingHappened { .. })),
        "{cancelled:?}"
    );
}

#[tokio::test]
async fn s14_a_probe_is_one_more_post_with_the_question() {
    let server =
        Server::answering(|| r#"{"answer":"done","result": {"a": 1.50}}"#.into_response()).await;
    assert_eq!(
        server.tool().probe(question()).await,
        Err(ProbeError::NoProbe)
    );
    let probing = server.tool().with_probe(&server.url).unwrap();
    let answer = probing.probe(question()).await;
    assert_eq!(answer, Ok(ProbeAnswer::Done(br#"{"a": 1.50}"#.to_vec())));
    let seen = server.seen();
    let [(headers, body)] = seen.as_slice() else {
        panic!("{seen:?}");
    };
    let key = question().idempotency_key;
    assert_eq!(headers["leasehold-step"], "2%0D%0A0");
    assert_eq!(
        std::str::from_utf8(body).unwrap(),
        format!(
            r#"{{"idempotency_key":"{key}","run":"r é/1","step":"2\r\n0","attempt":3,"arguments":{}}}"#,
            ARGUMENTS.trim()
        )
    );
}

#[tokio::test]
async fn s16_a_probe_that_fails_found_out_nothing() {
    let not_done = r#"{"answer":"not_done"}"#;
    for (status, body) in [
        (StatusCode::NOT_FOUND, not_done),
        (StatusCode::SERVICE_UNAVAILABLE, not_done),
        (StatusCode::OK, ""),
        (StatusCode::OK, "<html>not_done</html>"),
    ] {
        let server = Server::answering(move || (status, body).into_response()).await;
        let probing = server.tool().with_probe(&server.url).unwrap();
        let answer = probing.probe(question()).await;
        assert!(
            matches!(answer, Err(ProbeError::Failed(_))),
            "{status} {body}: {answer:?}"
        );
    }
    let (_socket, url) = reserved();
    let mut asked = question();
    asked.time_left = SHORT;
    let answer = tool(&url).with_probe(&url).unwrap().probe(asked).await;
    assert!(matches!(answer, Err(ProbeError::Failed(_))), "{answer:?}");
}

#[test]
fn a_url_that_cannot_be_posted_to_is_refused() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let _inside = runtime.enter();
    let client = HttpClient::new();
    let refused = |url| HttpTool::new(&client, url).err();
    for url in [
        "",
        "/path",
        "host:80",
        "ftp://host/",
        "http://",
        "http://a b/",
        "http://u:p@host/",
    ] {
        assert!(
            matches!(refused(url), Some(UrlError::Unusable { .. })),
            "{url}"
        );
    }
    let https = refused("https://host/");
    if cfg!(feature = "https") {
        assert_eq!(https, None);
    } else {
        assert!(matches!(https, Some(UrlError::NoHttps { .. })));
    }
}
