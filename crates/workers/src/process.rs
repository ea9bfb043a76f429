//! One process group, from its start to the proof of its end.
//!
//! A job is a program that leads a process group of its own. It has ended when its leader has exited **and** its
//! standard output is closed: until then somebody may still be writing the result. Whatever then remains of the
//! group is killed, so nothing goes on after the answer was given. At the deadline, and on cancellation, the group is
//! asked to stop, and after a grace it is killed; dropping the future kills it at once.
//!
//! The leader stays unreaped while the group may still be signalled, so that its number cannot pass to a stranger. A
//! process that leaves the group (`setsid`) is beyond reach; it shows only while it holds the standard output.

use std::{
    ffi::OsString,
    io,
    path::Path,
    process::{ExitStatus, Stdio},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use rustix::{
    io::Errno,
    process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStdin, Command},
    signal::unix::{Signal as ChildNews, SignalKind, signal},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use crate::bounds::{MAX_RESULT_BYTES, Tail};

/// How long a group that was asked to stop may still end by itself. Long enough to roll a transaction back, short
/// enough that a worker which stops does not seem to hang.
pub const TERM_GRACE: Duration = Duration::from_secs(1);

/// How long a killed leader may take to disappear. The kernel needs microseconds, unless the process hangs in a
/// device or a network file system.
const KILL_WAIT: Duration = Duration::from_secs(1);

/// How long standard error is read on once everything else is over: only a process that left the group can keep it
/// open then, and its words are not needed.
const STDERR_DRAIN: Duration = Duration::from_millis(100);

/// What is read from a pipe at a time: as much as a pipe holds.
const PIPE_CHUNK: usize = 64 * 1024;

/// What is started.
pub(crate) struct Job<'a> {
    pub(crate) argv: &'a [String],
    pub(crate) cwd: Option<&'a Path>,
    /// The whole environment.
    pub(crate) env: Vec<(OsString, OsString)>,
    pub(crate) stdin: &'a [u8],
    pub(crate) time_left: Duration,
    pub(crate) cancel: &'a CancellationToken,
}

/// How it ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The operating system refused to start it: nothing ran.
    NotStarted(io::Error),
    /// The leader exited and its output is complete.
    Exited {
        status: ExitStatus,
        stdout: Vec<u8>,
        stderr: String,
        /// Other members of the group outlived the leader; they were killed.
        strays: bool,
        /// Why it had been told to stop, if it had.
        stopped: Option<&'static str>,
    },
    /// What it did is not known.
    Unclear { why: String, stderr: String },
    /// It wrote more than a result may hold, and was killed.
    TooMuch,
}

/// The right to kill a group, used at the latest when it is dropped.
struct Group {
    leader: Pid,
    over: bool,
}

impl Group {
    fn signal(&self, signal: Signal) -> Result<(), Errno> {
        kill_process_group(self.leader, signal)
    }

    /// Kills whatever the group holds beside the leader, which was reaped just now: until here its number was its
    /// own. Tells whether there was anything.
    fn end(mut self) -> bool {
        self.over = true;
        self.signal(Signal::KILL).is_ok()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.over {
            // The leader is unreaped, so the only failure left is a group of set-uid processes.
            let _ = self.signal(Signal::KILL);
        }
    }
}

enum Broken {
    TooMuch,
    Io(io::Error),
}

/// Runs a job to its end.
pub(crate) async fn run(job: Job<'_>) -> End {
    let Some((program, rest)) = job.argv.split_first() else {
        return End::NotStarted(io::Error::other("the argument vector is empty"));
    };
    let mut command = Command::new(program);
    command
        .args(rest)
        .env_clear()
        .envs(job.env)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(cwd) = job.cwd {
        command.current_dir(cwd);
    }
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if is_refusal(&error) => return End::NotStarted(error),
        Err(error) => return unclear(format!("starting it failed halfway: {error}")),
    };
    // Named after the child, hence dropped, and killing, before it.
    let group = match child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)) {
        Some(leader) => Group {
            leader,
            over: false,
        },
        None => return unclear("it has no process id"),
    };
    let leader = group.leader;
    let (Ok(mut news), Some(stdin), Some(mut stdout), Some(mut stderr)) = (
        signal(SignalKind::child()),
        child.stdin.take(),
        child.stdout.take(),
        child.stderr.take(),
    ) else {
        return unclear("it could not be watched, so it was killed");
    };

    let tail = Mutex::new(Tail::default());
    let ended = async {
        let parts = async {
            tokio::try_join!(
                feed(stdin, job.stdin),
                read_result(&mut stdout),
                leader_exit(&mut news, leader),
            )
        };
        let mut parts = std::pin::pin!(parts);
        let mut errors = std::pin::pin!(read_tail(&mut stderr, &tail));
        tokio::select! {
            parts = &mut parts => {
                let _ = timeout(STDERR_DRAIN, errors).await;
                parts
            }
            () = &mut errors => parts.await,
        }
    };
    let mut ended = Box::pin(ended);

    let why = tokio::select! {
        biased;
        parts = &mut ended => return close(parts, child, group, &tail, None),
        () = job.cancel.cancelled() => "it was cancelled",
        () = sleep(job.time_left) => "its time ran out",
    };
    // A leader that is gone left a group that may be gone too; that there was nobody to ask is no news.
    let _ = group.signal(Signal::TERM);
    if let Ok(parts) = timeout(TERM_GRACE, &mut ended).await {
        return close(parts, child, group, &tail, Some(why));
    }
    let _ = group.signal(Signal::KILL);
    drop(ended);
    let why = match timeout(KILL_WAIT, leader_exit(&mut news, leader)).await {
        Ok(Ok(())) => format!(
            "{why}; it did not end within {TERM_GRACE:?} of being told to, or something it started outside its \
             process group did not, and it was killed"
        ),
        _ => format!("{why} and it does not die; it may still be at work"),
    };
    End::Unclear {
        why,
        stderr: text_of(&tail),
    }
}

