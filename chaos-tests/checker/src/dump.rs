//! The dump: one JSON object a line, one line a stored message. Only what stands in the subject is believed about where
//! a message belongs; the body is kept as the exact bytes.
//!
//! Positions have one order in the embedded store. In a cluster each shard has its own, and a shard's inbox has one beside its
//! journals and registers. Everything of a run lies in one shard, so whatever is compared has an order, but for inbox messages.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::logbooks::Record;

/// Where a message stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// A commit; the last part is `open`, `own`, `note`, `end` or `call`.
    Journal(String),
    /// A claim register message.
    Claim,
    /// An outcome register message.
    Outcome,
    /// An evidence note.
    Evidence,
    /// A submission, decision or cancellation: `in`, `d` or `c`.
    Inbox(String),
}

/// The attempt that a message belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChainId {
    pub(crate) tool: String,
    pub(crate) step: String,
    pub(crate) attempt: u64,
    pub(crate) origin: String,
}

/// One stored message.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) seq: u64,
    /// The shard's token.
    pub(crate) shard: String,
    pub(crate) run: String,
    pub(crate) place: Place,
    pub(crate) chain: Option<ChainId>,
    /// The last token of a register's subject; `_rt` is the runtime.
    pub(crate) writer: String,
    pub(crate) expected: Option<u64>,
    pub(crate) body: Vec<u8>,
    /// The envelope that was stored with a call.
    pub(crate) call: Option<Vec<u8>>,
}

impl Message {
    pub(crate) fn is_inbox(&self) -> bool {
        matches!(self.place, Place::Inbox(_))
    }

    /// The body as JSON; `Null` if it is none, so that every look into it finds nothing.
    pub(crate) fn json(&self) -> Value {
        json(&self.body)
    }
}

/// All messages, those of a run in order of position. An inbox that has its own positions comes first.
#[derive(Debug, Default)]
pub(crate) struct Dump {
    pub(crate) messages: Vec<Message>,
    /// The positions of inbox messages say nothing about those of other messages.
    pub(crate) inbox_apart: bool,
    /// What the workers wrote down themselves.
    pub(crate) logbooks: Vec<Record>,
}

/// What a line is.
enum Line {
    Message(Box<Message>),
    Logbook(Record),
}

impl Dump {
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let file = std::fs::File::open(path)
            .with_context(|| format!("opening the dump {}", path.display()))?;
        let mut lines = Vec::new();
        for line in BufReader::new(file).lines() {
            lines.push(line.with_context(|| format!("reading the dump {}", path.display()))?);
        }
        Self::of_lines(lines.iter().map(String::as_str))
            .with_context(|| format!("the dump {}", path.display()))
    }

    pub(crate) fn of_lines<'a>(lines: impl Iterator<Item = &'a str>) -> anyhow::Result<Self> {
        let (mut messages, mut logbooks) = (Vec::new(), Vec::new());
        for (index, line) in lines
            .enumerate()
            .filter(|(_, line)| !line.trim().is_empty())
        {
            match read(line).with_context(|| format!("line {}", index + 1))? {
                Line::Message(message) => messages.push(*message),
                Line::Logbook(record) => logbooks.push(record),
            }
        }
        let inbox_apart = apart(&messages);
        messages.sort_by_key(|message| (inbox_apart && !message.is_inbox(), message.seq));
        Ok(Self {
            messages,
            inbox_apart,
            logbooks,
        })
    }

    /// Messages by run, each in order.
    pub(crate) fn by_run(&self) -> BTreeMap<&str, Vec<&Message>> {
        let mut runs: BTreeMap<&str, Vec<&Message>> = BTreeMap::new();
        for message in &self.messages {
            runs.entry(&message.run).or_default().push(message);
        }
        runs
    }

    /// Submissions: run, position, SHA-256 of the body.
    pub(crate) fn submissions(&self) -> Vec<(String, u64, String)> {
        let submissions = self
            .messages
            .iter()
            .filter(|message| message.place == Place::Inbox("in".to_owned()));
        submissions
            .map(|message| (message.run.clone(), message.seq, sha256(&message.body)))
            .collect()
    }
}

