//! Opening a folder that holds a marker, a head and a sled store: what may be created, what must be there, what is refused.
//!
//! | marker | store | then |
//! |---|---|---|
//! | no | no | created, if asked to and no other data lies there |
//! | no | yes | the marker was never written (a crash while creating) or was deleted: written again from what the store says of itself |
//! | yes | no, or empty | emptied: refused |
//! | yes | of another id | damaged: refused |
//! | yes | ends before the head | damaged: acknowledged records are gone: refused |
//! | yes | has a gap in its positions | damaged: refused |
//! | yes | yes | opened |

use std::path::{Path, PathBuf};

use leasehold_protocol::Seq;
use leasehold_store::StoreError;

use crate::OpenError;
use crate::engine::{Changes, Engine, guarded};
use crate::files::{create_folder, random_id, sync_folder, write_whole};
use crate::keys;
use crate::marker::{FORMAT, Marker, machine_id};
use crate::record::{Content, Damage, Kind, Record};
use crate::runlog::call_chain;
use crate::writer::unavailable;

/// Free space that opening insists on, in bytes: a store that can only just be opened would refuse its first writes.
const ROOM_TO_OPEN: usize = 256 * 1024;

/// Openings that are remembered.
const MAX_BOOTS: usize = 16;

/// Where things lie in a folder.
pub(crate) struct Layout {
    pub(crate) folder: PathBuf,
    /// The marker's name.
    pub(crate) marker: &'static str,
    /// The sled folder's name.
    pub(crate) store: &'static str,
    /// What the marker calls it.
    pub(crate) kind: &'static str,
    /// Names of folders that hold data of a store that was here.
    pub(crate) traces: &'static [&'static str],
}

/// What a new store is given.
pub(crate) struct Fresh {
    /// Unix milliseconds.
    pub(crate) now: i64,
    /// The worker, of a logbook.
    pub(crate) worker: Option<String>,
}

/// An opened folder.
pub(crate) struct Opened {
    pub(crate) engine: Engine,
    pub(crate) marker: Marker,
    pub(crate) last: Seq,
    /// Random ids of the last openings, oldest first; this one is the last.
    pub(crate) boots: Vec<String>,
}

/// Opens the folder. The caller holds its lock.
pub(crate) fn open(layout: &Layout, fresh: &Fresh, create: bool) -> Result<Opened, OpenError> {
    let Layout { folder, .. } = layout;
    let store = folder.join(layout.store);
    let marker_path = folder.join(layout.marker);
    let marker = Marker::read(&marker_path)?;
    let emptied = |detail: String| OpenError::Emptied {
        path: folder.clone(),
        detail,
    };
    match &marker {
        Some(marker) if !store.join("db").exists() => {
            return Err(emptied(format!(
                "{} says that {} {} was made here, and {}/ is missing",
                layout.marker, layout.kind, marker.id, layout.store
            )));
        }
        Some(marker) if marker.kind != layout.kind => {
            return Err(OpenError::Damaged {
                path: marker_path,
                detail: format!("it marks a {}, not a {}", marker.kind, layout.kind),
            });
        }
        None if !store.exists() => {
            if let Some(trace) = layout
                .traces
                .iter()
                .find(|trace| not_empty(&folder.join(trace)))
            {
                return Err(emptied(format!(
                    "there is data in {trace}/, and neither {} nor {}/",
                    layout.marker, layout.store
                )));
            }
            if !create {
                return Err(OpenError::Missing {
                    path: folder.clone(),
                });
            }
        }
        _ => {}
    }
    insist_on_room(folder)?;
    let engine = Engine::open(&store, &folder.join("head"))?;
    let (marker, last) = match known(&engine, layout, marker.as_ref())? {
        Some(known) => known,
        None if create => (make(&engine, layout, fresh)?, Seq::NONE),
        None => {
            return Err(OpenError::Missing {
                path: folder.clone(),
            });
        }
    };
    if let Some(head) = engine.head().filter(|head| *head > last) {
        let detail = format!(
            "it ends at position {last}, and position {head} was acknowledged: its end was cut off, or an older copy was put back (to accept that \
             loss knowingly, delete the file head)"
        );
        return Err(OpenError::Damaged {
            path: store,
            detail,
        });
    }
    let before = read(&engine, keys::BOOTS).map_err(|e| OpenError::Damaged {
        path: store.clone(),
        detail: e.to_string(),
    })?;
    let checked = before.as_ref().map_or(Seq::NONE, |record| record.seq);
    check_order(&engine, checked, last).map_err(|e| OpenError::Damaged {
        path: store.clone(),
        detail: e.to_string(),
    })?;
    let boots = note_opening(&engine, &store, before, last)?;
    if !marker_path.exists() {
        marker.write(folder, layout.marker)?;
    }
    Ok(Opened {
        engine,
        marker,
        last,
        boots,
    })
}

fn not_empty(folder: &Path) -> bool {
    folder
        .read_dir()
        .is_ok_and(|mut entries| entries.next().is_some())
}

