//! Registers, notes and hints.

use std::sync::Arc;

use leasehold_protocol::{ChainKey, JournalSubject, Link, MAX_NOTES, Seq, Writer};

use super::{
    Rig, append, bytes, chain, dispatch, never, one_winner, register, run, session, soon, together,
    worker,
};
use crate::{AppendError, Register};

/// A chain begins with its call, whose body is the envelope and not the commit.
pub async fn a_call_opens_its_chain(rig: &dyn Rig) {
    let store = rig.open().await;
    let chain = chain(&run("r"), "t", "1-0");
    assert_eq!(store.read_chain(&chain).await.unwrap(), []);
    let seq = dispatch(&*store, &chain, "envelope").await;
    let messages = store.read_chain(&chain).await.unwrap();
    assert_eq!(messages.len(), 1);
    assert_eq!(
        (messages[0].seq, messages[0].link, messages[0].expected),
        (seq, Link::Call, None)
    );
    assert_eq!(messages[0].body.as_bytes(), b"envelope");
    let journal = store.read_journal(&chain.run, Seq::NONE).await.unwrap();
    assert_eq!(
        (journal[0].seq, journal[0].body.as_bytes()),
        (seq, &b"dispatching"[..])
    );
}

/// A register is stored behind exactly the message its writer saw last.
pub async fn a_register_is_written_at_the_chains_last_position_only(rig: &dyn Rig) {
    let store = rig.open().await;
    let chain = chain(&run("r"), "t", "1-0");
    let call = dispatch(&*store, &chain, "e").await;
    let claim = register(&*store, &chain, Register::Claim, call, "claim").await;
    for wrong in [Seq::NONE, call, Seq(claim.0 + 1)] {
        match store
            .write_register(&chain, Register::Outcome, &worker("w"), wrong, bytes("x"))
            .await
        {
            Err(AppendError::Refused { expected, last }) => {
                assert_eq!(expected, wrong);
                assert!(last.is_none_or(|last| last == claim));
            }
            other => panic!("expected {wrong}: {other:?}"),
        }
    }
    let outcome = store
        .write_register(
            &chain,
            Register::Outcome,
            &Writer::Runtime,
            claim,
            bytes("seal"),
        )
        .await
        .unwrap();
    let messages = store.read_chain(&chain).await.unwrap();
    let read: Vec<_> = messages
        .iter()
        .map(|m| {
            (
                m.seq,
                m.expected,
                m.link,
                m.writer.as_str(),
                m.body.as_bytes(),
            )
        })
        .collect();
    let w = worker("w").token();
    assert_eq!(
        read[1..],
        [
            (claim, Some(call), Link::Claim, w.as_str(), &b"claim"[..]),
            (
                outcome,
                Some(claim),
                Link::Outcome,
                leasehold_protocol::RUNTIME_TOKEN,
                &b"seal"[..]
            )
        ]
    );
}

/// Of many workers and an owner that revokes, one writes the claim register.
pub async fn p1_of_many_claims_with_one_expectation_one_wins(rig: &dyn Rig) {
    let store = rig.open().await;
    let run = run("r");
    for round in 0..15 {
        let chain = chain(&run, "t", &format!("{}-0", round + 1));
        let call = dispatch(&*store, &chain, "e").await;
        let results = together((0..16).map(|racer| {
            let (store, chain) = (Arc::clone(&store), chain.clone());
            let writer = if racer == 0 {
                Writer::Runtime
            } else {
                worker(&format!("w{racer}"))
            };
            async move {
                store
                    .write_register(
                        &chain,
                        Register::Claim,
                        &writer,
                        call,
                        bytes(&racer.to_string()),
                    )
                    .await
            }
        }))
        .await;
        let winner = one_winner(results);
        let messages = store.read_chain(&chain).await.unwrap();
        assert_eq!(
            messages
                .iter()
                .map(|message| message.seq)
                .collect::<Vec<_>>(),
            [call, winner]
        );
    }
}

