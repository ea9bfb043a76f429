//! The check itself: one pass over the bytes with an explicit stack, no recursion, no tree.
//!
//! Faults have ranks (depth, UTF-8, exactly one value, surrogates, repeated keys, number bounds) and the lowest rank is
//! reported. Good input pays for one pass only: surrogates, keys and numbers are noted on the way and a fault of the
//! first two ranks is looked for again when something else was found wrong. Time is linear in the input, whatever it holds:
//! the keys of large objects are hashed, with a seed that the sender does not know.

use std::borrow::Cow;
use std::collections::HashSet;

use crate::number;
use crate::read::unescape;
use crate::refusal::{Refusal, RefusalReason, quoted};

/// Most arrays and objects inside each other. Fixed by the wire contract: every hop reads to the same depth, and a
/// recursive reader of another language has room for it.
pub const MAX_DEPTH: usize = 256;

/// Up to this many keys an object is searched linearly: no hashing and no allocation for the usual arguments.
const LINEAR_KEYS: usize = 12;

/// The part of `bytes` that is one usable JSON value, without the whitespace around it.
pub(crate) fn check(bytes: &[u8]) -> Result<&str, Refusal> {
    let found = match std::str::from_utf8(bytes) {
        Ok(text) => Scanner::new(text).document(),
        Err(error) => Err(Refusal::new(error.valid_up_to(), RefusalReason::NotUtf8)),
    };
    found.map_err(|refusal| match too_deep_at(bytes) {
        Some(offset) => Refusal::new(offset, RefusalReason::TooDeep),
        None => refusal,
    })
}

/// Where the nesting of bytes that may be no JSON at all first exceeds the bound, counting brackets outside strings.
fn too_deep_at(bytes: &[u8]) -> Option<usize> {
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut escaped = false;
    for (offset, byte) in bytes.iter().enumerate() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' if depth == MAX_DEPTH => return Some(offset),
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

/// The first fault of each rank that does not stop the scan.
#[derive(Default)]
struct Noted {
    surrogate: Option<Refusal>,
    key: Option<Refusal>,
    number: Option<Refusal>,
}

enum Open<'a> {
    Array,
    Object(Keys<'a>),
}

/// The keys of an open object. Those of small objects stand on one shared stack from `start`.
struct Keys<'a> {
    start: usize,
    many: Option<HashSet<Cow<'a, str>>>,
}

struct Scanner<'a> {
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    keys: Vec<Cow<'a, str>>,
    noted: Noted,
}

impl<'a> Scanner<'a> {
    fn new(text: &'a str) -> Self {
        Self {
            text,
            bytes: text.as_bytes(),
            at: 0,
            keys: Vec::new(),
            noted: Noted::default(),
        }
    }

