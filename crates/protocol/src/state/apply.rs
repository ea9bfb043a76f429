//! What each event does to the state. An event that cannot have happened is an error in words, never a guess.

use std::sync::Arc;

use leasehold_json::{AcceptedJson, Digest, DigestBuilder};
use leasehold_tools::ResultTrust;

use super::step::{Accepted, AttemptState, Phase, Step, Turn};
use super::{Approval, ApprovalState, Ending, Opened, RunState};
use crate::ids::{ApprovalId, Attempt, Epoch, StepId};
use crate::proposal::Proposal;
use crate::wire::{
    Commit, Decision, Event, Finding, Observation, ObservationKind, Payload, Question, Status,
};

type Applied = Result<(), String>;

/// What a commit says before its events.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub(crate) n: u64,
    pub(crate) epoch: Epoch,
    pub(crate) at: i64,
    /// Whether its first event opens the run.
    pub(crate) opens: bool,
}

impl Head {
    pub(super) fn of(commit: &Commit) -> Self {
        let opens = matches!(commit.events.first(), Some(Event::Submitted { .. }));
        Self {
            n: commit.n,
            epoch: commit.epoch,
            at: commit.at,
            opens,
        }
    }
}

impl RunState {
    /// Takes a commit's head in: number, epoch, time. Its events follow, then its hash.
    pub(crate) fn begin(&mut self, head: &Head) -> Applied {
        if head.opens != self.opened.is_none() {
            return Err("a run is opened by its first commit and by no other".into());
        }
        // Wall clocks may step back: time that did not pass is not counted.
        let passed = u64::try_from(head.at.saturating_sub(self.last_at)).unwrap_or(0);
        if self.n > 0 && !self.waits_for_operator() && !self.parked {
            self.active_ms = self.active_ms.saturating_add(passed);
        }
        self.n = head.n;
        self.epoch = head.epoch;
        self.last_at = head.at;
        self.parked = false;
        self.wake_at = None;
        Ok(())
    }

