//! One question to a server's monitoring port, over loopback: just enough HTTP for that.

use std::io;
use std::net::Ipv4Addr;
use std::time::Duration;

use leasehold_json::AcceptedJson;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long an answer may take. A server of this machine answers in a millisecond; one that is paused accepts and never answers.
const ANSWER: Duration = Duration::from_secs(2);

/// Longest answer that is read, in bytes: `/jsz` with a thousand streams is about a megabyte.
const MAX_ANSWER: u64 = 16 * 1024 * 1024;

/// What was answered.
pub(crate) struct Answer {
    pub(crate) ok: bool,
    body: Vec<u8>,
}

impl Answer {
    /// The body as JSON.
    pub(crate) fn json(&self) -> Option<AcceptedJson> {
        AcceptedJson::check(&self.body).ok()
    }

    /// The body as text, for people.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).trim().to_owned()
    }
}

/// `GET http://127.0.0.1:<port><path>`.
pub(crate) async fn get(port: u16, path: &str) -> io::Result<Answer> {
    timeout(ANSWER, ask(port, path))
        .await
        .unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer")))
}

async fn ask(port: u16, path: &str) -> io::Result<Answer> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    // HTTP/1.0: the body is not chunked, and the end of the connection is the end of the answer.
    let request = format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut whole = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut whole).await?;
    parse(&whole)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an answer that is no http"))
}

fn parse(whole: &[u8]) -> Option<Answer> {
    let end = whole.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(whole.get(..end)?).ok()?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?;
    Some(Answer {
        ok: status == "200",
        body: whole.get(end + 4..)?.to_vec(),
    })
}
