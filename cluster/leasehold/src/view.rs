//! What a person or a script is shown of a run: computed from its journal, stable in its fields.
//!
//! Foreign JSON (arguments, results, presentations) stands in these as a *string* of its exact bytes, as everywhere else, so that no
//! reader rounds a number.

use leasehold_json::{AcceptedJson, Digest};
use leasehold_protocol::{
    Approval, ApprovalId, ApprovalState, Decision, FoldError, InFlight, Payload, Phase, Question,
    Reason, RunId, RunState, Status, Step, StepId,
};
use serde::{Deserialize, Serialize};

use crate::waiting::CallStand;

/// One run, as a list shows it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RunSummary {
    pub(crate) run: RunId,
    pub(crate) status: Status,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<Reason>,
    /// The question about the run itself that holds it, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) waiting_on: Option<WaitingOn>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
    pub(crate) goal: String,
    pub(crate) agent: String,
    pub(crate) client: String,
    pub(crate) turns: usize,
    /// Commits that count.
    pub(crate) commits: u64,
    /// How often the run has changed hands after its first owner.
    pub(crate) takeovers: u64,
    /// Unix milliseconds; 0 before the first commit.
    pub(crate) submitted_at: i64,
    /// When the last commit was written, unix milliseconds.
    pub(crate) last_at: i64,
    /// Steps that are not over.
    pub(crate) open: Vec<OpenStep>,
    /// Why the run cannot be read or driven, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) problem: Option<String>,
}

/// A question about the run itself: until it is answered, nothing of the run moves.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct WaitingOn {
    pub(crate) approval: ApprovalId,
    /// `quarantined`, or the kind of approval that the takeover hook asks for.
    pub(crate) kind: String,
}

impl WaitingOn {
    fn of_state(state: &RunState) -> Option<Self> {
        let approval = state.held_by()?;
        let kind = match &state.approvals.get(approval)?.question {
            Question::Approve { approval_kind, .. } => approval_kind,
            _ => "quarantined",
        };
        Some(Self {
            approval: approval.clone(),
            kind: kind.to_owned(),
        })
    }
}

/// A step that is not over.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct OpenStep {
    pub(crate) step: StepId,
    pub(crate) tool: String,
    /// `proposed`, `approval`, `granted`, `in_flight`, `interrupted_side_effect`, `exhausted`, `decided` or `proven`.
    pub(crate) phase: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) approval: Option<ApprovalId>,
    /// Whether a worker has its call; only where it was asked for.
    #[serde(flatten)]
    pub(crate) stands: Option<CallStand>,
}

/// One run, whole.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RunView {
    #[serde(flatten)]
    pub(crate) summary: RunSummary,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) input: Option<AcceptedJson>,
    pub(crate) tools: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) result: Option<Payload>,
    pub(crate) steps: Vec<StepView>,
    pub(crate) questions: Vec<QuestionView>,
    /// What was in flight when the run was told to end.
    pub(crate) in_flight: Vec<InFlight>,
    /// Stored commits that count for nothing, and why.
    pub(crate) void: Vec<String>,
    /// What the next commit's `prev` will be.
    pub(crate) tail: Digest,
}

/// One step.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StepView {
    pub(crate) step: StepId,
    pub(crate) tool: String,
    pub(crate) phase: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) arguments: Option<AcceptedJson>,
    pub(crate) attempts: Vec<AttemptView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) observation: Option<leasehold_protocol::Observation>,
}

/// One attempt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct AttemptView {
    pub(crate) attempt: leasehold_protocol::Attempt,
    pub(crate) basis: leasehold_protocol::Basis,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) finding: Option<leasehold_protocol::Finding>,
}

/// A question to an operator, with all that the answer is bound to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct QuestionView {
    pub(crate) run: RunId,
    pub(crate) approval: ApprovalId,
    /// Absent of a question about the run itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) step: Option<StepId>,
    pub(crate) hash: Digest,
    pub(crate) question: Question,
    pub(crate) tool: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) arguments: Option<AcceptedJson>,
    pub(crate) asked_at: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<i64>,
    /// `open`, `decided`, `withdrawn` or `expired`.
    pub(crate) state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) decision: Option<Decision>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) by: Option<String>,
}

impl RunSummary {
    /// The summary of a run whose journal folds, or of one whose journal does not.
    pub(crate) fn of(run: &RunId, folded: &Result<RunState, FoldError>) -> Self {
        match folded {
            Ok(state) => Self::of_state(state),
            Err(error) => Self {
                problem: Some(error.to_string()),
                ..Self::of_state(&RunState::new(run.clone()))
            },
        }
    }

    pub(crate) fn of_state(state: &RunState) -> Self {
        let opened = state.opened.as_ref();
        let ending = state.ending.as_ref();
        let text = |of: Option<&str>| of.unwrap_or_default().to_owned();
        Self {
            run: state.run.clone(),
            status: state.status(),
            reason: ending.map(|ending| ending.reason),
            waiting_on: WaitingOn::of_state(state),
            detail: ending.and_then(|ending| ending.detail.clone()),
            goal: text(opened.map(|opened| opened.goal.as_str())),
            agent: text(opened.map(|opened| opened.agent.as_str())),
            client: text(opened.map(|opened| opened.client.as_str())),
            turns: state.turns.len(),
            commits: state.n,
            takeovers: state.epoch.get().saturating_sub(1),
            submitted_at: opened.map_or(0, |opened| opened.at),
            last_at: state.last_at,
            open: open_steps(state),
            problem: None,
        }
    }
}

/// The phase of a step whose call is dispatched and not settled.
pub(crate) const IN_FLIGHT: &str = "in_flight";