    fn document(mut self) -> Result<&'a str, Refusal> {
        self.whitespace();
        let start = self.at;
        match self.peek() {
            None => return Err(Refusal::new(0, RefusalReason::Empty)),
            Some(0xEF) if self.text[start..].starts_with('\u{feff}') => {
                return Err(Refusal::new(start, RefusalReason::ByteOrderMark));
            }
            Some(_) => {}
        }
        self.value()?;
        let end = self.at;
        self.whitespace();
        if let Some(found) = self.character() {
            return Err(Refusal::new(self.at, RefusalReason::AfterValue { found }));
        }
        let Noted {
            surrogate,
            key,
            number,
        } = self.noted;
        match surrogate.or(key).or(number) {
            Some(refusal) => Err(refusal),
            None => Ok(&self.text[start..end]),
        }
    }

    /// One value with everything in it.
    fn value(&mut self) -> Result<(), Refusal> {
        let mut stack: Vec<Open<'a>> = Vec::new();
        loop {
            self.whitespace();
            match self.peek() {
                Some(b'"') => {
                    self.string()?;
                }
                Some(b'-' | b'0'..=b'9') => self.number()?,
                Some(b't') => self.word("true")?,
                Some(b'f') => self.word("false")?,
                Some(b'n') => self.word("null")?,
                Some(open @ (b'[' | b'{')) => {
                    if stack.len() == MAX_DEPTH {
                        return Err(Refusal::new(self.at, RefusalReason::TooDeep));
                    }
                    self.at += 1;
                    self.whitespace();
                    if open == b'[' && self.peek() == Some(b']')
                        || open == b'{' && self.peek() == Some(b'}')
                    {
                        self.at += 1;
                    } else if open == b'[' {
                        stack.push(Open::Array);
                        continue;
                    } else {
                        let mut keys = Keys {
                            start: self.keys.len(),
                            many: None,
                        };
                        self.key(&mut keys, "a key or '}'")?;
                        stack.push(Open::Object(keys));
                        continue;
                    }
                }
                _ => return Err(self.unexpected("a value")),
            }
            loop {
                let Some(open) = stack.last_mut() else {
                    return Ok(());
                };
                self.whitespace();
                match (open, self.peek()) {
                    (Open::Array, Some(b',')) => {
                        self.at += 1;
                        break;
                    }
                    (Open::Object(keys), Some(b',')) => {
                        self.at += 1;
                        self.whitespace();
                        self.key(keys, "a key")?;
                        break;
                    }
                    (Open::Array, Some(b']')) => self.at += 1,
                    (Open::Object(keys), Some(b'}')) => {
                        self.at += 1;
                        self.keys.truncate(keys.start);
                    }
                    (Open::Array, _) => return Err(self.unexpected("',' or ']'")),
                    (Open::Object(_), _) => return Err(self.unexpected("',' or '}'")),
                }
                stack.pop();
            }
        }
    }

    /// A key and the colon after it.
    fn key(&mut self, keys: &mut Keys<'a>, expected: &'static str) -> Result<(), Refusal> {
        if self.peek() != Some(b'"') {
            return Err(self.unexpected(expected));
        }
        let offset = self.at;
        let escapes = self.string()?;
        let raw = &self.text[offset + 1..self.at - 1];
        let key = if escapes {
            unescape(raw)
        } else {
            Cow::Borrowed(raw)
        };
        if let Some(key) = self.remember(keys, key)
            && self.noted.key.is_none()
        {
            self.noted.key = Some(Refusal::new(
                offset,
                RefusalReason::RepeatedKey { key: quoted(&key) },
            ));
        }
        self.whitespace();
        if self.peek() != Some(b':') {
            return Err(self.unexpected("':'"));
        }
        self.at += 1;
        Ok(())
    }

    /// Adds a key to those of its object; gives it back if it was there.
    fn remember(&mut self, keys: &mut Keys<'a>, key: Cow<'a, str>) -> Option<Cow<'a, str>> {
        if let Some(many) = &mut keys.many {
            return if many.contains(&key) {
                Some(key)
            } else {
                many.insert(key);
                None
            };
        }
        let few = &self.keys[keys.start..];
        if few.contains(&key) {
            return Some(key);
        }
        if few.len() == LINEAR_KEYS {
            let mut many: HashSet<_> = self.keys.drain(keys.start..).collect();
            many.insert(key);
            keys.many = Some(many);
        } else {
            self.keys.push(key);
        }
        None
    }

    /// A string, from its opening quote to behind its closing one; tells whether it holds an escape.
    fn string(&mut self) -> Result<bool, Refusal> {
        let mut escapes = false;
        self.at += 1;
        loop {
            while self.peek().is_some_and(|byte| PLAIN[usize::from(byte)]) {
                self.at += 1;
            }
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(escapes);
                }
                Some(b'\\') => {
                    escapes = true;
                    self.escape()?;
                }
                Some(control) => {
                    let found = char::from(control);
                    return Err(Refusal::new(
                        self.at,
                        RefusalReason::ControlCharacter { found },
                    ));
                }
                None => return Err(self.unexpected("the rest of a string")),
            }
        }
    }

    fn escape(&mut self) -> Result<(), Refusal> {
        let offset = self.at;
        self.at += 1;
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                let unit = self.four_hex()?;
                let paired = match unit {
                    0xD800..=0xDBFF
                        if self
                            .bytes
                            .get(self.at..)
                            .is_some_and(|rest| rest.starts_with(b"\\u")) =>
                    {
                        let back = self.at;
                        self.at += 2;
                        let low = self.four_hex()?;
                        let paired = (0xDC00..=0xDFFF).contains(&low);
                        if !paired {
                            self.at = back;
                        }
                        paired
                    }
                    unit => !(0xD800..=0xDFFF).contains(&unit),
                };
                if !paired && self.noted.surrogate.is_none() {
                    self.noted.surrogate =
                        Some(Refusal::new(offset, RefusalReason::LoneSurrogate { unit }));
                }
            }
            _ => return Err(self.unexpected("an escape (one of \" \\ / b f n r t u)")),
        }
        Ok(())
    }

    fn four_hex(&mut self) -> Result<u16, Refusal> {
        let mut unit = 0_u16;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit.and_then(|digit| u16::try_from(digit).ok()) else {
                return Err(self.unexpected("a hexadecimal digit of an escape"));
            };
            unit = unit << 4 | digit;
            self.at += 1;
        }
        Ok(unit)
    }

    fn number(&mut self) -> Result<(), Refusal> {
        let start = self.at;
        match number::literal_end(self.bytes, start) {
            Ok(end) => self.at = end,
            Err(fault) => {
                self.at = fault;
                return Err(self.unexpected("a digit"));
            }
        }
        if self.noted.number.is_none()
            && let Some(reason) = number::out_of_bounds(&self.text[start..self.at])
        {
            self.noted.number = Some(Refusal::new(start, reason));
        }
        Ok(())
    }

    fn word(&mut self, word: &'static str) -> Result<(), Refusal> {
        for byte in word.bytes() {
            if self.peek() != Some(byte) {
                return Err(self.unexpected(word));
            }
            self.at += 1;
        }
        Ok(())
    }

    fn whitespace(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.peek() {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn character(&self) -> Option<char> {
        self.text
            .get(self.at..)
            .and_then(|rest| rest.chars().next())
    }

    fn unexpected(&self, expected: &'static str) -> Refusal {
        let reason = match self.character() {
            Some(found) => RefusalReason::Unexpected { found, expected },
            None => RefusalReason::UnexpectedEnd { expected },
        };
        Refusal::new(self.at, reason)
    }
}

/// Bytes that stand for themselves inside a string.
static PLAIN: [bool; 256] = {
    let mut plain = [true; 256];
    let mut byte = 0;
    while byte < 0x20 {
        plain[byte] = false;
        byte += 1;
    }
    plain[b'"' as usize] = false;
    plain[b'\\' as usize] = false;
    plain
};