/// A busy worker cannot make an owner's commit fail, nor an owner a worker's register.
pub async fn registers_do_not_move_the_journal(rig: &dyn Rig) {
    let store = rig.open().await;
    let chain = chain(&run("r"), "t", "1-0");
    let call = dispatch(&*store, &chain, "e").await;
    let claim = register(&*store, &chain, Register::Claim, call, "c").await;
    store
        .write_note(&chain, &worker("w"), bytes("n"), false)
        .await
        .unwrap();
    let commit = append(&*store, &chain.run, JournalSubject::Note, call, "next").await;
    register(&*store, &chain, Register::Outcome, claim, "o").await;
    append(&*store, &chain.run, JournalSubject::Note, commit, "after").await;
    assert_eq!(
        store
            .read_journal(&chain.run, Seq::NONE)
            .await
            .unwrap()
            .len(),
        3
    );
    assert_eq!(store.read_chain(&chain).await.unwrap().len(), 3);
}

/// Run, tool, step, attempt and origin each make another chain.
pub async fn chains_that_differ_in_one_name_are_apart(rig: &dyn Rig) {
    let store = rig.open().await;
    let base = chain(&run("r"), "t", "1-0");
    let chains = [
        base.clone(),
        ChainKey {
            run: run("r2"),
            ..base.clone()
        },
        ChainKey {
            tool: "t2".to_owned(),
            ..base.clone()
        },
        ChainKey {
            step: "1-1".parse().unwrap(),
            ..base.clone()
        },
        ChainKey {
            step: "11-0".parse().unwrap(),
            ..base.clone()
        },
        ChainKey {
            attempt: "2".parse().unwrap(),
            ..base.clone()
        },
        ChainKey {
            attempt: "11".parse().unwrap(),
            ..base.clone()
        },
    ];
    for (n, chain) in chains.iter().enumerate() {
        let call = dispatch(&*store, chain, &format!("call {n}")).await;
        register(&*store, chain, Register::Claim, call, &format!("claim {n}")).await;
        store
            .write_note(chain, &worker("w"), bytes(&format!("note {n}")), false)
            .await
            .unwrap();
    }
    for (n, chain) in chains.iter().enumerate() {
        let messages = store.read_chain(chain).await.unwrap();
        let bodies: Vec<_> = messages
            .iter()
            .map(|message| String::from_utf8_lossy(message.body.as_bytes()).into_owned())
            .collect();
        assert_eq!(bodies, [format!("call {n}"), format!("claim {n}")]);
        let notes = store.read_notes(chain).await.unwrap();
        assert_eq!(notes.len(), 1);
        assert_eq!(notes[0].body.as_bytes(), format!("note {n}").as_bytes());
    }
}

/// Whoever hears of a register or a note can read it: hints come after the store.
pub async fn a_hint_follows_what_is_stored(rig: &dyn Rig) {
    let store = rig.open().await;
    let run = run("r");
    let mut hints = store.hints(&session("origin"));
    for round in 1..=10 {
        let chain = chain(&run, "t", &format!("{round}-0"));
        let call = dispatch(&*store, &chain, "e").await;
        let writing = {
            let (store, chain) = (Arc::clone(&store), chain.clone());
            async move {
                let claim = register(&*store, &chain, Register::Claim, call, "c").await;
                register(&*store, &chain, Register::Outcome, claim, "o").await;
                store
                    .write_note(&chain, &worker("w"), bytes("n"), false)
                    .await
                    .unwrap();
            }
        };
        let hearing = async {
            for place in 1..=2 {
                let hint = soon("a hint of a register", hints.recv()).await.unwrap();
                assert_eq!(hint.chain, chain);
                let messages = store.read_chain(&chain).await.unwrap();
                assert_eq!(
                    hint.message.as_ref(),
                    messages.get(place),
                    "a hint came before what it speaks of could be read"
                );
            }
            let hint = soon("a hint of a note", hints.recv()).await.unwrap();
            assert_eq!((&hint.chain, &hint.message), (&chain, &None));
            assert_eq!(store.read_notes(&chain).await.unwrap().len(), 1);
        };
        tokio::join!(writing, hearing);
    }
}

/// Every listener of the origin hears, also beside one that went away; no other origin does.
pub async fn hints_go_to_every_listener_of_the_origin_and_to_nobody_else(rig: &dyn Rig) {
    let store = rig.open().await;
    let (mut one, gone, mut two) = (
        store.hints(&session("origin")),
        store.hints(&session("origin")),
        store.hints(&session("origin")),
    );
    let mut other = store.hints(&session("other"));
    drop(gone);
    let chain = chain(&run("r"), "t", "1-0");
    let call = dispatch(&*store, &chain, "e").await;
    let claim = register(&*store, &chain, Register::Claim, call, "c").await;
    for listener in [&mut one, &mut two] {
        let hint = soon("a hint", listener.recv()).await.unwrap();
        assert_eq!(hint.message.map(|message| message.seq), Some(claim));
    }
    never("a hint for another origin", other.recv()).await;
}