/// Whether inboxes have positions of their own: where everything has one order, a position is not both.
fn apart(messages: &[Message]) -> bool {
    let positions = |inbox: bool| -> BTreeSet<(&str, u64)> {
        let messages = messages
            .iter()
            .filter(|message| message.is_inbox() == inbox);
        messages
            .map(|message| (message.shard.as_str(), message.seq))
            .collect()
    };
    !positions(true).is_disjoint(&positions(false))
}

fn read(line: &str) -> anyhow::Result<Line> {
    let value = json(line.as_bytes());
    if !value.is_object() {
        bail!("not a JSON object");
    }
    let stream = text(&value, "stream");
    if stream == "logbook" {
        let body = bytes(&value, "body")?.ok_or_else(|| anyhow!("no `body`"))?;
        return Ok(Line::Logbook(Record::read(&value, &json(&body))));
    }
    let seq = value
        .get("seq")
        .and_then(Value::as_u64)
        .ok_or_else(|| anyhow!("no `seq`"))?;
    let subject = text(&value, "subject");
    let (run, place, chain, writer) =
        parse_subject(subject).ok_or_else(|| anyhow!("{subject:?} is no subject"))?;
    let body = bytes(&value, "body")?.ok_or_else(|| anyhow!("no `body`"))?;
    let call = bytes(&value, "call")?;
    let expected = value.get("expected").and_then(Value::as_u64);
    let shard = subject.split('.').nth(1).unwrap_or_default().to_owned();
    Ok(Line::Message(Box::new(Message {
        seq,
        shard,
        run,
        place,
        chain,
        writer,
        expected,
        body,
        call,
    })))
}

fn bytes(value: &Value, name: &str) -> anyhow::Result<Option<Vec<u8>>> {
    if let Some(text) = value.get(name).and_then(Value::as_str) {
        return Ok(Some(text.as_bytes().to_vec()));
    }
    let encoded = value.get(format!("{name}_base64")).and_then(Value::as_str);
    encoded
        .map(|text| base64(text).ok_or_else(|| anyhow!("`{name}_base64` is no base64")))
        .transpose()
}

fn parse_subject(subject: &str) -> Option<(String, Place, Option<ChainId>, String)> {
    let tokens: Vec<&str> = subject.split('.').collect();
    let chain = |tool: &str, step: &str, attempt: &str, origin: &str| {
        Some(ChainId {
            tool: decode(tool)?,
            step: decode(step)?,
            attempt: attempt.parse().ok()?,
            origin: decode(origin)?,
        })
    };
    Some(match tokens.as_slice() {
        [
            "lh",
            _,
            "run",
            run,
            "j",
            last @ ("open" | "own" | "note" | "end"),
        ] => (
            decode(run)?,
            Place::Journal((*last).to_owned()),
            None,
            String::new(),
        ),
        [
            "lh",
            _,
            "run",
            run,
            "j",
            "call",
            tool,
            step,
            attempt,
            origin,
            "_",
        ] => (
            decode(run)?,
            Place::Journal("call".to_owned()),
            Some(chain(tool, step, attempt, origin)?),
            String::new(),
        ),
        [
            "lh",
            _,
            "run",
            run,
            "w",
            register @ ("claim" | "outcome"),
            tool,
            step,
            attempt,
            origin,
            writer,
        ] => {
            let place = if *register == "claim" {
                Place::Claim
            } else {
                Place::Outcome
            };
            (
                decode(run)?,
                place,
                Some(chain(tool, step, attempt, origin)?),
                (*writer).to_owned(),
            )
        }
        [
            "lh",
            _,
            "run",
            run,
            "w",
            "evidence",
            tool,
            step,
            attempt,
            origin,
            writer,
            _,
        ] => (
            decode(run)?,
            Place::Evidence,
            Some(chain(tool, step, attempt, origin)?),
            (*writer).to_owned(),
        ),
        ["lh", _, kind @ ("in" | "d" | "c"), run, ..] => (
            decode(run)?,
            Place::Inbox((*kind).to_owned()),
            None,
            String::new(),
        ),
        _ => return None,
    })
}

