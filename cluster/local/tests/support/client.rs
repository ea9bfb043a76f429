//! A client that speaks just enough of the protocol to ask JetStream something.

use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// An answer of a server that is well takes milliseconds.
const ANSWER: Duration = Duration::from_secs(10);

/// Sends a request and returns the answer's body. The error is a text: the tests only want to see it.
pub(crate) async fn request(url: &str, subject: &str, body: &str) -> Result<String, String> {
    let asked = timeout(ANSWER, ask(url, subject, body)).await;
    asked.map_err(|_| format!("{url} does not answer"))?
}

async fn ask(url: &str, subject: &str, body: &str) -> Result<String, String> {
    let text = |error: std::io::Error| format!("{url}: {error}");
    let address = url.strip_prefix("nats://").unwrap();
    let mut stream = BufReader::new(TcpStream::connect(address).await.map_err(text)?);
    // A subject of this connection's own: the answer to an earlier request may still come.
    let inbox = format!(
        "answer.{}",
        stream.get_ref().local_addr().map_err(text)?.port()
    );
    let connect = r#"CONNECT {"verbose":false,"headers":true,"no_responders":true}"#;
    let publish = format!("PUB {subject} {inbox} {}", body.len());
    let out = format!("{connect}\r\nSUB {inbox} 1\r\n{publish}\r\n{body}\r\n");
    stream.write_all(out.as_bytes()).await.map_err(text)?;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.map_err(text)? == 0 {
            return Err(format!("{url} closed the connection"));
        }
        if line.starts_with("PING") {
            stream.write_all(b"PONG\r\n").await.map_err(text)?;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.first().copied() {
            Some("MSG") => {
                let mut body = vec![0; words.last().unwrap().parse().unwrap()];
                stream.read_exact(&mut body).await.map_err(text)?;
                return Ok(String::from_utf8(body).unwrap());
            }
            Some("HMSG") | Some("-ERR") => return Err(line),
            _ => {}
        }
    }
}

/// Makes a stream of that name over the subjects `<name>.>`.
pub(crate) async fn make_stream(url: &str, name: &str, replicas: usize) {
    let body = format!(r#"{{"name":"{name}","subjects":["{name}.>"],"num_replicas":{replicas}}}"#);
    let answer = request(url, &format!("$JS.API.STREAM.CREATE.{name}"), &body)
        .await
        .unwrap();
    assert!(!answer.contains("\"error\""), "{answer}");
}

/// How many messages the stream has, and so that JetStream works.
pub(crate) async fn messages(url: &str, name: &str) -> Result<u64, String> {
    let answer = request(url, &format!("$JS.API.STREAM.INFO.{name}"), "").await?;
    let after = answer.split_once("\"messages\":").ok_or(answer.clone())?.1;
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().map_err(|_| answer)
}
