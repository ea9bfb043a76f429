//! Leases: who should drive a run. A lease that was given up keeps its revision, so that nobody who read it earlier can write over it.

use async_trait::async_trait;
use leasehold_protocol::{RunId, Seq, SessionId};
use leasehold_store::{AppendError, Lease, LeaseRecord, Leases, StoreError};
use tokio::sync::mpsc;

use crate::EmbeddedStore;
use crate::keys::{self, LEASE};
use crate::record::{Damage, Kind, Record};
use crate::store::{expect, not_staged};

fn lease(record: &Record) -> Result<Lease, Damage> {
    let holder = match record.names.as_slice() {
        [] => None,
        [session] => Some(LeaseRecord {
            session: SessionId::new(session).map_err(|e| Damage::new(e.to_string()))?,
            epoch: record.number,
        }),
        _ => return Err(Damage::new("a lease with several holders")),
    };
    Ok(Lease {
        revision: record.seq,
        record: holder,
    })
}

#[async_trait]
impl Leases for EmbeddedStore {
    async fn lease(&self, run: &RunId) -> Result<Lease, StoreError> {
        let key = keys::run(LEASE, run);
        // A lease is overwritten in place; asked on the writer thread, the answer is the durable one.
        let read = self.writer().write(move |group| {
            let found = group.get(&key)?;
            found.map_or(
                Ok(Lease {
                    revision: Seq::NONE,
                    record: None,
                }),
                |record| lease(&record).map_err(|damage| damage.of(&key)),
            )
        });
        read.await?
    }

    async fn put_lease(
        &self,
        run: &RunId,
        expected: Seq,
        record: Option<LeaseRecord>,
    ) -> Result<Seq, AppendError> {
        let key = keys::run(LEASE, run);
        let written = self.writer().write(move |group| {
            let stands = group.get(&key).map_err(not_staged)?;
            expect(expected, stands.map(|record| record.seq))?;
            let seq = group.next_seq();
            let epoch = record.as_ref().map_or(0, |record| record.epoch);
            let holder = record.map(|record| record.session.as_str().to_owned());
            group.append(
                key,
                &Record::new(Kind::Lease, seq).number(epoch).names(holder),
            );
            Ok(seq)
        });
        written.await?
    }

    async fn session_alive(&self, session: &SessionId) -> Result<bool, StoreError> {
        self.reads().check()?;
        Ok(session == self.session())
    }

    async fn wake(&self, _: &RunId) {
        // The one process hears of everything that is stored.
    }

    fn unowned(&self) -> mpsc::UnboundedReceiver<RunId> {
        // The folder's lock proves every other session dead before this one begins.
        mpsc::unbounded_channel().1
    }
}
