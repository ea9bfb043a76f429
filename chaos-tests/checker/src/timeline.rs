//! One run as a person reads it: what happened in which order, who did it, and what was found out afterwards.

use std::path::Path;

use serde::Serialize;
use serde_json::Value;

use crate::attempt::RUNTIME;
use crate::dump::{Dump, Message, Place, decode, number, text};

/// Longest piece of foreign text on a line, in characters.
const MAX_SHOWN: usize = 120;

/// The run's records as lines, in the order in which they were stored. Commits carry seconds since the first one;
/// registers have no time of their own and stand between the commits where they were stored.
///
/// # Errors
/// The dump cannot be read. A run that is not in it has no lines.
pub fn timeline(dump: &Path, run: &str) -> anyhow::Result<Vec<String>> {
    Ok(of(&Dump::read(dump)?, run))
}

pub(crate) fn of(dump: &Dump, run: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut began = None;
    let mut owner = String::new();
    for message in in_order(dump, run) {
        let body = message.json();
        let Place::Journal(_) = message.place else {
            lines.push(format!(
                "{:>10}  #{:<6} {}",
                "",
                message.seq,
                register(message, &body)
            ));
            continue;
        };
        let at = body.get("at").and_then(Value::as_i64).unwrap_or(0);
        // Wall clocks of two owners may disagree: a negative time is shown as it is.
        let millis = at.saturating_sub(*began.get_or_insert(at));
        let time = format!(
            "{}{}.{:03}s",
            if millis < 0 { "-" } else { "+" },
            millis.unsigned_abs() / 1000,
            millis.unsigned_abs() % 1000
        );
        for event in body
            .get("events")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            lines.push(format!(
                "{time:>10}  #{:<6} {}",
                message.seq,
                self::event(event, &mut owner, number(&body, "epoch"))
            ));
        }
    }
    lines
}

/// Something that a commit says, with its time: what a chart of many runs is drawn from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Moment {
    /// By the clock of the commit's writer, unix milliseconds.
    pub at: i64,
    /// The run.
    pub run: String,
    /// The event's kind, as stored: `run.owned`, `attempt.finding` ..
    pub kind: String,
    /// The step; empty of an event about the run.
    pub step: String,
    /// Of `run.owned` the node, of a finding the finding, of an end the status; empty otherwise.
    pub what: String,
    /// The epoch of the commit.
    pub epoch: u64,
}

/// Every event of every commit, in order of time.
///
/// # Errors
/// The dump cannot be read.
pub fn moments(dump: &Path) -> anyhow::Result<Vec<Moment>> {
    let dump = Dump::read(dump)?;
    let commits = dump
        .messages
        .iter()
        .filter(|message| matches!(message.place, Place::Journal(_)));
    let mut moments = Vec::new();
    for message in commits {
        let body = message.json();
        let events = body.get("events").and_then(Value::as_array);
        for event in events.into_iter().flatten() {
            let what = match text(event, "kind") {
                "run.owned" => text(event, "node"),
                "attempt.finding" => text(event, "finding"),
                "run.ended" => text(event, "status"),
                _ => "",
            };
            moments.push(Moment {
                at: body.get("at").and_then(Value::as_i64).unwrap_or(0),
                run: message.run.clone(),
                kind: text(event, "kind").to_owned(),
                step: text(event, "step").to_owned(),
                what: what.to_owned(),
                epoch: number(&body, "epoch"),
            });
        }
    }
    moments.sort_by_key(|moment| moment.at);
    Ok(moments)
}

/// The run's messages. An inbox message whose position says nothing stands before the commit that names it.
fn in_order<'a>(dump: &'a Dump, run: &str) -> Vec<&'a Message> {
    let messages = dump.messages.iter().filter(|message| message.run == run);
    if !dump.inbox_apart {
        return messages.collect();
    }
    let (mut inbox, others): (Vec<_>, Vec<_>) = messages.partition(|message| message.is_inbox());
    let mut ordered = Vec::new();
    for message in others {
        let body = message.json();
        let events = body.get("events").and_then(Value::as_array);
        for event in events.into_iter().flatten() {
            let named = |message: &mut &Message| message.seq == number(event, "inbox");
            ordered.extend(inbox.extract_if(.., named));
        }
        ordered.push(message);
    }
    ordered.extend(inbox);
    ordered
}

fn register(message: &Message, body: &Value) -> String {
    let attempt = message
        .chain
        .as_ref()
        .map(|chain| {
            format!(
                "step {} attempt {} ({})",
                chain.step, chain.attempt, chain.tool
            )
        })
        .unwrap_or_default();
    let who = if message.writer == RUNTIME {
        "the owner".to_owned()
    } else {
        format!("worker {}", decode(&message.writer).unwrap_or_default())
    };
    match &message.place {
        Place::Claim if text(body, "kind") == "revoke" => format!(
            "{attempt} revoked by {who}, nobody had claimed it: {}",
            text(body, "why")
        ),
        Place::Claim => format!(
            "{attempt} claimed by {who}, incarnation {}",
            text(body, "incarnation")
        ),
        Place::Outcome => {
            let fact = body.get("fact").unwrap_or(&Value::Null);
            match text(fact, "kind") {
                "sealed" => {
                    let sealed = fact.get("finding").unwrap_or(&Value::Null);
                    format!(
                        "{attempt} sealed by {who}: {}{}",
                        words(text(sealed, "finding")),
                        by(sealed, "operator")
                    )
                }
                kind => format!(
                    "{attempt} outcome by {who}: {}{}",
                    words(kind),
                    detail(fact)
                ),
            }
        }
        Place::Evidence => {
            let evidence = body.get("evidence").unwrap_or(&Value::Null);
            format!(
                "{attempt} evidence by {who}: {}{}",
                words(text(evidence, "kind")),
                detail(evidence)
            )
        }
        Place::Inbox(kind) => match kind.as_str() {
            "in" => format!("submission by {}", text(body, "client")),
            "d" => format!(
                "answer to question {} sent by {}: {}",
                text(body, "approval"),
                text(body, "by"),
                choice(body)
            ),
            _ => format!("cancellation sent by {}", text(body, "by")),
        },
        Place::Journal(_) => String::new(),
    }
}

