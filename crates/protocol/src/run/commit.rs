//! Drafting, storing and never losing a commit.
//!
//! After a refused or unknown commit all commits after the last applied position are read, in order. Our own id among them: it was stored.
//! Another valid successor of our tail: somebody else drives the run, and this machine stops. Neither: it is not stored, and the same
//! bytes are asked for again.

use leasehold_json::Digest;

use super::io::{CommitRequest, Effect, StopReason};
use super::{RunMachine, RunWeakening, Watch};
use crate::ids::{CommitId, Seq};
use crate::state::Head;
use crate::wire::{
    Body, Commit, Event, JournalSubject, OfferedTool, StoredCommit, Submission, WIRE_VERSION,
    WireError,
};

/// Events that will be one commit.
#[derive(Debug, Clone)]
pub(super) struct Draft {
    pub(super) at: i64,
    pub(super) opened_boot: u64,
    pub(super) events: Vec<Event>,
    pub(super) subject: JournalSubject,
    pub(super) call: Option<Body>,
    /// Somebody waits for it to be durable.
    pub(super) forced: bool,
    /// Inbox messages that it names.
    pub(super) acks: Vec<Seq>,
}

/// A commit on its way.
#[derive(Debug, Clone)]
pub(super) struct Pending {
    request: CommitRequest,
    id: CommitId,
    prev: Digest,
    acks: Vec<Seq>,
    stop: Option<StopReason>,
    reading: bool,
}

impl RunMachine {
    /// Adds an event to the draft and takes it into the state.
    pub(super) fn draft(&mut self, event: Event) -> Result<(), String> {
        if self.draft.is_none() {
            let takes_over = !self.owned
                && (self.state.n == 0 || self.config.weakening != RunWeakening::SameEpoch);
            let epoch = if takes_over {
                self.state.epoch.next()
            } else {
                self.state.epoch
            };
            let opens = matches!(event, Event::Submitted { .. });
            let at = self.now.wall;
            self.state.begin(&Head {
                n: self.state.n.saturating_add(1),
                epoch,
                at,
                opens,
            })?;
            self.draft = Some(Draft {
                at,
                opened_boot: self.now.boot,
                events: Vec::new(),
                subject: JournalSubject::Note,
                call: None,
                forced: false,
                acks: Vec::new(),
            });
        }
        if let Some(draft) = &mut self.draft {
            self.state.event(&event, draft.at)?;
            draft.events.push(event);
        }
        Ok(())
    }

    /// The draft must go out before anything else happens.
    pub(super) fn force(&mut self) {
        if let Some(draft) = &mut self.draft {
            draft.forced = true;
        }
    }

    pub(super) fn subject(&mut self, subject: JournalSubject, call: Option<Body>) {
        if let Some(draft) = &mut self.draft {
            draft.subject = subject;
            draft.call = call;
        }
    }

    pub(super) fn ack_with_draft(&mut self, inbox: Seq) {
        if let Some(draft) = &mut self.draft {
            draft.acks.push(inbox);
            draft.forced = true;
        }
    }

    /// Sends the draft off.
    pub(super) fn flush(&mut self) -> Result<(), String> {
        let Some(draft) = self.draft.take() else {
            return Ok(());
        };
        let stop = draft.events.iter().find_map(|event| match event {
            Event::Ended { .. } => Some(StopReason::Ended),
            Event::Parked { .. } => Some(StopReason::Parked),
            Event::Released { .. } => Some(StopReason::Released),
            _ => None,
        });
        let id = CommitId::derive(&self.config.session, self.state.epoch, self.state.n);
        let prev = self.state.tail;
        let commit = Commit {
            v: WIRE_VERSION,
            run: self.state.run.clone(),
            n: self.state.n,
            epoch: self.state.epoch,
            id: id.clone(),
            at: draft.at,
            prev,
            events: draft.events,
        };
        let body = Body::from(commit.encode());
        self.state.link(Digest::of(body.as_bytes()));
        let request = CommitRequest {
            subject: draft.subject,
            expected: self.state.last,
            body,
            call: draft.call,
        };
        self.out.push(Effect::Commit(request.clone()));
        self.pending = Some(Pending {
            request,
            id,
            prev,
            acks: draft.acks,
            stop,
            reading: false,
        });
        Ok(())
    }

