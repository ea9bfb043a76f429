//! The canonical form: one text for each value, so that a hash over it stands for the value.
//!
//! RFC 8785: no whitespace, members in the order of their keys' UTF-16 code units, strings with the shortest escapes.
//! Numbers as [`Decimal`](crate::Decimal) writes them: the RFC's way where the RFC keeps their value, otherwise exact. So
//! inside the range of I-JSON the text is that of RFC 8785, and outside it two different numbers never share a text.

use std::fmt::Write as _;

use crate::number;
use crate::read::{Node, Reader};

pub(crate) fn canonical(accepted: &str) -> String {
    let mut out = String::with_capacity(accepted.len());
    write_node(Reader::new(accepted).node(), &mut out);
    out
}

fn write_node(node: Node<'_>, out: &mut String) {
    match node {
        Node::Null => out.push_str("null"),
        Node::Bool(true) => out.push_str("true"),
        Node::Bool(false) => out.push_str("false"),
        Node::Number(literal) => number::write_canonical(literal, out),
        Node::String(text) => write_string(&text, out),
        Node::Array(items) => {
            out.push('[');
            for (index, item) in items.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_node(item, out);
            }
            out.push(']');
        }
        Node::Object(mut members) => {
            // Code points order as code units do, except that surrogates (above U+FFFF) come before U+E000..U+FFFF.
            members.sort_unstable_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            out.push('{');
            for (index, (key, value)) in members.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write_string(&key, out);
                out.push(':');
                write_node(value, out);
            }
            out.push('}');
        }
    }
}

/// Appends a string literal with the escapes of RFC 8785.
pub(crate) fn write_string(text: &str, out: &mut String) {
    out.push('"');
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c < ' ' || c == '"' || c == '\\') {
        let (plain, special) = rest.split_at(at);
        out.push_str(plain);
        let mut chars = special.chars();
        match chars.next() {
            Some('"') => out.push_str("\\\""),
            Some('\\') => out.push_str("\\\\"),
            Some('\u{8}') => out.push_str("\\b"),
            Some('\t') => out.push_str("\\t"),
            Some('\n') => out.push_str("\\n"),
            Some('\u{c}') => out.push_str("\\f"),
            Some('\r') => out.push_str("\\r"),
            // Writing to a String does not fail.
            Some(control) => drop(write!(out, "\\u{:04x}", u32::from(control))),
            None => {}
        }
        rest = chars.as_str();
    }
    out.push_str(rest);
    out.push('"');
}
