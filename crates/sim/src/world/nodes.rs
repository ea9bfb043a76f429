//! Owners of runs: what their machines want is carried out, lost, doubled or late; who drives what is found here.

use leasehold_json::{AcceptedJson, Kept};
use leasehold_protocol::{
    AgentView, Chain, ClusterId, Effect, Hint, HookAnswer, Input, Invariant, NodeId, ProbeReply,
    RUNTIME_TOKEN, RegisterRequest, RunConfig, RunId, RunMachine, Seq, SessionId, StopReason,
    Verdict,
};
use rand::Rng;

use super::*;
use crate::outside::PICKS;
use crate::store::LetterKind;

/// The nodes' session TTL: short, so that a schedule has time for several lives of one.
pub(super) const SESSION_TTL_MS: u64 = 1_000;

impl World {
    pub(super) fn start_run(&mut self, node: usize, run: &RunId) {
        let life = self.nodes[node].life;
        let (Ok(cluster), Ok(name), Ok(session)) = (
            ClusterId::new("sim"),
            NodeId::new(format!("n{node}")),
            SessionId::new(format!("n{node}-{life}-{}", self.serial)),
        ) else {
            return;
        };
        let config = RunConfig {
            cluster,
            node: name,
            session,
            tools: self.tools.clone(),
            clock_bound_ms: 0,
            session_ttl_ms: SESSION_TTL_MS,
            hook: true,
            weakening: self.config.run,
        };
        self.nodes[node]
            .runs
            .insert(run.clone(), RunMachine::new(config, run.clone()));
        let submission = self
            .store
            .inbox
            .iter()
            .find(|(_, letter)| letter.run == *run && letter.kind == LetterKind::Submit);
        let submission = submission.map(|(seq, letter)| (*seq, letter.body.clone()));
        let input = Input::Load {
            commits: self.store.journal_after(run, Seq::NONE),
            submission,
        };
        self.tell(node, life, run.clone(), input);
    }

    pub(super) fn tell(&mut self, node: usize, life: u64, run: RunId, input: Input) {
        let now = self.clock();
        if !self.nodes[node].alive || self.nodes[node].life != life {
            return;
        }
        let Some(machine) = self.nodes[node].runs.get_mut(&run) else {
            return;
        };
        self.tally.steps += 1;
        for effect in machine.step(now, input) {
            if let Effect::Stop(reason) = &effect {
                if let StopReason::Unreadable(why) = reason {
                    self.violate(Invariant::I16, &run, format!("a machine stopped: {why}"));
                }
                self.tally.fenced += u64::from(matches!(reason, StopReason::Fenced(_)));
                self.nodes[node].runs.remove(&run);
                return;
            }
            let delay = match &effect {
                Effect::WakeAt { boot } => boot.saturating_sub(self.now),
                Effect::AskPolicy(_) => 0,
                _ => self.delay(),
            };
            self.send(
                delay,
                Message::Run {
                    node,
                    life,
                    run: run.clone(),
                    effect,
                },
            );
        }
    }

    pub(super) fn reply(&mut self, node: usize, life: u64, run: &RunId, input: Input) {
        let delay = self.delay();
        self.send(
            delay,
            Message::Tell {
                node,
                life,
                run: run.clone(),
                input,
            },
        );
    }

