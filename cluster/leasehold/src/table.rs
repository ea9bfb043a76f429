//! Tables: one look for all of them, the same on every terminal and in every file.

use comfy_table::{ContentArrangement, Table, presets};

use crate::say;

/// An empty table. Columns are as wide as what stands in them: a line of output is a line of the table.
pub(crate) fn table(columns: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(columns.iter().copied());
    table
}

/// The table as text, without the white space that pads its lines. Cells come through [`say::short`].
pub(crate) fn text(table: &Table) -> String {
    let lines: Vec<String> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.join("\n")
}

/// A cell of foreign text.
pub(crate) fn cell(text: impl AsRef<str>) -> String {
    const CELL_CHARS: usize = 60;
    let text = text.as_ref();
    match text.char_indices().nth(CELL_CHARS) {
        Some((end, _)) => format!("{}…", say::plain(text.get(..end).unwrap_or_default())),
        None => say::plain(text),
    }
}
