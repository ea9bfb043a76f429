//! A worker's logbook as the cluster last saw it: what tells a disk that was cloned, or went back in time, from the one that the worker had.
//!
//! Each start of a worker writes which logbook it opened, under which boot id, and how far it reached, by compare-and-set; while it runs it
//! refreshes how far. A logbook is good if the boot id that stands there is one of its own and it reaches at least as far. A disk that was
//! restored from a moment after the last refresh cannot be told.

use bytes::Bytes;
use leasehold_json::AcceptedJson;
use leasehold_protocol::{LogbookId, Seq, WorkerId};
use leasehold_store::{AppendError, StoreError};
use serde::{Deserialize, Serialize};

use crate::names;
use crate::store::NatsStore;
use crate::streams::LIVENESS;
use crate::wire::expecting_own;

/// See the module.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogbookMark {
    /// Format version.
    pub v: u32,
    /// The logbook's id.
    pub id: LogbookId,
    /// Minted by the start that wrote this.
    pub boot: String,
    /// The last durable position.
    pub head: Seq,
}

impl LogbookMark {
    /// Why a logbook with this id, these boot ids and this head is not the one that was marked; none if it is.
    pub fn disbelieves(&self, id: &LogbookId, boots: &[String], head: Seq) -> Option<String> {
        if self.id != *id {
            // One that has just been made knows nothing, and claims to know nothing.
            return (boots.len() > 1).then(|| {
                format!(
                    "the worker has used logbook {} since this one ({id}) was open",
                    self.id
                )
            });
        }
        if !boots.contains(&self.boot) {
            return Some("another copy of it has been open since: it is a clone, or an old state of the disk".to_owned());
        }
        (self.head > head).then(|| {
            format!(
                "it ends at {head} and had reached {}: it is an old state of the disk",
                self.head
            )
        })
    }
}

impl NatsStore {
    /// The worker's mark and its revision.
    pub async fn logbook_mark(
        &self,
        worker: &WorkerId,
    ) -> Result<(Seq, Option<LogbookMark>), StoreError> {
        let subject = names::logbook(&self.inner.domain, worker);
        let Some(last) = self.wire().last(LIVENESS, &subject).await? else {
            return Ok((Seq::NONE, None));
        };
        let damaged = |detail: String| StoreError::Damaged {
            what: format!("the mark of worker {worker}'s logbook"),
            detail,
        };
        let json =
            AcceptedJson::check(&last.payload).map_err(|error| damaged(error.to_string()))?;
        let mark = json.parse().map_err(|error| damaged(error.to_string()))?;
        Ok((last.seq, Some(mark)))
    }

    /// Writes the mark if the revision is the expected one; returns the new revision.
    pub async fn put_logbook_mark(
        &self,
        worker: &WorkerId,
        expected: Seq,
        mark: &LogbookMark,
    ) -> Result<Seq, AppendError> {
        let json = AcceptedJson::from_serialize(mark);
        let json = json.map_err(|error| AppendError::Never(error.to_string()))?;
        let subject = names::logbook(&self.inner.domain, worker);
        let body = Bytes::copy_from_slice(json.as_bytes());
        let written = self
            .wire()
            .insist(subject, expecting_own(expected), body)
            .await;
        written.map_err(|error| error.append(expected))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(text: &str) -> LogbookId {
        LogbookId::new(text).unwrap()
    }

    fn boots(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_cloned_and_a_rolled_back_disk_are_told_from_the_one_that_was_marked() {
        let mark = LogbookMark {
            v: 1,
            id: id("one"),
            boot: "second".to_owned(),
            head: Seq(10),
        };
        let good = boots(&["first", "second", "third"]);
        assert_eq!(mark.disbelieves(&id("one"), &good, Seq(10)), None);
        let shorter = mark.disbelieves(&id("one"), &good, Seq(9));
        assert!(shorter.unwrap().contains("old state"));
        let cloned = boots(&["first", "other"]);
        assert!(
            mark.disbelieves(&id("one"), &cloned, Seq(20))
                .unwrap()
                .contains("clone")
        );
        let earlier = mark.disbelieves(&id("another"), &good, Seq(20));
        assert!(earlier.unwrap().contains("has used logbook one"));
        // A new disk: it is believed, because it says nothing about what it does not know.
        assert_eq!(
            mark.disbelieves(&id("fresh"), &boots(&["x"]), Seq::NONE),
            None
        );
    }
}