/// The text that a subject token stands for: `_HH` is one byte of its UTF-8.
pub(crate) fn decode(token: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(token.len());
    let mut rest = token.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = match (first, tail) {
            (b'_', [high, low, after @ ..]) => {
                bytes.push(
                    u8::try_from(
                        char::from(*high).to_digit(16)? * 16 + char::from(*low).to_digit(16)?,
                    )
                    .ok()?,
                );
                after
            }
            (b'_', _) => return None,
            _ => {
                bytes.push(first);
                tail
            }
        };
    }
    String::from_utf8(bytes).ok()
}

/// JSON of a record; `Null` if it is none.
#[expect(
    clippy::disallowed_methods,
    reason = "the checker shares no code with the runtime, so it has its own reader; records it cannot read are violations"
)]
pub(crate) fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or(Value::Null)
}

/// A text member; empty if there is none.
pub(crate) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// A number member; zero if there is none.
pub(crate) fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or(0)
}

/// SHA-256 in lower-case hexadecimal digits.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// RFC 4648 base64 with padding.
fn base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut buffer, mut bits) = (0u32, 0u32);
    for character in text.trim_end_matches('=').bytes() {
        let value = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        buffer = (buffer << 6 | u32::from(value)) & 0xFFFF;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(buffer >> bits & 0xFF).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{RUN, Story};

    #[test]
    fn k58_tokens_are_decoded() {
        assert_eq!(
            decode("refund_5Forder-1").as_deref(),
            Some("refund_order-1")
        );
        assert_eq!(decode("_C3_A9").as_deref(), Some("é"));
        assert_eq!(decode("_4"), None);
        assert_eq!(decode("_FF"), None);
    }

    #[test]
    fn bodies_that_are_no_text_come_in_base64() {
        assert_eq!(base64("/+4AQQ==").unwrap(), [0xFF, 0xEE, 0x00, 0x41]);
        assert_eq!(base64("YWJj").unwrap(), b"abc");
        assert!(base64("a b").is_none());
    }

    #[test]
    fn an_inbox_with_positions_of_its_own_says_nothing_about_order() {
        let one = Story::paid();
        assert!(!one.dump().inbox_apart);
        let cluster = Story::in_cluster(3).and_paid();
        let dump = cluster.dump();
        assert!(dump.inbox_apart);
        assert_eq!(cluster.report().violations, []);
        // In a timeline the submission comes before the commit that names it.
        let submission =
            |lines: &[String]| lines.iter().position(|line| line.contains("submission by"));
        assert_eq!(submission(&crate::timeline::of(&dump, RUN)), Some(0));
    }

    #[test]
    fn i8_a_run_lies_in_one_shard() {
        let mut story = Story::paid();
        let last = story.lines.last_mut().unwrap();
        let subject = last["subject"]
            .as_str()
            .unwrap()
            .replacen("lh.0.", "lh.1.", 1);
        last["subject"] = serde_json::json!(subject);
        let broken = story.broken();
        assert!(broken.contains(&"I8".to_owned()), "{broken:?}");
    }

    #[test]
    fn a_line_that_is_none_is_an_error_with_its_number() {
        let error = Dump::of_lines(
            [
                "",
                "{\"seq\":1,\"stream\":\"journal\",\"subject\":\"x\",\"body\":\"\"}",
            ]
            .into_iter(),
        )
        .unwrap_err();
        assert_eq!(format!("{error:#}"), "line 2: \"x\" is no subject");
    }
}
