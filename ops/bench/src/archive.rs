//! A store full of ended runs, written through the store's own trait: a submission, an opening commit and an end for each.

use std::path::Path;

use anyhow::anyhow;
use bytes::Bytes;
use leasehold_actors::{Clock as _, Ids as _, RandomIds, SystemClock};
use leasehold_embedded::{EmbeddedStore, OpenOptions};
use leasehold_protocol::{ClientId, JournalSubject, RunId, Seq};
use leasehold_store::{Inbox as _, InboxKind, JournalAppend, RunLog as _};
use tokio::task::JoinSet;

/// Writers side by side: as many as make full groups.
const WRITERS: u64 = 256;
/// Bytes of each record: about those of a short run.
const BODY: [u8; 400] = [b'x'; 400];

/// Adds so many ended runs to the folder's store.
pub(crate) async fn fill(folder: &Path, runs: u64) -> anyhow::Result<()> {
    let options = OpenOptions {
        session: RandomIds.session()?,
        now: SystemClock.now().wall,
    };
    let store = EmbeddedStore::open(folder, options)?;
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let store = store.clone();
        writers.spawn(async move {
            for run in (writer..runs).step_by(WRITERS as usize) {
                add(&store, RunId::new(format!("archived-{run:08}"))?).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(written) = writers.join_next().await {
        written??;
    }
    Ok(())
}

async fn add(store: &EmbeddedStore, run: RunId) -> anyhow::Result<()> {
    let body = Bytes::from_static(&BODY);
    let submit = InboxKind::Submit(ClientId::new("bench")?);
    let seq = store.put(&run, submit, body.clone()).await;
    let seq = seq.map_err(|error| anyhow!("{error:?}"))?;
    store.ack_message(&run, seq).await?;
    let mut expected = Seq::NONE;
    for subject in [JournalSubject::Open, JournalSubject::End] {
        let write = JournalAppend {
            run: run.clone(),
            subject,
            expected,
            body: body.clone(),
            call: None,
        };
        let appended = store.append(write).await;
        expected = appended.map_err(|error| anyhow!("{error:?}"))?.seq;
    }
    Ok(())
}
