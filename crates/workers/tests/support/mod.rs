//! What the tests of tools share: calls, and a witness of whether processes are alive.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    time::Duration,
};

use leasehold_json::AcceptedJson;
use leasehold_tools::{Call, ProbeQuestion};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Longer than anything here takes: a test that waits so long has failed.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) const ARGUMENTS: &str = r#" {"id": 9007199254740993, "amount": 1.50, "name": "é"} "#;

pub(crate) fn call_with(arguments: &str, time_left: Duration) -> Call {
    Call {
        run: "r é/1".into(),
        step: "2\r\n0".into(),
        attempt: 3,
        epoch: 4,
        idempotency_key: AcceptedJson::empty_object().digest(),
        time_left,
        deadline_unix_ms: 1_700_000_000_123,
        arguments: AcceptedJson::check_str(arguments).unwrap(),
        cancel: CancellationToken::new(),
    }
}

pub(crate) fn call() -> Call {
    call_with(ARGUMENTS, LONG)
}

pub(crate) fn question() -> ProbeQuestion {
    let call = call();
    ProbeQuestion {
        run: call.run,
        step: call.step,
        attempt: call.attempt,
        idempotency_key: call.idempotency_key,
        arguments: call.arguments,
        time_left: LONG,
    }
}

pub(crate) async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, what)
        .await
        .expect("it has to happen soon")
}

pub(crate) fn fifo(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    let made = std::process::Command::new("mkfifo")
        .arg(&path)
        .status()
        .unwrap();
    assert!(made.success());
    path
}

/// A named pipe that processes hold open: its lines are their news, and its end is their end.
pub(crate) struct Witness {
    pub(crate) path: PathBuf,
    news: mpsc::UnboundedReceiver<String>,
}

impl Witness {
    pub(crate) fn new(folder: &Path) -> Self {
        let path = fifo(folder, "witness");
        let (send, news) = mpsc::unbounded_channel();
        let reader = path.clone();
        std::thread::spawn(move || {
            let pipe = BufReader::new(std::fs::File::open(reader).unwrap());
            for line in pipe.lines() {
                let _ = send.send(line.unwrap());
            }
        });
        Self { path, news }
    }

    pub(crate) async fn line(&mut self) -> String {
        soon(self.news.recv()).await.expect("somebody still writes")
    }

    /// Waits until no process holds the pipe any more.
    pub(crate) async fn all_gone(&mut self) {
        while soon(self.news.recv()).await.is_some() {}
    }

    pub(crate) fn somebody_is_there(&mut self) -> bool {
        self.news.try_recv() == Err(mpsc::error::TryRecvError::Empty)
    }
}
