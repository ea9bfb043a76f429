//! What goes wrong, and the sweep that heals: processes start, owners are found, calls are delivered again.

use leasehold_protocol::{JournalSubject, Seq};
use rand::Rng;

use super::*;

/// More owners than a poisoned run is allowed: it is put into quarantine twice.
const MOST_POISONED: u32 = 9;

impl World {
    pub(super) fn plan_faults(&mut self) {
        for _ in 0..self.rng.random_range(0..6) {
            let at = self.rng.random_range(10..FAULTS_END_MS);
            let node = self
                .chance(50)
                .then(|| self.rng.random_range(0..self.config.nodes));
            let worker = (node.is_none() || self.chance(20))
                .then(|| self.rng.random_range(0..self.config.workers));
            self.send(at, Message::Crash { node, worker });
        }
        for _ in 0..self.rng.random_range(0..3) {
            let at = self.rng.random_range(10..FAULTS_END_MS);
            self.send(at, Message::Steal);
        }
        if self.chance(10) {
            let run = self.runs[self.rng.random_range(0..self.runs.len())].clone();
            self.poison = Some((run, self.rng.random_range(1..MOST_POISONED)));
        }
    }

    pub(super) fn crash(&mut self, node: Option<usize>, worker: Option<usize>) {
        if let Some(node) = node {
            self.tally.crashes += 1;
            let it = &mut self.nodes[node];
            (it.alive, it.life) = (false, it.life + 1);
            it.runs.clear();
        }
        if let Some(worker) = worker {
            self.tally.crashes += 1;
            let lost = self.chance(15);
            let it = &mut self.workers[worker];
            (it.alive, it.life) = (false, it.life + 1);
            it.attempts.clear();
            it.inspectors.clear();
            if lost {
                // A fresh, cloned or rolled-back disk is recognised: it gets a new id.
                it.disk.clear();
                it.logbook += 1;
                self.tally.lost_logbooks += 1;
            }
        }
    }

    /// Whether this write, just stored, is the last thing that its node did.
    pub(super) fn poisoned(&mut self, run: &RunId, subject: &JournalSubject) -> bool {
        let takes = matches!(subject, JournalSubject::Open | JournalSubject::Own);
        match &mut self.poison {
            Some((poisoned, left)) if takes && poisoned == run && *left > 0 => {
                *left -= 1;
                true
            }
            _ => false,
        }
    }

    /// Another node takes a run although its owner lives: the journal has to decide.
    pub(super) fn steal(&mut self) {
        let run = self.runs[self.rng.random_range(0..self.runs.len())].clone();
        let thief = (0..self.nodes.len())
            .find(|id| self.nodes[*id].alive && !self.nodes[*id].runs.contains_key(&run));
        if let Some(thief) = thief
            && !self.ended(&run)
        {
            self.tally.takeovers += 1;
            self.start_run(thief, &run);
        }
    }

    pub(super) fn sweep(&mut self) {
        for worker in 0..self.workers.len() {
            if !self.workers[worker].alive && self.chance(30) {
                self.workers[worker].alive = true;
                let open: Vec<_> = self.workers[worker].disk.keys().cloned().collect();
                for chain in open {
                    self.resolve(worker, &chain);
                }
            }
        }
        for node in 0..self.nodes.len() {
            if !self.nodes[node].alive && self.chance(30) {
                self.nodes[node].alive = true;
            }
        }
        for run in self.runs.clone() {
            self.find_owner(&run);
            self.hand_on(&run);
        }
        let calls: Vec<Seq> = self
            .store
            .calls
            .iter()
            .filter(|(_, call)| !call.acked)
            .map(|(seq, _)| *seq)
            .collect();
        for seq in calls {
            let busy = self.workers.iter().any(|worker| {
                self.store
                    .calls
                    .get(&seq)
                    .is_some_and(|call| worker.attempts.contains_key(&call.key))
            });
            if !busy || self.fault(10) {
                let worker = self.rng.random_range(0..self.workers.len());
                let delay = self.delay();
                self.send(delay, Message::Deliver { worker, seq });
            }
        }
        self.deadlines();
        self.send(SWEEP_MS, Message::Sweep);
    }
}
