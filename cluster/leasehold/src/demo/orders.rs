//! The job: which orders there are, and what the demo has to know of each.

use std::path::Path;

use super::plan::Traits;
use crate::payments::{ColumnMap, Order, Orders};

/// What a customer who takes the request back writes, in any letter case.
const WITHDREW: &str = "customer withdrew the request";

/// One order.
#[derive(Debug, Clone)]
pub(super) struct OrderOf {
    /// Its number, exact digits.
    pub(super) id: String,
    pub(super) amount: String,
    pub(super) currency: String,
    pub(super) customer: String,
    pub(super) traits: Traits,
}

/// All of them, as in the file.
#[derive(Debug, Clone, Default)]
pub(super) struct Job {
    pub(super) orders: Vec<OrderOf>,
}

impl Job {
    /// Reads a file; of a longer one the first `most` orders.
    pub(super) fn read(path: &Path, map: &ColumnMap, most: Option<usize>) -> anyhow::Result<Self> {
        let orders = Orders::read(path, map)?;
        let most = most.unwrap_or(usize::MAX);
        Ok(Self {
            orders: orders.rows().iter().take(most).map(OrderOf::new).collect(),
        })
    }

    pub(super) fn traits(&self) -> Vec<Traits> {
        self.orders.iter().map(|order| order.traits).collect()
    }

    /// Whether these orders can lead to this way of resolution: a file of one's own may have no order without a probe, or none to cancel.
    pub(super) fn allows(&self, way: &str) -> bool {
        match way {
            "operator" => self
                .orders
                .iter()
                .any(|order| order.traits.blind && order.traits.refundable),
            "revoked" => self.orders.iter().any(|order| order.traits.withdrawn),
            _ => true,
        }
    }
}

impl OrderOf {
    fn new(order: &Order) -> Self {
        Self {
            id: order.id.clone(),
            amount: order.amount.clone(),
            currency: order.currency.clone(),
            customer: order.customer.clone(),
            traits: Traits {
                blind: !order.keeps_keys(),
                withdrawn: order.note.to_lowercase().contains(WITHDREW),
                refundable: order.refusal().is_none(),
            },
        }
    }

    /// The run that works on it.
    pub(super) fn run(&self) -> String {
        format!("order-{}", self.id)
    }
}