fn unclear(why: impl Into<String>) -> End {
    End::Unclear {
        why: why.into(),
        stderr: String::new(),
    }
}

/// The end of a job whose parts have all ended, or one of which broke.
fn close(
    parts: Result<((), Vec<u8>, ()), Broken>,
    mut child: Child,
    group: Group,
    tail: &Mutex<Tail>,
    stopped: Option<&'static str>,
) -> End {
    let stderr = text_of(tail);
    let stdout = match parts {
        Ok(((), stdout, ())) => stdout,
        Err(Broken::TooMuch) => return End::TooMuch,
        Err(Broken::Io(error)) => {
            let why = format!("its output could not be read ({error}), so it was killed");
            return End::Unclear { why, stderr };
        }
    };
    match child.try_wait() {
        Ok(Some(status)) => End::Exited {
            status,
            stdout,
            stderr,
            strays: group.end(),
            stopped,
        },
        Ok(None) => End::Unclear {
            why: "its exit could not be observed, so it was killed".into(),
            stderr,
        },
        Err(error) => End::Unclear {
            why: format!("its exit code could not be read: {error}"),
            stderr,
        },
    }
}

/// Waits for the leader's exit and leaves it unreaped: whoever reaps it gives its number away.
async fn leader_exit(news: &mut ChildNews, leader: Pid) -> Result<(), Broken> {
    let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    loop {
        let seen = waitid(WaitId::Pid(leader), look).map_err(|error| Broken::Io(error.into()))?;
        if seen.is_some() {
            return Ok(());
        }
        if news.recv().await.is_none() {
            let gone = io::Error::other("the process is told of no more exits");
            return Err(Broken::Io(gone));
        }
    }
}

/// Whether an error of starting is the system's refusal to run the program. Any other may come from the steps after
/// the start, when it is running already.
fn is_refusal(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(
            Errno::NOENT
                | Errno::ACCESS
                | Errno::PERM
                | Errno::NOEXEC
                | Errno::NOTDIR
                | Errno::ISDIR
                | Errno::LOOP
                | Errno::NAMETOOLONG
                | Errno::TOOBIG
                | Errno::TXTBSY
                | Errno::LIBBAD
        )
    ) || (error.raw_os_error().is_none() && error.kind() == io::ErrorKind::InvalidInput)
}

/// Writes the standard input and closes it. A program that does not read it has its reasons.
async fn feed(mut stdin: ChildStdin, bytes: &[u8]) -> Result<(), Broken> {
    match stdin.write_all(bytes).await {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Broken::Io(error)),
        _ => Ok(()),
    }
}

async fn read_result(stdout: &mut (impl AsyncRead + Unpin)) -> Result<Vec<u8>, Broken> {
    let mut bytes = Vec::new();
    let bound = MAX_RESULT_BYTES as u64 + 1;
    stdout
        .take(bound)
        .read_to_end(&mut bytes)
        .await
        .map_err(Broken::Io)?;
    if bytes.len() > MAX_RESULT_BYTES {
        return Err(Broken::TooMuch);
    }
    Ok(bytes)
}

async fn read_tail(stderr: &mut (impl AsyncRead + Unpin), tail: &Mutex<Tail>) {
    let mut chunk = vec![0; PIPE_CHUNK];
    while let Ok(read @ 1..) = stderr.read(&mut chunk).await {
        if let Some(bytes) = chunk.get(..read) {
            tail.lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(bytes);
        }
    }
}

fn text_of(tail: &Mutex<Tail>) -> String {
    tail.lock().unwrap_or_else(PoisonError::into_inner).text()
}
