//! JSON number literals: their grammar, their bounds, and their exact decimal value.
//!
//! A value is kept as digits and a power of ten. An exponent is never expanded, so the work on a literal is linear in
//! its length, whatever it stands for.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use crate::refusal::{RefusalReason, quoted};

/// Most characters of a number literal. Long enough for any key material written as a number, short enough that exact
/// comparison and conversion to a double stay cheap.
pub const MAX_NUMBER_LITERAL: usize = 10_000;

/// Largest exponent, in either direction, as written. Beyond it readers of other languages run out of memory or time.
pub const MAX_EXPONENT: u32 = 10_000;

/// Any literal shorter than this and without exponent is within the range of a double.
const SURELY_DOUBLE: usize = 300;

/// More significant digits than this never stand in the shortest form of a double.
const MAX_SHORTEST_DIGITS: usize = 17;

/// Plain integers up to this length are their own canonical form (below 2^53).
const SURELY_CANONICAL: usize = 15;

/// The end of the number literal that starts at `at`, or the offset where a digit is missing.
pub(crate) fn literal_end(bytes: &[u8], mut at: usize) -> Result<usize, usize> {
    let digits = |mut at: usize| {
        let start = at;
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        if at == start { Err(at) } else { Ok(at) }
    };
    if bytes.get(at) == Some(&b'-') {
        at += 1;
    }
    at = match bytes.get(at) {
        // A digit after a leading zero is not part of the literal: whatever reads on finds it out of place.
        Some(b'0') => at + 1,
        _ => digits(at)?,
    };
    if bytes.get(at) == Some(&b'.') {
        at = digits(at + 1)?;
    }
    if let Some(b'e' | b'E') = bytes.get(at) {
        at += 1;
        if let Some(b'+' | b'-') = bytes.get(at) {
            at += 1;
        }
        at = digits(at)?;
    }
    Ok(at)
}

/// Why a literal of the right grammar is beyond the bounds.
pub(crate) fn out_of_bounds(literal: &str) -> Option<RefusalReason> {
    if literal.len() > MAX_NUMBER_LITERAL {
        return Some(RefusalReason::NumberTooLong {
            length: literal.len(),
        });
    }
    let (_, exponent) = literal.split_once(['e', 'E'])?;
    let digits = exponent
        .trim_start_matches(['+', '-'])
        .trim_start_matches('0');
    let within = digits.is_empty()
        || digits
            .parse::<u32>()
            .is_ok_and(|value| value <= MAX_EXPONENT);
    (!within).then_some(RefusalReason::ExponentTooLarge)
}

/// Why a literal has no double that stands for it: it is beyond the largest, or not zero and yet rounded to zero.
pub(crate) fn outside_double(literal: &str) -> Option<RefusalReason> {
    if literal.len() < SURELY_DOUBLE && !literal.contains(['e', 'E']) {
        return None;
    }
    let double = literal.parse::<f64>().unwrap_or(f64::INFINITY);
    let fits = double.is_finite() && (double != 0.0 || Decimal::of_literal(literal).is_zero());
    (!fits).then(|| RefusalReason::OutsideDouble {
        literal: quoted(literal),
    })
}

/// Appends the canonical form of a literal of accepted JSON.
pub(crate) fn write_canonical(literal: &str, out: &mut String) {
    let digits = literal.strip_prefix('-').unwrap_or(literal);
    if digits.len() <= SURELY_CANONICAL
        && digits != "0"
        && digits.bytes().all(|byte| byte.is_ascii_digit())
    {
        out.push_str(literal);
    } else {
        Decimal::of_literal(literal).write(out);
    }
}

/// The exact value of a JSON number literal.
///
/// Total order and equality are by value (`1.0`, `1` and `10e-1` are equal, and so are `0` and `-0`), without rounding:
/// 9007199254740993 is greater than 9007199254740992. `Display` writes the canonical form, which is the same text for
/// equal values and another for different ones:
///
/// 1. zero is `0`;
/// 2. if the shortest form of the nearest double (ECMAScript, RFC 8785) has exactly this value, that form;
/// 3. otherwise the significant digits as an integer without trailing zeros, followed, unless the exponent is zero, by
///    `e`, the sign of the exponent (`+` or `-`) and the exponent: `9007199254740993`, `1234567890123456789e-19`,
///    `1e+400`.
///
/// ```
/// use leasehold_json::Decimal;
/// let limit: Decimal = "100.00".parse()?;
/// assert!("100.0000000000000000001".parse::<Decimal>()? > limit);
/// assert_eq!("1e2".parse::<Decimal>()?, limit);
/// # Ok::<(), leasehold_json::DecimalError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Decimal {
    negative: bool,
    /// Without leading and trailing zeros; empty for zero.
    digits: String,
    /// The value is 0.digits times ten to this power.
    point: i64,
}

