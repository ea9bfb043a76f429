//! One process of this machine, told apart from any other that later has its number.
//!
//! A process id alone is no identity: it is used again. Together with the time of its start it is one. A signal goes through a pidfd that
//! was opened first and checked then, so it cannot hit a stranger, and the end of a process is an event, not a guess. Linux only.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use serde::{Deserialize, Serialize};

/// Where the start of a process stands in `/proc/<pid>/stat`, counted after the command's name. See proc_pid_stat(5), field 22.
const START_FIELD: usize = 19;

/// What a process is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It runs, or would if it had something to do.
    Running,
    /// Stopped by a signal (SIGSTOP): it keeps its memory, its files and its connections, and does nothing.
    Paused,
    /// It has ended.
    Dead,
}

/// Which process, for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Identity {
    pub(crate) pid: i32,
    /// Its start, in clock ticks since the machine's.
    pub(crate) started: u64,
}

impl Identity {
    /// The process that has this number now. `None`: there is none.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let pid = i32::try_from(pid).ok()?;
        let (_, started) = look(pid)?;
        Some(Self { pid, started })
    }

    /// What it is doing now.
    pub(crate) fn state(self) -> State {
        match look(self.pid) {
            Some((state, started)) if started == self.started => state,
            _ => State::Dead,
        }
    }

    /// Takes hold of it. `None`: it has ended; a child of this process is then collected.
    pub(crate) fn hold(self) -> io::Result<Option<Held>> {
        let Some(pid) = Pid::from_raw(self.pid) else {
            return Ok(None);
        };
        let fd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => fd,
            Err(Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Checked after the fd was opened: whatever has the number now is what the fd stands for.
        match look(self.pid) {
            Some((State::Dead, started)) if started == self.started => {
                collect(&fd);
                Ok(None)
            }
            Some((_, started)) if started == self.started => Ok(Some(Held(fd))),
            _ => Ok(None),
        }
    }
}

/// A process that was alive when it was taken hold of.
#[derive(Debug)]
pub(crate) struct Held(OwnedFd);

impl Held {
    /// Sends a signal; nothing happens to a process that has ended since.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        match pidfd_send_signal(&self.0, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until the process has ended and its files and sockets are closed, no longer than `bound`. Whether it has.
    pub(crate) async fn ended(self, bound: Duration) -> io::Result<bool> {
        let waited = tokio::task::spawn_blocking(move || self.wait(bound));
        waited.await.map_err(io::Error::other)?
    }

    /// As [`ended`](Self::ended), and blocks the thread.
    pub(crate) fn wait(&self, bound: Duration) -> io::Result<bool> {
        // A pidfd becomes readable when its process ends.
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let bound = Timespec::try_from(bound).map_err(io::Error::other)?;
        let ended = retry_on_intr(|| poll(&mut fds, Some(&bound)))? > 0;
        if ended {
            collect(&self.0);
        }
        Ok(ended)
    }
}

/// Collects a child of this process that has ended, so that nothing of it remains. A failure means that it is no child of this process
/// (another one started it, and collects it) or was collected before.
fn collect(fd: &OwnedFd) {
    let _ = waitid(
        WaitId::PidFd(fd.as_fd()),
        WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
    );
}

/// State and start of whatever has this number now.
fn look(pid: i32) -> Option<(State, u64)> {
    let text = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    // The command's name stands in parentheses and may itself hold spaces and parentheses.
    let (_, rest) = text.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = match fields.next()? {
        "T" | "t" => State::Paused,
        "Z" | "X" | "x" => State::Dead,
        _ => State::Running,
    };
    let started = fields.nth(START_FIELD - 1)?.trim_end().parse().ok()?;
    Some((state, started))
}
