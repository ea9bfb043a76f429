//! The timeline of a run, for a person: what was decided, dispatched, claimed, done and found, in the order in which it was stored.
//!
//! Commits, registers and notes are merged by position, so it shows whether a claim came before a revocation, and on what each finding
//! stands. Times are the commit writers' clocks; registers carry none.

use std::collections::BTreeSet;

use leasehold_json::Kept;
use leasehold_protocol::{
    Basis, Chain, ChainMessage, ClaimBody, Commit, Decision, Event, Link, Note, NoteKind,
    Observation, Outcome, OutcomeBody, Payload, Proposal, Question, Sealed, Seq, StoredCommit,
    Verdict,
};
use leasehold_tools::SideEffect;
use serde::Serialize;

use crate::material::{ChainMaterial, Material};
use crate::say::{short, utc};
use crate::view::code;

/// One line of a timeline.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Entry {
    /// Position in the store.
    pub(crate) seq: Seq,
    /// Unix milliseconds, where the record has a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<i64>,
    /// `commit`, `claim`, `outcome` or `evidence`.
    pub(crate) what: &'static str,
    /// In words.
    pub(crate) text: String,
}

impl Entry {
    /// As a line of text.
    pub(crate) fn line(&self) -> String {
        let time = self.at.map_or_else(|| " ".repeat(24), utc);
        format!("{time}  #{:<6} {:<8} {}", self.seq.0, self.what, self.text)
    }
}

/// The whole timeline of a run. `class` gives the class of a tool by name.
pub(crate) fn of_run(material: &Material, class: &dyn Fn(&str) -> SideEffect) -> Vec<Entry> {
    let void = match material.state() {
        Ok(state) => state.void.iter().map(|void| void.seq).collect(),
        Err(_) => BTreeSet::new(),
    };
    let mut entries = Vec::new();
    for stored in &material.commits {
        if void.contains(&stored.seq) {
            let text = "a commit that counts for nothing".to_owned();
            entries.push(entry(stored.seq, None, "commit", text));
        } else {
            entries.extend(of_commit(stored));
        }
    }
    for chain in &material.chains {
        entries.extend(of_chain(chain, class(&chain.chain.tool)));
    }
    // Stable: the events of one commit stay in their order.
    entries.sort_by_key(|entry| entry.seq);
    entries
}

/// The events of one commit.
pub(crate) fn of_commit(stored: &StoredCommit) -> Vec<Entry> {
    let commit = match Commit::decode(stored.body.as_bytes()) {
        Ok(commit) => commit,
        Err(error) => {
            let text = format!("unreadable: {error}");
            return vec![entry(stored.seq, None, "commit", text)];
        }
    };
    let events = commit.events.iter();
    events
        .map(|event| {
            entry(
                stored.seq,
                Some(commit.at),
                "commit",
                of_event(event, &commit),
            )
        })
        .collect()
}

fn entry(seq: Seq, at: Option<i64>, what: &'static str, text: String) -> Entry {
    Entry {
        seq,
        at,
        what,
        text,
    }
}

