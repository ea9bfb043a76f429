//! What goes to the terminal: whole lines, safe to look at, and no panic when nobody reads on.

use std::io::Write as _;

use serde::Serialize;

use crate::failure::Failure;

/// How much of a value is shown on one line; `show --json` and `dump` have the rest.
pub(crate) const SHOWN_CHARS: usize = 160;

/// Writes one line (or several, joined by line ends) to standard output.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(|error| Failure::output(&error))
}

/// Writes one line of JSON to standard output.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    line(&serde_json::to_string(value).map_err(Failure::broken)?)
}

/// Writes one line to standard error; if that is gone, nobody is told.
pub(crate) fn aside(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Text from runs and tools as a terminal may show it: nothing in it moves the cursor, hides or reverses other text.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() || is_invisible_mark(character) {
            out.extend(character.escape_unicode());
        } else {
            out.push(character);
        }
    }
    out
}

/// As [`plain`], cut to what fits a line.
pub(crate) fn short(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", plain(text.get(..end).unwrap_or_default())),
        None => plain(text),
    }
}

/// Marks that change the direction or the visibility of what stands around them.
fn is_invisible_mark(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

/// Unix milliseconds as `2026-11-30 18:09:57.123Z`.
pub(crate) fn utc(ms: i64) -> String {
    const DAY_MS: i64 = 86_400_000;
    let (days, rest) = (ms.div_euclid(DAY_MS), ms.rem_euclid(DAY_MS));
    // Days to a date of the Gregorian calendar, in eras of 400 years that begin on March 1.
    let shifted = days.saturating_add(719_468);
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (rest / 3_600_000, rest / 60_000 % 60);
    let (second, milli) = (rest / 1000 % 60, rest % 1000);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_shown_in_utc() {
        for (ms, text) in [
            (0, "1970-01-01 00:00:00.000Z"),
            (-1, "1969-12-31 23:59:59.999Z"),
            (951_782_400_000, "2000-02-29 00:00:00.000Z"),
            (1_709_164_800_123, "2024-02-29 00:00:00.123Z"),
            (4_107_542_399_999, "2100-02-28 23:59:59.999Z"),
            (4_107_542_400_000, "2100-03-01 00:00:00.000Z"),
        ] {
            assert_eq!(utc(ms), text, "{ms}");
        }
    }

    #[test]
    fn nothing_a_run_says_moves_the_cursor_or_turns_the_text() {
        let shown = plain("a\u{1b}[2Jb\u{202e}c\r\nd\u{9b}31m ok é אב");
        assert!(
            !shown
                .chars()
                .any(|c| c.is_control() || is_invisible_mark(c)),
            "{shown}"
        );
        assert!(shown.ends_with(" ok é אב"), "{shown}");
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        let text = "é".repeat(SHOWN_CHARS + 1);
        assert_eq!(short(&text), format!("{}…", "é".repeat(SHOWN_CHARS)));
        assert_eq!(short("é"), "é");
    }
}
