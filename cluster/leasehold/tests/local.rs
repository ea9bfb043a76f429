//! `leasehold local`: a cluster comes up, its processes are killed, paused and started again by name, and nothing of it stays. Needs a
//! nats-server, as the command itself does.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper of a test fails the test"
)]

mod support;

use std::fs;
use std::path::PathBuf;
use std::process::{Output, Stdio};

use serde_json::Value;
use support::{json, leasehold, texts};
use tempfile::TempDir;

/// `look` is executed by the cluster's own workers, `far` by nobody here.
const TOOLS: &str = r#"
[[tool]]
name = "look"
description = "Looks."
side_effect = "local_mutation"
timeout = "30s"
trust = "authoritative"
input_schema = '''{"type": "object", "additionalProperties": false}'''
[tool.command]
argv = ["sh", "-c", "echo '{\"seen\":\"${WHAT}\"}'"]

[[tool]]
name = "far"
description = "Acts far away."
side_effect = "local_mutation"
timeout = "30s"
trust = "authoritative"
elsewhere = true
input_schema = '''{"type": "object", "additionalProperties": false}'''
"#;

/// A folder for one cluster. Whatever still runs at the end is killed.
struct Local {
    folder: TempDir,
}

impl Local {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("tools.toml"), TOOLS).unwrap();
        Self { folder }
    }

    fn cluster(&self) -> PathBuf {
        self.folder.path().join("cluster")
    }

    /// `leasehold local WHAT.. --folder ..`, with variables that must reach no process of the cluster.
    fn local(&self, what: &[&str]) -> Output {
        let mut command = leasehold();
        command.arg("local").args(what).arg("--folder");
        command
            .arg(self.cluster())
            .env("NATS_URL", "nats://127.0.0.1:1");
        command.env("NATS_USER", "nobody").stdin(Stdio::null());
        command.output().unwrap()
    }

    fn up(&self, more: &[&str]) -> Output {
        let tools = self.folder.path().join("tools.toml");
        let mut what = vec!["up", "--nodes", "1", "--workers", "1"];
        what.extend(["--set", "WHAT=all", "--session-ttl", "2", "--tools"]);
        what.push(tools.to_str().unwrap());
        what.extend(more);
        self.local(&what)
    }

    fn ends(&self, code: i32, what: &[&str]) -> String {
        told(&self.local(what), code)
    }

    fn status(&self) -> Value {
        json(&self.ends(0, &["status", "--json"]))
    }

    fn state(&self, name: &str) -> String {
        let status = self.status();
        let mut all = status["processes"].as_array().unwrap().iter();
        let found = all.find(|process| process["name"] == name).unwrap();
        found["state"].as_str().unwrap().to_owned()
    }

    /// A command on the cluster.
    fn on(&self, nats: &str, code: i32, what: &[&str]) -> String {
        let mut command = leasehold();
        command.args(["--nats", nats]).args(what);
        told(&command.stdin(Stdio::null()).output().unwrap(), code)
    }

    /// The file of a run that calls one tool.
    fn run_file(&self, run: &str, tool: &str) -> String {
        let call = support::call(tool);
        let text = format!(
            r#"{{"run":"{run}","goal":"test","input":{{"script":[{call}]}},"tools":["{tool}"]}}"#
        );
        let path = self.folder.path().join(format!("{run}.json"));
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        if self.cluster().exists() {
            for name in ["node-1", "worker-1", "nats-1"] {
                let _ = self.local(&["kill", name]);
            }
        }
    }
}

/// Standard output and standard error of a command that has to end with this code.
fn told(output: &Output, code: i32) -> String {
    let (out, err) = texts(output);
    assert_eq!(output.status.code(), Some(code), "{out}\n{err}");
    format!("{err}{out}")
}

