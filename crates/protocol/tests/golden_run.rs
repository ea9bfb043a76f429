//! The golden run: fixed bytes of one small run, made without the code that is tested here. They must fold to the state that the document
//! states, and an owner that takes the run over must write the bytes that follow.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that meets the unexpected fails"
)]

use std::collections::VecDeque;
use std::sync::Arc;

use leasehold_json::{AcceptedJson, Digest, Kept};
use leasehold_protocol::{
    ApprovalState, Chain, ChainKey, ChainMessage, Commit, CommitRequest, DecideRequest, Decision,
    Effect, Event, FoldError, Input, JournalSubject, Link, Now, Outcome, OutcomeBody, Phase,
    RunConfig, RunId, RunMachine, RunState, RunWeakening, Seq, Status, StoredCommit, Verdict,
    WIRE_VERSION,
};
use leasehold_tools::{Registry, SideEffect, ToolSpec};

const JOURNAL: &str = include_str!("golden/journal.jsonl");
const CALL: &str = include_str!("golden/call.json");
const CLAIM: &str = include_str!("golden/claim.json");
const OUTCOME: &str = include_str!("golden/outcome.json");

fn run() -> RunId {
    RunId::new("refund-7").unwrap()
}

fn key() -> ChainKey {
    ChainKey {
        run: run(),
        tool: "refund_order".into(),
        step: "1-0".parse().unwrap(),
        attempt: "1".parse().unwrap(),
        origin: "s-2".parse().unwrap(),
    }
}

fn journal() -> Vec<StoredCommit> {
    let subjects = [
        JournalSubject::Open,
        JournalSubject::Note,
        JournalSubject::Own,
        JournalSubject::Note,
        JournalSubject::Call(key()),
        JournalSubject::End,
    ];
    assert_eq!(JOURNAL.lines().count(), subjects.len());
    let stored = JOURNAL.lines().zip(subjects).zip(1..);
    stored
        .map(|((line, subject), seq)| StoredCommit {
            seq: Seq(seq),
            subject,
            body: line.as_bytes().into(),
        })
        .collect()
}

fn chain(claim: &str, outcome: &str) -> Vec<ChainMessage> {
    let message = |seq, expected, link, writer: &str, body: &str| ChainMessage {
        seq: Seq(seq),
        expected,
        link,
        writer: writer.into(),
        body: body.trim_end().as_bytes().into(),
    };
    let worker = leasehold_tools::subject_token("payments.1");
    vec![
        message(5, None, Link::Call, "_rt", CALL),
        message(6, Some(Seq(5)), Link::Claim, &worker, claim),
        message(7, Some(Seq(6)), Link::Outcome, &worker, outcome),
    ]
}

#[test]
fn wire_the_golden_run_folds_to_what_the_document_says() {
    let state = RunState::fold(run(), &journal()).unwrap();
    assert_eq!(state.status(), Status::Completed);
    assert_eq!((state.n, state.epoch.get(), state.turns.len()), (6, 2, 2));
    assert_eq!(
        state.tail,
        Digest::of(JOURNAL.lines().last().unwrap().as_bytes())
    );
    assert!(state.void.is_empty());
    assert_eq!(
        state.ended.as_deref(),
        Some(&[][..]),
        "nothing was in flight when it ended"
    );
    let approvals: Vec<_> = state.approvals.values().collect();
    assert!(
        matches!(&approvals[..], [one] if matches!(one.state, ApprovalState::Decided { decision: Decision::Approve, spent: true, .. }))
    );
    let step = state.step("1-0".parse().unwrap()).unwrap();
    assert_eq!(step.phase, Phase::Finished);
    // The arguments arrive as the agent wrote them.
    let accepted = step.accepted.as_ref().unwrap();
    assert_eq!(
        accepted.arguments.as_str(),
        r#"{"order_id":9007199254740993,"amount":120.50,"currency":"EUR"}"#
    );
}

#[test]
fn wire_every_prefix_of_the_golden_run_folds_and_every_hole_shows() {
    let journal = journal();
    for length in 1..=journal.len() {
        let state = RunState::fold(run(), &journal[..length]).unwrap();
        assert_eq!((state.n, state.void.len()), (length as u64, 0));
    }
    assert_eq!(
        RunState::fold(run(), &journal[..2]).unwrap().status(),
        Status::Waiting
    );
    for hole in 1..journal.len() - 1 {
        let mut holed = journal.clone();
        holed.remove(hole);
        let state = RunState::fold(run(), &holed).unwrap();
        assert_eq!(state.n, hole as u64, "nothing after a hole counts");
        assert_eq!(state.void.len(), journal.len() - 1 - hole);
    }
}

