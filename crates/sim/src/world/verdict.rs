//! After the schedule: every invariant over the stored bytes and the ledger, and counts of what really occurred.

use std::collections::BTreeMap;

use leasehold_protocol::invariant::{self, RunRecord};
use leasehold_protocol::state::MAX_LOST_OWNERS;
use leasehold_protocol::{Event, Finding, Invariant, Question, RunId, StoredCommit, Violation};
use leasehold_tools::SideEffect;

use super::*;

/// Two lives of a node's session.
const LOST_WITHIN_MS: i64 = 2 * nodes::SESSION_TTL_MS as i64;

impl World {
    pub(crate) fn verdict(&mut self, trace: bool) -> (Vec<Violation>, Vec<String>) {
        let tools = self.tools.clone();
        let class = move |tool: &str| {
            tools
                .get(tool)
                .map_or(SideEffect::Destructive, |tool| tool.spec().side_effect)
        };
        let mut journals = Vec::new();
        for run in self.runs.clone() {
            let commits = self.store.journals.get(&run).cloned().unwrap_or_default();
            let chains: BTreeMap<_, _> = self
                .store
                .chains
                .iter()
                .filter(|(key, _)| key.run == run)
                .map(|(k, v)| (k.clone(), v.clone()))
                .collect();
            let effects = self.outside.effects.get(&run).cloned().unwrap_or_default();
            let record = RunRecord {
                run: &run,
                commits: &commits,
                chains: &chains,
                effects: Some(&effects),
            };
            self.violations.extend(invariant::check(&record, &class));
            if !self.ended(&run) {
                self.violate(
                    Invariant::I14,
                    &run,
                    format!(
                        "not ended after {} ms of virtual time and {} messages",
                        self.now, self.sent
                    ),
                );
            }
            self.count(&run);
            if self.violations.is_empty() && !trace {
                continue;
            }
            journals.extend(
                commits
                    .iter()
                    .map(|stored| format!("{} {:?} {:?}", stored.seq, stored.subject, stored.body)),
            );
            journals.extend(chains.iter().flat_map(|(key, messages)| {
                messages.iter().map(move |message| {
                    format!(
                        "{} {key} {:?} {} {:?}",
                        message.seq, message.link, message.writer, message.body
                    )
                })
            }));
        }
        let open: Vec<_> = self
            .store
            .inbox
            .iter()
            .filter(|(_, letter)| !letter.acked)
            .map(|(seq, letter)| (*seq, letter.run.clone()))
            .collect();
        for (seq, run) in open {
            self.violate(
                Invariant::I21,
                &run,
                format!("inbox message {seq} was neither folded nor answered"),
            );
        }
        (std::mem::take(&mut self.violations), journals)
    }

    /// No run costs more owners in a row than it is allowed: counted anew here, from the events alone (I16).
    fn count_lost(&mut self, run: &RunId, journal: &[StoredCommit]) {
        let (mut state, mut row, mut taken) = (RunState::new(run.clone()), 0, None);
        for stored in journal {
            let Ok(applied) = state.apply(stored) else {
                return;
            };
            let Some(commit) = applied else { continue };
            let quarantines = |event: &Event| {
                let question = match event {
                    Event::Requested { question, .. } => question,
                    _ => return false,
                };
                matches!(question, Question::Quarantined { .. })
            };
            self.tally.quarantined += u64::from(commit.events.iter().any(quarantines));
            let only_takes = commit
                .events
                .iter()
                .all(|event| matches!(event, Event::Submitted { .. } | Event::Owned { .. }));
            let soon = taken.is_some_and(|at| commit.at < at + LOST_WITHIN_MS);
            row = match (only_takes, soon) {
                (true, true) => row + 1,
                (true, false) => 1,
                (false, _) => 0,
            };
            taken = Some(commit.at);
            if state.held_by().is_some() {
                // Held already: its owners do nothing but write down what operators say.
                row = 0;
            }
            if row > MAX_LOST_OWNERS {
                let text = format!("{row} owners in a row were lost right after they took it");
                self.violate(Invariant::I16, run, text);
            }
        }
    }

    pub(super) fn count(&mut self, run: &RunId) {
        let journal = self.store.journals.get(run).cloned().unwrap_or_default();
        self.count_lost(run, &journal);
        for commit in journal
            .iter()
            .filter_map(|stored| leasehold_protocol::Commit::decode(stored.body.as_bytes()).ok())
        {
            for event in commit.events {
                let Event::Found { finding, .. } = event else {
                    continue;
                };
                self.tally.orphans += 1;
                match finding {
                    Finding::NotStarted => self.tally.tombstones += 1,
                    Finding::Revoked => self.tally.revoked += 1,
                    Finding::ProbeDone => self.tally.probe_done += 1,
                    Finding::ProbeNotDone => self.tally.probe_not_done += 1,
                    Finding::RunAgain => self.tally.run_again += 1,
                    Finding::RecordedDone | Finding::Rejected => self.tally.operator += 1,
                    _ => {}
                }
            }
        }
    }
}
