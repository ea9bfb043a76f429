//! The effects of a run's machine on the store.

use std::sync::Arc;

use bytes::Bytes;
use leasehold_protocol::{
    Body, ChainKey, CommitRequest, Effect, Input, JournalSubject, Link, RegisterRequest, RunId,
    Seq, Writer,
};
use leasehold_store::{AppendError, JournalAppend, Register, StoreError};

use super::actor::Run;
use super::{RunMsg, ask};
use crate::points::Point;
use crate::shared::{Backoff, Shared};

/// The commit in flight, kept so that it can be shown once it is stored.
pub(super) struct Pending {
    pub(super) subject: JournalSubject,
    pub(super) body: Body,
}

/// Starts an effect. Returns the answer if it needs no waiting.
pub(super) fn perform(run: &mut Run, effect: Effect) -> Option<Input> {
    let shared = run.args.shared.clone();
    let id = run.args.run.clone();
    match effect {
        Effect::Commit(request) => {
            run.pending = Some(Pending {
                subject: request.subject.clone(),
                body: request.body.clone(),
            });
            let heard = std::mem::take(&mut run.heard);
            let backoff = Backoff::after(run.busy);
            run.launch(commit(shared, id, request, heard, backoff));
        }
        Effect::ReadJournal { after } => run.launch(read_journal(shared, id, after)),
        Effect::ReadChain { chain } => {
            // What is stored after the reading is heard.
            run.args.hints.listen(&chain.origin);
            run.reading = run.reading.saturating_add(1);
            run.launch(read_chain(shared, chain));
        }
        Effect::WriteRegister(request) => run.launch(write_register(shared, request)),
        Effect::Inspect { chain, worker } => run.launch(ask::inspect(
            shared,
            run.args.inspector.clone(),
            chain,
            worker,
        )),
        Effect::Probe(request) => run.launch(ask::probe(shared, request)),
        Effect::AskAgent(view) => run.launch(ask::agent(shared, view)),
        Effect::AskPolicy(request) => return Some(ask::policy(&shared, request)),
        Effect::AskHook => run.launch(ask::hook(shared, id)),
        Effect::AckInbox { inbox } => acknowledge(run, inbox),
        Effect::SetTimer { at } => {
            run.may_have_timer = true;
            run.launch(set_timer(shared, id, at));
        }
        Effect::WakeAt { boot } => wake_at(run, boot),
        Effect::Stop(_) => {}
    }
    None
}

/// Stores a commit. The authority is read at the last moment before the write.
async fn commit(
    shared: Arc<Shared>,
    run: RunId,
    request: CommitRequest,
    heard: bool,
    mut backoff: Backoff,
) -> RunMsg {
    let chain = match &request.subject {
        JournalSubject::Call(chain) => Some(chain.clone()),
        _ => None,
    };
    let takes = matches!(request.subject, JournalSubject::Open | JournalSubject::Own);
    let write = JournalAppend {
        run: run.clone(),
        subject: request.subject,
        expected: request.expected,
        body: Bytes::copy_from_slice(request.body.as_bytes()),
        call: request
            .call
            .map(|call| Bytes::copy_from_slice(call.as_bytes())),
    };
    if !shared.authority.check() {
        return RunMsg::input(Input::AuthorityLost);
    }
    let answer = match shared.store.append(write).await {
        Ok(appended) => Input::CommitStored { seq: appended.seq },
        Err(error @ (AppendError::Refused { .. } | AppendError::Unknown(_))) => {
            tracing::debug!(%run, %error, "a commit was not acknowledged; reading the journal");
            Input::CommitDoubtful
        }
        Err(AppendError::Busy(error)) => {
            tracing::debug!(%run, error, "the journal is busy");
            backoff.wait(&shared).await;
            Input::CommitBusy
        }
        // The same commit would be asked for again, for ever.
        Err(AppendError::Never(error)) => {
            return RunMsg::Broken(format!("a commit can never be stored: {error}"));
        }
    };
    if matches!(answer, Input::CommitStored { .. }) {
        if takes {
            shared.reach(Point::R17, &run, None).await;
        }
        if chain.is_some() {
            shared.reach(Point::R5, &run, chain.as_ref()).await;
        }
        if heard {
            shared.reach(Point::R7, &run, chain.as_ref()).await;
        }
    }
    RunMsg::input(answer)
}