fn event(event: &Value, owner: &mut String, epoch: u64) -> String {
    let step = text(event, "step");
    match text(event, "kind") {
        "run.submitted" => format!(
            "submitted by {} for agent {}: {}",
            text(event, "client"),
            text(event, "agent"),
            shown(text(event, "goal"))
        ),
        "run.owned" => {
            let first = owner.is_empty();
            let before = std::mem::replace(owner, text(event, "session").to_owned());
            let node = text(event, "node");
            if first {
                format!("owned by {node}, session {owner}, epoch {epoch}")
            } else {
                format!("TAKEN OVER by {node}, session {owner}, epoch {epoch} (before: {before})")
            }
        }
        "turn.decided" => {
            let decision = event.get("decision").unwrap_or(&Value::Null);
            format!(
                "turn {} decided: {}",
                number(event, "turn"),
                shown(text(decision, "text"))
            )
        }
        "step.invalid" => format!(
            "step {step} is no valid decision: {}",
            shown(text(event, "error"))
        ),
        "step.policy" => {
            let verdict = event
                .get("verdict")
                .map_or("", |verdict| text(verdict, "verdict"));
            format!(
                "step {step} {} {}: policy says {}",
                text(event, "tool"),
                shown(text(event, "arguments")),
                words(verdict)
            )
        }
        "approval.requested" => {
            let question = event.get("question").unwrap_or(&Value::Null);
            let asked = if text(question, "ask") == "approve" {
                text(question, "capability")
            } else {
                text(question, "ask")
            };
            let evidence = question
                .get("evidence")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str);
            let evidence: Vec<String> = evidence.map(|line| format!("; {}", shown(line))).collect();
            format!(
                "an operator is asked about step {step} (question {}): {}{}",
                text(event, "approval"),
                words(asked),
                evidence.concat()
            )
        }
        "approval.decided" => format!(
            "question {} decided by {}: {}",
            text(event, "approval"),
            text(event, "by"),
            choice(event)
        ),
        "approval.withdrawn" => format!(
            "question {} withdrawn: {}",
            text(event, "approval"),
            text(event, "why")
        ),
        "approval.expired" => format!("question {} expired", text(event, "approval")),
        "inbox.answered" => format!(
            "message {} changes nothing: {}",
            number(event, "inbox"),
            words(
                event
                    .get("answer")
                    .map_or("", |answer| text(answer, "answer"))
            )
        ),
        "run.cancel_requested" => format!("cancelled by {}", text(event, "by")),
        "step.dispatched" => {
            let basis = event.get("basis").unwrap_or(&Value::Null);
            let on = ["approval", "register"]
                .into_iter()
                .filter_map(|name| basis.get(name))
                .map(|value| format!(" {value}"))
                .collect::<String>();
            format!(
                "step {step} attempt {} dispatched ({}{on})",
                number(event, "attempt"),
                words(text(basis, "basis"))
            )
        }
        "attempt.finding" => {
            format!(
                "step {step} attempt {} FOUND {} on rung {}: {}",
                number(event, "attempt"),
                words(text(event, "finding")),
                number(event, "rung"),
                shown(text(event, "detail"))
            )
        }
        "step.finished" => {
            let observation = event.get("observation").unwrap_or(&Value::Null);
            let content = observation
                .get("content")
                .map_or("", |content| text(content, "json"));
            format!(
                "step {step} finished: {} {}",
                words(text(observation, "kind")),
                shown(content)
            )
        }
        "run.ending" => format!(
            "the run will end: {} ({})",
            text(event, "status"),
            text(event, "reason")
        ),
        "run.ended" => format!(
            "ended: {} ({})",
            text(event, "status"),
            text(event, "reason")
        ),
        "run.parked" => "parked: only an operator or time can move it".to_owned(),
        "run.released" => format!("released by its owner: {}", text(event, "why")),
        other => other.to_owned(),
    }
}

fn choice(value: &Value) -> String {
    words(
        value
            .get("decision")
            .map_or("", |decision| text(decision, "choice")),
    )
}

fn by(value: &Value, name: &str) -> String {
    let who = text(value, name);
    if who.is_empty() {
        String::new()
    } else {
        format!(" (by {who})")
    }
}

/// The first words that a record has for a person.
fn detail(value: &Value) -> String {
    let result = value
        .get("result")
        .map_or("", |result| text(result, "json"));
    let texts = [
        text(value, "detail"),
        text(value, "message"),
        text(value, "why"),
        text(value, "error"),
        result,
    ];
    texts
        .into_iter()
        .find(|text| !text.is_empty())
        .map(|text| format!(": {}", shown(text)))
        .unwrap_or_default()
}

fn words(code: &str) -> String {
    code.replace('_', " ")
}

/// Foreign text on one line, cut when long; control characters are shown as escapes, so that they cannot move the cursor.
fn shown(text: &str) -> String {
    let mut line = String::new();
    for (index, character) in text.chars().enumerate() {
        if index == MAX_SHOWN {
            line.push('…');
            break;
        }
        if character.is_control() {
            line.extend(character.escape_default())
        } else {
            line.push(character)
        }
    }
    line
}
