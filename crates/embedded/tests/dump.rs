//! The raw dump has every stored message once, in order, as documented.
#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use bytes::Bytes;
use common::{append, armed, chain, folder, logbook, open, options, outcome, run};
use leasehold_embedded::dump_folder;
use leasehold_protocol::{JournalSubject, LogbookRecord, OperatorId, Seq, Writer};
use leasehold_store::{Inbox, InboxKind, JournalAppend, Logbook, Register, Registers, RunLog};

#[tokio::test]
async fn the_dump_has_every_message_once_in_order() {
    let folder = folder();
    let store = open(folder.path()).unwrap();
    let (run, chain) = (run("a b"), chain("a b", 1));
    let open = JournalAppend {
        run: run.clone(),
        subject: JournalSubject::Open,
        expected: Seq::NONE,
        body: Bytes::from_static(b"{\"v\":1}"),
        call: None,
    };
    let first = store.append(open).await.unwrap().seq;
    let call = JournalAppend {
        run: run.clone(),
        subject: JournalSubject::Call(chain.clone()),
        expected: first,
        body: Bytes::from_static(b"commit"),
        call: Some(Bytes::from_static(b"envelope")),
    };
    let call = store.append(call).await.unwrap().seq;
    let worker = Writer::Worker(common::worker());
    store
        .write_register(
            &chain,
            Register::Claim,
            &worker,
            call,
            Bytes::from_static(b"claim"),
        )
        .await
        .unwrap();
    store
        .write_note(&chain, &worker, Bytes::from_static(b"note"), false)
        .await
        .unwrap();
    store
        .put(
            &run,
            InboxKind::Cancel(OperatorId::new("me").unwrap()),
            Bytes::from_static(b"\xff"),
        )
        .await
        .unwrap();
    let large = "l".repeat(20_000);
    append(&store, &run, call, large.clone()).await.unwrap();
    let opened = logbook(&store.logbook_folder(&common::worker()), 1);
    opened
        .logbook
        .create(&chain, LogbookRecord::Armed(armed()))
        .await
        .unwrap();
    opened.logbook.outcome(&chain, outcome()).await.unwrap();
    opened.logbook.published(&chain).await.unwrap();
    let id = opened.logbook.id().to_string();
    let mut live = Vec::new();
    store.dump(&mut live).unwrap();
    opened.logbook.dump(&mut live).unwrap();
    drop((store, opened));
    let mut cold = Vec::new();
    dump_folder(folder.path(), options(), &mut cold).unwrap();
    assert_eq!(
        String::from_utf8(cold).unwrap(),
        String::from_utf8(live.clone()).unwrap()
    );
    let chain = r#""chain":{"run":"a b","tool":"pay","step":"1-0","attempt":1,"origin":"session"}"#;
    let expected = [
        r#"{"seq":1,"stream":"journal","subject":"lh.0.run.a_20b.j.open","run":"a b","expected":0,"body":"{\"v\":1}"}"#.to_owned(),
        format!(r#"{{"seq":2,"stream":"call","subject":"lh.0.run.a_20b.j.call.pay.1-0.1.session._","run":"a b",{chain},"expected":1,"body":"commit","call":"envelope"}}"#),
        format!(r#"{{"seq":3,"stream":"claim","subject":"lh.0.run.a_20b.w.claim.pay.1-0.1.session.worker","run":"a b",{chain},"writer":"worker","expected":2,"body":"claim"}}"#),
        format!(r#"{{"seq":4,"stream":"evidence","subject":"lh.0.run.a_20b.w.evidence.pay.1-0.1.session.worker.0","run":"a b",{chain},"writer":"worker","body":"note"}}"#),
        r#"{"seq":5,"stream":"inbox","subject":"lh.0.c.a_20b.me","run":"a b","body_base64":"/w=="}"#.to_owned(),
        format!(r#"{{"seq":6,"stream":"journal","subject":"lh.0.run.a_20b.j.note","run":"a b","expected":2,"body":"{large}"}}"#),
        format!(
            r#"{{"seq":2,"stream":"logbook","worker":"worker","logbook":"{id}",{chain},"published":true,"body":"{{\"kind\":\"outcome\",\"armed\":{{\"claim\":\"claim\",\"incarnation\":\"life\",\"call\":3}},\"outcome\":{{\"kind\":\"aborted\",\"detail\":\"stop\"}}}}"}}"#
        ),
    ];
    let text = String::from_utf8(live).unwrap();
    for (line, expected) in text.lines().zip(&expected) {
        assert_eq!(line, expected);
    }
    assert_eq!(text.lines().count(), expected.len());
}
