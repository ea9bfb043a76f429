//! The table: each operation that somebody is allowed or forbidden, one a line.

use crate::raw::{Got, Operation, publish, subscribe};
use crate::{MAIL_POOL, NOTE, POOL};

/// One line of the table: who tries what, what comes of it, and the subjects that hold a message more afterwards.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) user: &'static str,
    pub(crate) operation: Operation,
    pub(crate) got: Got,
    pub(crate) adds: &'static [&'static str],
}

fn allowed(
    name: &'static str,
    user: &'static str,
    operation: Operation,
    adds: &'static [&'static str],
) -> Row {
    Row {
        name,
        user,
        operation,
        got: Got::Answered,
        adds,
    }
}

fn refused(name: &'static str, user: &'static str, operation: Operation) -> Row {
    Row {
        got: Got::Refused,
        ..allowed(name, user, operation, &[])
    }
}

/// It reaches somebody, who says no.
fn answered_no(name: &'static str, user: &'static str, operation: Operation) -> Row {
    Row {
        got: Got::Error,
        ..allowed(name, user, operation, &[])
    }
}

/// The server's answer is named a subject to go to: it does not go there.
fn deputy(
    name: &'static str,
    user: &'static str,
    operation: Operation,
    adds: &'static [&'static str],
) -> Row {
    Row {
        got: Got::Sent,
        ..allowed(name, user, operation, adds)
    }
}