    /// Takes one event in.
    pub(crate) fn event(&mut self, event: &Event, at: i64) -> Applied {
        if self.ended.is_some() {
            return Err("nothing follows the end".into());
        }
        self.spend_permission(event);
        self.something_came(event);
        match event {
            Event::Submitted {
                client,
                agent,
                goal,
                input,
                toolset,
                limits,
                request,
                inbox,
            } => {
                self.opened = Some(Opened {
                    client: client.clone(),
                    agent: agent.clone(),
                    goal: goal.clone(),
                    input: input.clone(),
                    toolset: toolset.clone(),
                    limits: limits.clone(),
                    request: *request,
                    at,
                });
                self.folded.insert(*inbox);
            }
            Event::Owned { node, session } => {
                self.owner = Some((node.clone(), session.clone()));
                self.taken_by(node, session, at);
            }
            Event::Decided { turn, decision } => self.decided(*turn, decision.clone())?,
            Event::Invalid { step, error } => {
                let content = AcceptedJson::from_serialize(&serde_json::json!({ "error": error }))
                    .map_err(|e| e.to_string())?;
                let observation = Observation {
                    kind: ObservationKind::InvalidDecision,
                    content: Payload::Json(content),
                    trust: ResultTrust::Trusted,
                    failure: None,
                };
                self.finished(*step, None, &observation)?;
            }
            Event::Policy {
                step,
                tool,
                arguments,
                spec,
                policy,
                verdict,
            } => {
                let step = self.step_mut(*step)?;
                step.accepted = Some(Accepted {
                    tool: tool.clone(),
                    arguments: arguments.clone(),
                    spec: *spec,
                    policy: policy.clone(),
                    verdict: verdict.clone(),
                });
            }
            Event::Requested {
                approval,
                step,
                hash,
                question,
                expires_at,
            } => {
                match step {
                    Some(step) => self.requested(approval, *step, question)?,
                    None => self.hold(approval, question)?,
                }
                self.approvals.insert(
                    approval.clone(),
                    Approval {
                        step: *step,
                        hash: *hash,
                        question: question.clone(),
                        asked_at: at,
                        expires_at: *expires_at,
                        state: ApprovalState::Open,
                    },
                );
            }
            Event::ApprovalDecided {
                approval,
                decision,
                by,
                note: _,
                inbox,
            } => {
                self.folded.insert(*inbox);
                self.approval_decided(approval, decision)?;
                self.approval_mut(approval)?.state = ApprovalState::Decided {
                    decision: decision.clone(),
                    by: by.clone(),
                    at,
                    spent: false,
                };
            }
            Event::Withdrawn { approval, why: _ } => {
                let step = self.open_approval(approval)?;
                self.approval_mut(approval)?.state = ApprovalState::Withdrawn;
                if let Some(step) = step {
                    let step = self.step_mut(step)?;
                    step.phase = if step.attempts.is_empty() {
                        Phase::Proposed
                    } else {
                        Phase::InFlight
                    };
                }
            }
            Event::Expired { approval } => {
                // A grant that was not used in time expires as well as a question that was not answered.
                self.approval_mut(approval)?.state = ApprovalState::Expired;
            }
            Event::Answered { inbox, answer: _ } => {
                self.folded.insert(*inbox);
            }
            Event::CancelRequested {
                by: _,
                note: _,
                inbox,
            } => {
                self.folded.insert(*inbox);
            }
            Event::Dispatched {
                step,
                attempt,
                call: _,
                basis,
            } => self.dispatched(*step, *attempt, basis.clone())?,
            Event::Found {
                step,
                attempt,
                finding,
                rung: _,
                register,
                detail: _,
            } => {
                let step = self.step_mut(*step)?;
                let latest = step
                    .attempts
                    .last_mut()
                    .filter(|latest| latest.attempt == *attempt);
                let latest = latest
                    .ok_or_else(|| format!("step {} has no open attempt {attempt}", step.id))?;
                latest.finding = Some((*finding, *register));
                if matches!(
                    finding,
                    Finding::NotStarted
                        | Finding::Revoked
                        | Finding::ProbeNotDone
                        | Finding::Superseded
                        | Finding::RunAgain
                ) && !matches!(step.phase, Phase::Decided { .. })
                {
                    step.phase = Phase::Proven {
                        register: *register,
                    };
                }
            }
            Event::Finished {
                step,
                attempt,
                observation,
            } => self.finished(*step, *attempt, observation)?,
            Event::Ending {
                status,
                reason,
                detail,
                result,
            } => {
                if self.ending.is_some() {
                    return Err("the run was told to end already".into());
                }
                self.open_at_ending = self
                    .current_steps()
                    .iter()
                    .filter(|step| step.phase.has_open_attempt())
                    .map(|step| step.id)
                    .collect();
                self.ending = Some(Ending {
                    status: *status,
                    reason: *reason,
                    detail: detail.clone(),
                    result: result.clone(),
                });
            }
            Event::Ended {
                status,
                reason,
                in_flight,
            } => {
                let told = self
                    .ending
                    .as_ref()
                    .is_some_and(|ending| ending.status == *status && ending.reason == *reason);
                if !told || !status.is_final() {
                    return Err("a run ends the way it was told to".into());
                }
                self.ended = Some(in_flight.clone());
            }
            Event::Parked { wake_at } => {
                self.parked = true;
                self.wake_at = *wake_at;
            }
            Event::Released { why: _ } => {}
        }
        Ok(())
    }