pub(crate) fn open_steps(state: &RunState) -> Vec<OpenStep> {
    let open = state.current_steps().iter();
    open.filter(|step| step.phase != Phase::Finished)
        .map(|step| OpenStep {
            step: step.id,
            tool: tool_of(step),
            phase: phase(&step.phase).to_owned(),
            approval: step.phase.asks().cloned(),
            stands: None,
        })
        .collect()
}

fn tool_of(step: &Step) -> String {
    let accepted = step.accepted.as_ref().map(|accepted| &accepted.tool);
    let proposed = step.call.as_ref().map(|call| &call.tool);
    accepted.or(proposed).cloned().unwrap_or_default()
}

fn phase(phase: &Phase) -> &'static str {
    match phase {
        Phase::Proposed => "proposed",
        Phase::Asked(_) => "approval",
        Phase::Granted(_) => "granted",
        Phase::InFlight => IN_FLIGHT,
        Phase::Interrupted(_) => "interrupted_side_effect",
        Phase::Exhausted(_) => "exhausted",
        Phase::Decided { .. } => "decided",
        Phase::Proven { .. } => "proven",
        Phase::Finished => "finished",
    }
}

impl RunView {
    pub(crate) fn of(run: &RunId, folded: &Result<RunState, FoldError>) -> Self {
        let empty;
        let state = match folded {
            Ok(state) => state,
            Err(_) => {
                empty = RunState::new(run.clone());
                &empty
            }
        };
        let opened = state.opened.as_ref();
        let tools = opened.map(|opened| opened.toolset.iter().map(|tool| tool.name.clone()));
        let steps = state.turns.iter().flat_map(|turn| &turn.steps);
        Self {
            summary: RunSummary::of(run, folded),
            input: opened.and_then(|opened| opened.input.clone()),
            tools: tools.into_iter().flatten().collect(),
            result: state
                .ending
                .as_ref()
                .and_then(|ending| ending.result.clone()),
            steps: steps.map(StepView::of).collect(),
            questions: questions(state),
            in_flight: state.ended.clone().unwrap_or_default(),
            void: state
                .void
                .iter()
                .map(|void| format!("position {}: {}", void.seq, void.why))
                .collect(),
            tail: state.tail,
        }
    }
}

impl StepView {
    fn of(step: &Step) -> Self {
        let attempts = step.attempts.iter().map(|attempt| AttemptView {
            attempt: attempt.attempt,
            basis: attempt.basis.clone(),
            finding: attempt.finding.map(|(finding, _)| finding),
        });
        Self {
            step: step.id,
            tool: tool_of(step),
            phase: phase(&step.phase).to_owned(),
            arguments: step.accepted.as_ref().map(|call| call.arguments.clone()),
            attempts: attempts.collect(),
            observation: step.observation.clone(),
        }
    }
}

/// All questions of a run, also those that are answered.
pub(crate) fn questions(state: &RunState) -> Vec<QuestionView> {
    let all = state.approvals.iter();
    all.map(|(id, approval)| QuestionView::of(state, id, approval))
        .collect()
}

impl QuestionView {
    fn of(state: &RunState, id: &ApprovalId, approval: &Approval) -> Self {
        let step = approval.step.and_then(|id| state.step(id));
        let accepted = step.and_then(|step| step.accepted.as_ref());
        let (name, decided) = match &approval.state {
            ApprovalState::Open => ("open", None),
            ApprovalState::Decided { decision, by, .. } => ("decided", Some((decision, by))),
            ApprovalState::Withdrawn => ("withdrawn", None),
            ApprovalState::Expired => ("expired", None),
        };
        Self {
            run: state.run.clone(),
            approval: id.clone(),
            step: approval.step,
            hash: approval.hash,
            question: approval.question.clone(),
            tool: step.map(tool_of).unwrap_or_default(),
            arguments: accepted.map(|accepted| accepted.arguments.clone()),
            asked_at: approval.asked_at,
            expires_at: approval.expires_at,
            state: name.to_owned(),
            decision: decided.map(|(decision, _)| decision.clone()),
            by: decided.map(|(_, by)| by.to_string()),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state == "open"
    }

    /// What an operator types to answer it; `program` is how this program is called on the data folder.
    pub(crate) fn commands(&self, program: &str) -> Vec<String> {
        let (run, approval) = (shell_word(self.run.as_str()), &self.approval);
        let resolve = |choice: &str| format!("{program} resolve {run} {approval} {choice}");
        match &self.question {
            Question::Approve { .. } | Question::Quarantined { .. } => vec![
                format!("{program} approve {run} {approval}"),
                format!("{program} reject {run} {approval}"),
            ],
            Question::InterruptedSideEffect { .. } => vec![
                resolve("--done RESULT_JSON"),
                resolve("--run-again"),
                resolve("--reject"),
            ],
            Question::Exhausted { .. } => vec![
                resolve("--continue"),
                resolve("--done RESULT_JSON"),
                resolve("--reject"),
            ],
        }
    }
}

/// A text as one word of a shell's command line.
pub(crate) fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@".contains(c);
    if text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The machine code of a status, as it stands in records.
pub(crate) fn code(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(code)) => code,
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_id_is_one_word_of_the_command_line_that_is_shown() {
        assert_eq!(shell_word("refund-1_2.3"), "refund-1_2.3");
        assert_eq!(shell_word("it's; rm -rf *"), r"'it'\''s; rm -rf *'");
    }

    #[test]
    fn codes_are_those_of_the_records() {
        assert_eq!(code(&Status::Completed), "completed");
        assert_eq!(code(&Reason::ApprovalRejected), "approval_rejected");
    }
}