#[test]
fn wire_one_changed_byte_breaks_the_link() {
    let mut journal = journal();
    let changed = JOURNAL.lines().nth(1).unwrap().replace("120.50", "120.51");
    journal[1].body = changed.as_bytes().into();
    let state = RunState::fold(run(), &journal).unwrap();
    assert_eq!(
        (state.n, state.void.len()),
        (2, 4),
        "the changed commit stands, what was linked to the true one does not"
    );
}

#[test]
fn wire_a_newer_commit_stops_the_fold() {
    let mut journal = journal();
    let newer = JOURNAL.lines().nth(3).unwrap().replacen(
        "\"v\":1",
        &format!("\"v\":{}", WIRE_VERSION + 1),
        1,
    );
    journal[3].body = newer.as_bytes().into();
    assert!(matches!(
        RunState::fold(run(), &journal),
        Err(FoldError::Newer { seq: Seq(4), .. })
    ));
}

#[test]
fn wire_the_golden_chain_is_settled_by_its_worker() {
    let chain_of = |claim: &str, outcome: &str| {
        Chain::read(SideEffect::RemoteMutation, &chain(claim, outcome))
    };
    let golden = chain_of(CLAIM, OUTCOME);
    assert_eq!((golden.void, golden.newer, golden.last), (0, false, Seq(7)));
    assert!(matches!(
        golden.outcome,
        Some((
            Seq(7),
            Outcome {
                fact: OutcomeBody::Done { .. },
                ..
            }
        ))
    ));
    // Another claim's outcome is void, and so is a claim in another worker's name.
    assert!(
        chain_of(CLAIM, &OUTCOME.replace("5f0c", "6f0c"))
            .outcome
            .is_none()
    );
    assert!(
        chain_of(&CLAIM.replace("payments.1", "payments.2"), OUTCOME)
            .claim
            .is_none()
    );
    // What a newer worker claimed is left to newer binaries.
    assert!(chain_of(&CLAIM.replace("\"v\":1", "\"v\":2"), OUTCOME).newer);
}

#[test]
fn wire_the_golden_records_name_each_other() {
    let commits: Vec<Commit> = JOURNAL
        .lines()
        .map(|line| Commit::decode(line.as_bytes()).unwrap())
        .collect();
    let mut tail = Digest::ZERO;
    for (line, commit) in JOURNAL.lines().zip(&commits) {
        assert_eq!(commit.prev, tail);
        assert_eq!(String::from_utf8(commit.encode()).unwrap(), line);
        tail = Digest::of(line.as_bytes());
    }
    let decide =
        DecideRequest::decode(include_str!("golden/decide.json").trim_end().as_bytes()).unwrap();
    let state = RunState::fold(run(), &journal()).unwrap();
    assert_eq!(decide.hash, state.approvals[&decide.approval].hash);
    assert_eq!(
        decide.hash,
        Digest::of(
            include_str!("golden/approval.canonical")
                .trim_end()
                .as_bytes()
        )
    );
    let dispatched = Digest::of(CALL.trim_end().as_bytes()).to_string();
    assert!(
        JOURNAL
            .lines()
            .nth(4)
            .unwrap()
            .contains(&format!("\"call\":\"{dispatched}\""))
    );
}

/// An owner in the golden cluster, with the golden tool registered.
fn owner(node: &str, session: &str) -> RunMachine {
    let tool = AcceptedJson::check_str(include_str!("golden/tool.json")).unwrap();
    let spec: ToolSpec = tool.parse().unwrap();
    let config = RunConfig {
        cluster: "c-1".parse().unwrap(),
        node: node.parse().unwrap(),
        session: session.parse().unwrap(),
        tools: Arc::new(Registry::specs_only(vec![spec]).unwrap()),
        clock_bound_ms: 0,
        session_ttl_ms: 30_000,
        hook: false,
        weakening: RunWeakening::None,
    };
    RunMachine::new(config, run())
}