#[test]
fn a_cluster_comes_up_survives_the_kill_of_its_node_and_leaves_no_process() {
    let local = Local::new();
    let told_up = told(&local.up(&[]), 0);
    for words in [
        "ready: node node-1",
        "ready: worker worker-1",
        "export NATS_URL=nats://127.0.0.1:",
        "leasehold runs",
        "leasehold local down --folder",
        "no worker here serves far",
    ] {
        assert!(told_up.contains(words), "{words}: {told_up}");
    }
    let status = local.status();
    let nats = status["nats"].as_str().unwrap().to_owned();
    let first = local.run_file("r1", "look");
    let told_run = local.on(&nats, 0, &["run", &first, "--wait"]);
    assert!(told_run.contains("completed"), "{told_run}");

    let again = told(&local.up(&[]), 2);
    assert!(
        again.contains("runs already (nats-1, node-1, worker-1); stop it: leasehold local down"),
        "{again}"
    );
    let unknown = local.ends(2, &["kill", "node-9"]);
    assert!(
        unknown.contains("there is no node-9 here; there is nats-1, node-1, worker-1"),
        "{unknown}"
    );
    let running = local.ends(2, &["start", "node-1"]);
    assert!(running.contains("runs already"), "{running}");

    local.ends(0, &["kill", "node-1"]);
    assert_eq!(local.state("node-1"), "dead");
    let dead = local.ends(2, &["pause", "node-1"]);
    assert!(dead.contains("leasehold local start node-1"), "{dead}");
    local.ends(0, &["start", "node-1"]);
    assert_eq!(local.state("node-1"), "running");
    let second = local.run_file("r2", "look");
    local.on(&nats, 0, &["run", &second, "--wait"]);
    let shown = local.on(&nats, 0, &["show", "r2"]);
    assert!(shown.contains(r#"{"seen":"all"}"#), "{shown}");

    local.ends(0, &["pause", "worker-1"]);
    assert_eq!(local.state("worker-1"), "paused");
    local.ends(0, &["resume", "worker-1"]);
    assert_eq!(local.state("worker-1"), "running");

    // A call that nobody here executes waits, and is told apart from one that a worker has.
    let far = local.run_file("r3", "far");
    local.on(&nats, 0, &["run", &far]);
    support::until("the call of far waits", || {
        local
            .on(&nats, 0, &["runs", "--waiting-for", "far"])
            .contains("far:waits")
    });
    let runs = json(&local.on(&nats, 0, &["runs", "--waiting-for", "far", "--json"]));
    assert_eq!(runs[0]["open"][0]["call"], "waits", "{runs}");

    let down = local.ends(0, &["down"]);
    assert!(down.contains("3 processes stopped"), "{down}");
    let status = local.status();
    for process in status["processes"].as_array().unwrap() {
        assert_eq!(process["state"], "dead", "{process}");
        let pid = process["pid"].as_i64().unwrap();
        let alive = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        assert!(
            !alive.contains(local.folder.path().to_str().unwrap()),
            "{process}: {alive}"
        );
    }
    let nothing = local.ends(0, &["down"]);
    assert!(nothing.contains("nothing runs"), "{nothing}");

    // The data is still there, and so is the URL that was handed out.
    told(&local.up(&[]), 0);
    assert_eq!(local.status()["nats"], nats);
    let shown = local.on(&nats, 0, &["show", "r2"]);
    assert!(shown.contains(r#"{"seen":"all"}"#), "{shown}");
    local.ends(0, &["down"]);
}

#[test]
fn a_cluster_that_cannot_come_up_says_why_and_leaves_nothing_behind() {
    let local = Local::new();
    let none = local.ends(2, &["status"]);
    assert!(none.contains("there is no local cluster in"), "{none}");
    assert!(none.contains("leasehold local up --tools FILE"), "{none}");

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let refused = told(&local.up(&["--port", &port]), 2);
    assert!(
        refused.contains(&format!("port {port} of 127.0.0.1: it is taken")),
        "{refused}"
    );
    assert!(refused.contains("take other ports"), "{refused}");

    fs::write(local.folder.path().join("tools.toml"), "[[tools]]").unwrap();
    let wrong = told(&local.up(&[]), 2);
    assert!(wrong.contains("did you mean \"tool\"?"), "{wrong}");

    fs::write(local.folder.path().join("tools.toml"), TOOLS).unwrap();
    let mut command = leasehold();
    command
        .args(["local", "up", "--set", "WHAT=x", "--folder"])
        .arg(local.cluster())
        .arg("--tools")
        .arg(local.folder.path().join("tools.toml"))
        .env("LEASEHOLD_NATS_SERVER", "/bin/true");
    let none = told(&command.output().unwrap(), 2);
    assert!(none.contains("/bin/true is no nats-server"), "{none}");
}
