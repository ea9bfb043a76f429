//! How much of what a tool sends is kept, and what becomes of text that was cut.

/// The most bytes of one result, from any kind of tool. A result is held in memory while it is checked and stored,
/// so there has to be an end; beyond it the effect stands, but nobody can say what came of it.
pub const MAX_RESULT_BYTES: usize = 64 * 1024 * 1024;

/// How much of an error's text is kept: of a command the end of its standard error, where the reason stands; of an
/// HTTP answer the beginning of its body. It goes into journals and prompts.
pub const MAX_EXCERPT_BYTES: usize = 4 * 1024;

/// Text for people out of bytes of any kind, without the white space around it.
pub(crate) fn readable(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

/// Seconds as a decimal number, to the millisecond, as tools read what is left of their time.
pub(crate) fn decimal_seconds(time: std::time::Duration) -> String {
    format!("{}.{:03}", time.as_secs(), time.subsec_millis())
}

/// The last bytes of a stream.
#[derive(Debug, Default)]
pub(crate) struct Tail {
    kept: Vec<u8>,
    cut: bool,
}

impl Tail {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(bytes);
        if let Some(over) = self.kept.len().checked_sub(MAX_EXCERPT_BYTES)
            && over > 0
        {
            self.kept.drain(..over);
            self.cut = true;
        }
    }

    /// The text, marked where its beginning is missing.
    pub(crate) fn text(&self) -> String {
        let text = readable(&self.kept);
        if self.cut { format!("...{text}") } else { text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_keeps_the_end_and_says_that_it_was_cut() {
        let mut tail = Tail::default();
        tail.push(b" short \n");
        assert_eq!(tail.text(), "short");
        tail.push(&vec![b'x'; 2 * MAX_EXCERPT_BYTES]);
        tail.push(b"the reason\n");
        let text = tail.text();
        assert!(text.starts_with("...x") && text.ends_with("xthe reason"));
        assert_eq!(text.len(), "...".len() + MAX_EXCERPT_BYTES - "\n".len());
    }

    #[test]
    fn seconds_are_decimal_and_never_round_up() {
        let millis = |millis| decimal_seconds(std::time::Duration::from_micros(millis));
        assert_eq!(millis(1_500_999), "1.500");
        assert_eq!(millis(0), "0.000");
        assert_eq!(millis(61_007_000), "61.007");
    }
}
