//! The effects of an attempt's machine on registers, logbook and queue.

use std::sync::Arc;

use bytes::Bytes;
use leasehold_protocol::{
    AttemptEffect, AttemptInput, Body, ChainKey, LogbookAnswer, LogbookRecord, Seq, WriteAnswer,
    Writer,
};
use leasehold_store::{AppendError, ArmAnswer, LogbookError, Register};
use tokio::sync::Notify;

use super::call::{CallMsg, CallState};
use super::tool;
use crate::points::Point;
use crate::shared::{Backoff, WorkerSide};

/// Starts an effect. `publishes_both`: the same answer writes the outcome to register and logbook.
pub(super) fn perform(call: &mut CallState, effect: AttemptEffect, publishes_both: bool) {
    let (shared, chain) = (call.shared.clone(), call.chain.clone());
    match effect {
        AttemptEffect::ReadChain => call.launch(read_chain(shared, chain)),
        AttemptEffect::WriteClaim { expected, body } => call.launch(write_claim(
            shared,
            chain,
            expected,
            body,
            call.claimed.clone(),
        )),
        AttemptEffect::CreateRecord { record } => {
            call.launch(create_record(shared, chain, record, call.claimed.clone()))
        }
        AttemptEffect::Execute(execution) => tool::execute(call, execution),
        AttemptEffect::CancelTool => call.cancel.cancel(),
        AttemptEffect::WriteOutcome { expected, body } => {
            let logged =
                (publishes_both && shared.points.wants(Point::W8)).then(|| call.logged.clone());
            call.launch(write_outcome(shared, chain, expected, body, logged));
        }
        AttemptEffect::LogOutcome { record } => {
            call.launch(log_outcome(shared, chain, record, call.logged.clone()))
        }
        AttemptEffect::WriteNote { body, last_place } => {
            call.launch(write_note(shared, chain, body, last_place))
        }
        AttemptEffect::ReadRecord => call.launch(read_record(shared, chain)),
        AttemptEffect::Published => {
            // A read_only call has no record.
            if !call.class.is_read_only() {
                call.shared.tasks.spawn(published(shared, chain));
            }
        }
        AttemptEffect::AckCall { seq } => {
            call.shared.tasks.spawn(acknowledge(shared, chain, seq));
        }
        AttemptEffect::Over => {}
    }
}

async fn read_chain(shared: Arc<WorkerSide>, chain: ChainKey) -> CallMsg {
    match shared
        .ask("read a chain", || shared.store.read_chain(&chain))
        .await
    {
        Ok(messages) => CallMsg::Input(AttemptInput::ChainRead { messages }),
        Err(error) => CallMsg::Abandon(error.to_string()),
    }
}

/// Writes a register as this worker. The authority is read at the last moment before the write; an outcome needs none: it is a fact.
async fn write(
    shared: &WorkerSide,
    chain: &ChainKey,
    register: Register,
    expected: Seq,
    body: &Body,
) -> Result<WriteAnswer, String> {
    let body = Bytes::copy_from_slice(body.as_bytes());
    let writer = Writer::Worker(shared.identity.worker.clone());
    let mut backoff = Backoff::default();
    loop {
        if register == Register::Claim && !shared.authority.check() {
            return Err("this process may not act any more".to_owned());
        }
        match shared
            .store
            .write_register(chain, register, &writer, expected, body.clone())
            .await
        {
            Ok(seq) => return Ok(WriteAnswer::Stored(seq)),
            Err(AppendError::Refused { .. }) => return Ok(WriteAnswer::Refused),
            Err(AppendError::Unknown(error)) => {
                tracing::warn!(%chain, error, "nobody knows whether a register was written; reading it");
                backoff.wait(shared).await;
                return Ok(WriteAnswer::Unknown);
            }
            Err(AppendError::Busy(_)) => backoff.wait(shared).await,
            Err(AppendError::Never(error)) => {
                return Err(format!("a register can never be written: {error}"));
            }
        }
    }
}

async fn write_claim(
    shared: Arc<WorkerSide>,
    chain: ChainKey,
    expected: Seq,
    body: Body,
    claimed: Arc<Notify>,
) -> CallMsg {
    let answer = match write(&shared, &chain, Register::Claim, expected, &body).await {
        Ok(answer) => answer,
        Err(why) => return CallMsg::Abandon(why),
    };
    if let WriteAnswer::Stored(_) = answer {
        claimed.notify_one();
        shared.reach(Point::W2, &chain.run, Some(&chain)).await;
    }
    CallMsg::Input(AttemptInput::ClaimTried(answer))
}