    pub(super) fn carry_out(&mut self, node: usize, life: u64, run: RunId, effect: Effect) {
        let dead = !self.nodes[node].alive || self.nodes[node].life != life;
        if dead {
            // What a process had sent may arrive after its death.
            if !matches!(effect, Effect::Commit(_) | Effect::WriteRegister(_)) || !self.chance(50) {
                return;
            }
            self.tally.late_writes += 1;
        }
        let answer = match effect {
            Effect::Commit(write) => {
                let busy = self.fault(2);
                let lost_before = self.fault(3);
                let stored = if busy || lost_before {
                    None
                } else {
                    Some(self.store.append(&run, &write))
                };
                if stored.as_ref().is_some_and(Result::is_ok) && self.poisoned(&run, &write.subject)
                {
                    return self.crash(Some(node), None);
                }
                let lost_after = self.fault(4);
                self.tally.lost_acks += u64::from(lost_before || lost_after);
                match stored {
                    _ if busy => Input::CommitBusy,
                    Some(Ok(seq)) if !lost_after => Input::CommitStored { seq },
                    _ => Input::CommitDoubtful,
                }
            }
            Effect::ReadJournal { after } => Input::JournalRead {
                commits: self.store.journal_after(&run, after),
            },
            Effect::ReadChain { chain } => Input::ChainRead {
                step: chain.step,
                attempt: chain.attempt,
                messages: self.store.chain(&chain),
                notes: self.store.notes(&chain),
            },
            Effect::WriteRegister(write) => {
                if !self.fault(4) {
                    // The machine reads what stands there, whatever the answer was.
                    let _ = self.write_register(&write, RUNTIME_TOKEN);
                }
                Input::RegisterTried {
                    step: write.chain.step,
                    attempt: write.chain.attempt,
                }
            }
            Effect::Inspect { chain, worker } => {
                return self.inspect(node, life, run, chain, &worker);
            }
            Effect::Probe(request) => {
                let answer = if self.fault(20) {
                    ProbeReply::Failed {
                        error: "the service is down".into(),
                    }
                } else {
                    self.outside.probe(&request)
                };
                Input::Probed {
                    step: request.chain.step,
                    attempt: request.chain.attempt,
                    answer,
                }
            }
            Effect::AskAgent(view) => self.decide(&view),
            Effect::AskPolicy(request) => {
                let verdict = if request.tool == "wipe" {
                    Verdict::RequireApproval {
                        approval_kind: "wipe".into(),
                        capability: "wipe".into(),
                        presentation: request.arguments.clone(),
                    }
                } else {
                    Verdict::Allow
                };
                Input::Judged {
                    step: request.step,
                    policy: "sim@1".into(),
                    verdict: Ok(verdict),
                }
            }
            Effect::AskHook => Input::HookAnswered(self.hook(&run)),
            Effect::AckInbox { inbox } => {
                if let Some(letter) = self.store.inbox.get_mut(&inbox) {
                    letter.acked = true;
                }
                return;
            }
            Effect::SetTimer { .. } => Input::TimerSet,
            Effect::WakeAt { .. } => return self.tell(node, life, run, Input::Tick),
            Effect::Stop(_) => return,
        };
        self.reply(node, life, &run, answer);
    }

    /// A consumer that mostly lets its runs change hands, now and then wants a person to look first, and rarely knows better.
    fn hook(&mut self, run: &RunId) -> HookAnswer {
        let result = AcceptedJson::empty_object();
        if self.chance(10) {
            self.tally.held += 1;
            return HookAnswer::Waiting {
                approval_kind: "takeover".into(),
                capability: format!("go on with {run}"),
                presentation: result,
            };
        }
        if self.fault(1) {
            return HookAnswer::Completed { result };
        }
        HookAnswer::Continue
    }

    /// An agent that makes a few turns of random calls and then closes or completes.
    pub(super) fn decide(&mut self, view: &AgentView) -> Input {
        let calls = |tools: &[&str]| {
            let calls: Vec<_> = tools
                .iter()
                .enumerate()
                .map(|(index, tool)| serde_json::json!({ "tool": tool, "arguments": { "turn": view.turn, "index": index } }))
                .collect();
            serde_json::json!({ "kind": "tool_calls", "calls": calls })
        };
        let decision = if view.turn > 3 {
            if self.chance(50) {
                calls(&["close"])
            } else {
                serde_json::json!({ "kind": "complete", "result": {} })
            }
        } else if self.chance(5) {
            serde_json::json!({ "kind": "nonsense" })
        } else {
            let picks: Vec<&str> = (0..self.rng.random_range(1..3))
                .map(|_| PICKS[self.rng.random_range(0..PICKS.len())])
                .collect();
            calls(&picks)
        };
        Input::AgentDecided {
            turn: view.turn,
            decision: Kept::from_bytes(decision.to_string().as_bytes()),
        }
    }

