//! `CASES.md` says of every reported case which tests prove it: each case stands there once, and each of the tests exists.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const CASES: &str = include_str!("../../CASES.md");
/// The last case.
const LAST: u32 = 62;

/// A row of the table: the case, and its tests with the folder that each is in.
struct Row<'a> {
    case: &'a str,
    tests: Vec<(&'a str, &'a str)>,
}

fn rows() -> Vec<Row<'static>> {
    let lines = CASES.lines().filter(|line| line.starts_with("| K"));
    lines.map(row).collect()
}

fn row(line: &'static str) -> Row<'static> {
    let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
    let [case, kind, does, tests] = cells[..] else {
        panic!("not four cells: {line}")
    };
    assert!(!kind.is_empty() && !does.is_empty(), "{line}");
    let mut named = Vec::new();
    let mut names = Vec::new();
    // Names, then in brackets the folder of all of them.
    for piece in tests.split(", `").flat_map(|piece| piece.split(" (")) {
        match piece.trim().trim_matches('`') {
            folder if folder.ends_with(')') => {
                let folder = folder.trim_end_matches(')');
                named.extend(names.drain(..).map(|name| (name, folder)));
            }
            name => names.push(name),
        }
    }
    assert!(names.is_empty(), "{case}: {names:?} in which folder?");
    Row { case, tests: named }
}

/// The text of every Rust file below the folder.
fn sources(folder: &Path, texts: &mut String) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder:?}: {error}")) {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, texts);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            texts.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn every_case_is_in_the_table_once_and_in_order() {
    let cases: Vec<&str> = rows().iter().map(|row| row.case).collect();
    let wanted: Vec<String> = (1..=LAST).map(|n| format!("K{n:02}")).collect();
    assert_eq!(cases, wanted);
}

#[test]
fn every_test_that_the_table_names_exists() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut texts: BTreeMap<&str, String> = BTreeMap::new();
    let mut missing = Vec::new();
    for row in rows() {
        let says_open = CASES
            .lines()
            .any(|line| line.starts_with(&format!("| {} ", row.case)) && line.contains("**open**"));
        assert!(!row.tests.is_empty() || says_open, "{}: no test", row.case);
        for (name, folder) in row.tests {
            let text = texts.entry(folder).or_insert_with(|| {
                let mut text = String::new();
                sources(&root.join(folder), &mut text);
                text
            });
            if !text.contains(&format!("fn {name}(")) {
                missing.push(format!("{}: {name} in {folder}", row.case));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
