//! What a [`World`] stores: the journal, the chains and the notes with their conditional writes, and the inbox.

use leasehold_json::Digest;
use leasehold_protocol::{
    Body, CancelRequest, ChainKey, ChainMessage, CommitRequest, DecideRequest, Decision, Event,
    Hint, InboxAnswer, Input, JournalSubject, Link, NoteMessage, RUNTIME_TOKEN, Seq, StoredCommit,
    WIRE_VERSION,
};

use crate::harness::{Fault, Letter, World, handed};

impl World {
    pub(crate) fn next(&mut self) -> Seq {
        self.seq += 1;
        Seq(self.seq)
    }

    fn written(&mut self) {
        self.writes += 1;
        if self.deaths.remove(&self.writes) {
            self.crash();
        }
    }

    pub(crate) fn commit(&mut self, request: CommitRequest) {
        match self.faults.pop_front().unwrap_or(Fault::Fine) {
            Fault::Fine => self.commit_now(request, true),
            Fault::LostAck => self.commit_now(request, false),
            Fault::Vanished => self.answer(Input::CommitDoubtful),
            Fault::Busy => self.answer(Input::CommitBusy),
            Fault::Held => self.held = Some(request),
        }
    }

    /// Compare-and-set on the run's last position; a stored call goes out to a worker at once.
    pub(crate) fn commit_now(&mut self, request: CommitRequest, acknowledge: bool) {
        let last = self.journal.last().map_or(Seq::NONE, |stored| stored.seq);
        if last != request.expected {
            return self.answer(Input::CommitDoubtful);
        }
        let seq = self.next();
        self.journal.push(StoredCommit {
            seq,
            subject: request.subject.clone(),
            body: request.body,
        });
        self.written();
        self.answer(if acknowledge {
            Input::CommitStored { seq }
        } else {
            Input::CommitDoubtful
        });
        if let (JournalSubject::Call(key), Some(body)) = (request.subject, request.call) {
            let call = ChainMessage {
                seq,
                expected: None,
                link: Link::Call,
                writer: RUNTIME_TOKEN.into(),
                body,
            };
            self.chains.insert(key.clone(), vec![call]);
            self.deliver(&key);
        }
    }

    /// Compare-and-set on a chain's last position; the dispatching session hears of it.
    pub(crate) fn register(
        &mut self,
        key: &ChainKey,
        link: Link,
        expected: Seq,
        writer: &str,
        body: Body,
    ) -> Option<Seq> {
        if self.chains[key].last()?.seq != expected {
            return None;
        }
        let message = ChainMessage {
            seq: self.next(),
            expected: Some(expected),
            link,
            writer: writer.to_owned(),
            body,
        };
        let seq = message.seq;
        self.chains.get_mut(key)?.push(message.clone());
        self.hint(key, Some(message));
        self.written();
        Some(seq)
    }

    pub(crate) fn note(&mut self, key: &ChainKey, writer: &str, body: Body) {
        let (seq, writer) = (self.next(), writer.to_owned());
        let note = NoteMessage { seq, writer, body };
        self.notes.entry(key.clone()).or_default().push(note);
        self.hint(key, None);
        self.written();
    }

    fn hint(&mut self, key: &ChainKey, message: Option<ChainMessage>) {
        if self.hints && key.origin.as_str() == self.session {
            let chain = key.clone();
            self.answer(Input::Hint(Hint { chain, message }));
        }
    }

    pub(crate) fn put(&mut self, letter: Letter, body: Body) -> Seq {
        let seq = self.next();
        self.inbox.insert(seq, (letter, body.clone(), false));
        if letter != Letter::Submit {
            self.answer(handed(seq, letter, body));
        }
        seq
    }

    /// What a decision about this question must name.
    pub(crate) fn hash(&self, approval: &str) -> Digest {
        self.state().approvals[&approval.parse().unwrap()].hash
    }

    /// An operator writes a decision; nothing else happens yet.
    pub(crate) fn letter(
        &mut self,
        approval: &str,
        hash: Digest,
        decision: Decision,
        by: &str,
    ) -> Seq {
        let request = DecideRequest {
            v: WIRE_VERSION,
            approval: approval.parse().unwrap(),
            hash,
            decision,
            by: by.parse().unwrap(),
            note: None,
        };
        self.put(Letter::Decide, request.encode().into())
    }

    /// An operator answers a question, naming the hash that stands in the journal.
    pub(crate) fn decide(&mut self, approval: &str, decision: Decision) -> Seq {
        let hash = self.hash(approval);
        let seq = self.letter(approval, hash, decision, "olga");
        self.go();
        seq
    }

    /// What inbox messages that changed nothing were answered.
    pub(crate) fn answer_to(&self, letter: Seq) -> Option<InboxAnswer> {
        self.events().into_iter().find_map(|event| match event {
            Event::Answered { inbox, answer } if inbox == letter => Some(answer),
            _ => None,
        })
    }

    pub(crate) fn cancel(&mut self) -> Seq {
        let request = CancelRequest {
            v: WIRE_VERSION,
            by: "olga".parse().unwrap(),
            note: None,
        };
        let seq = self.put(Letter::Cancel, request.encode().into());
        self.go();
        seq
    }
}
