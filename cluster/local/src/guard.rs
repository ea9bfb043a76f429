//! What ends the children when their owner ends without a word (SIGKILL, an abort, Ctrl-C in a test runner).
//!
//! The children lead process groups of their own, so that a Ctrl-C meant for the owner does not reach them first. So somebody has to look
//! after them: a shell that reads the owner's list from a pipe. The pipe closes when the owner is gone, however it went; then the shell
//! kills whatever on the list is still the process that was listed, and ends. Where no shell can be started, only `Drop` cleans up.

use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::process::Identity;

/// A line of the list is a process id and its start. Field 22 of `/proc/<pid>/stat` is field 20 after the command's name.
const SCRIPT: &str = r#"
began() { read -r line <"/proc/$1/stat" && set -- ${line##*) } && echo "${20}"; }
while read -r pid start; do set -- "$@" "$pid" "$start"; done
while [ $# -gt 0 ]; do
    [ "$(began "$1")" = "$2" ] && kill -KILL "$1"
    shift 2
done
"#;

/// The shell, for as long as the owner owns.
#[derive(Debug)]
pub(crate) struct Guard {
    shell: Child,
    list: Option<ChildStdin>,
}

impl Guard {
    /// Starts it. `None`: there is no shell.
    pub(crate) fn start() -> Option<Self> {
        let mut shell = Command::new("/bin/sh")
            .args(["-c", SCRIPT, "leasehold-local-guard"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .ok()?;
        let list = shell.stdin.take();
        Some(Self { shell, list })
    }

    /// Puts a child on the list. A guard that is gone guards nothing; the owner goes on without it.
    pub(crate) fn watch(&mut self, child: Identity) {
        if let Some(list) = &mut self.list {
            let _ = writeln!(list, "{} {}", child.pid, child.started);
        }
    }
}

impl Drop for Guard {
    /// Dismisses it: what is on its list goes on.
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleeper() -> (Child, Identity) {
        let child = Command::new("sleep").arg("1000").spawn().unwrap();
        let identity = Identity::of(child.id()).unwrap();
        (child, identity)
    }

    #[test]
    fn when_the_owner_is_gone_its_children_are_killed_and_no_stranger_with_such_a_number() {
        let (mut mine, identity) = sleeper();
        let (mut stranger, other) = sleeper();
        let mut guard = Guard::start().unwrap();
        guard.watch(identity);
        guard.watch(Identity {
            started: other.started + 1,
            ..other
        });
        // What the kernel does to the pipe when the owner is gone.
        drop(guard.list.take());
        assert!(!mine.wait().unwrap().success());
        guard.shell.wait().unwrap();
        assert_eq!(stranger.try_wait().unwrap(), None);
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }

    #[test]
    fn a_dismissed_guard_kills_nobody() {
        let (mut mine, identity) = sleeper();
        let mut guard = Guard::start().unwrap();
        guard.watch(identity);
        drop(guard);
        assert_eq!(mine.try_wait().unwrap(), None);
        mine.kill().unwrap();
        mine.wait().unwrap();
    }
}
