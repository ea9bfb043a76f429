//! The worker's disk, and what can become of it between two lives.

use std::path::{Path, PathBuf};

/// The folder that the worker keeps its durable store in.
pub(super) struct Disk {
    parent: PathBuf,
    lost: u32,
}

impl Disk {
    /// An empty one.
    pub(super) fn new(parent: &Path) -> Self {
        Self {
            parent: parent.to_owned(),
            lost: 0,
        }
    }

    pub(super) fn data(&self) -> PathBuf {
        self.parent.join(format!("data-{}", self.lost))
    }

    fn backup(&self) -> PathBuf {
        self.parent.join("backup")
    }

    /// From here on it is an empty one.
    pub(super) fn lose(&mut self) {
        self.lost += 1;
    }

    /// It goes bad: every byte of every file is another one.
    pub(super) fn garble(&self) {
        let mut folders = vec![self.data()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let bytes = std::fs::read(&path).unwrap();
                    let garbled: Vec<u8> = bytes.iter().map(|byte| !byte).collect();
                    std::fs::write(path, garbled).unwrap();
                }
            }
        }
    }

    /// Copies it as it is, to be put back later.
    pub(super) fn back_up(&self) {
        copy(&self.data(), &self.backup());
    }

    /// It goes back in time, to when it was backed up.
    pub(super) fn put_back(&self) {
        std::fs::remove_dir_all(self.data()).unwrap();
        copy(&self.backup(), &self.data());
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}