fn of_event(event: &Event, commit: &Commit) -> String {
    match event {
        Event::Submitted {
            client,
            agent,
            goal,
            toolset,
            ..
        } => {
            let tools: Vec<&str> = toolset.iter().map(|tool| tool.name.as_str()).collect();
            format!(
                "submitted by {}: {} (agent {}; tools {})",
                short(client.as_str()),
                short(goal),
                short(agent),
                short(&tools.join(", "))
            )
        }
        Event::Owned { node, session } => format!(
            "owned by node {} (session {}), epoch {}",
            short(node.as_str()),
            short(session.as_str()),
            commit.epoch
        ),
        Event::Decided { turn, decision } => format!("turn {turn}: {}", of_decision(decision)),
        Event::Invalid { step, error } => {
            format!("step {step} cannot be carried out: {}", short(error))
        }
        Event::Policy {
            step,
            tool,
            arguments,
            policy,
            verdict,
            ..
        } => format!(
            "step {step}: policy {} {}: {} {}",
            short(policy),
            of_verdict(verdict),
            short(tool),
            short(arguments.as_str())
        ),
        Event::Requested {
            approval,
            step,
            hash,
            question,
            expires_at,
        } => {
            let until = expires_at.map(|at| format!(", until {}", utc(at)));
            let about = step.map_or("the run".to_owned(), |step| format!("step {step}"));
            format!(
                "{about}: question {approval} to an operator: {} (hash {hash}{})",
                of_question(question),
                until.unwrap_or_default()
            )
        }
        Event::ApprovalDecided {
            approval,
            decision,
            by,
            note,
            ..
        } => format!(
            "question {approval} answered by {}: {}{}",
            short(by.as_str()),
            of_choice(decision),
            in_words(note.as_deref())
        ),
        Event::Withdrawn { approval, why } => {
            format!("question {approval} withdrawn: {}", short(why))
        }
        Event::Expired { approval } => format!("question {approval} has expired"),
        Event::Answered { inbox, answer } => {
            format!(
                "inbox message {inbox} changes nothing: {}",
                code_of(answer, "answer")
            )
        }
        Event::CancelRequested { by, note, .. } => format!(
            "{} wants the run to end{}",
            short(by.as_str()),
            in_words(note.as_deref())
        ),
        Event::Dispatched {
            step,
            attempt,
            basis,
            ..
        } => format!(
            "step {step} attempt {attempt} dispatched, {}",
            of_basis(basis)
        ),
        Event::Found {
            step,
            attempt,
            finding,
            rung,
            register,
            detail,
        } => {
            let fact = register.map(|seq| format!(", register #{seq}"));
            format!(
                "step {step} attempt {attempt} found {} (rung {rung}{}): {}",
                code(finding),
                fact.unwrap_or_default(),
                short(detail)
            )
        }
        Event::Finished {
            step,
            attempt,
            observation,
        } => {
            let by = attempt.map(|attempt| format!(" by attempt {attempt}"));
            format!(
                "step {step} finished{}: {}",
                by.unwrap_or_default(),
                of_observation(observation)
            )
        }
        Event::Ending {
            status,
            reason,
            detail,
            result,
        } => {
            let result = result
                .as_ref()
                .map(|result| format!(", result {}", of_payload(result)));
            format!(
                "the run will end as {} ({}){}{}",
                code(status),
                code(reason),
                in_words(detail.as_deref()),
                result.unwrap_or_default()
            )
        }
        Event::Ended {
            status,
            reason,
            in_flight,
        } => {
            let open: Vec<String> = in_flight
                .iter()
                .map(|step| {
                    format!(
                        "; step {} attempt {}: {}",
                        step.step,
                        step.attempt,
                        code(&step.fate)
                    )
                })
                .collect();
            format!(
                "ended: {} ({}){}",
                code(status),
                code(reason),
                open.concat()
            )
        }
        Event::Parked { wake_at } => {
            let wake = wake_at.map(|at| format!(" until {}", utc(at)));
            format!("parked{}", wake.unwrap_or_default())
        }
        Event::Released { why } => format!("released: {}", short(why)),
    }
}

fn of_decision(decision: &Kept) -> String {
    // Ids that were used before matter to the run, not to its reader.
    match Proposal::read(decision, &BTreeSet::new()) {
        Proposal::Calls(calls) => {
            let tools: Vec<String> = calls.iter().map(|call| short(&call.tool)).collect();
            format!("the agent calls {}", tools.join(", "))
        }
        Proposal::Complete(result) => {
            format!(
                "the agent says the goal is reached: {}",
                short(result.as_str())
            )
        }
        Proposal::Fail(message) => format!("the agent gives up: {}", short(&message)),
        Proposal::Unusable(error) => format!("the agent's decision is unusable: {}", short(&error)),
    }
}

fn of_verdict(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Allow => "allows".to_owned(),
        Verdict::Deny { reason } => format!("denies ({})", short(reason)),
        Verdict::RequireApproval { approval_kind, .. } => {
            format!("asks a person ({})", short(approval_kind))
        }
        Verdict::Abort { reason } => format!("ends the run ({})", short(reason)),
    }
}

/// A question in one line.
pub(crate) fn of_question(question: &Question) -> String {
    match question {
        Question::Approve {
            approval_kind,
            capability,
            ..
        } => format!("approve {} ({})?", short(capability), short(approval_kind)),
        Question::InterruptedSideEffect { attempt, evidence } => format!(
            "attempt {attempt} may have acted, did it? {}",
            short(&evidence.join("; "))
        ),
        Question::Exhausted { attempt, fact } => {
            format!("attempt {attempt} did not act ({}), go on?", short(fact))
        }
        Question::Quarantined { lost } => format!(
            "quarantined: {} owners in a row were lost right after they took the run, go on?",
            lost.len()
        ),
    }
}

fn of_choice(decision: &Decision) -> String {
    match decision {
        Decision::RecordDone { result } => format!("record_done {}", short(result.as_str())),
        other => code_of(other, "choice"),
    }
}

fn of_basis(basis: &Basis) -> String {
    match basis {
        Basis::First { approval: None } => "as the policy allows".to_owned(),
        Basis::First {
            approval: Some(approval),
        } => format!("as question {approval} permits"),
        Basis::Proof { register } => {
            format!("since register #{register} proves the one before did not act")
        }
        Basis::RunAgain { approval } => {
            format!("since an operator permits it to act again (question {approval})")
        }
        Basis::Continue { approval, register } => format!(
            "since an operator goes on (question {approval}) and register #{register} proves the one before did not act"
        ),
        Basis::Superseded => "in place of a read-only attempt that was given up".to_owned(),
    }
}

fn of_observation(observation: &Observation) -> String {
    let failure = observation
        .failure
        .map(|failure| format!(" ({})", failure.as_str()));
    format!(
        "{}{} {}",
        code(&observation.kind),
        failure.unwrap_or_default(),
        of_payload(&observation.content)
    )
}

