//! A hand-written run: the records that a correct runtime would store, one call per step of the story, and every place
//! where a test can make it go wrong.

use serde_json::{Value, json};

use crate::World;
use crate::books::{Books, Request, Row};
use crate::dump::{Dump, sha256};
use crate::report::{self, Report};

pub(crate) const RUN: &str = "refund 1";
const TOKEN: &str = "refund_201";
const ARGS: &str = r#"{"order_id":9007199254740993,"amount":1.50,"currency":"EUR"}"#;

#[derive(Clone)]
pub(crate) struct Story {
    pub(crate) lines: Vec<Value>,
    pub(crate) books: Vec<Row>,
    pub(crate) requests: Vec<Request>,
    seq: u64,
    n: u64,
    pub(crate) epoch: u64,
    pub(crate) prev: String,
    last: u64,
}

impl Story {
    /// Submitted, owned, in epoch 1.
    pub(crate) fn new() -> Self {
        Self::begun(None)
    }

    /// The same in a cluster, whose inbox has positions of its own: the submission stands at this one.
    pub(crate) fn in_cluster(inbox: u64) -> Self {
        Self::begun(Some(inbox))
    }

    fn begun(inbox: Option<u64>) -> Self {
        let mut story = Self {
            lines: Vec::new(),
            books: Vec::new(),
            requests: Vec::new(),
            seq: 0,
            n: 0,
            epoch: 1,
            prev: "0".repeat(64),
            last: 0,
        };
        let submission = json!({"v": 1, "run": RUN, "client": "demo"}).to_string();
        let request = sha256(submission.as_bytes());
        let after = story.seq;
        story.seq = inbox.map_or(story.seq, |at| at - 1);
        let at = story.store(
            "inbox",
            &format!("lh.0.in.{TOKEN}.demo"),
            json!({}),
            &submission,
        );
        if inbox.is_some() {
            story.seq = after;
        }
        let inbox = at;
        story.commit(
            "open",
            json!([
                {"kind": "run.submitted", "client": "demo", "agent": "clerk", "goal": "refund", "request": request, "inbox": inbox},
                {"kind": "run.owned", "node": "n", "session": "s1"}
            ]),
        );
        story
    }

    /// The whole story of a refund that goes well.
    pub(crate) fn paid() -> Self {
        Self::new().and_paid()
    }

    /// What follows a beginning when a refund goes well.
    pub(crate) fn and_paid(mut self) -> Self {
        let story = &mut self;
        story.first_call();
        story.claim(1);
        story.pay(1);
        story.done(1);
        story.finish(1);
        story.end("completed");
        self
    }

    /// A line of the claim's worker's logbook.
    pub(crate) fn armed(&mut self, body: Value) {
        self.lines.push(json!({"seq": 1, "stream": "logbook", "worker": "w.1", "logbook": "l", "published": true, "body": body.to_string(),
            "chain": {"run": RUN, "tool": "refund_order", "step": "1-0", "attempt": 1, "origin": "s1"}}));
    }

    pub(crate) fn store(&mut self, stream: &str, subject: &str, more: Value, body: &str) -> u64 {
        self.seq += 1;
        let mut line = json!({"seq": self.seq, "stream": stream, "subject": subject, "run": RUN, "body": body});
        line.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        self.lines.push(line);
        self.seq
    }

    pub(crate) fn commit(&mut self, last: &str, events: Value) -> u64 {
        self.commit_with(last, events, json!({}))
    }

    fn commit_with(&mut self, last: &str, events: Value, more: Value) -> u64 {
        self.n += 1;
        let body = json!({"v": 1, "run": RUN, "n": self.n, "epoch": self.epoch, "id": "c", "at": 1000 * self.n, "prev": self.prev, "events": events});
        let body = body.to_string();
        self.prev = sha256(body.as_bytes());
        let mut more = more;
        more["expected"] = json!(self.last);
        self.last = self.store(
            if last.starts_with("call") {
                "call"
            } else {
                "journal"
            },
            &format!("lh.0.run.{TOKEN}.j.{last}"),
            more,
            &body,
        );
        self.last
    }

    pub(crate) fn take_over(&mut self) {
        self.epoch += 1;
        self.commit(
            "own",
            json!([{"kind": "run.owned", "node": "n", "session": format!("s{}", self.epoch)}]),
        );
    }

    pub(crate) fn first_call(&mut self) {
        self.call(1, json!({"basis": "first"}));
    }

    pub(crate) fn call(&mut self, attempt: u64, basis: Value) -> u64 {
        self.call_of(attempt, basis, json!({"verdict": "allow"}), ARGS)
    }

    /// `sent` are the arguments in the envelope; the policy saw the usual ones.
    pub(crate) fn call_of(
        &mut self,
        attempt: u64,
        basis: Value,
        verdict: Value,
        sent: &str,
    ) -> u64 {
        let envelope = json!({"v": 1, "run": RUN, "step": "1-0", "attempt": attempt, "epoch": self.epoch, "origin": "s1", "tool": "refund_order",
            "spec": "f", "idempotency_key": "k", "timeout_ms": 2000, "arguments": sent});
        let envelope = envelope.to_string();
        let events = json!([
            {"kind": "step.policy", "step": "1-0", "tool": "refund_order", "arguments": ARGS, "spec": "f", "policy": "p", "verdict": verdict},
            {"kind": "step.dispatched", "step": "1-0", "attempt": attempt, "call": sha256(envelope.as_bytes()), "basis": basis}
        ]);
        self.commit_with(
            &format!("call.refund_5Forder.1-0.{attempt}.s1._"),
            events,
            json!({"call": envelope}),
        )
    }