    pub(super) fn write_register(
        &mut self,
        write: &RegisterRequest,
        writer: &str,
    ) -> Result<Seq, ()> {
        let stored = self.store.register(write, writer);
        if let Ok(seq) = stored {
            let message = self
                .store
                .chain(&write.chain)
                .into_iter()
                .find(|message| message.seq == seq);
            self.hint(Hint {
                chain: write.chain.clone(),
                message,
            });
        }
        stored
    }

    /// Hints reach the dispatching session's node, at most once, perhaps never.
    pub(super) fn hint(&mut self, hint: Hint) {
        let run = hint.chain.run.clone();
        for node in 0..self.nodes.len() {
            if self.nodes[node].runs.contains_key(&run) && !self.fault(20) {
                let life = self.nodes[node].life;
                self.reply(node, life, &run, Input::Hint(hint.clone()));
            }
        }
    }

    pub(super) fn owner(&self, run: &RunId) -> Option<usize> {
        (0..self.nodes.len())
            .find(|id| self.nodes[*id].alive && self.nodes[*id].runs.contains_key(run))
    }

    pub(super) fn find_owner(&mut self, run: &RunId) {
        if self.ended(run) || self.owner(run).is_some() {
            return;
        }
        let Some(node) = (0..self.nodes.len()).find(|id| self.nodes[*id].alive) else {
            return;
        };
        let parked = self.state(run).is_some_and(|state| state.parked);
        let letters = self
            .store
            .inbox
            .values()
            .any(|letter| letter.run == *run && !letter.acked);
        // A late outcome wakes a parked run as well.
        let late = parked && self.has_news(run);
        if !parked || letters || late {
            self.tally.takeovers += u64::from(self.store.journals.contains_key(run));
            self.start_run(node, run);
        }
    }

    pub(super) fn has_news(&mut self, run: &RunId) -> bool {
        use leasehold_protocol::{OutcomeBody, Phase};
        let Some(state) = self.state(run) else {
            return false;
        };
        let open = state
            .current_steps()
            .iter()
            .filter(|step| matches!(step.phase, Phase::Interrupted(_)));
        let open: Vec<_> = open
            .filter_map(|step| Some((step.id, step.latest()?.attempt)))
            .collect();
        self.store
            .chains
            .iter()
            .filter(|(key, _)| key.run == *run && open.contains(&(key.step, key.attempt)))
            .any(|(key, messages)| {
                let outcome = Chain::read(self.class(&key.tool), messages).outcome;
                outcome.is_some_and(|(_, outcome)| {
                    matches!(
                        outcome.fact,
                        OutcomeBody::Done { .. } | OutcomeBody::NothingHappened { .. }
                    )
                })
            })
    }

    pub(super) fn hand_on(&mut self, run: &RunId) {
        let letters: Vec<_> = self
            .store
            .inbox
            .iter()
            .filter(|(_, letter)| letter.run == *run && !letter.acked)
            .map(|(seq, letter)| (*seq, letter.clone()))
            .collect();
        for (seq, letter) in letters {
            if self.ended(run) {
                if let Some(letter) = self.store.inbox.get_mut(&seq) {
                    letter.acked = true;
                }
                continue;
            }
            let Some(node) = self.owner(run) else {
                continue;
            };
            let life = self.nodes[node].life;
            match letter.kind {
                LetterKind::Submit => {
                    let named = self
                        .state(run)
                        .is_some_and(|state| state.folded.contains(&seq));
                    if let (true, Some(letter)) = (named, self.store.inbox.get_mut(&seq)) {
                        letter.acked = true;
                    }
                }
                LetterKind::Decide => self.reply(
                    node,
                    life,
                    run,
                    Input::Decide {
                        inbox: seq,
                        body: letter.body,
                    },
                ),
                LetterKind::Cancel => self.reply(
                    node,
                    life,
                    run,
                    Input::Cancel {
                        inbox: seq,
                        body: letter.body,
                    },
                ),
            }
        }
    }
}
