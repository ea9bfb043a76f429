//! Names of any text are kept apart everywhere.

use leasehold_protocol::{ClientId, JournalSubject, RunId, Seq, WorkerId, Writer};

use super::{Rig, append, bytes, chain, dispatch, never, soon, worker};
use crate::{InboxKind, LeaseRecord, Register};

/// Names that meet wherever one is used as it is written.
fn odd() -> Vec<String> {
    let mut names: Vec<String> = [
        "a",
        "A",
        "a b",
        "a.b",
        "a_b",
        "a..b",
        "a-b",
        "a_2Eb",
        "a_20b",
        "*",
        ">",
        "a.*",
        "a.>",
        "$SYS.x",
        "_rt",
        "_",
        "é",
        "e\u{301}",
        "a\r\nb",
        "a\u{0}b",
        "a\u{0}",
        "\u{1f600}",
        "\u{202e}x",
        "a/b",
        "../a",
        "a%2Eb",
        "\u{ff}",
        "-",
        "--",
    ]
    .map(str::to_owned)
    .to_vec();
    names.push("x".repeat(128));
    names.push("é".repeat(128));
    names
}

/// Runs, clients and workers of these names have their own journals, leases, timers, submissions and registers.
pub async fn k58_names_never_meet(rig: &dyn Rig) {
    let store = rig.open().await;
    for name in odd() {
        let run = RunId::new(&name).unwrap();
        append(&*store, &run, JournalSubject::Open, Seq::NONE, &name).await;
        store
            .put_lease(
                &run,
                Seq::NONE,
                Some(LeaseRecord {
                    session: super::session(&name),
                    epoch: 1,
                }),
            )
            .await
            .unwrap();
        store.set_timer(&run, 1).await.unwrap();
        store
            .put(
                &run,
                InboxKind::Submit(ClientId::new(&name).unwrap()),
                bytes(&name),
            )
            .await
            .unwrap();
    }
    drop(store);
    let store = rig.open().await;
    for name in odd() {
        let run = RunId::new(&name).unwrap();
        let journal = store.read_journal(&run, Seq::NONE).await.unwrap();
        assert_eq!(journal.len(), 1, "{name:?}");
        assert_eq!(journal[0].body.as_bytes(), name.as_bytes());
        assert_eq!(
            store
                .lease(&run)
                .await
                .unwrap()
                .record
                .unwrap()
                .session
                .as_str(),
            name
        );
        let submission = store.submission(&run).await.unwrap().unwrap();
        assert_eq!(
            (submission.body, submission.kind),
            (
                bytes(&name),
                InboxKind::Submit(ClientId::new(&name).unwrap())
            )
        );
    }
    let names = |runs: Vec<RunId>| {
        runs.into_iter()
            .map(|run| run.to_string())
            .collect::<std::collections::BTreeSet<_>>()
    };
    let all = odd().into_iter().collect();
    assert_eq!(
        names(
            store
                .open_runs()
                .await
                .unwrap()
                .into_iter()
                .map(|head| head.run)
                .collect()
        ),
        all
    );
    assert_eq!(
        names(
            store
                .runs(None, 1000)
                .await
                .unwrap()
                .into_iter()
                .map(|head| head.run)
                .collect()
        ),
        all
    );
    assert_eq!(
        names(
            store
                .due_timers(1)
                .await
                .unwrap()
                .into_iter()
                .map(|timer| timer.run)
                .collect()
        ),
        all
    );
}

/// A tool of an odd name gets its own calls and no others; no worker's name is the runtime's.
pub async fn k58_tools_with_odd_names_get_their_own_calls(rig: &dyn Rig) {
    let store = rig.open().await;
    let run = super::run("r");
    for (n, tool) in odd().iter().enumerate() {
        let chain = chain(&run, tool, &format!("{}-0", n + 1));
        let call = dispatch(&*store, &chain, tool).await;
        let writer = Writer::Worker(WorkerId::new(tool).unwrap());
        store
            .write_register(&chain, Register::Claim, &writer, call, bytes(tool))
            .await
            .unwrap();
    }
    for (n, tool) in odd().iter().enumerate() {
        let asked = [tool.clone()];
        let delivery = soon("a call", store.next_call(&asked)).await.unwrap();
        assert_eq!((&delivery.chain.tool, delivery.call), (tool, bytes(tool)));
        store.ack_call(&delivery.chain, delivery.seq).await.unwrap();
        let messages = store
            .read_chain(&chain(&run, tool, &format!("{}-0", n + 1)))
            .await
            .unwrap();
        assert_eq!(messages.len(), 2);
        assert_ne!(messages[1].writer, Writer::Runtime.token(), "{tool:?}");
        assert_eq!(messages[1].writer, worker(tool).token());
    }
    for tool in odd() {
        never("a call of another tool", store.next_call(&[tool])).await;
    }
}
