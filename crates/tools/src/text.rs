//! Text that goes into errors: places in words, and bounds, so that no error grows with what it complains about.

/// The first `most` characters, with a mark if anything was left out.
pub fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
    }
}

/// The last `most` characters, with a mark if anything was left out.
pub(crate) fn cut_end(text: &str, most: usize) -> String {
    match text.char_indices().rev().nth(most) {
        None => text.to_owned(),
        Some((before, left)) => format!(
            "…{}",
            text.get(before + left.len_utf8()..).unwrap_or_default()
        ),
    }
}

/// A JSON pointer as a reader expects it.
pub(crate) fn place(pointer: &str) -> &str {
    if pointer.is_empty() {
        "the top"
    } else {
        pointer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters_and_only_when_long() {
        assert_eq!(cut("añb", 3), "añb");
        assert_eq!(cut("añb", 2), "añ…");
        assert_eq!(cut_end("añb", 3), "añb");
        assert_eq!(cut_end("añb", 2), "…ñb");
    }
}