    fn decided(&mut self, number: u32, decision: leasehold_json::Kept) -> Applied {
        if number as usize != self.turns.len() + 1 {
            return Err(format!(
                "turn {number} does not follow turn {}",
                self.turns.len()
            ));
        }
        if !self.turn_is_over() {
            return Err(format!(
                "turn {number} was decided before turn {} was over",
                self.turns.len()
            ));
        }
        self.must_not_be_held()?;
        let proposal = Proposal::read(&decision, &self.call_ids);
        let calls = match &proposal {
            Proposal::Calls(calls) => calls.iter().cloned().map(Some).collect(),
            Proposal::Unusable(_) => vec![None],
            Proposal::Complete(_) | Proposal::Fail(_) => Vec::new(),
        };
        let step = |(index, call)| {
            Step::new(
                StepId {
                    turn: number,
                    index,
                },
                call,
            )
        };
        let steps: Vec<Step> = (0..).zip(calls).map(step).collect();
        self.call_ids.extend(
            steps
                .iter()
                .filter_map(|step| step.call.as_ref()?.id.clone()),
        );
        self.before_turn = self.streak;
        self.turns.push(Arc::new(Turn {
            number,
            decision,
            proposal,
            steps,
        }));
        Ok(())
    }

    fn requested(&mut self, approval: &ApprovalId, step: StepId, question: &Question) -> Applied {
        let step = self.step_mut(step)?;
        step.questions += 1;
        if *approval != ApprovalId::derive(Some(step.id), step.questions) {
            return Err(format!(
                "{approval} is not the next question of step {}",
                step.id
            ));
        }
        let latest = step.latest().map(|latest| latest.attempt);
        step.phase = match question {
            Question::Approve { .. } => Phase::Asked(approval.clone()),
            Question::InterruptedSideEffect { attempt, .. } if latest == Some(*attempt) => {
                Phase::Interrupted(approval.clone())
            }
            Question::Exhausted { attempt, .. } if latest == Some(*attempt) => {
                Phase::Exhausted(approval.clone())
            }
            _ => {
                return Err(format!(
                    "{approval} asks about an attempt that is not the latest"
                ));
            }
        };
        Ok(())
    }

    fn approval_decided(&mut self, approval: &ApprovalId, decision: &Decision) -> Applied {
        let not_offered = || Err(format!("{approval} does not offer this choice"));
        let Some(id) = self.open_approval(approval)? else {
            return match decision {
                Decision::Approve | Decision::Reject => Ok(()),
                _ => not_offered(),
            };
        };
        let step = self.step_mut(id)?;
        step.phase = match (&step.phase, decision) {
            (Phase::Asked(_), Decision::Approve) => {
                step.grant = Some(approval.clone());
                Phase::Granted(approval.clone())
            }
            (Phase::Asked(asked), Decision::Reject) => Phase::Asked(asked.clone()),
            (
                Phase::Interrupted(_),
                Decision::RunAgain | Decision::RecordDone { .. } | Decision::Reject,
            ) => Phase::Decided {
                approval: approval.clone(),
                decision: decision.clone(),
                exhausted: false,
            },
            (
                Phase::Exhausted(_),
                Decision::Continue | Decision::RecordDone { .. } | Decision::Reject,
            ) => Phase::Decided {
                approval: approval.clone(),
                decision: decision.clone(),
                exhausted: true,
            },
            _ => return not_offered(),
        };
        Ok(())
    }

