//! A call that is not the first message of its chain is handed out to be looked at, not to be claimed.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use bytes::Bytes;
use common::{chain, folder, open, run, worker};
use leasehold_protocol::{JournalSubject, Link, Seq, Writer};
use leasehold_store::{CallQueue, JournalAppend, Register, Registers, RunLog};

#[tokio::test]
async fn i5_a_first_delivery_behind_an_older_register_is_looked_at_before_it_is_claimed() {
    let folder = folder();
    let store = open(folder.path()).unwrap();
    let (fresh, restored) = (chain("a", 1), chain("b", 1));
    // What stood there before the call was dispatched: of an attempt whose journal was taken away.
    let writer = Writer::Worker(worker());
    let body = Bytes::from_static(b"claim");
    store
        .write_register(&restored, Register::Claim, &writer, Seq::NONE, body)
        .await
        .unwrap();
    for (name, chain) in [("a", &fresh), ("b", &restored)] {
        let call = JournalAppend {
            run: run(name),
            subject: JournalSubject::Call(chain.clone()),
            expected: Seq::NONE,
            body: Bytes::from_static(b"commit"),
            call: Some(Bytes::from_static(b"envelope")),
        };
        store.append(call).await.unwrap();
    }
    let tools = ["pay".to_owned()];
    for (chain, looked_at) in [(&fresh, false), (&restored, true)] {
        let delivery = store.next_call(&tools).await.unwrap();
        assert_eq!((&delivery.chain, delivery.redelivered), (chain, looked_at));
    }
    let messages = store.read_chain(&restored).await.unwrap();
    let links: Vec<Link> = messages.iter().map(|message| message.link).collect();
    assert_eq!(links, [Link::Claim, Link::Call]);
}