/// What is said of the run by the golden commits: the agent's decisions, and the policy with its verdict.
fn said() -> (Vec<Kept>, String, Verdict) {
    let commits = JOURNAL
        .lines()
        .map(|line| Commit::decode(line.as_bytes()).unwrap());
    let (mut decisions, mut judged) = (Vec::new(), None);
    for event in commits.flat_map(|commit| commit.events) {
        match event {
            Event::Decided { decision, .. } => decisions.push(decision),
            Event::Policy {
                policy, verdict, ..
            } => judged = Some((policy, verdict)),
            _ => {}
        }
    }
    let (policy, verdict) = judged.unwrap();
    (decisions, policy, verdict)
}

/// Feeds an owner the inputs and, until it wants nothing more, the answers of the golden run. Returns what it stored.
fn drive(
    machine: &mut RunMachine,
    mut last: u64,
    inputs: impl IntoIterator<Item = Input>,
) -> Vec<CommitRequest> {
    let (decisions, policy, verdict) = said();
    let now = Now {
        wall: 1_764_500_000_000,
        boot: 0,
    };
    let (mut queue, mut stored) = (VecDeque::from_iter(inputs), Vec::new());
    while let Some(input) = queue.pop_front() {
        for effect in machine.step(now, input) {
            match effect {
                Effect::Commit(request) => {
                    stored.push(request);
                    last += 1;
                    queue.push_back(Input::CommitStored { seq: Seq(last) });
                }
                Effect::AskAgent(view) => {
                    let decision = decisions[view.turn as usize - 1].clone();
                    queue.push_back(Input::AgentDecided {
                        turn: view.turn,
                        decision,
                    });
                }
                Effect::AskPolicy(asked) => {
                    queue.push_back(Input::Judged {
                        step: asked.step,
                        policy: policy.clone(),
                        verdict: Ok(verdict.clone()),
                    });
                }
                _ => {}
            }
        }
    }
    stored
}

fn events<'a>(bodies: impl IntoIterator<Item = &'a [u8]>) -> Vec<Event> {
    bodies
        .into_iter()
        .flat_map(|body| Commit::decode(body).unwrap().events)
        .collect()
}

/// The golden bytes were made by other means. That the owners of such a run write the same events and the same call shows that both derive
/// every hash as the document says. How events share commits is the owner's choice, except that the first commit is the golden one.
#[test]
fn wire_the_owners_of_the_golden_run_write_its_events_and_its_call() {
    let mut first = owner("node-a", "s-1");
    let submission = Some((
        Seq(1),
        include_str!("golden/submission.json")
            .trim_end()
            .as_bytes()
            .into(),
    ));
    let before = drive(
        &mut first,
        0,
        [Input::Load {
            commits: Vec::new(),
            submission,
        }],
    );
    assert_eq!(before[0].body, journal()[0].body);

    let mut second = owner("node-b", "s-2");
    let commits: Vec<StoredCommit> = before
        .iter()
        .zip(1..)
        .map(|(made, seq)| StoredCommit {
            seq: Seq(seq),
            subject: made.subject.clone(),
            body: made.body.clone(),
        })
        .collect();
    let last = commits.len() as u64;
    let body = include_str!("golden/decide.json")
        .trim_end()
        .as_bytes()
        .into();
    let mut after = drive(
        &mut second,
        last,
        [
            Input::Load {
                commits,
                submission: None,
            },
            Input::Decide {
                inbox: Seq(9),
                body,
            },
        ],
    );
    let dispatch = after.last().unwrap();
    assert_eq!(dispatch.subject, JournalSubject::Call(key()));
    assert_eq!(
        format!("{:?}", dispatch.call.as_ref().unwrap()),
        CALL.trim_end()
    );

    let (step, attempt, last) = (key().step, key().attempt, last + after.len() as u64);
    after.extend(drive(
        &mut second,
        last,
        [Input::ChainRead {
            step,
            attempt,
            messages: chain(CLAIM, OUTCOME),
            notes: Vec::new(),
        }],
    ));
    let written = events(before.iter().chain(&after).map(|made| made.body.as_bytes()));
    let golden = events(JOURNAL.lines().map(str::as_bytes));
    assert_eq!(written, golden);
    assert_eq!(after.last().unwrap().subject, JournalSubject::End);
}
