//! Calls of every size reach a worker byte for byte: in a header, or, where that cannot hold them, by the blob stream.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use bytes::Bytes;
use leasehold_protocol::{ChainKey, JournalSubject, RunId, Seq, SessionId};
use leasehold_store::{CallQueue as _, JournalAppend, Registers as _, RunLog as _};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn p3_an_envelope_of_any_size_and_any_bytes_arrives_as_it_was_written() {
    let servers = common::servers(1).await;
    let store = servers.store(1).await;
    let bound = 48 * 1024;
    let sized = |size: usize| Bytes::from("é".repeat(size / 2) + &"x".repeat(size % 2));
    let envelopes = [
        Bytes::from_static(b"{}"),
        sized(bound - 1),
        sized(bound),
        sized(bound + 1),
        sized(600_000),
        Bytes::from_static(b"{\r\n  \"spread\": \"over lines\"\n}"),
        Bytes::from_static(b" blank around "),
        Bytes::from_static(b""),
        Bytes::from_static(b"\xff\xfe no UTF-8"),
    ];
    for (n, envelope) in envelopes.iter().enumerate() {
        let run = RunId::new(format!("run-{n}")).unwrap();
        let chain = ChainKey {
            run: run.clone(),
            tool: "t".to_owned(),
            step: "1-0".parse().unwrap(),
            attempt: "1".parse().unwrap(),
            origin: SessionId::new("origin").unwrap(),
        };
        let write = JournalAppend {
            run,
            subject: JournalSubject::Call(chain.clone()),
            expected: Seq::NONE,
            body: Bytes::from_static(b"commit"),
            call: Some(envelope.clone()),
        };
        let stored = store.append(write).await.unwrap();
        let delivery = store.next_call(&["t".to_owned()]).await.unwrap();
        assert_eq!((delivery.seq, &delivery.chain), (stored.seq, &chain));
        assert!(
            delivery.call == *envelope,
            "envelope {n} of {} bytes",
            envelope.len()
        );
        let messages = store.read_chain(&chain).await.unwrap();
        assert!(
            messages[0].body.as_bytes() == &envelope[..],
            "envelope {n} read back"
        );
    }
}
