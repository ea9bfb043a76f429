//! A data folder, real processes on it, and waiting for what they say.

#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test binary uses its own part"
)]

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Longer than anything here takes on a busy machine: beyond it a test has failed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The program under test.
pub fn leasehold() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.env_remove("LEASEHOLD_DATA").env("USER", "ana");
    command
}

/// A place for one test: a data folder and files beside it.
pub struct Place {
    pub folder: TempDir,
    data: PathBuf,
}

impl Place {
    /// Empty but for a tools file: `append` (appends a line to the file `lines`, then waits until the file `go` is there), `note`
    /// (remote: asks a person) and `look` (read-only).
    pub fn new() -> Self {
        Self::with_data("data")
    }

    /// As [`Self::new`], with the data folder at this place in it.
    pub fn with_data(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join(name);
        let place = Self { folder, data };
        fs::write(place.path("tools.toml"), TOOLS).unwrap();
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn data(&self) -> PathBuf {
        self.data.clone()
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// A command on the data folder.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = leasehold();
        command.arg("--data").arg(self.data()).args(args);
        command
    }

    pub fn output(&self, args: &[&str]) -> Output {
        self.command(args).stdin(Stdio::null()).output().unwrap()
    }

    /// Standard output of a command that has to end with this code.
    pub fn ends(&self, code: i32, args: &[&str]) -> String {
        let output = self.output(args);
        let (out, err) = texts(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}\n{out}\n{err}");
        out
    }

    /// As [`Self::ends`], standard error.
    pub fn refused(&self, code: i32, args: &[&str]) -> String {
        let output = self.output(args);
        let (out, err) = texts(&output);
        assert_eq!(output.status.code(), Some(code), "{args:?}\n{out}\n{err}");
        err
    }

    /// The line of JSON that a command ends with.
    pub fn json(&self, code: i32, args: &[&str]) -> Value {
        json(&self.ends(code, args))
    }

    /// A running `dev` on the data folder.
    pub fn dev(&self, more: &[&str]) -> Dev {
        Dev::start(self, more)
    }

    /// Submits a run of these decisions.
    pub fn submit(&self, run: &str, decisions: &[&str]) {
        let file = self.run_file(run, decisions);
        self.ends(0, &["run", file.to_str().unwrap()]);
    }

    /// A run file of these decisions.
    pub fn run_file(&self, run: &str, decisions: &[&str]) -> PathBuf {
        let script = decisions.join(",");
        let text = format!(
            r#"{{"run":"{run}","goal":"test","input":{{"script":[{script}]}},"tools":["append","note","look"]}}"#
        );
        self.write(&format!("{run}.json"), &text)
    }

    /// The lines that `append` wrote.
    pub fn lines(&self) -> usize {
        fs::read_to_string(self.path("lines")).map_or(0, |text| text.lines().count())
    }

    /// Lets `append` return.
    pub fn go(&self) {
        fs::write(self.path("go"), "").unwrap();
    }
}

/// A decision that calls one tool.
pub fn call(tool: &str) -> String {
    format!(r#"{{"kind":"tool_calls","calls":[{{"tool":"{tool}","arguments":{{}}}}]}}"#)
}

/// The programs wait for files with a poll: they are the outside world, whose events are files.
const TOOLS: &str = r#"
[[tool]]
name = "append"
description = "Appends a line."
side_effect = "local_mutation"
timeout = "30s"
trust = "authoritative"
input_schema = '''{"type": "object", "additionalProperties": false}'''
[tool.command]
argv = ["sh", "-c", "echo line >> ${PLACE}/lines; while [ ! -e ${PLACE}/go ]; do sleep 0.02; done; echo '{\"appended\":1}'"]

[[tool]]
name = "note"
description = "Appends a line elsewhere."
side_effect = "remote_mutation"
timeout = "30s"
trust = "authoritative"
input_schema = '''{"type": "object", "additionalProperties": false}'''
[tool.command]
argv = ["sh", "-c", "echo line >> ${PLACE}/lines; echo '{\"noted\":9007199254740993}'"]

[[tool]]
name = "look"
description = "Looks."
side_effect = "read_only"
timeout = "30s"
trust = "authoritative"
input_schema = '''{"type": "object", "additionalProperties": false}'''
[tool.command]
argv = ["sh", "-c", "echo '{\"seen\":true}'"]
"#;

/// A running `leasehold dev`. Killed when dropped.
pub struct Dev {
    pub child: Child,
    lines: Receiver<String>,
    errors: Receiver<String>,
    told: Vec<String>,
}

impl Dev {
    /// Starts it and waits until it serves.
    pub fn start(place: &Place, more: &[&str]) -> Self {
        let mut dev = Self::spawn(place, more);
        dev.wait_for("ready: ");
        dev
    }

    /// Starts it.
    pub fn spawn(place: &Place, more: &[&str]) -> Self {
        let mut command = place.command(&["dev", "--tools"]);
        command
            .arg(place.path("tools.toml"))
            .arg("--set")
            .arg(format!("PLACE={}", place.folder.path().display()))
            .args(more);
        Self::of(command)
    }

    /// Starts it where the machine's id is another one; `None` if this machine gives no mount namespace.
    pub fn spawn_elsewhere(place: &Place, machine: &str) -> Option<Self> {
        let id = place.write("machine-id", machine);
        let script = format!(
            "mount --bind {id} /etc/machine-id || exit 77; exec {program} --data {data} dev --tools {tools} --set PLACE={place}",
            id = id.display(),
            program = env!("CARGO_BIN_EXE_leasehold"),
            data = place.data().display(),
            tools = place.path("tools.toml").display(),
            place = place.folder.path().display(),
        );
        let namespace = |script: &str| {
            let mut command = Command::new("unshare");
            command.args(["--mount", "--map-root-user", "sh", "-c", script]);
            command
        };
        let probe = format!("mount --bind {} /etc/machine-id", id.display());
        let given = namespace(&probe).output();
        given
            .is_ok_and(|output| output.status.success())
            .then(|| Self::of(namespace(&script)))
    }

    fn of(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = lines_of(child.stdout.take().unwrap());
        let errors = lines_of(child.stderr.take().unwrap());
        Self {
            child,
            lines,
            errors,
            told: Vec::new(),
        }
    }

    /// Waits for a line of its standard output that begins so.
    pub fn wait_for(&mut self, start: &str) -> String {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if line.starts_with(start) => return line,
                Ok(_) => {}
                Err(error) => {
                    let _ = self.child.kill();
                    let told: Vec<String> = self.errors.iter().collect();
                    panic!("no line {start:?} ({error}): {}", told.join("\n"));
                }
            }
        }
    }