impl Decimal {
    /// The value of a literal whose grammar and bounds were checked.
    pub(crate) fn of_literal(literal: &str) -> Self {
        let (negative, unsigned) = match literal.strip_prefix('-') {
            Some(unsigned) => (true, unsigned),
            None => (false, literal),
        };
        let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().unwrap_or(0)),
            None => (unsigned, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let mut digits = String::with_capacity(whole.len() + fraction.len());
        digits.push_str(whole);
        digits.push_str(fraction);
        digits.truncate(digits.trim_end_matches('0').len());
        let leading = digits.len() - digits.trim_start_matches('0').len();
        digits.drain(..leading);
        if digits.is_empty() {
            return Self {
                negative: false,
                digits,
                point: 0,
            };
        }
        let point = count(whole.len()) - count(leading) + exponent;
        Self {
            negative,
            digits,
            point,
        }
    }

    /// True for zero, however it was written.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    /// True below zero; zero is not negative.
    #[must_use]
    pub fn is_negative(&self) -> bool {
        self.negative
    }

    /// True if the value has no fraction (`1.0` and `1e400` are integers).
    #[must_use]
    pub fn is_integer(&self) -> bool {
        self.point >= count(self.digits.len())
    }

    fn write(&self, out: &mut String) {
        if self.is_zero() {
            out.push('0');
            return;
        }
        let exact = self.exact();
        if self.digits.len() <= MAX_SHORTEST_DIGITS
            && let Ok(double) = exact.parse::<f64>()
            && double.is_finite()
        {
            let mut buffer = ryu_js::Buffer::new();
            let shortest = buffer.format_finite(double);
            if Self::of_literal(shortest) == *self {
                out.push_str(shortest);
                return;
            }
        }
        out.push_str(&exact);
    }

    /// Digits and exponent.
    fn exact(&self) -> String {
        let sign = if self.negative { "-" } else { "" };
        match self.point.saturating_sub(count(self.digits.len())) {
            0 => format!("{sign}{}", self.digits),
            exponent => format!("{sign}{}e{exponent:+}", self.digits),
        }
    }

    fn signum(&self) -> i8 {
        match (self.is_zero(), self.negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        }
    }
}

/// Digits are counted in the thousands, so that sums with exponents do not overflow.
fn count(digits: usize) -> i64 {
    i64::try_from(digits).unwrap_or(i64::MAX)
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        self.signum().cmp(&other.signum()).then_with(|| {
            // Both digit strings begin with a digit that is not zero and end with one, so text order is value order.
            let magnitude = self
                .point
                .cmp(&other.point)
                .then_with(|| self.digits.cmp(&other.digits));
            if self.negative {
                magnitude.reverse()
            } else {
                magnitude
            }
        })
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        self.write(&mut text);
        f.write_str(&text)
    }
}

impl fmt::Debug for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<i64> for Decimal {
    fn from(value: i64) -> Self {
        Self::of_literal(&value.to_string())
    }
}

impl From<u64> for Decimal {
    fn from(value: u64) -> Self {
        Self::of_literal(&value.to_string())
    }
}

/// A text that is no JSON number within the bounds.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecimalError {
    /// Not a JSON number literal; whitespace around it counts.
    #[error("{text:?} is not a json number")]
    NotANumber {
        /// The text (cut when long).
        text: String,
    },
    /// Beyond [`MAX_NUMBER_LITERAL`] or [`MAX_EXPONENT`].
    #[error(transparent)]
    OutOfBounds(RefusalReason),
}

impl FromStr for Decimal {
    type Err = DecimalError;

    fn from_str(text: &str) -> Result<Self, DecimalError> {
        if literal_end(text.as_bytes(), 0) != Ok(text.len()) {
            return Err(DecimalError::NotANumber { text: quoted(text) });
        }
        match out_of_bounds(text) {
            Some(reason) => Err(DecimalError::OutOfBounds(reason)),
            None => Ok(Self::of_literal(text)),
        }
    }
}