/// What the store says of itself; `None` if it is new.
fn known(
    engine: &Engine,
    layout: &Layout,
    marker: Option<&Marker>,
) -> Result<Option<(Marker, Seq)>, OpenError> {
    let store = layout.folder.join(layout.store);
    let damaged = |detail: String| OpenError::Damaged {
        path: store.clone(),
        detail,
    };
    let Some(meta) = read(engine, keys::META).map_err(|e| damaged(e.to_string()))? else {
        let empty = guarded(|| Ok(engine.db().is_empty())).map_err(|e| damaged(e.to_string()))?;
        return match marker {
            _ if !empty => Err(damaged(
                "it has records and lacks the one that says what it is".to_owned(),
            )),
            Some(marker) => Err(OpenError::Emptied {
                path: layout.folder.clone(),
                detail: format!(
                    "{} says that {} {} was made here, and {}/ holds no record",
                    layout.marker, layout.kind, marker.id, layout.store
                ),
            }),
            None => Ok(None),
        };
    };
    let last = read(engine, keys::POSITION)
        .map_err(|e| damaged(e.to_string()))?
        .ok_or_else(|| damaged("its last position is missing".to_owned()))?
        .seq;
    let own: Marker = match &meta.content {
        Content::Inline(bytes) => leasehold_json::AcceptedJson::check(bytes)
            .map_err(|e| damaged(e.to_string()))?
            .parse()
            .map_err(|e| damaged(format!("what it says of itself is unreadable: {e}")))?,
        Content::Spilled { .. } => {
            return Err(damaged("what it says of itself is elsewhere".to_owned()));
        }
    };
    match marker {
        Some(marker) if marker.id != own.id || marker.worker != own.worker => {
            Err(damaged(format!(
                "it is {} {}, and {} says {}: two folders were mixed",
                layout.kind, own.id, layout.marker, marker.id
            )))
        }
        _ => Ok(Some((own, last))),
    }
}

/// Writes the first record of a new store. The marker follows once the store is complete.
fn make(engine: &Engine, layout: &Layout, fresh: &Fresh) -> Result<Marker, OpenError> {
    let store = layout.folder.join(layout.store);
    let marker = Marker {
        format: FORMAT,
        kind: layout.kind.to_owned(),
        id: random_id(),
        created: fresh.now,
        machine: machine_id(),
        worker: fresh.worker.clone(),
    };
    let text = serde_json::to_vec(&marker).map_err(|e| OpenError::Io {
        path: store.clone(),
        detail: e.to_string(),
    })?;
    let meta = Record::new(Kind::Meta, Seq::NONE).content(Content::Inline(text.into()));
    commit(engine, &store, keys::META, &meta, Seq::NONE)?;
    sync_folder(&store)
        .and_then(|()| sync_folder(&layout.folder))
        .map_err(|e| OpenError::io(&store, &e))?;
    Ok(marker)
}

/// Checks that everything the last process stored is there.
///
/// sled stops reading a segment of its log at the first message that does not fit its checksum, and goes on with the next segment: what
/// lay behind is silently missing. What an earlier opening checked is safe from that, because opening ends with a snapshot that says
/// where each page lies. So the positions since then are followed, one by one: an entry or a record that is missing is damage.
fn check_order(engine: &Engine, checked: Seq, last: Seq) -> Result<(), StoreError> {
    let from = keys::at(vec![keys::ORDER], Seq(checked.0.saturating_add(1)));
    let mut expected = checked;
    let mut entries = engine.db().range(from..keys::behind(&[keys::ORDER]));
    while let Some((key, value)) = guarded(|| entries.next().transpose()).map_err(unavailable)? {
        expected = Seq(expected.0.saturating_add(1));
        let entry = Record::decode(&key, &value)?;
        if entry.seq != expected {
            return Err(Damage::new(format!("position {expected} is missing before it")).of(&key));
        }
        let Content::Inline(target) = &entry.content else {
            return Err(Damage::new("an entry without its key").of(&key));
        };
        check_target(engine, target, expected)?;
    }
    match expected == last {
        true => Ok(()),
        false => Err(
            Damage::new(format!("positions {expected} to {last} are missing")).of(keys::POSITION),
        ),
    }
}

fn check_target(engine: &Engine, target: &[u8], seq: Seq) -> Result<(), StoreError> {
    let missing =
        |key: &[u8]| Damage::new(format!("the record of position {seq} is missing")).of(key);
    match read(engine, target)? {
        // Overwritten since, or (a timer) removed.
        Some(record) if record.seq > seq => Ok(()),
        None if target.first() == Some(&keys::TIMER) => Ok(()),
        Some(record) if record.seq == seq => match record.kind {
            Kind::JournalCall => {
                let chain = call_chain(&record).map_err(|damage| damage.of(target))?;
                let link = keys::at(keys::chain(keys::CHAIN, &chain), seq);
                read(engine, &link)?
                    .map(|_| ())
                    .ok_or_else(|| missing(&link))
            }
            _ => Ok(()),
        },
        _ => Err(missing(target)),
    }
}

