//! What the service does with a call and with a probe, apart from HTTP. Everything blocks and runs to its end whether or
//! not the client is still there: that is what makes a lost answer ambiguous.

use leasehold_json::{AcceptedJson, Decimal, Digest, Kind};
use serde::Deserialize;

use super::caller::Caller;
use super::faults::{Arm, Fault, die};
use super::ledger::{Applied, Case, Ledger, Refund};
use super::orders::{Order, Orders};

/// The service's tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Tool {
    LookupOrder,
    RefundOrder,
    CloseCase,
}

impl Tool {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::LookupOrder => "lookup_order",
            Self::RefundOrder => "refund_order",
            Self::CloseCase => "close_case",
        }
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reply {
    /// HTTP status.
    pub(super) status: u16,
    /// The service knows that this request changed nothing and never will.
    pub(super) nothing_happened: bool,
    /// JSON.
    pub(super) body: String,
}

impl Reply {
    fn ok(body: &AcceptedJson) -> Self {
        Self {
            status: 200,
            nothing_happened: false,
            body: body.as_str().to_owned(),
        }
    }

    fn refused(status: u16, error: impl AsRef<str>) -> Self {
        Self {
            status,
            nothing_happened: true,
            body: error_body(error.as_ref()),
        }
    }

    /// The database failed: whether a commit got through, only the database knows.
    fn broken(error: &rusqlite::Error) -> Self {
        Self {
            status: 500,
            nothing_happened: false,
            body: error_body(&format!("the payments database failed: {error}")),
        }
    }
}

/// What the client gets to see of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// This.
    Answer(Reply),
    /// An answer that is no JSON.
    Garbage,
    /// Silence.
    Hang,
    /// A reset.
    Cut,
}

/// The service without its connections.
pub(super) struct Desk {
    orders: Orders,
    ledger: Ledger,
    clock: fn() -> i64,
}

impl Desk {
    pub(super) fn new(orders: Orders, ledger: Ledger, clock: fn() -> i64) -> Self {
        Self {
            orders,
            ledger,
            clock,
        }
    }

    /// One call of a tool: written down, then carried out, then answered, as far as the armed fault lets it come.
    pub(super) fn call(&self, tool: Tool, caller: &Caller, body: &[u8]) -> Outcome {
        let args_sha256 = Digest::of(body).to_string();
        let (request, fault) =
            match self
                .ledger
                .record(tool.name(), caller, &args_sha256, (self.clock)())
            {
                Ok(recorded) => recorded,
                // Nothing is carried out that is not written down.
                Err(error) => {
                    return Outcome::Answer(Reply {
                        nothing_happened: true,
                        ..Reply::broken(&error)
                    });
                }
            };
        match fault {
            Some(Fault::DieBefore) => die(),
            Some(Fault::HangBefore) => return Outcome::Hang,
            _ => {}
        }
        let reply = self
            .carry_out(tool, request, caller, body)
            .unwrap_or_else(|refusal| refusal);
        match fault {
            Some(Fault::DieAfter) => die(),
            Some(Fault::HangAfter) => Outcome::Hang,
            Some(Fault::Garbage) => Outcome::Garbage,
            Some(Fault::Reset) => Outcome::Cut,
            Some(Fault::DieBefore | Fault::HangBefore) | None => Outcome::Answer(reply),
        }
    }

    fn carry_out(
        &self,
        tool: Tool,
        request: i64,
        caller: &Caller,
        body: &[u8],
    ) -> Result<Reply, Reply> {
        let args = AcceptedJson::check(body).map_err(|refusal| {
            Reply::refused(400, format!("the arguments are no usable JSON: {refusal}"))
        })?;
        match tool {
            Tool::LookupOrder => self.lookup(&args),
            Tool::RefundOrder => self.refund(request, caller, &args),
            Tool::CloseCase => self.close(request, caller, &args),
        }
    }

    fn lookup(&self, args: &AcceptedJson) -> Result<Reply, Reply> {
        let order = self.order(args)?;
        describe(order)
            .map(|body| Reply::ok(&body))
            .map_err(|error| Reply::refused(500, error.to_string()))
    }

