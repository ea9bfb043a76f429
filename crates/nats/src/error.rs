//! What the server's answers say about the world: stored, definitely not stored, or unknown.
//!
//! | answer | meaning |
//! |---|---|
//! | an acknowledgement with a position | stored |
//! | 10071 wrong last sequence | not stored: somebody else was first |
//! | 10164 another write in flight | not stored: try again |
//! | 10077 the stream refuses (full, or written already) | not stored |
//! | no responders, no leader, no resources | not stored: nobody took it |
//! | an error that this version does not know | unknown |
//! | a timeout, a lost connection | unknown |

use async_nats::client::{RequestError, RequestErrorKind};
use async_nats::jetstream::ErrorCode;
use bytes::Bytes;
use leasehold_protocol::Seq;
use leasehold_store::{AppendError, StoreError};
use serde::Deserialize;

/// Another write of the same run is in flight at the leader of a replicated stream (the server calls it "wrong last sequence" as well).
const WRITE_IN_FLIGHT: ErrorCode = ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT;

/// What became of a conditional publish.
#[derive(Debug)]
pub(crate) enum Unstored {
    /// Not stored: the last position is another one.
    WrongLast,
    /// Not stored, and it passes.
    Busy(String),
    /// Not stored: the stream takes no more, or this subject is written already.
    Full(String),
    /// Not stored, and it never will be.
    Never(String),
    /// Nobody knows.
    Unknown(String),
}

impl Unstored {
    pub(crate) fn append(self, expected: Seq) -> AppendError {
        match self {
            Unstored::WrongLast => AppendError::Refused {
                expected,
                last: None,
            },
            Unstored::Busy(why) => AppendError::Busy(why),
            Unstored::Full(why) => AppendError::Busy(format!(
                "the stream takes no more ({why}); raise its limits or remove what is archived"
            )),
            Unstored::Never(why) => AppendError::Never(why),
            Unstored::Unknown(why) => AppendError::Unknown(why),
        }
    }

    pub(crate) fn store(self) -> StoreError {
        match self {
            Unstored::WrongLast => StoreError::Unavailable("somebody else wrote first".to_owned()),
            Unstored::Full(why) | Unstored::Never(why) => StoreError::Refuses(why),
            Unstored::Busy(why) | Unstored::Unknown(why) => StoreError::Unavailable(why),
        }
    }
}

#[derive(Deserialize)]
struct Reply {
    #[serde(default)]
    seq: Option<u64>,
    #[serde(default)]
    error: Option<async_nats::jetstream::Error>,
}

/// Reads the answer to a publish.
pub(crate) fn acknowledged(payload: &Bytes) -> Result<Seq, Unstored> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the server's own answer, in the server's own form"
    )]
    let reply: Reply = serde_json::from_slice(payload)
        .map_err(|error| Unstored::Unknown(format!("the answer cannot be read: {error}")))?;
    match (reply.error, reply.seq) {
        (None, Some(seq)) => Ok(Seq(seq)),
        (Some(error), _) => Err(refused(&error)),
        (None, None) => Err(Unstored::Unknown("the answer has no position".to_owned())),
    }
}

fn refused(error: &async_nats::jetstream::Error) -> Unstored {
    let why = error.to_string();
    match error.error_code() {
        ErrorCode::STREAM_WRONG_LAST_SEQUENCE => Unstored::WrongLast,
        WRITE_IN_FLIGHT
        | ErrorCode::CLUSTER_NOT_AVAILABLE
        | ErrorCode::CLUSTER_NOT_LEADER
        | ErrorCode::INSUFFICIENT_RESOURCES
        | ErrorCode::STREAM_OFFLINE
        | ErrorCode::STREAM_OFFLINE_REASON
        | ErrorCode::JETSTREAM_NOT_ENABLED
        | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT => Unstored::Busy(why),
        ErrorCode::STREAM_STORE_FAILED
        | ErrorCode::ACCOUNT_RESOURCES_EXCEEDED
        | ErrorCode::STORAGE_RESOURCES_EXCEEDED => Unstored::Full(why),
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM | ErrorCode::STREAM_SEALED => {
            Unstored::Never(why)
        }
        _ => Unstored::Unknown(why),
    }
}

/// What a publish without an answer says.
pub(crate) fn unanswered(error: &RequestError) -> Unstored {
    let why = error.to_string();
    match error.kind() {
        RequestErrorKind::NoResponders => {
            Unstored::Busy("no server leads the stream now".to_owned())
        }
        RequestErrorKind::MaxPayloadExceeded | RequestErrorKind::InvalidSubject => {
            Unstored::Never(why)
        }
        RequestErrorKind::TimedOut | RequestErrorKind::Other => Unstored::Unknown(why),
    }
}

/// A read that failed says nothing about what is stored.
pub(crate) fn unread(what: &str, error: impl std::fmt::Display) -> StoreError {
    StoreError::Unavailable(format!("{what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &'static str) -> Result<Seq, Unstored> {
        acknowledged(&Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn i11_only_what_is_known_not_to_be_stored_is_said_not_to_be() {
        let error = |code: u64| {
            let text = format!(
                r#"{{"error":{{"code":400,"err_code":{code},"description":"d"}},"stream":"S","seq":0}}"#
            );
            acknowledged(&Bytes::from(text)).unwrap_err()
        };
        assert!(matches!(answer(r#"{"stream":"S","seq":7}"#), Ok(Seq(7))));
        assert!(matches!(error(10071), Unstored::WrongLast));
        assert!(matches!(error(10164), Unstored::Busy(_)));
        assert!(matches!(error(10077), Unstored::Full(_)));
        assert!(matches!(error(10054), Unstored::Never(_)));
        for unknown in [10001, 99999] {
            assert!(matches!(error(unknown), Unstored::Unknown(_)), "{unknown}");
        }
        for garbled in ["", "{", "{}", "[]"] {
            assert!(
                matches!(answer(garbled), Err(Unstored::Unknown(_))),
                "{garbled}"
            );
        }
    }
}