    fn dispatched(&mut self, id: StepId, attempt: Attempt, basis: crate::wire::Basis) -> Applied {
        let epoch = self.epoch;
        let origin = self
            .owner
            .as_ref()
            .map(|(_, session)| session.clone())
            .ok_or("nobody owns the run")?;
        if self.ending.is_some() {
            return Err("a run that is ending dispatches nothing".into());
        }
        self.must_not_be_held()?;
        let step = self.step_mut(id)?;
        let next = step
            .latest()
            .map_or(Attempt::FIRST, |latest| latest.attempt.next());
        if attempt != next {
            return Err(format!(
                "attempt {attempt} of step {id} is not the next one"
            ));
        }
        if step.accepted.is_none() || matches!(step.phase, Phase::InFlight | Phase::Finished) {
            return Err(format!("step {id} cannot be dispatched where it stands"));
        }
        step.attempts.push(AttemptState {
            attempt,
            origin,
            epoch,
            basis: basis.clone(),
            finding: None,
        });
        step.phase = Phase::InFlight;
        let spent = match &basis {
            crate::wire::Basis::First { approval } => approval.clone(),
            crate::wire::Basis::RunAgain { approval }
            | crate::wire::Basis::Continue { approval, .. } => Some(approval.clone()),
            crate::wire::Basis::Proof { .. } | crate::wire::Basis::Superseded => None,
        };
        if let Some(approval) = spent {
            match &mut self.approval_mut(&approval)?.state {
                ApprovalState::Decided { spent, .. } if !*spent => *spent = true,
                _ => return Err(format!("{approval} is no unspent grant")),
            }
        }
        Ok(())
    }

    fn finished(
        &mut self,
        id: StepId,
        attempt: Option<Attempt>,
        observation: &Observation,
    ) -> Applied {
        let step = self.step_mut(id)?;
        if step.phase == Phase::Finished {
            return Err(format!("step {id} is over already"));
        }
        if let Some(attempt) = attempt
            && step.latest().map(|latest| latest.attempt) != Some(attempt)
        {
            return Err(format!("attempt {attempt} of step {id} is not the latest"));
        }
        step.phase = Phase::Finished;
        step.observation = Some(observation.clone());
        self.count_streaks();
        Ok(())
    }

    /// Failures and repeats in call order, whichever call of the turn was over first (S3): counted anew from where the turn began.
    fn count_streaks(&mut self) {
        let steps = self.current_steps().iter();
        let over: Vec<_> = steps
            .filter_map(|step| Some((step.observation.as_ref()?.kind, repeat_key(step))))
            .collect();
        let mut streak = self.before_turn;
        for (kind, call) in over {
            streak.failures = if kind == ObservationKind::ToolResult {
                0
            } else {
                streak.failures.saturating_add(1)
            };
            streak.repeats = if call.is_some() && call == streak.call {
                streak.repeats.saturating_add(1)
            } else {
                1
            };
            streak.call = call;
        }
        self.streak = streak;
    }

    pub(crate) fn step_mut(&mut self, id: StepId) -> Result<&mut Step, String> {
        let missing = || format!("there is no step {id}");
        let index = (id.turn as usize).checked_sub(1).ok_or_else(missing)?;
        let turn = self.turns.get_mut(index).ok_or_else(missing)?;
        Arc::make_mut(turn)
            .steps
            .get_mut(id.index as usize)
            .ok_or_else(missing)
    }

    fn approval_mut(&mut self, approval: &ApprovalId) -> Result<&mut Approval, String> {
        self.approvals
            .get_mut(approval)
            .ok_or_else(|| format!("there is no question {approval}"))
    }

    /// The step that an open question is about, if it is about one.
    fn open_approval(&mut self, approval: &ApprovalId) -> Result<Option<StepId>, String> {
        let found = self.approval_mut(approval)?;
        if found.state == ApprovalState::Open {
            Ok(found.step)
        } else {
            Err(format!("{approval} is not open"))
        }
    }

    /// Whether the run was told to end.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.is_some()
    }

    /// The status a run shows while it is ending.
    pub fn ending_status(&self) -> Option<Status> {
        self.ending.as_ref().map(|ending| ending.status)
    }
}

/// What a repeated call is told by: the tool, its arguments by value, and what came of it.
fn repeat_key(step: &Step) -> Option<Digest> {
    let (accepted, observation) = (step.accepted.as_ref()?, step.observation.as_ref()?);
    let key = DigestBuilder::new("leasehold/repeat/1")
        .field(accepted.tool.as_bytes())
        .field(accepted.arguments.canonical().as_bytes())
        .field(observation.content.digest().as_bytes());
    Some(key.finish())
}
