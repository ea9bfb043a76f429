//! Keys. Each is one letter for the kind of record, then names as subject tokens, each closed by a zero byte, then a position.
//!
//! Subject tokens are injective and hold no zero byte, so no two names meet, everything of a run or a chain lies together, and the order
//! of keys is the order of tokens, then of positions.

use leasehold_protocol::{ChainKey, RunId, Seq};
use leasehold_store::AppendError;
use leasehold_tools::{NameError, ToolName, from_subject_token, subject_token};

use crate::record::Damage;

/// Journal: `j<run>\0<seq>`.
pub(crate) const JOURNAL: u8 = b'j';
/// Chain: `c<run>\0<tool>\0<step>\0<attempt>\0<origin>\0<seq>`.
pub(crate) const CHAIN: u8 = b'c';
/// Evidence notes: as chains.
pub(crate) const NOTE: u8 = b'n';
/// Runs whose journal has no end: `o<run>\0`.
pub(crate) const OPEN_RUN: u8 = b'o';
/// Calls not acknowledged: `q<seq>`.
pub(crate) const WAITING: u8 = b'q';
/// Inbox: `i<run>\0<kind>\0<names>\0..`.
pub(crate) const INBOX: u8 = b'i';
/// Inbox messages not acknowledged: `u<seq>`.
pub(crate) const UNREAD: u8 = b'u';
/// Leases: `l<run>\0`.
pub(crate) const LEASE: u8 = b'l';
/// Timers: `t<run>\0`.
pub(crate) const TIMER: u8 = b't';
/// A logbook's attempts: `a<chain>`.
pub(crate) const ATTEMPT: u8 = b'a';
/// A logbook's attempts that are not published: `p<chain>`.
pub(crate) const UNPUBLISHED: u8 = b'p';
/// The order of everything that took a position: `z<seq>`, its content the key of what stands there. Without a gap, and never removed.
pub(crate) const ORDER: u8 = b'z';
/// What the store is: one record.
pub(crate) const META: &[u8] = b"m";
/// The last position given out: one record, written with each group.
pub(crate) const POSITION: &[u8] = b"s";
/// The last openings: one record.
pub(crate) const BOOTS: &[u8] = b"b";

/// `<kind><token>\0<token>\0..`
pub(crate) fn names<'a>(kind: u8, tokens: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    let mut key = vec![kind];
    for token in tokens {
        key.extend_from_slice(token.as_bytes());
        key.push(0);
    }
    key
}

/// Everything of a run under one kind.
pub(crate) fn run(kind: u8, run: &RunId) -> Vec<u8> {
    names(kind, [run.token().as_str()])
}

/// Everything of an attempt under one kind.
pub(crate) fn chain(kind: u8, chain: &ChainKey) -> Vec<u8> {
    names(kind, chain_tokens(chain).iter().map(String::as_str))
}

/// Refuses a chain whose tool has a longer name than any tool can have: every other name is bounded by its type.
pub(crate) fn bounded(chain: &ChainKey) -> Result<(), AppendError> {
    match ToolName::parse(&chain.tool) {
        Err(error @ NameError::TooLong { .. }) => Err(AppendError::Never(error.to_string())),
        _ => Ok(()),
    }
}

/// The tokens of a chain: run, tool, step, attempt, origin.
pub(crate) fn chain_tokens(chain: &ChainKey) -> [String; 5] {
    [
        chain.run.token(),
        subject_token(&chain.tool),
        chain.step.to_string(),
        chain.attempt.to_string(),
        chain.origin.token(),
    ]
}

/// A position behind a prefix.
pub(crate) fn at(mut prefix: Vec<u8>, seq: Seq) -> Vec<u8> {
    prefix.extend_from_slice(&seq.0.to_be_bytes());
    prefix
}

/// The first key behind everything that begins with the prefix. Prefixes end in a zero byte or are one letter, so this cannot overflow.
pub(crate) fn behind(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end
}

/// The names in a key, decoded; what follows them (a position or nothing) is left out.
pub(crate) fn decode_names<const N: usize>(key: &[u8]) -> Result<[String; N], Damage> {
    let mut parts = key
        .get(1..)
        .unwrap_or_default()
        .splitn(N + 1, |byte| *byte == 0);
    let mut names = Vec::with_capacity(N);
    for _ in 0..N {
        let token = parts
            .next()
            .and_then(|token| std::str::from_utf8(token).ok())
            .ok_or_else(|| Damage::new("key without its names"))?;
        // Steps and attempts are written as they are, and are tokens of themselves.
        names.push(
            from_subject_token(token)
                .map_err(|e| Damage::new(format!("key token {token:?}: {e}")))?,
        );
    }
    names
        .try_into()
        .map_err(|_| Damage::new("key without its names"))
}

/// The run in a key.
pub(crate) fn decode_run(key: &[u8]) -> Result<RunId, Damage> {
    let [run] = decode_names(key)?;
    RunId::new(run).map_err(|e| Damage::new(e.to_string()))
}

/// The chain in a key.
pub(crate) fn decode_chain(key: &[u8]) -> Result<ChainKey, Damage> {
    let [run, tool, step, attempt, origin] = decode_names(key)?;
    chain_from_names(&run, &tool, &step, &attempt, &origin)
}

/// A chain from its names.
pub(crate) fn chain_from_names(
    run: &str,
    tool: &str,
    step: &str,
    attempt: &str,
    origin: &str,
) -> Result<ChainKey, Damage> {
    let bad = |e: leasehold_protocol::IdError| Damage::new(e.to_string());
    Ok(ChainKey {
        run: RunId::new(run).map_err(bad)?,
        tool: tool.to_owned(),
        step: step.parse().map_err(bad)?,
        attempt: attempt.parse().map_err(bad)?,
        origin: leasehold_protocol::SessionId::new(origin).map_err(bad)?,
    })
}