async fn write_outcome(
    shared: Arc<WorkerSide>,
    chain: ChainKey,
    expected: Seq,
    body: Body,
    logged: Option<Arc<Notify>>,
) -> CallMsg {
    if let Some(logged) = logged {
        logged.notified().await;
        shared.reach(Point::W8, &chain.run, Some(&chain)).await;
    }
    let answer = match write(&shared, &chain, Register::Outcome, expected, &body).await {
        Ok(answer) => answer,
        Err(why) => return CallMsg::Abandon(why),
    };
    if let WriteAnswer::Stored(_) = answer {
        shared.reach(Point::W9, &chain.run, Some(&chain)).await;
    }
    CallMsg::Input(AttemptInput::OutcomeTried(answer))
}

async fn create_record(
    shared: Arc<WorkerSide>,
    chain: ChainKey,
    record: LogbookRecord,
    claimed: Arc<Notify>,
) -> CallMsg {
    if matches!(record, LogbookRecord::Armed(_)) && shared.points.wants(Point::W3) {
        claimed.notified().await;
        shared.reach(Point::W3, &chain.run, Some(&chain)).await;
    }
    let answer = match shared.logbook.create(&chain, record).await {
        Ok(ArmAnswer::Written) => LogbookAnswer::Written,
        Ok(ArmAnswer::Present(record)) => LogbookAnswer::Present(record),
        Err(error) => LogbookAnswer::Failed(doubt(&shared, error)),
    };
    CallMsg::Input(AttemptInput::LogbookTried(answer))
}

async fn log_outcome(
    shared: Arc<WorkerSide>,
    chain: ChainKey,
    record: LogbookRecord,
    logged: Arc<Notify>,
) -> CallMsg {
    let result = shared
        .logbook
        .outcome(&chain, record)
        .await
        .map_err(|error| doubt(&shared, error));
    logged.notify_one();
    CallMsg::Input(AttemptInput::OutcomeLogged(result))
}

async fn read_record(shared: Arc<WorkerSide>, chain: ChainKey) -> CallMsg {
    let result = shared
        .logbook
        .get(&chain)
        .await
        .map_err(|error| doubt(&shared, error));
    CallMsg::Input(AttemptInput::LogbookRead(result))
}

/// A logbook that failed to write durably is in doubt: no effect may follow in this life of the process.
fn doubt(shared: &WorkerSide, error: LogbookError) -> String {
    let text = error.to_string();
    if let LogbookError::NotDurable(_) = error {
        shared.authority.lose(&text);
    }
    text
}

/// Each kind of evidence stands once: a note that is there already, from this or an earlier life, is not written again.
async fn write_note(
    shared: Arc<WorkerSide>,
    chain: ChainKey,
    body: Body,
    last_place: bool,
) -> CallMsg {
    let writer = Writer::Worker(shared.identity.worker.clone());
    let token = writer.token();
    let standing = shared
        .ask("read notes", || shared.store.read_notes(&chain))
        .await
        .unwrap_or_default();
    if !standing
        .iter()
        .any(|note| note.writer == token && note.body == body)
    {
        let body = Bytes::copy_from_slice(body.as_bytes());
        let mut backoff = Backoff::default();
        loop {
            match shared
                .store
                .write_note(&chain, &writer, body.clone(), last_place)
                .await
            {
                Err(AppendError::Busy(_)) => backoff.wait(&shared).await,
                Ok(_) => break,
                Err(error) => {
                    // The ladder's own wait takes the note's place.
                    tracing::warn!(%chain, %error, "an evidence note was not written");
                    break;
                }
            }
        }
    }
    CallMsg::Input(AttemptInput::NoteTried)
}

async fn published(shared: Arc<WorkerSide>, chain: ChainKey) {
    if let Err(error) = shared.logbook.published(&chain).await {
        tracing::debug!(%chain, %error, "the attempt stays open in the logbook; the next life settles it again");
    }
}

async fn acknowledge(shared: Arc<WorkerSide>, chain: ChainKey, seq: Seq) {
    shared.reach(Point::W10, &chain.run, Some(&chain)).await;
    if let Err(error) = shared.store.ack_call(&chain, seq).await {
        tracing::debug!(%chain, %error, "a call was not acknowledged; it comes again and is found over");
    }
}
