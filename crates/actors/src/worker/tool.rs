//! Running a tool: with a deadline, a cancellation, a grace after it, and a meaning for every way in which it can end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use leasehold_json::Kept;
use leasehold_protocol::{AttemptInput, ChainKey, Execution, MAX_INLINE, ToolReturn};
use leasehold_store::StoreError;
use leasehold_tools::{Call, Failure, InvalidContent, Tool, ToolError, ToolOutput, accept_result};
use tokio_util::sync::CancellationToken;

use super::call::{CallMsg, CallState};
use crate::points::Point;
use crate::shared::{WorkerSide, said};
use crate::tasks::caught;

/// How long a tool may go on after its cancellation before it is dropped: enough to close a connection or to say what happened.
const GRACE: Duration = Duration::from_secs(2);

/// Begins the execution: the machine has seen authority, claim and `armed` at this very moment.
pub(super) fn execute(call: &CallState, execution: Execution) {
    let shared = call.shared.clone();
    let chain = call.chain.clone();
    let deadline = call.deadline_boot();
    let Some(implementation) = shared.tools.implementation(&chain.tool) else {
        let message = format!("this worker has nothing that runs tool {:?}", chain.tool);
        return call.launch(async move {
            CallMsg::Input(AttemptInput::Returned(ToolReturn::NothingHappened {
                failure: Failure::NoExecutor,
                message,
            }))
        });
    };
    let request = request(&execution, &chain, call.cancel.clone());
    let clock = shared.clock.clone();
    call.launch(run(shared, chain, implementation, request, deadline));
    // A second task, so that the deadline is told even while the tool goes on.
    call.launch(async move {
        clock.sleep_until(deadline).await;
        CallMsg::Input(AttemptInput::Deadline)
    });
}

fn request(execution: &Execution, chain: &ChainKey, cancel: CancellationToken) -> Call {
    let envelope = &execution.envelope;
    Call {
        run: chain.run.to_string(),
        step: chain.step.to_string(),
        attempt: chain.attempt.get(),
        epoch: envelope.epoch.get(),
        idempotency_key: envelope.idempotency_key,
        time_left: Duration::from_millis(execution.time_left_ms),
        deadline_unix_ms: execution.deadline_wall,
        arguments: envelope.arguments.clone(),
        cancel,
    }
}

async fn run(
    shared: Arc<WorkerSide>,
    chain: ChainKey,
    tool: Arc<dyn Tool>,
    request: Call,
    deadline: u64,
) -> CallMsg {
    shared.reach(Point::W5, &chain.run, Some(&chain)).await;
    // Once more, for the time between the machine's look and this task's first turn.
    if !shared.authority.check() {
        return CallMsg::Abandon("authority was lost before the effect began".to_owned());
    }
    let working = async {
        let call = caught(async { tool.call(request).await });
        let (returned, ()) = tokio::join!(call, shared.reach(Point::W6, &chain.run, Some(&chain)));
        returned
    };
    let given_up = shared
        .clock
        .sleep_until(deadline.saturating_add(GRACE.as_millis() as u64));
    let returned = tokio::select! {
        biased;
        returned = working => returned,
        () = given_up => Ok(Err(late())),
    };
    shared.reach(Point::W7, &chain.run, Some(&chain)).await;
    match meaning(&shared, &chain, returned).await {
        Ok(returned) => CallMsg::Input(AttemptInput::Returned(returned)),
        Err(error) => CallMsg::Abandon(format!("the result could not be stored: {error}")),
    }
}

fn late() -> ToolError {
    ToolError::MayHaveHappened {
        message: "the tool did not return after its cancellation and was dropped".to_owned(),
    }
}

async fn meaning(
    shared: &WorkerSide,
    chain: &ChainKey,
    returned: Result<Result<ToolOutput, ToolError>, String>,
) -> Result<ToolReturn, StoreError> {
    let may_have_happened = |failure, message| {
        let message = said(message);
        Ok(ToolReturn::MayHaveHappened { failure, message })
    };
    match returned {
        Err(panic) => may_have_happened(Failure::Panic, format!("the tool panicked: {panic}")),
        Ok(Err(ToolError::NothingHappened { message, failure })) => {
            let message = said(message);
            Ok(ToolReturn::NothingHappened { failure, message })
        }
        Ok(Err(ToolError::MayHaveHappened { message } | ToolError::Unclassified(message))) => {
            may_have_happened(Failure::Error, message)
        }
        Ok(Err(ToolError::Abort { detail })) => {
            let may_abort = shared
                .tools
                .get(&chain.tool)
                .is_some_and(|tool| tool.spec().may_abort);
            if may_abort {
                let detail = said(detail);
                Ok(ToolReturn::Abort { detail })
            } else {
                may_have_happened(
                    Failure::Error,
                    format!(
                        "the tool wants to end the run and does not declare that it may: {detail}"
                    ),
                )
            }
        }
        Ok(Ok(output)) => match accept_result(&output.content) {
            Ok(json) => Ok(ToolReturn::Done(shared.payload(json).await?)),
            Err(invalid) => unusable(shared, invalid).await,
        },
    }
}

/// Bytes that are no usable JSON: kept whole, in the outcome if they fit, else in the blob store with their beginning in the outcome.
async fn unusable(shared: &WorkerSide, invalid: InvalidContent) -> Result<ToolReturn, StoreError> {
    let bytes = invalid.kept.as_bytes();
    let error = invalid.reason.to_string();
    if bytes.len() <= MAX_INLINE {
        return Ok(ToolReturn::Unusable {
            error,
            kept: invalid.kept,
        });
    }
    let whole = Bytes::copy_from_slice(bytes);
    let blob = shared
        .ask("store an unusable result", || {
            shared.store.put_blob(whole.clone())
        })
        .await?;
    let error = format!(
        "{error}; these are the first {MAX_INLINE} of {} bytes, all of them are in blob {blob}",
        bytes.len()
    );
    let beginning = bytes.get(..MAX_INLINE).unwrap_or(bytes);
    Ok(ToolReturn::Unusable {
        error,
        kept: Kept::from_bytes(beginning),
    })
}
