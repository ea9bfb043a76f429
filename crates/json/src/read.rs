//! Reading text that was accepted: cheap, and without errors, because the check has already been made.
//!
//! Nothing here looks for faults. On text that was not accepted the answers would be nonsense, but they would be answers:
//! every function is total. Recursion is bounded by [`MAX_DEPTH`](crate::MAX_DEPTH).

use std::borrow::Cow;

use serde_json::{Map, Number, Value};

/// A value with its numbers as they were written.
pub(crate) enum Node<'a> {
    Null,
    Bool(bool),
    Number(&'a str),
    String(Cow<'a, str>),
    Array(Vec<Node<'a>>),
    Object(Vec<(Cow<'a, str>, Node<'a>)>),
}

impl Node<'_> {
    pub(crate) fn into_value(self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(value),
            Self::Number(literal) => Value::Number(number(literal)),
            Self::String(text) => Value::String(text.into_owned()),
            Self::Array(items) => Value::Array(items.into_iter().map(Node::into_value).collect()),
            Self::Object(members) => Value::Object(
                members
                    .into_iter()
                    .map(|(key, value)| (key.into_owned(), value.into_value()))
                    .collect::<Map<_, _>>(),
            ),
        }
    }
}

/// An integer of 64 bits if the literal is one, otherwise the nearest finite double.
fn number(literal: &str) -> Number {
    if let Ok(value) = literal.parse::<u64>() {
        return value.into();
    }
    // "-0" is the double -0.0, as serde_json reads it.
    if let Ok(value) = literal.parse::<i64>()
        && value != 0
    {
        return value.into();
    }
    let double = literal
        .parse::<f64>()
        .unwrap_or(0.0)
        .clamp(f64::MIN, f64::MAX);
    Number::from_f64(double).unwrap_or_else(|| 0.into())
}

/// A position in accepted text.
pub(crate) struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The whole value as a tree.
    pub(crate) fn node(&mut self) -> Node<'a> {
        match self.peek() {
            Some(b'{') => {
                let mut members = Vec::new();
                while let Some(key) = self.next_key() {
                    members.push((key, self.node()));
                }
                Node::Object(members)
            }
            Some(b'[') => {
                let mut items = Vec::new();
                while self.next_item() {
                    items.push(self.node());
                }
                Node::Array(items)
            }
            Some(b'"') => Node::String(self.string()),
            _ => match self.skip_scalar() {
                "null" => Node::Null,
                "true" => Node::Bool(true),
                "false" => Node::Bool(false),
                literal => Node::Number(literal),
            },
        }
    }

    /// In an object: moves to the next member's value and gives its key, or leaves the object.
    pub(crate) fn next_key(&mut self) -> Option<Cow<'a, str>> {
        if !self.next_item() {
            return None;
        }
        let key = self.string();
        // The colon.
        self.peek();
        self.at += 1;
        Some(key)
    }

    /// In an array: moves to the next element, or leaves the array. It stands on `[`, or behind an element.
    pub(crate) fn next_item(&mut self) -> bool {
        match self.peek() {
            Some(b'[' | b'{') => {
                self.at += 1;
                if let Some(b']' | b'}') = self.peek() {
                    self.at += 1;
                    return false;
                }
                true
            }
            Some(b',') => {
                self.at += 1;
                self.peek().is_some()
            }
            _ => {
                self.at += 1;
                false
            }
        }
    }

    /// The exact text of the value that starts here, leaving it.
    pub(crate) fn skip_value(&mut self) -> &'a str {
        match self.peek() {
            Some(b'"') => self.skip_string(),
            Some(b'{' | b'[') => {
                let start = self.at;
                let mut depth = 0_usize;
                while let Some(byte) = self.byte() {
                    match byte {
                        b'"' => {
                            self.skip_string();
                            continue;
                        }
                        b'[' | b'{' => depth += 1,
                        b']' | b'}' => depth = depth.saturating_sub(1),
                        _ => {}
                    }
                    self.at += 1;
                    if depth == 0 {
                        break;
                    }
                }
                self.from(start)
            }
            _ => self.skip_scalar(),
        }
    }

    /// Moves to the next number outside strings; gives its offset and literal.
    pub(crate) fn next_number(&mut self) -> Option<(usize, &'a str)> {
        while let Some(byte) = self.byte() {
            match byte {
                b'"' => {
                    self.skip_string();
                }
                b'-' | b'0'..=b'9' => return Some((self.at, self.skip_scalar())),
                _ => self.at += 1,
            }
        }
        None
    }

    fn string(&mut self) -> Cow<'a, str> {
        self.peek();
        let quoted = self.skip_string();
        let raw = quoted
            .get(1..quoted.len().saturating_sub(1))
            .unwrap_or_default();
        if raw.contains('\\') {
            unescape(raw)
        } else {
            Cow::Borrowed(raw)
        }
    }

    fn skip_string(&mut self) -> &'a str {
        let start = self.at;
        self.at += 1;
        while let Some(byte) = self.byte() {
            self.at += 1;
            match byte {
                b'"' => break,
                b'\\' => self.at += 1,
                _ => {}
            }
        }
        self.from(start)
    }

    fn skip_scalar(&mut self) -> &'a str {
        let start = self.at;
        while self
            .byte()
            .is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.'))
        {
            self.at += 1;
        }
        self.from(start)
    }

    fn from(&self, start: usize) -> &'a str {
        self.text.get(start..self.at).unwrap_or_default()
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// The next byte that is not whitespace, moving to it.
    fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.byte() {
            self.at += 1;
        }
        self.byte()
    }
}

/// The text that the inside of a string literal stands for. An unpaired surrogate, which accepted text does not hold,
/// becomes U+FFFD.
pub(crate) fn unescape(raw: &str) -> Cow<'_, str> {
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some((plain, escape)) = rest.split_once('\\') {
        out.push_str(plain);
        let mut chars = escape.chars();
        match chars.next() {
            Some('b') => out.push('\u{8}'),
            Some('f') => out.push('\u{c}'),
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('u') => {
                let first = hex(chars.as_str());
                chars = skip(chars.as_str(), 4);
                let second = chars.as_str().strip_prefix("\\u").map(hex);
                let units = [first, second.unwrap_or(0)];
                match char::decode_utf16(units).next() {
                    Some(Ok(character)) => {
                        out.push(character);
                        if character.len_utf16() == 2 {
                            chars = skip(chars.as_str(), 6);
                        }
                    }
                    _ => out.push(char::REPLACEMENT_CHARACTER),
                }
            }
            Some(character) => out.push(character),
            None => {}
        }
        rest = chars.as_str();
    }
    out.push_str(rest);
    Cow::Owned(out)
}

fn hex(text: &str) -> u16 {
    text.get(..4)
        .and_then(|digits| u16::from_str_radix(digits, 16).ok())
        .unwrap_or(0)
}

fn skip(text: &str, count: usize) -> std::str::Chars<'_> {
    text.get(count..).unwrap_or_default().chars()
}
