//! The orders, read once from a CSV file. Ids and amounts keep their exact digits; they are compared as decimals, so
//! that no two orders above 2^53 become one. A file that cannot be used gives all its faults at once, with line numbers.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context as _, bail};
use leasehold_json::Decimal;

/// Faults shown of one file: enough to see the pattern, few enough to read.
const MAX_FAULTS: usize = 20;

/// The currency of orders in a file that has no column for it.
const DEFAULT_CURRENCY: &str = "USD";

/// The one status in which money can be paid back, and that of every order in a file without a column for it.
const PAID: &str = "paid";

/// The channel for which the service keeps no keys: its probe cannot say anything.
const LEGACY: &str = "legacy";

/// The fields of an order and the columns in which they stand unless a map says otherwise.
const FIELDS: [(&str, &str); 10] = [
    ("id", "order_id"),
    ("customer", "customer"),
    ("email", "email"),
    ("item", "item"),
    ("note", "note"),
    ("amount", "amount"),
    ("currency", "currency"),
    ("channel", "channel"),
    ("status", "status"),
    ("paid_at", "paid_at"),
];

/// Fields without which a row is no order.
const REQUIRED: [&str; 3] = ["id", "customer", "amount"];

/// Which column holds which field: `field=column`, separated by commas. Empty: the columns of the refund desk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ColumnMap(BTreeMap<String, String>);

impl ColumnMap {
    fn column<'a>(&'a self, field: &str, default: &'a str) -> &'a str {
        self.0.get(field).map_or(default, String::as_str)
    }
}

impl FromStr for ColumnMap {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut map = BTreeMap::new();
        for pair in text
            .split(',')
            .map(str::trim)
            .filter(|pair| !pair.is_empty())
        {
            let (field, column) = pair
                .split_once('=')
                .ok_or_else(|| format!("`{pair}` is not of the form field=column"))?;
            let (field, column) = (field.trim(), column.trim());
            if !FIELDS.iter().any(|(known, _)| *known == field) {
                let known: Vec<&str> = FIELDS.iter().map(|(known, _)| *known).collect();
                return Err(format!(
                    "unknown field `{field}`; the fields are {}",
                    known.join(", ")
                ));
            }
            if map.insert(field.to_owned(), column.to_owned()).is_some() {
                return Err(format!("field `{field}` is mapped twice"));
            }
        }
        Ok(Self(map))
    }
}

impl std::fmt::Display for ColumnMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pairs: Vec<String> = self
            .0
            .iter()
            .map(|(field, column)| format!("{field}={column}"))
            .collect();
        f.write_str(&pairs.join(","))
    }
}

/// One order as the file has it. Optional cells that are blank are empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Order {
    /// Its number: a whole JSON number, exact digits.
    pub(crate) id: String,
    /// Who ordered.
    pub(crate) customer: String,
    /// Optional.
    pub(crate) email: String,
    /// Optional.
    pub(crate) item: String,
    /// Optional: what the customer wrote.
    pub(crate) note: String,
    /// What was paid, in the currency's main unit: a JSON number, exact digits.
    pub(crate) amount: String,
    /// ISO 4217 code.
    pub(crate) currency: String,
    /// Where it was sold; optional.
    pub(crate) channel: String,
    /// `paid`, or what keeps it from being refunded.
    pub(crate) status: String,
    /// When it was paid; optional.
    pub(crate) paid_at: String,
}

impl Order {
    /// Why no money can be paid back for it; `None`: it can.
    pub(crate) fn refusal(&self) -> Option<String> {
        match self.status.as_str() {
            PAID if self
                .amount()
                .is_some_and(|amount| !amount.is_zero() && !amount.is_negative()) =>
            {
                None
            }
            PAID => Some("nothing was paid".to_owned()),
            "already_refunded" => Some("the order was refunded before".to_owned()),
            "chargeback" => {
                Some("the bank has taken the money back: a chargeback is open".to_owned())
            }
            "expired" => Some("the time for refunds is over".to_owned()),
            other => Some(format!("an order with status {other} cannot be refunded")),
        }
    }

    /// Whether the service keeps idempotency keys for it, so that a probe can be answered.
    pub(crate) fn keeps_keys(&self) -> bool {
        self.channel != LEGACY
    }

