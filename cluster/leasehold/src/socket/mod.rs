//! How commands reach a running `leasehold dev`: one line of JSON per message over a unix socket in the data folder.
//!
//! The socket has mode 0600 in a folder of mode 0700, and the server asks the kernel for the peer's user: only its own user is served.
//! A connection carries one request at a time; `watch` and `dump` answer with many items. [`client::Client`] is the only client. Of a
//! cluster the command is its own server: the same requests, answered in the same process, over a pipe in memory.

pub(crate) mod backing;
pub(crate) mod client;
pub(crate) mod server;
pub(crate) mod wire;

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

/// The socket's name in the data folder.
const NAME: &str = "leasehold.sock";
/// Longest path that a unix socket's address holds, in bytes (108 with its terminating zero on Linux).
const MAX_ADDRESS: usize = 107;

/// The socket's place in a data folder.
pub(crate) fn path(folder: &Path) -> PathBuf {
    folder.join(NAME)
}

/// An address for the socket that is short enough whatever the folder's path is. The file, if any, has to live as long as it is used.
fn address(folder: &Path) -> io::Result<(PathBuf, Option<File>)> {
    let path = path(folder);
    if path.as_os_str().len() <= MAX_ADDRESS {
        return Ok((path, None));
    }
    let opened = File::open(folder)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", opened.as_raw_fd())).join(NAME);
    Ok((short, Some(opened)))
}
