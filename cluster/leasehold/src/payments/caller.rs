//! Who calls: the headers that a call carries. Reading them never fails, because even a request that names nobody is
//! written down; what a tool cannot do without is asked for afterwards.

use axum::http::HeaderMap;

/// The caller as its headers tell. A header that is absent or unreadable is empty, zero or `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Caller {
    /// `Idempotency-Key`
    pub(super) key: String,
    /// `Leasehold-Run`, decoded
    pub(super) run: String,
    /// `Leasehold-Step`, decoded
    pub(super) step: String,
    /// `Leasehold-Attempt`, from 1
    pub(super) attempt: i64,
    /// `Leasehold-Epoch`
    pub(super) epoch: i64,
    /// `Leasehold-Deadline-Unix-Ms`
    pub(super) deadline: Option<i64>,
}

impl Caller {
    pub(super) fn read(headers: &HeaderMap) -> Self {
        let text = |name: &str| {
            headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .unwrap_or_default()
        };
        let number = |name: &str| text(name).trim().parse::<i64>().ok();
        Self {
            key: text("idempotency-key").to_owned(),
            run: percent_decode(text("leasehold-run")),
            step: percent_decode(text("leasehold-step")),
            attempt: number("leasehold-attempt").unwrap_or(0),
            epoch: number("leasehold-epoch").unwrap_or(0),
            deadline: number("leasehold-deadline-unix-ms"),
        }
    }
}

/// Undoes percent-encoding. A percent sign that begins no escape stands for itself; bytes that are no UTF-8 become U+FFFD.
fn percent_decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let escaped = match (first, tail) {
            (b'%', [high, low, ..]) => hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        bytes.push(escaped.unwrap_or(first));
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percent_encoding_is_undone_and_stray_percent_signs_are_kept() {
        for (text, plain) in [
            ("refund-1000", "refund-1000"),
            ("%E2%82%AC%20a", "€ a"),
            ("50%", "50%"),
            ("%zz%4", "%zz%4"),
            ("%ff", "\u{fffd}"),
        ] {
            assert_eq!(percent_decode(text), plain);
        }
    }
}