    fn refund(&self, request: i64, caller: &Caller, args: &AcceptedJson) -> Result<Reply, Reply> {
        let deadline = named_deadline(caller)?;
        let order = self.order(args)?;
        if let Some(reason) = order.refusal() {
            return Err(Reply::refused(
                422,
                format!("order {} is not refundable: {reason}", order.id),
            ));
        }
        let (literal, amount) = number(args, "amount")?;
        if amount.is_zero()
            || amount.is_negative()
            || order.amount().is_none_or(|paid| amount > paid)
        {
            return Err(Reply::refused(
                422,
                format!(
                    "{literal} is not between zero and the {} that was paid",
                    order.amount
                ),
            ));
        }
        let currency = string(args, "currency")?;
        if currency != order.currency {
            return Err(Reply::refused(
                422,
                format!(
                    "order {} was paid in {}, not in {currency}",
                    order.id, order.currency
                ),
            ));
        }
        let refund = Refund {
            order_id: order.id.clone(),
            amount: literal,
            currency,
        };
        match self
            .ledger
            .refund(request, caller, &refund, deadline, self.clock)
            .map_err(|error| Reply::broken(&error))?
        {
            Applied::Row(row) => refund.result(row).map(|body| Reply::ok(&body)),
            Applied::Late => Err(late()),
        }
    }

    fn close(&self, request: i64, caller: &Caller, args: &AcceptedJson) -> Result<Reply, Reply> {
        let deadline = named_deadline(caller)?;
        let order = self.order(args)?;
        let decision = string(args, "decision")?;
        if !matches!(decision.as_str(), "refunded" | "refused") {
            return Err(Reply::refused(
                422,
                format!("the decision {decision:?} is neither refunded nor refused"),
            ));
        }
        let refund_id = args
            .member("refund_id")
            .map(|_| string(args, "refund_id"))
            .transpose()?;
        let case = Case {
            order_id: order.id.clone(),
            decision,
            refund_id,
        };
        match self
            .ledger
            .close(request, caller, &case, deadline, self.clock)
            .map_err(|error| Reply::broken(&error))?
        {
            Applied::Row(row) => case.result(row).map(|body| Reply::ok(&body)),
            Applied::Late => Err(late()),
        }
    }

    /// Whether the effect under a key was applied. Never writes.
    pub(super) fn probe(&self, tool: Tool, body: &[u8]) -> Reply {
        self.answer(tool, body).unwrap_or_else(|refusal| refusal)
    }

    fn answer(&self, tool: Tool, body: &[u8]) -> Result<Reply, Reply> {
        let question = AcceptedJson::check(body).map_err(|refusal| {
            Reply::refused(400, format!("the question is no usable JSON: {refusal}"))
        })?;
        let key = string(&question, "idempotency_key")?;
        let args = question
            .member("arguments")
            .ok_or_else(|| Reply::refused(400, "the question has no `arguments`"))?;
        let (_, id) = number(&args, "order_id")?;
        if self
            .orders
            .get(&id)
            .is_some_and(|order| !order.keeps_keys())
        {
            return said("unknown", Some("legacy channel keeps no keys"));
        }
        let applied = match tool {
            Tool::RefundOrder => {
                let found = self
                    .ledger
                    .refund_of(&key)
                    .map_err(|error| Reply::broken(&error))?;
                found
                    .map(|(row, refund)| {
                        Ok::<_, Reply>((refund.answers(&args), refund.result(row)?))
                    })
                    .transpose()?
            }
            Tool::CloseCase => {
                let found = self
                    .ledger
                    .case_of(&key)
                    .map_err(|error| Reply::broken(&error))?;
                found
                    .map(|(row, case)| Ok::<_, Reply>((case.answers(&args), case.result(row)?)))
                    .transpose()?
            }
            Tool::LookupOrder => None,
        };
        match applied {
            None => said("not_done", None),
            Some((false, _)) => said("conflict", Some("the key was used with other arguments")),
            Some((true, result)) => {
                let done = text("done")?;
                object(&[("answer", &done), ("result", &result)]).map(|body| Reply::ok(&body))
            }
        }
    }

    /// Arms faults.
    pub(super) fn arm(&self, body: &[u8]) -> Reply {
        let arm = AcceptedJson::check(body).map_err(|refusal| refusal.to_string());
        match arm.and_then(|json| json.parse::<Arm>().map_err(|error| error.to_string())) {
            Err(error) => Reply::refused(400, format!("no fault to arm: {error}")),
            Ok(arm) => match self.ledger.arm(&arm) {
                Ok(()) => Reply::ok(&AcceptedJson::empty_object()),
                Err(error) => Reply::broken(&error),
            },
        }
    }

    fn order(&self, args: &AcceptedJson) -> Result<&Order, Reply> {
        let (literal, id) = number(args, "order_id")?;
        self.orders
            .get(&id)
            .ok_or_else(|| Reply::refused(404, format!("there is no order {literal}")))
    }
}

impl Refund {
    /// The tool's result: the same bytes from the call and from the probe.
    fn result(&self, row: i64) -> Result<AcceptedJson, Reply> {
        let id = text(&format!("rf-{row}"))?;
        let (order, amount) = (literal(&self.order_id)?, literal(&self.amount)?);
        object(&[
            ("refund_id", &id),
            ("order_id", &order),
            ("amount", &amount),
            ("currency", &text(&self.currency)?),
        ])
    }