    /// Waits for all of these lines of its standard output, in whatever order they come.
    pub fn wait_for_all(&mut self, lines: impl Iterator<Item = String>) {
        let mut missing: Vec<String> = lines.collect();
        while !missing.is_empty() {
            let line = self.wait_for("");
            missing.retain(|wanted| *wanted != line);
        }
    }

    /// Waits for a line of its standard error that begins so.
    pub fn wait_err(&mut self, start: &str) {
        loop {
            let line = self.errors.recv_timeout(PATIENCE).unwrap();
            self.told.push(line);
            if self.told.last().unwrap().starts_with(start) {
                return;
            }
        }
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// kill -9, and nothing of it is left.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits for its end.
    pub fn wait(mut self) -> (ExitStatus, String) {
        let mut told = std::mem::take(&mut self.told);
        told.extend(self.errors.iter());
        (self.child.wait().unwrap(), told.join("\n"))
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines that a process writes, as they come.
pub fn lines_of(out: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// A command that follows a run: its lines, as they come.
pub struct Follower {
    child: Child,
    lines: Receiver<String>,
}

impl Follower {
    /// `leasehold run FILE --wait`.
    pub fn start(place: &Place, file: &Path) -> Self {
        let mut child = place
            .command(&["run", file.to_str().unwrap(), "--wait"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = lines_of(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// Waits for a line that holds these words.
    pub fn wait_for(&mut self, words: &str) -> String {
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(words) => return line,
                Ok(_) => {}
                Err(_) => panic!("no line with {words:?}"),
            }
        }
    }

    /// Its exit code.
    pub fn code(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until the outside world shows something; it tells nobody, so it is looked at.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let turns = PATIENCE.as_millis() / 10;
    for _ in 0..turns {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("never: {what}");
}

/// Standard input for a command.
pub fn with_input(mut command: Command, text: &str) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(text.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap()
}

pub fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr))
}

/// The last line, as JSON.
#[expect(
    clippy::disallowed_methods,
    reason = "a test reads what the program wrote"
)]
pub fn json(text: &str) -> Value {
    serde_json::from_str(text.lines().last().unwrap_or_default())
        .unwrap_or_else(|error| panic!("{error}: {text}"))
}