async fn read_journal(shared: Arc<Shared>, run: RunId, after: Seq) -> RunMsg {
    let read = shared
        .ask("read a journal", || shared.store.read_journal(&run, after))
        .await;
    read.map_or_else(broken, |commits| {
        RunMsg::input(Input::JournalRead { commits })
    })
}

async fn read_chain(shared: Arc<Shared>, chain: ChainKey) -> RunMsg {
    let messages = match shared
        .ask("read a chain", || shared.store.read_chain(&chain))
        .await
    {
        Ok(messages) => messages,
        Err(error) => return broken(error),
    };
    let notes = shared
        .ask("read notes", || shared.store.read_notes(&chain))
        .await;
    notes.map_or_else(broken, |notes| {
        RunMsg::input(Input::ChainRead {
            step: chain.step,
            attempt: chain.attempt,
            messages,
            notes,
        })
    })
}

/// Writes a revocation or a seal. How it ended does not matter: what stands there is read in any case.
async fn write_register(shared: Arc<Shared>, request: RegisterRequest) -> RunMsg {
    let RegisterRequest {
        chain,
        link,
        expected,
        body,
    } = request;
    let register = match link {
        Link::Claim => Register::Claim,
        Link::Outcome => Register::Outcome,
        Link::Call => return RunMsg::Broken("a call is no register".to_owned()),
    };
    if register == Register::Outcome {
        shared.reach(Point::C2, &chain.run, Some(&chain)).await;
    }
    let body = Bytes::copy_from_slice(body.as_bytes());
    let mut backoff = Backoff::default();
    loop {
        if !shared.authority.check() {
            return RunMsg::input(Input::AuthorityLost);
        }
        match shared
            .store
            .write_register(&chain, register, &Writer::Runtime, expected, body.clone())
            .await
        {
            Ok(_) => {
                shared.reach(Point::R15, &chain.run, Some(&chain)).await;
                if register == Register::Outcome {
                    shared.reach(Point::C3, &chain.run, Some(&chain)).await;
                }
                break;
            }
            Err(AppendError::Busy(_)) => backoff.wait(&shared).await,
            Err(AppendError::Never(error)) => {
                return RunMsg::Broken(format!(
                    "a register of {chain} can never be written: {error}"
                ));
            }
            Err(AppendError::Refused { .. } | AppendError::Unknown(_)) => break,
        }
    }
    RunMsg::input(Input::RegisterTried {
        step: chain.step,
        attempt: chain.attempt,
    })
}

async fn set_timer(shared: Arc<Shared>, run: RunId, at: i64) -> RunMsg {
    let set = shared
        .ask("set a timer", || shared.store.set_timer(&run, at))
        .await;
    if set.is_ok() {
        shared.reach(Point::R12, &run, None).await;
    }
    set.map_or_else(broken, |()| RunMsg::input(Input::TimerSet))
}

/// The inbox message needs no more deliveries. A lost acknowledgement is harmless: the message comes again and is found folded.
pub(super) fn acknowledge(run: &Run, inbox: Seq) {
    let (shared, id) = (run.args.shared.clone(), run.args.run.clone());
    // Its place in the intake is free at once.
    drop(run.args.bag.take(inbox));
    run.args.shared.tasks.spawn(async move {
        shared.reach(Point::R10, &id, None).await;
        if let Err(error) = shared.store.ack_message(&id, inbox).await {
            tracing::debug!(%inbox, %error, "an inbox message was not acknowledged; it will come again");
        }
    });
}

/// One alarm a run. A later wish than the one that is set needs nothing: the machine wishes again when it is woken.
fn wake_at(run: &mut Run, boot: u64) {
    let now = run.args.shared.clock.now().boot;
    if let Some((set, alarm)) = &run.alarm {
        if *set > now && *set <= boot {
            return;
        }
        alarm.abort();
    }
    let (clock, me) = (run.args.shared.clock.clone(), run.me.clone());
    let alarm = run.args.tasks.spawn(async move {
        clock.sleep_until(boot).await;
        let _ = me.cast(RunMsg::input(Input::Tick));
    });
    run.alarm = Some((boot, alarm));
}

fn broken(error: StoreError) -> RunMsg {
    RunMsg::Broken(error.to_string())
}