/// Every row, in the order in which they are tried; `ack` acknowledges a delivery to `pay-1`.
#[rustfmt::skip]
pub(crate) fn rows(ack: &str) -> Vec<Row> {
    let call = "charge_5Fcard.1-0.1.s-1";
    let register = |what: &str, writer: &str| format!("lh.0.run.r.w.{what}.{call}.{writer}");
    let claim = register("claim", "pay-1");
    let pull = format!("$JS.API.CONSUMER.MSG.NEXT.LH_0.{POOL}");
    let now = r#"{"batch":1,"no_wait":true}"#;
    let chain = "lh.ask.chain.r.charge_5Fcard.1-0.1.s-1";
    vec![
        // A worker: what it may.
        allowed("a worker has its pool made", "pay-1", publish(&format!("lh.ask.pool.0.{POOL}"), r#"["refund_order","charge_card"]"#), &[]),
        allowed("a worker claims under its own name", "pay-1", publish(&claim, "c").header("Nats-Expected-Last-Subject-Sequence", "0"), &["lh.0.run.r.w.claim.charge_5Fcard.1-0.1.s-1.pay-1"]),
        allowed("a worker writes its outcome", "pay-1", publish(&register("outcome", "pay-1"), "o"), &["lh.0.run.r.w.outcome.charge_5Fcard.1-0.1.s-1.pay-1"]),
        allowed("a worker writes a note", "pay-1", publish(&register("evidence", "pay-1.0"), "n"), &["lh.0.run.r.w.evidence.charge_5Fcard.1-0.1.s-1.pay-1.0"]),
        allowed("a worker is alive", "pay-1", publish("lh.ws.payments.pay-1.live", "l").header("Nats-TTL", "3600s"), &["lh.ws.payments.pay-1.live"]),
        allowed("a worker marks its logbook", "pay-1", publish("lh.ws.payments.pay-1.logbook", "m"), &["lh.ws.payments.pay-1.logbook"]),
        allowed("a worker stores a piece of a blob", "pay-1", publish("lh.a.aa.0", "b"), &["lh.a.aa.0"]),
        allowed("a worker reads a chain of its tools", "pay-1", publish(chain, ""), &[]),
        allowed("a worker reads notes of its tools", "pay-1", publish("lh.ask.notes.r.charge_5Fcard.1-0.1.s-1", ""), &[]),
        allowed("a worker reads its own record", "pay-1", publish("lh.ask.last.lh.ws.payments.pay-1.live", ""), &[]),
        allowed("a worker asks what the cluster is", "pay-1", publish("lh.ask.cluster.pay-1", ""), &[]),
        // A worker: what it may not.
        refused("a worker writes a journal", "pay-1", publish(NOTE, "x")),
        refused("a worker dispatches a call", "pay-1", publish("lh.0.run.r.j.call.charge_5Fcard.9-0.1.s-1._", "x")),
        refused("a worker claims under another's name", "pay-1", publish(&register("claim", "pay-2"), "x")),
        refused("a worker revokes as an owner does", "pay-1", publish(&register("claim", "_rt"), "x")),
        refused("a worker seals as an owner does", "pay-1", publish(&register("outcome", "_rt"), "x")),
        refused("a worker writes another's outcome", "pay-1", publish(&register("outcome", "pay-2"), "x")),
        refused("a worker writes a note under another's name", "pay-1", publish(&register("evidence", "pay-2.0"), "x")),
        refused("a worker claims another domain's call", "pay-1", publish("lh.0.run.r.w.claim.send_5Fmail.1-1.1.s-1.pay-1", "x")),
        refused("a worker pulls another domain's calls", "pay-1", publish(&format!("$JS.API.CONSUMER.MSG.NEXT.LH_0.{MAIL_POOL}"), now)),
        refused("a worker pulls from a consumer of the nodes", "pay-1", publish("$JS.API.CONSUMER.MSG.NEXT.LHI_0.nodes", now)),
        refused("a worker has another domain's pool made", "pay-1", publish(&format!("lh.ask.pool.0.{MAIL_POOL}"), r#"["send_mail"]"#)),
        answered_no("a worker has a consumer of other tools made under its pool's name", "pay-1", publish(&format!("lh.ask.pool.0.{POOL}"), r#"["send_mail"]"#)),
        refused("a worker makes a consumer", "pay-1", publish("$JS.API.CONSUMER.CREATE.LH_0.own", r#"{"stream_name":"LH_0","config":{"durable_name":"own"}}"#)),
        refused("a worker removes a consumer", "pay-1", publish(&format!("$JS.API.CONSUMER.DELETE.LH_0.{POOL}"), "")),
        refused("a worker acknowledges what was not delivered to it", "pay-2", publish(ack, "+ACK")),
        refused("a worker reads by a filter of its own", "pay-1", publish("$JS.API.DIRECT.GET.LH_0", r#"{"batch":10,"next_by_subj":">","seq":1}"#)),
        refused("a worker reads by subject", "pay-1", publish("$JS.API.DIRECT.GET.LH_0.lh.0.run.r.j.open", "")),
        refused("a worker reads from the leader", "pay-1", publish("$JS.API.STREAM.MSG.GET.LH_0", r#"{"seq":1}"#)),
        refused("a worker looks at a stream", "pay-1", publish("$JS.API.STREAM.INFO.LH_0", r#"{"subjects_filter":">"}"#)),
        refused("a worker lists streams", "pay-1", publish("$JS.API.STREAM.NAMES", "")),
        refused("a worker reads another domain's chain, arguments and all", "pay-1", publish("lh.ask.chain.r.send_5Fmail.1-1.1.s-1", "")),
        refused("a worker reads another domain's notes", "pay-1", publish("lh.ask.notes.r.send_5Fmail.1-1.1.s-1", "")),
        answered_no("a worker reads the chains of all runs at once", "pay-1", publish("lh.ask.chain.*.charge_5Fcard.1-0.1.s-1", "")),
        answered_no("a worker reads every blob at once", "pay-1", publish("lh.ask.piece.*.0", "")),
        refused("a worker reads another's record", "pay-1", publish("lh.ask.last.lh.ws.payments.pay-2.live", "")),
        refused("a worker reads a lease", "pay-1", publish("$JS.API.DIRECT.GET.KV_LH_LEASES.$KV.LH_LEASES.r", "")),
        refused("a worker writes a lease", "pay-1", publish("$KV.LH_LEASES.r", "x")),
        refused("a worker writes a node's session", "pay-1", publish("$KV.LH_SESSIONS.s-1", "x")),
        refused("a worker is alive as another", "pay-1", publish("lh.ws.payments.pay-2.live", "x")),
        refused("a worker marks another domain's logbook", "pay-1", publish("lh.ws.mail.mail-1.logbook", "x")),
        refused("a worker submits a run", "pay-1", publish("lh.0.in.r2.pay-1", "x")),
        refused("a worker decides", "pay-1", publish("lh.0.d.r.1-0_2E1.pay-1", "x")),
        refused("a worker cancels", "pay-1", publish("lh.0.c.r.pay-1", "x")),
        refused("a worker sets a timer", "pay-1", publish("lh.0.ts.r", "x")),
        refused("a worker purges a stream", "pay-1", publish("$JS.API.STREAM.PURGE.LH_0", "")),
        refused("a worker deletes a stream", "pay-1", publish("$JS.API.STREAM.DELETE.LH_0", "")),
        refused("a worker changes a stream", "pay-1", publish("$JS.API.STREAM.UPDATE.LH_0", "{}")),
        refused("a worker deletes a message", "pay-1", publish("$JS.API.STREAM.MSG.DELETE.LH_0", r#"{"seq":1}"#)),
        refused("a worker answers in a node's place", "pay-1", publish("lh.ask.chain.r.charge_5Fcard.1-0.1.s-1.x", "x")),
        refused("a worker asks a worker", "pay-1", publish("lh.worker.payments.pay-2.inspect", "x")),
        refused("a worker forges a hint", "pay-1", publish("lh.0.stored.r.w.claim.charge_5Fcard.1-0.1.s-1.pay-1", "x")),
        refused("a worker hands a node mail", "pay-1", publish("lh.node.s-1.mail", "x")),
        refused("a worker writes into another's answers", "pay-1", publish("_INBOX.pay-2.x", "x")),
        refused("a worker listens to everything", "pay-1", subscribe(">")),
        refused("a worker listens to all answers", "pay-1", subscribe("_INBOX.>")),
        refused("a worker listens to another's answers", "pay-1", subscribe("_INBOX.pay-2.>")),
        refused("a worker is asked in another's place", "pay-1", subscribe("lh.worker.payments.pay-2.inspect")),
        refused("a worker listens to what is stored", "pay-1", subscribe("lh.*.stored.>")),
        refused("a worker hears the domain's questions", "pay-1", subscribe("lh.ask.>")),
        // Headers that make the server do more than store.
        answered_no("a claim that goes away by itself", "pay-1", publish(&claim, "x").header("Nats-TTL", "1s")),
        answered_no("a claim that removes the shard's records", "pay-1", publish(&claim, "x").header("Nats-Rollup", "all")),
        answered_no("a claim that schedules a journal's record", "pay-1", publish(&claim, "x").header("Nats-Schedule", "@at 2020-01-01T00:00:00Z").header("Nats-Schedule-Target", NOTE)),
        answered_no("a record that removes those of all workers", "pay-1", publish("lh.ws.payments.pay-1.live", "x").header("Nats-Rollup", "all")),
        answered_no("a blob that removes all blobs", "pay-1", publish("lh.a.bb.0", "x").header("Nats-Rollup", "all")),
        answered_no("a blob over another", "pay-1", publish("lh.a.aa.0", "x")),
        // The server's answer, sent where the worker may not write.
        deputy("a claim's answer into a journal", "pay-1", publish(&register("claim", "pay-1"), "again").answered_at(NOTE), &["lh.0.run.r.w.claim.charge_5Fcard.1-0.1.s-1.pay-1"]),
        deputy("an outcome's answer into another's register", "pay-1", publish(&register("outcome", "pay-1"), "again").answered_at("lh.0.run.r.w.outcome.charge_5Fcard.1-0.1.s-1.pay-2"), &["lh.0.run.r.w.outcome.charge_5Fcard.1-0.1.s-1.pay-1"]),
        deputy("a pull's answer into a journal", "pay-1", publish(&pull, now).answered_at(NOTE), &[]),
        deputy("an acknowledgement's answer into a journal", "pay-1", publish(ack, "+ACK").answered_at(NOTE), &[]),
        deputy("an acknowledgement's next delivery into a journal", "pay-1", publish(ack, r#"+NXT {"batch":1,"no_wait":true}"#).answered_at(NOTE), &[]),
        deputy("a node's answer into a journal", "pay-1", publish(chain, "").answered_at(NOTE), &[]),
        deputy("a node's answer into a lease", "pay-1", publish(chain, "").answered_at("$KV.LH_LEASES.r"), &[]),
        deputy("a node's answer into another's claim", "pay-1", publish(chain, "").answered_at("lh.0.run.r.w.claim.charge_5Fcard.1-0.1.s-1.pay-2"), &[]),
        deputy("a record's answer into another's record", "pay-1", publish("lh.ws.payments.pay-1.live", "x").answered_at("lh.ws.payments.pay-2.live"), &[]),
        // Another domain.
        allowed("a worker of the other domain claims its own call", "mail-1", publish("lh.0.run.r.w.claim.send_5Fmail.1-1.1.s-1.mail-1", "c"), &["lh.0.run.r.w.claim.send_5Fmail.1-1.1.s-1.mail-1"]),
        refused("a worker of the other domain claims a payment", "mail-1", publish(&register("claim", "mail-1"), "x")),
        refused("a worker of the other domain reads a payment", "mail-1", publish(chain, "")),
        // Clients.
        allowed("a client submits", "desk", publish("lh.0.in.r2.desk", "s"), &["lh.0.in.r2.desk"]),
        answered_no("a client submits over its own submission", "desk", publish("lh.0.in.r2.desk", "other")),
        refused("a client submits as another", "desk", publish("lh.0.in.r3.other", "x")),
        refused("a client decides", "desk", publish("lh.0.d.r.1-0_2E1.desk", "x")),
        refused("a client decides as an operator", "desk", publish("lh.0.d.r.1-0_2E1.ana", "x")),
        refused("a client cancels", "desk", publish("lh.0.c.r.desk", "x")),
        refused("a client writes a journal", "desk", publish(NOTE, "x")),
        refused("a client reads a submission", "desk", publish("$JS.API.DIRECT.GET.LHI_0.lh.0.in.r2.desk", "")),
        refused("a client claims a call", "desk", publish(&register("claim", "desk"), "x")),
        refused("a client asks a node", "desk", publish(chain, "")),
        refused("a client deletes a stream", "desk", publish("$JS.API.STREAM.DELETE.LHI_0", "")),
        refused("a client listens to everything", "desk", subscribe(">")),
        answered_no("a submission that removes all others", "desk", publish("lh.0.in.r4.desk", "x").header("Nats-Rollup", "all")),
        deputy("a submission's answer into a journal", "desk", publish("lh.0.in.r5.desk", "s").answered_at(NOTE), &["lh.0.in.r5.desk"]),
        // Operators.
        allowed("an operator decides", "ana", publish("lh.0.d.r.1-0_2E1.ana", "d"), &["lh.0.d.r.1-0_2E1.ana"]),
        allowed("an operator cancels", "ana", publish("lh.0.c.r.ana", "c"), &["lh.0.c.r.ana"]),
        answered_no("an operator decides once more", "ana", publish("lh.0.d.r.1-0_2E1.ana", "other")),
        refused("an operator decides as another", "ana", publish("lh.0.d.r.1-0_2E1.ben", "x")),
        refused("an operator cancels as another", "ana", publish("lh.0.c.r.ben", "x")),
        refused("an operator submits", "ana", publish("lh.0.in.r6.ana", "x")),
        refused("an operator writes a journal", "ana", publish(NOTE, "x")),
        refused("an operator writes an outcome", "ana", publish(&register("outcome", "_rt"), "x")),
        refused("an operator pulls calls", "ana", publish(&pull, now)),
        refused("an operator reads a stream", "ana", publish("$JS.API.STREAM.MSG.GET.LH_0", r#"{"seq":1}"#)),
        refused("an operator purges the inbox", "ana", publish("$JS.API.STREAM.PURGE.LHI_0", "")),
        refused("an operator listens to everything", "ana", subscribe(">")),
        deputy("a decision's answer into a journal", "ana", publish("lh.0.d.r.1-0_2E2.ana", "d").answered_at(NOTE), &["lh.0.d.r.1-0_2E2.ana"]),
    ]
}