    fn answers(&self, args: &AcceptedJson) -> bool {
        same_number(args, "order_id", &self.order_id) && same_number(args, "amount", &self.amount)
    }
}

impl Case {
    /// As [`Refund::result`].
    fn result(&self, row: i64) -> Result<AcceptedJson, Reply> {
        let (id, order) = (text(&format!("case-{row}"))?, literal(&self.order_id)?);
        object(&[
            ("case_id", &id),
            ("order_id", &order),
            ("decision", &text(&self.decision)?),
        ])
    }

    fn answers(&self, args: &AcceptedJson) -> bool {
        same_number(args, "order_id", &self.order_id)
            && string(args, "decision").is_ok_and(|decision| decision == self.decision)
    }
}

/// The order as `lookup_order` shows it; blank cells are left out. Amount and id stand there digit for digit.
fn describe(order: &Order) -> anyhow::Result<AcceptedJson> {
    let refusal = order.refusal();
    let mut members = vec![
        ("order_id", AcceptedJson::check_str(&order.id)?),
        ("amount", AcceptedJson::check_str(&order.amount)?),
    ];
    let texts = [
        ("currency", &order.currency),
        ("customer", &order.customer),
        ("email", &order.email),
        ("item", &order.item),
        ("note", &order.note),
        ("channel", &order.channel),
        ("status", &order.status),
        ("paid_at", &order.paid_at),
    ];
    for (name, value) in texts {
        if !value.trim().is_empty() {
            members.push((name, AcceptedJson::from_serialize(value)?));
        }
    }
    members.push((
        "refundable",
        AcceptedJson::from_serialize(&refusal.is_none())?,
    ));
    if let Some(reason) = refusal {
        members.push(("reason", AcceptedJson::from_serialize(&reason)?));
    }
    Ok(AcceptedJson::object(
        members.iter().map(|(name, value)| (*name, value)),
    )?)
}

/// A call that changes something must name its key and its deadline, or neither probe nor deadline can be honoured.
fn named_deadline(caller: &Caller) -> Result<i64, Reply> {
    if caller.key.is_empty() {
        return Err(Reply::refused(400, "the header Idempotency-Key is missing"));
    }
    caller.deadline.ok_or_else(|| {
        Reply::refused(
            400,
            "the header Leasehold-Deadline-Unix-Ms is missing or no number",
        )
    })
}

fn late() -> Reply {
    Reply::refused(409, "the deadline has passed")
}

fn said(answer: &str, detail: Option<&str>) -> Result<Reply, Reply> {
    let answer = text(answer)?;
    let detail = detail.map(text).transpose()?;
    let mut members = vec![("answer", &answer)];
    members.extend(detail.iter().map(|detail| ("detail", detail)));
    object(&members).map(|body| Reply::ok(&body))
}

fn number(args: &AcceptedJson, name: &str) -> Result<(String, Decimal), Reply> {
    let found = args
        .member(name)
        .filter(|value| value.kind() == Kind::Number);
    let read =
        found.and_then(|value| Some((value.as_str().to_owned(), value.as_str().parse().ok()?)));
    read.ok_or_else(|| Reply::refused(422, format!("the argument `{name}` is not a number")))
}

fn string(args: &AcceptedJson, name: &str) -> Result<String, Reply> {
    let read = args.member(name).and_then(|value| value.parse().ok());
    read.ok_or_else(|| Reply::refused(422, format!("`{name}` is not a string")))
}

fn same_number(args: &AcceptedJson, name: &str, stored: &str) -> bool {
    number(args, name).is_ok_and(|(_, value)| stored.parse() == Ok(value))
}

fn text(value: &str) -> Result<AcceptedJson, Reply> {
    AcceptedJson::from_serialize(value).map_err(|error| unwritable(&error))
}

fn literal(value: &str) -> Result<AcceptedJson, Reply> {
    AcceptedJson::check_str(value).map_err(|error| unwritable(&error))
}

fn object(members: &[(&str, &AcceptedJson)]) -> Result<AcceptedJson, Reply> {
    AcceptedJson::object(members.iter().copied()).map_err(|error| unwritable(&error))
}

/// The books hold something that has no JSON form. Says nothing about the effect.
fn unwritable(error: &dyn std::error::Error) -> Reply {
    Reply {
        status: 500,
        nothing_happened: false,
        body: error_body(&error.to_string()),
    }
}

fn error_body(error: &str) -> String {
    serde_json::json!({ "error": error }).to_string()
}
