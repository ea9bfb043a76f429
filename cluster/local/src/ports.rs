//! Ports of loopback that nobody uses.
//!
//! They are taken from below the range that the kernel gives to outgoing connections: a client that reconnects to a server that is down
//! must not be given the server's own port as its end of the connection, which then looks like a server to it and keeps the real one out.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

use crate::error::LocalError;

/// Where ports are looked for. Linux gives outgoing connections 32768 and up.
const FROM: u16 = 17_000;
const TO: u16 = 32_000;

/// How far apart two processes that start at the same time begin to look: more than the nine ports of a cluster.
const STRIDE: u32 = 37;

/// How many ports this process has tried: no port is offered twice to two clusters of one test program.
static TRIED: AtomicU16 = AtomicU16::new(0);

/// That many different ports, each free a moment ago.
pub(crate) fn free(count: usize) -> Result<Vec<u16>, LocalError> {
    let span = TO - FROM;
    let first = std::process::id().wrapping_mul(STRIDE) % u32::from(span);
    let mut found = Vec::with_capacity(count);
    for _ in 0..span {
        if found.len() == count {
            return Ok(found);
        }
        let step = u32::from(TRIED.fetch_add(1, Ordering::Relaxed) % span);
        let offset = u16::try_from((first + step) % u32::from(span)).unwrap_or(0);
        if is_free(FROM + offset) {
            found.push(FROM + offset);
        }
    }
    Err(LocalError::NoPort { from: FROM, to: TO })
}

/// Whether somebody could listen on it now.
pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}