fn of_payload(payload: &Payload) -> String {
    match payload {
        Payload::Json(json) => short(json.as_str()),
        Payload::Blob { sha256, size } => format!("{size} bytes in blob {sha256}"),
    }
}

fn in_words(text: Option<&str>) -> String {
    text.map(|text| format!(": {}", short(text)))
        .unwrap_or_default()
}

/// The machine code of a tagged value.
fn code_of(value: &impl Serialize, tag: &str) -> String {
    let value = serde_json::to_value(value).unwrap_or_default();
    let code = value.get(tag).and_then(serde_json::Value::as_str);
    code.unwrap_or_default().to_owned()
}

fn of_chain(material: &ChainMaterial, class: SideEffect) -> Vec<Entry> {
    let chain = Chain::read(class, &material.messages);
    let attempt = format!(
        "step {} attempt {}",
        material.chain.step, material.chain.attempt
    );
    let counts = |message: &ChainMessage| {
        let claim = chain.claim.as_ref().map(|(seq, _)| *seq);
        let outcome = chain.outcome.as_ref().map(|(seq, _)| *seq);
        Some(message.seq) == claim || Some(message.seq) == outcome
    };
    let mut entries = Vec::new();
    for message in &material.messages {
        let (what, text) = match message.link {
            // Its commit says so.
            Link::Call => continue,
            Link::Claim => ("claim", of_claim(message)),
            Link::Outcome => ("outcome", of_outcome_message(message)),
        };
        let void = if counts(message) {
            ""
        } else {
            " (counts for nothing)"
        };
        entries.push(entry(
            message.seq,
            None,
            what,
            format!("{attempt} {text}{void}"),
        ));
    }
    for note in &material.notes {
        let text = Note::decode(note.body.as_bytes()).map_or_else(
            |error| format!("unreadable: {error}"),
            |note| of_note(&note),
        );
        let text = format!("{attempt}: {} says: {text}", writer(&note.writer));
        entries.push(entry(note.seq, None, "evidence", text));
    }
    entries
}

fn writer(token: &str) -> String {
    if token == leasehold_protocol::RUNTIME_TOKEN {
        return "the runtime".to_owned();
    }
    format!("worker {}", short(token))
}

fn of_claim(message: &ChainMessage) -> String {
    match ClaimBody::decode(message.body.as_bytes()) {
        Ok(ClaimBody::Claim {
            worker,
            incarnation,
            ..
        }) => format!(
            "claimed by worker {} (incarnation {})",
            short(worker.as_str()),
            short(incarnation.as_str())
        ),
        Ok(ClaimBody::Revoke { why, .. }) => {
            format!("revoked before anybody claimed it ({})", code(&why))
        }
        Err(error) => format!("holds an unreadable claim: {error}"),
    }
}

fn of_outcome_message(message: &ChainMessage) -> String {
    match Outcome::decode(message.body.as_bytes()) {
        Ok(outcome) => format!(
            "{}, says {}",
            of_outcome(&outcome.fact),
            writer(&message.writer)
        ),
        Err(error) => format!("holds an unreadable outcome: {error}"),
    }
}

fn of_outcome(outcome: &OutcomeBody) -> String {
    match outcome {
        OutcomeBody::Done { result } => format!("done: {}", of_payload(result)),
        OutcomeBody::DoneUnusable { error, .. } => {
            format!("done, with an unusable result: {}", short(error))
        }
        OutcomeBody::Aborted { detail } => format!("aborts the run: {}", short(detail)),
        OutcomeBody::NothingHappened { failure, message } => {
            format!(
                "nothing happened ({}): {}",
                failure.as_str(),
                short(message)
            )
        }
        OutcomeBody::NotStarted { why } => format!("was never begun: {}", short(why)),
        OutcomeBody::Sealed { finding, .. } => format!("sealed: {}", of_seal(finding)),
    }
}

fn of_seal(sealed: &Sealed) -> String {
    match sealed {
        Sealed::ProbeDone { result } => format!("the probe says done: {}", of_payload(result)),
        Sealed::ProbeNotDone => "the probe says not done".to_owned(),
        Sealed::Superseded => "given up, read-only".to_owned(),
        Sealed::RunAgain { operator } => format!("{} permits another", short(operator.as_str())),
        Sealed::RecordedDone { operator, result } => format!(
            "{} records it as done: {}",
            short(operator.as_str()),
            short(result.as_str())
        ),
        Sealed::Rejected { operator } => format!("{} rejects it", short(operator.as_str())),
    }
}

fn of_note(note: &Note) -> String {
    match &note.evidence {
        NoteKind::Unsure { detail } => format!("unsure: {}", short(detail)),
        NoteKind::MayHaveHappened { failure, message } => format!(
            "it may have happened ({}): {}",
            failure.as_str(),
            short(message)
        ),
        NoteKind::MetSeal { outcome } => {
            format!("came too late, would have said: {}", of_outcome(outcome))
        }
    }
}
