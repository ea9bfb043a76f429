//! A node in its account and workers in their domain's, as processes, on a server with the shipped configuration.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "test code"
)]

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use leasehold_local::ServerBinary;

const ONE: &str = include_str!("../../nats/one.conf");
const ACCOUNTS: &str = include_str!("../../nats/accounts.conf");

/// `charge_card` appends its argument to the file `lines`, and then stands still for as long as the file `stand` is there.
const TOOLS: &str = r#"
[[tool]]
name = "charge_card"
description = "Appends a line to a file."
side_effect = "local_mutation"
timeout = "60s"
trust = "authoritative"
input_schema = '''{"type": "object", "properties": {"line": {"type": "string"}}, "required": ["line"]}'''
[tool.command]
argv = ["sh", "-c", "cat >> PLACE/lines; echo >> PLACE/lines; while [ -e PLACE/stand ]; do sleep 0.1; done; echo '{}'"]

[[tool]]
name = "refund_order"
description = "Does nothing."
side_effect = "local_mutation"
timeout = "60s"
trust = "authoritative"
input_schema = '''{"type": "object"}'''
[tool.command]
argv = ["sh", "-c", "echo '{}'"]
"#;
const RUN: &str = r#"{"run":"r","goal":"g","tools":["charge_card"],"input":{"script":[
    {"kind":"tool_calls","calls":[{"id":"c","tool":"charge_card","arguments":{"line":"once"}}]}]}}"#;

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// Returns once it says that it is ready.
    fn ready(mut self) -> Self {
        let output = BufReader::new(self.0.stdout.take().unwrap());
        let said = output
            .lines()
            .map_while(Result::ok)
            .find(|line| line.starts_with("ready:"));
        assert!(said.is_some(), "it ended without being ready");
        self
    }
}

struct World {
    folder: tempfile::TempDir,
    port: u16,
    _server: Process,
}

impl World {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().display().to_string();
        let write =
            |name: &str, text: String| std::fs::write(folder.path().join(name), text).unwrap();
        write("one.conf", ONE.replace("# include", "include"));
        write("accounts.conf", ACCOUNTS.to_owned());
        write("tools.toml", TOOLS.replace("PLACE", &place));
        write("run.json", RUN.to_owned());
        write("lines", String::new());
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let values = [
            ("NAME", "one".to_owned()),
            ("LISTEN", format!("\"127.0.0.1:{port}\"")),
            ("MONITOR", "\"127.0.0.1:-1\"".to_owned()),
            ("STORE", format!("\"{place}/nats\"")),
            ("MAX_FILE", "1GB".to_owned()),
        ];
        let passwords = ["NODE", "PAY_1", "PAY_2", "MAIL_1", "DESK", "ANA"];
        let passwords = passwords.map(|user| (format!("PASSWORD_{user}"), "secret".to_owned()));
        let values = values.map(|(name, value)| (name.to_owned(), value));
        let server = Command::new(ServerBinary::find().await.unwrap().path())
            .arg("-c")
            .arg(folder.path().join("one.conf"))
            .envs(
                values
                    .into_iter()
                    .chain(passwords)
                    .map(|(name, value)| (format!("LEASEHOLD_NATS_{name}"), value)),
            )
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Process(server);
        for _ in 0..200 {
            if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        Self {
            folder,
            port,
            _server: server,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn leasehold(&self, user: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command
            .env("NATS_URL", format!("nats://127.0.0.1:{}", self.port))
            .args(["--user", user, "--password", "secret"])
            .stderr(Stdio::inherit())
            .stdout(Stdio::piped());
        command
    }

    fn node(&self) -> Process {
        let mut command = self.leasehold("node");
        command.args(["node", "--session-ttl", "2", "--tools"]);
        command.arg(self.path("tools.toml"));
        Process(command.spawn().unwrap()).ready()
    }

    fn worker(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = self.leasehold(name);
        command
            .args(["worker", "--name", name, "--session-ttl", "2"])
            .arg("--tools")
            .arg(self.path("tools.toml"))
            .arg("--logbook")
            .arg(self.path(name))
            .args(arguments);
        command
    }

    fn lines(&self) -> Vec<String> {
        let lines = std::fs::read_to_string(self.path("lines")).unwrap();
        lines.lines().map(str::to_owned).collect()
    }

    async fn output(mut command: Command) -> Output {
        tokio::task::spawn_blocking(move || command.output().unwrap())
            .await
            .unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn p1_a_worker_that_is_killed_in_its_domains_account_is_settled_from_its_logbook() {
    let world = World::start().await;
    let _node = world.node();
    std::fs::write(world.path("stand"), "").unwrap();
    let worker = Process(
        world
            .worker("pay-1", &["--domain", "payments"])
            .spawn()
            .unwrap(),
    )
    .ready();
    let mut run = world.leasehold("node");
    run.arg("run").arg(world.path("run.json")).arg("--wait");
    let running = tokio::spawn(World::output(run));
    // The effect, and the kill before its outcome.
    while world.lines().is_empty() {
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    drop(worker);
    let _second = Process(
        world
            .worker("pay-1", &["--domain", "payments"])
            .spawn()
            .unwrap(),
    )
    .ready();
    // What it armed and does not know the outcome of is a question to a person: nothing is tried again.
    let ran = running.await.unwrap();
    let said = text(&ran.stdout);
    assert_eq!(ran.status.code(), Some(5), "{said}");
    assert!(said.contains("pay-1"), "{said}");
    assert_eq!(world.lines().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_worker_in_its_domains_account_serves_a_run_to_its_end() {
    let world = World::start().await;
    let _node = world.node();
    let _worker = Process(
        world
            .worker("pay-1", &["--domain", "payments"])
            .spawn()
            .unwrap(),
    )
    .ready();
    let mut run = world.leasehold("node");
    run.arg("run").arg(world.path("run.json")).arg("--wait");
    let ran = World::output(run).await;
    assert_eq!(
        world.lines(),
        [r#"{"line":"once"}"#],
        "{}",
        text(&ran.stdout)
    );
    let mut verify = world.leasehold("node");
    verify.arg("verify");
    let verified = World::output(verify).await;
    assert!(verified.status.success(), "{}", text(&verified.stdout));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_worker_that_was_not_told_of_its_domain_says_so() {
    let world = World::start().await;
    let _node = world.node();
    let mut worker = world.worker("pay-1", &[]);
    worker.stderr(Stdio::piped());
    let refused = World::output(worker).await;
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(6), "{said}");
    assert!(
        said.contains("lacks a permission") && said.contains("--domain"),
        "{said}"
    );
}