    pub(crate) fn register(
        &mut self,
        register: &str,
        attempt: u64,
        writer: &str,
        body: Value,
    ) -> u64 {
        let subject =
            format!("lh.0.run.{TOKEN}.w.{register}.refund_5Forder.1-0.{attempt}.s1.{writer}");
        self.store(
            register,
            &subject,
            json!({"writer": writer}),
            &body.to_string(),
        )
    }

    pub(crate) fn claim(&mut self, attempt: u64) -> u64 {
        self.register("claim", attempt, "w_2E1", json!({"kind": "claim", "v": 1, "claim": format!("c{attempt}"), "worker": "w.1", "incarnation": "i", "logbook": "l"}))
    }

    pub(crate) fn revoke(&mut self, attempt: u64) -> u64 {
        self.register(
            "claim",
            attempt,
            "_rt",
            json!({"kind": "revoke", "v": 1, "by": "s1", "why": "ending"}),
        )
    }

    pub(crate) fn outcome(&mut self, attempt: u64, fact: Value) -> u64 {
        self.register(
            "outcome",
            attempt,
            "w_2E1",
            json!({"v": 1, "claim": format!("c{attempt}"), "fact": fact}),
        )
    }

    pub(crate) fn done(&mut self, attempt: u64) -> u64 {
        self.outcome(attempt, json!({"kind": "done", "result": {"json": "{}"}}))
    }

    pub(crate) fn seal(&mut self, attempt: u64, finding: &str) -> u64 {
        let fact =
            json!({"kind": "sealed", "finding": {"finding": finding, "operator": "o"}, "by": "s1"});
        self.register("outcome", attempt, "_rt", json!({"v": 1, "fact": fact}))
    }

    pub(crate) fn found(&mut self, attempt: u64, finding: &str, register: Option<u64>) -> u64 {
        self.commit("note", json!([{"kind": "attempt.finding", "step": "1-0", "attempt": attempt, "finding": finding, "rung": 1, "register": register, "detail": "x"}]))
    }

    pub(crate) fn finish(&mut self, attempt: u64) -> u64 {
        self.finish_as(attempt, "tool_result", Value::Null)
    }

    pub(crate) fn finish_as(&mut self, attempt: u64, kind: &str, failure: Value) -> u64 {
        let observation = json!({"kind": kind, "content": {"json": "{}"}, "trust": "untrusted", "failure": failure});
        self.commit("note", json!([{"kind": "step.finished", "step": "1-0", "attempt": attempt, "observation": observation}]))
    }

    pub(crate) fn end(&mut self, status: &str) -> u64 {
        self.commit(
            "end",
            json!([{"kind": "run.ending", "status": status, "reason": "r"}, {"kind": "run.ended", "status": status, "reason": "r", "in_flight": []}]),
        )
    }

    /// A question about the step, answered if `choice` is given.
    pub(crate) fn ask(&mut self, approval: &str, choice: Option<&str>) {
        self.commit("note", json!([{"kind": "approval.requested", "approval": approval, "step": "1-0", "hash": "h", "question": {"ask": "approve"}}]));
        if let Some(choice) = choice {
            self.commit("note", json!([{"kind": "approval.decided", "approval": approval, "decision": {"choice": choice}, "by": "o", "inbox": 1}]));
        }
    }

    /// The service got the request of the attempt and applied it.
    pub(crate) fn pay(&mut self, attempt: u64) {
        let id = i64::try_from(self.requests.len()).unwrap() + 1;
        let (key, run, step) = ("k".to_owned(), RUN.to_owned(), "1-0".to_owned());
        self.requests.push(Request {
            id,
            key: key.clone(),
            run: run.clone(),
            step: step.clone(),
            attempt,
            args_sha256: sha256(ARGS.as_bytes()),
        });
        self.books.push(Row {
            tool: "refund_order".to_owned(),
            key,
            order: "9007199254740993".to_owned(),
            run,
            step,
            attempt,
            applied: id,
        });
    }

    pub(crate) fn text(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }

    pub(crate) fn dump(&self) -> Dump {
        Dump::of_lines(self.text().lines()).unwrap()
    }

    pub(crate) fn report(&self) -> Report {
        self.report_of(&[RUN.to_owned()])
    }

    pub(crate) fn report_of(&self, submitted: &[String]) -> Report {
        let books = Books {
            requests: self.requests.clone(),
            rows: self.books.clone(),
            ..Books::of_payments()
        };
        report::of(&World::new(&self.dump(), books, submitted))
    }

    /// The invariants that are broken, each once.
    pub(crate) fn broken(&self) -> Vec<String> {
        let mut broken: Vec<String> = self
            .report()
            .violations
            .into_iter()
            .map(|violation| violation.invariant)
            .collect();
        broken.dedup();
        broken
    }
}