    /// The first commit of this owner: fences every earlier epoch. Until it is stored nothing else is done.
    pub(super) fn own(&mut self) -> Result<(), String> {
        let opens = self.state.opened.is_none();
        if opens {
            let Some((inbox, body)) = self.submission.clone() else {
                self.stop(StopReason::Unreadable(
                    "there is neither a journal nor a submission".into(),
                ));
                return Ok(());
            };
            match self.opening(inbox, &body) {
                Ok(event) => self.draft(event)?,
                Err(error) => {
                    self.stop(StopReason::Unreadable(error.to_string()));
                    return Ok(());
                }
            }
        }
        self.draft(Event::Owned {
            node: self.config.node.clone(),
            session: self.config.session.clone(),
        })?;
        self.quarantine()?;
        self.subject(
            if opens {
                JournalSubject::Open
            } else {
                JournalSubject::Own
            },
            None,
        );
        if let (true, Some((inbox, _))) = (opens, self.submission.take()) {
            self.ack_with_draft(inbox);
        }
        self.flush()
    }

    fn opening(&self, inbox: Seq, body: &Body) -> Result<Event, WireError> {
        let submission = Submission::decode(body.as_bytes())?;
        let offered = |name: String| {
            // A tool that is not registered stays in the toolset: its calls are refused as unknown, the run is not lost.
            let spec = self
                .tool(&name)
                .map_or(Digest::ZERO, |tool| tool.spec_hash());
            OfferedTool { name, spec }
        };
        Ok(Event::Submitted {
            client: submission.client,
            agent: submission.agent,
            goal: submission.goal,
            input: submission.input,
            toolset: submission.tools.into_iter().map(offered).collect(),
            limits: submission.limits,
            request: Digest::of(body.as_bytes()),
            inbox,
        })
    }

    pub(super) fn release(&mut self) -> Result<(), String> {
        self.draft(Event::Released {
            why: "the process is told to stop".into(),
        })?;
        self.force();
        self.flush()
    }

    pub(super) fn commit_stored(&mut self, seq: Seq) {
        let Some(pending) = self.pending.take() else {
            return;
        };
        self.state.last = seq;
        self.out.extend(
            pending
                .acks
                .into_iter()
                .map(|inbox| Effect::AckInbox { inbox }),
        );
        match pending.request.subject {
            JournalSubject::Call(key) => {
                let class = self.class(&key.tool);
                if let Some(envelope) = &pending.request.call {
                    self.watches.insert(
                        key.step,
                        Watch::dispatched(key, class, seq, envelope.clone(), self.now.boot),
                    );
                }
            }
            JournalSubject::Open | JournalSubject::Own => {
                self.changed_hands();
            }
            JournalSubject::Note if self.hook_due && pending.stop.is_none() => {
                self.out.push(Effect::AskHook);
            }
            JournalSubject::Note | JournalSubject::End => {}
        }
        match pending.stop {
            // Something came in while the park commit was on its way: the run is not left alone with it.
            Some(StopReason::Parked) if self.has_news() => {}
            Some(reason) => self.stop(reason),
            None => {}
        }
    }

    pub(super) fn commit_doubtful(&mut self) {
        if let Some(pending) = &mut self.pending
            && !pending.reading
        {
            pending.reading = true;
            self.out.push(Effect::ReadJournal {
                after: self.state.last,
            });
        }
    }

    pub(super) fn commit_again(&mut self) {
        if let Some(pending) = &mut self.pending {
            pending.reading = false;
            pending.request.expected = self.state.last;
            self.out.push(Effect::Commit(pending.request.clone()));
        }
    }

    pub(super) fn journal_read(&mut self, commits: &[StoredCommit]) {
        let Some(pending) = &self.pending else { return };
        let (own, prev) = (pending.id.clone(), pending.prev);
        for stored in commits
            .iter()
            .filter(|stored| stored.seq > self.state.last)
            .cloned()
            .collect::<Vec<_>>()
        {
            let why = match Commit::decode(stored.body.as_bytes()) {
                Ok(commit) if commit.id == own && commit.run == self.state.run => {
                    return self.commit_stored(stored.seq);
                }
                // A valid successor of our tail that is not ours: somebody else drives the run.
                Ok(commit)
                    if commit.run == self.state.run
                        && commit.n == self.state.n
                        && commit.prev == prev =>
                {
                    let why = format!(
                        "commit {} at position {} is by {} in epoch {}",
                        commit.n, stored.seq, commit.id, commit.epoch
                    );
                    return self.stop(StopReason::Fenced(why));
                }
                Ok(_) => "it does not follow the journal's tail".to_owned(),
                Err(WireError::Newer { found }) => {
                    return self.stop(StopReason::Unreadable(format!(
                        "position {} is of version {found}",
                        stored.seq
                    )));
                }
                Err(error) => error.to_string(),
            };
            self.state.void.push(crate::state::VoidCommit {
                seq: stored.seq,
                why,
            });
            self.state.last = stored.seq;
        }
        // Not stored: the same commit again.
        self.commit_again();
    }
}