/// Adds a fresh boot id to the list of openings, and with it the position up to which the order was checked. Also proves that the store
/// takes writes before anything relies on it.
fn note_opening(
    engine: &Engine,
    store: &Path,
    before: Option<Record>,
    last: Seq,
) -> Result<Vec<String>, OpenError> {
    let mut boots = before.map(|record| record.names).unwrap_or_default();
    boots.push(random_id());
    boots.drain(..boots.len().saturating_sub(MAX_BOOTS));
    commit(
        engine,
        store,
        keys::BOOTS,
        &Record::new(Kind::Meta, last).names(boots.clone()),
        last,
    )?;
    Ok(boots)
}

fn commit(
    engine: &Engine,
    store: &Path,
    key: &[u8],
    record: &Record,
    last: Seq,
) -> Result<(), OpenError> {
    let mut changes = Changes::new();
    changes.insert(key.to_vec(), Some(record.encode(key)));
    changes.insert(keys::POSITION.to_vec(), Some(crate::writer::position(last)));
    engine
        .commit(&changes, last)
        .map_err(|detail| OpenError::Io {
            path: store.to_owned(),
            detail,
        })
}

fn read(engine: &Engine, key: &[u8]) -> Result<Option<Record>, StoreError> {
    let value = guarded(|| engine.db().get(key)).map_err(unavailable)?;
    value.map(|value| Record::decode(key, &value)).transpose()
}

/// Refuses a full or read-only folder before sled is asked, whose own answer to that is a panic or worse.
fn insist_on_room(folder: &Path) -> Result<(), OpenError> {
    const NAME: &str = "room";
    let io = |e: std::io::Error| OpenError::io(folder, &e);
    create_folder(folder).map_err(io)?;
    write_whole(folder, NAME, &vec![0; ROOM_TO_OPEN]).map_err(io)?;
    std::fs::remove_file(folder.join(NAME)).map_err(io)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(folder: &Path) -> Layout {
        Layout {
            folder: folder.to_owned(),
            marker: "marker.json",
            store: "store",
            kind: "store",
            traces: &[],
        }
    }

    fn again(folder: &Path) -> Result<Opened, OpenError> {
        let fresh = Fresh {
            now: 1,
            worker: None,
        };
        open(&layout(folder), &fresh, true)
    }

    /// Three positions, of which the second is a timer or not; then what sled would have lost is taken away.
    fn three_without(lost: &[Vec<u8>], second: u8) -> Result<Opened, OpenError> {
        let folder = tempfile::tempdir().unwrap();
        let engine = again(folder.path()).unwrap().engine;
        let mut changes = Changes::new();
        for seq in 1..=3 {
            let kind = if seq == 2 { second } else { keys::LEASE };
            let key = names(kind, seq);
            let order = keys::at(vec![keys::ORDER], Seq(seq));
            let entry =
                Record::new(Kind::Index, Seq(seq)).content(Content::Inline(key.clone().into()));
            changes.insert(order.clone(), Some(entry.encode(&order)));
            let record = Record::new(Kind::Lease, Seq(seq));
            changes.insert(key.clone(), Some(record.encode(&key)));
        }
        changes.insert(
            keys::POSITION.to_vec(),
            Some(crate::writer::position(Seq(3))),
        );
        engine.commit(&changes, Seq(3)).unwrap();
        let lost = lost.iter().map(|key| (key.clone(), None)).collect();
        engine.commit(&lost, Seq(3)).unwrap();
        drop(engine);
        again(folder.path())
    }

    fn names(kind: u8, seq: u64) -> Vec<u8> {
        keys::names(kind, [seq.to_string().as_str()])
    }

    #[test]
    fn k41_a_record_that_is_missing_since_the_last_opening_is_damage() {
        assert_eq!(three_without(&[], keys::LEASE).unwrap().last, Seq(3));
        let order = |seq| keys::at(vec![keys::ORDER], Seq(seq));
        let lease = |seq| names(keys::LEASE, seq);
        let losses = [
            vec![lease(2)],
            vec![lease(3)],
            vec![order(2)],
            vec![order(3)],
            vec![lease(1), order(1)],
            vec![lease(3), order(3)],
            vec![order(1), order(2), order(3)],
        ];
        for lost in losses {
            match three_without(&lost, keys::LEASE) {
                Err(OpenError::Damaged { detail, .. }) => {
                    assert!(detail.contains("missing"), "{detail}")
                }
                other => panic!("{lost:?}: {:?}", other.map(|opened| opened.last)),
            }
        }
    }

    #[test]
    fn a_timer_that_was_cleared_is_not_missing() {
        let cleared = three_without(&[names(keys::TIMER, 2)], keys::TIMER).unwrap();
        assert_eq!(cleared.last, Seq(3));
    }
}