    /// The exact amount; always there for an order that was read from a file.
    pub(super) fn amount(&self) -> Option<Decimal> {
        self.amount.parse().ok()
    }
}

/// All orders of a file, in its order and by number.
#[derive(Debug, Clone, Default)]
pub(crate) struct Orders {
    rows: Vec<Order>,
    by_id: HashMap<Decimal, usize>,
}

impl Orders {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be opened, a mapped or required column is missing, or rows are unusable: no CSV, an id that is
    /// no whole number or occurs twice, an amount that is no JSON number.
    pub(crate) fn read(path: &Path, map: &ColumnMap) -> anyhow::Result<Self> {
        let mut reader = csv::ReaderBuilder::new()
            .from_path(path)
            .with_context(|| format!("opening the orders {}", path.display()))?;
        let header = reader
            .headers()
            .with_context(|| format!("reading the header of {}", path.display()))?
            .clone();
        let columns = Columns::find(&header, map)
            .with_context(|| format!("columns of {}", path.display()))?;
        let mut orders = Self::default();
        let mut faults = Vec::new();
        for record in reader.records() {
            let fault = match record {
                Ok(record) => {
                    let line = record.position().map_or(0, csv::Position::line);
                    orders
                        .push(columns.order(&record))
                        .err()
                        .map(|fault| format!("line {line}: {fault}"))
                }
                Err(error) => Some(error.to_string()),
            };
            faults.extend(fault);
        }
        if !faults.is_empty() {
            let more = faults.len().saturating_sub(MAX_FAULTS);
            faults.truncate(MAX_FAULTS);
            let rest = if more > 0 {
                format!("\nand {more} more")
            } else {
                String::new()
            };
            bail!(
                "the orders {} cannot be used:\n{}{rest}",
                path.display(),
                faults.join("\n")
            );
        }
        Ok(orders)
    }

    fn push(&mut self, order: Order) -> Result<(), String> {
        let id = order.id.parse::<Decimal>().ok().filter(Decimal::is_integer);
        let id = id.ok_or_else(|| {
            format!(
                "the id {:?} is not a whole number without leading zeros",
                order.id
            )
        })?;
        if order.amount().is_none() {
            return Err(format!(
                "the amount {:?} is not a plain decimal such as 1250 or 19.90",
                order.amount
            ));
        }
        if order.customer.trim().is_empty() {
            return Err("the customer is blank".to_owned());
        }
        if self.by_id.insert(id, self.rows.len()).is_some() {
            return Err(format!("the id {} occurs twice", order.id));
        }
        self.rows.push(order);
        Ok(())
    }

    /// The order with this number, however the number is spelled.
    pub(crate) fn get(&self, id: &Decimal) -> Option<&Order> {
        self.by_id.get(id).and_then(|row| self.rows.get(*row))
    }

    /// All of them, as in the file.
    pub(crate) fn rows(&self) -> &[Order] {
        &self.rows
    }
}

/// Where each field stands in a row; `None`: the file has no such column.
struct Columns([Option<usize>; FIELDS.len()]);

impl Columns {
    fn find(header: &csv::StringRecord, map: &ColumnMap) -> anyhow::Result<Self> {
        let mut found = [None; FIELDS.len()];
        for ((field, default), place) in FIELDS.into_iter().zip(&mut found) {
            let column = map.column(field, default);
            *place = header.iter().position(|name| name.trim() == column);
            if place.is_none() && (map.0.contains_key(field) || REQUIRED.contains(&field)) {
                let columns: Vec<&str> = header.iter().collect();
                bail!(
                    "no column `{column}` for the field `{field}`; the file has: {}",
                    columns.join(", ")
                );
            }
        }
        Ok(Self(found))
    }

    fn order(&self, record: &csv::StringRecord) -> Order {
        let [
            id,
            customer,
            email,
            item,
            note,
            amount,
            currency,
            channel,
            status,
            paid_at,
        ] = self.0.map(|place| {
            place
                .and_then(|place| record.get(place))
                .unwrap_or_default()
                .to_owned()
        });
        let or = |text: String, default: &str| {
            if text.trim().is_empty() {
                default.to_owned()
            } else {
                text
            }
        };
        Order {
            id,
            customer,
            email,
            item,
            note,
            amount,
            currency: or(currency, DEFAULT_CURRENCY),
            channel,
            status: or(status, PAID),
            paid_at,
        }
    }
}