/// What was not stored is not announced.
pub async fn a_refused_write_gives_no_hint(rig: &dyn Rig) {
    let store = rig.open().await;
    let mut hints = store.hints(&session("origin"));
    let chain = chain(&run("r"), "t", "1-0");
    let call = dispatch(&*store, &chain, "e").await;
    let refused = store
        .write_register(
            &chain,
            Register::Claim,
            &worker("w"),
            Seq(call.0 + 1),
            bytes("x"),
        )
        .await;
    assert!(matches!(refused, Err(AppendError::Refused { .. })));
    let claim = register(&*store, &chain, Register::Claim, call, "c").await;
    let hint = soon("a hint", hints.recv()).await.unwrap();
    assert_eq!(hint.message.map(|message| message.seq), Some(claim));
}

/// Notes beyond the bound are refused for good, and an outcome that met a seal always finds its place.
pub async fn notes_are_bounded_and_the_last_place_is_kept(rig: &dyn Rig) {
    let store = rig.open().await;
    let chain = chain(&run("r"), "t", "1-0");
    dispatch(&*store, &chain, "e").await;
    let results = together((0..MAX_NOTES * 2).map(|n| {
        let (store, chain) = (Arc::clone(&store), chain.clone());
        async move {
            store
                .write_note(&chain, &worker("w"), bytes(&n.to_string()), false)
                .await
        }
    }))
    .await;
    assert_eq!(
        results.iter().filter(|result| result.is_ok()).count(),
        MAX_NOTES - 1
    );
    assert!(
        results
            .iter()
            .all(|result| matches!(result, Ok(_) | Err(AppendError::Never(_)))),
        "{results:?}"
    );
    let last = store
        .write_note(&chain, &worker("w"), bytes("met a seal"), true)
        .await
        .unwrap();
    for last_place in [true, false] {
        let more = store
            .write_note(&chain, &worker("w"), bytes("more"), last_place)
            .await;
        assert!(matches!(more, Err(AppendError::Never(_))), "{more:?}");
    }
    let notes = store.read_notes(&chain).await.unwrap();
    assert_eq!(notes.len(), MAX_NOTES);
    assert!(notes.is_sorted_by_key(|note| note.seq));
    assert_eq!(
        (
            notes[MAX_NOTES - 1].seq,
            notes[MAX_NOTES - 1].body.as_bytes()
        ),
        (last, &b"met a seal"[..])
    );
}

/// A note is no link: the chain's last position stays.
pub async fn notes_stand_beside_the_chain(rig: &dyn Rig) {
    let store = rig.open().await;
    let chain = chain(&run("r"), "t", "1-0");
    let call = dispatch(&*store, &chain, "e").await;
    let note = store
        .write_note(&chain, &worker("a.b"), bytes("n"), false)
        .await
        .unwrap();
    assert_eq!(store.read_chain(&chain).await.unwrap().len(), 1);
    register(&*store, &chain, Register::Claim, call, "c").await;
    let notes = store.read_notes(&chain).await.unwrap();
    assert_eq!(
        (notes[0].seq, notes[0].writer.as_str()),
        (note, worker("a.b").token().as_str())
    );
}

/// A new process reads the same chains and notes, and continues them.
pub async fn chains_and_notes_are_the_same_after_reopening(rig: &dyn Rig) {
    let store = rig.open().await;
    let chain = chain(&run("r"), "t", "1-0");
    let call = dispatch(&*store, &chain, "e").await;
    let claim = register(&*store, &chain, Register::Claim, call, "c").await;
    store
        .write_note(&chain, &worker("w"), bytes("n"), false)
        .await
        .unwrap();
    let (messages, notes) = (
        store.read_chain(&chain).await.unwrap(),
        store.read_notes(&chain).await.unwrap(),
    );
    drop(store);
    let store = rig.open().await;
    assert_eq!(
        (
            store.read_chain(&chain).await.unwrap(),
            store.read_notes(&chain).await.unwrap()
        ),
        (messages, notes)
    );
    let late = store
        .write_register(&chain, Register::Claim, &worker("w"), call, bytes("x"))
        .await;
    assert!(matches!(late, Err(AppendError::Refused { .. })), "{late:?}");
    register(&*store, &chain, Register::Outcome, claim, "o").await;
}
