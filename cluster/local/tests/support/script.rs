//! A program to start, written on the spot.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes an executable script. It is not this process that opens the file to write: another test's child may inherit that for a moment,
/// and a program that somebody may write to cannot be started.
pub(crate) fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
    let (draft, file) = (folder.join(format!("{name}.draft")), folder.join(name));
    fs::write(&draft, format!("#!/bin/sh\n{text}\n")).unwrap();
    let installed = Command::new("install")
        .args(["-m", "755"])
        .args([&draft, &file])
        .status();
    assert!(installed.unwrap().success());
    file
}
