//! The exclusive lock of a folder. Whoever holds it knows that no earlier process still writes here: the kernel drops it with its holder.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::OpenError;

/// Held as long as it lives.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock or says who holds it; never waits.
    pub(crate) fn take(folder: &Path) -> Result<Self, OpenError> {
        let path = folder.join("lock");
        let io = |error: std::io::Error| OpenError::io(&path, &error);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(io)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                let mut text = String::new();
                // Only for the message: a holder that has not written its pid yet is "another process".
                let _ = file.read_to_string(&mut text);
                return Err(OpenError::Locked {
                    path: folder.to_owned(),
                    pid: text.trim().parse().ok(),
                });
            }
            Err(errno) => return Err(io(errno.into())),
        }
        file.set_len(0).map_err(io)?;
        file.rewind().map_err(io)?;
        writeln!(file, "{}", std::process::id()).map_err(io)?;
        Ok(Self { _file: file })
    }
}
