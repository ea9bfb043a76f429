//! The worker in Python (`examples/python-worker`) passes the suite that every worker passes (row T11).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "test code"
)]

use std::path::{Path, PathBuf};
use std::process::Command as Blocking;
use std::sync::OnceLock;

use leasehold_testkit::worker::{Life, Moment, Rig};
use tokio::process::Command;

const PYTHON: &str = "python3";

/// The folder that holds nats-py: made once, beside what cargo builds, from the example's own requirements.
fn packages() -> Result<&'static Path, String> {
    static PACKAGES: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let packages = PACKAGES.get_or_init(install);
    packages.as_deref().map_err(Clone::clone)
}

fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/python-worker")
}

fn install() -> Result<PathBuf, String> {
    let version = run(Blocking::new(PYTHON).args(["-c", "import sys; print(sys.version_info >= (3, 11))"]))
        .map_err(|why| format!("the worker in Python needs {PYTHON} 3.11 or newer on PATH ({why}); Debian: apt install python3 python3-pip"))?;
    if version.trim() != "True" {
        return Err(format!(
            "the worker in Python needs Python 3.11 or newer; {PYTHON} is older"
        ));
    }
    let wanted = std::fs::read_to_string(example().join("requirements.txt")).unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python-packages");
    let mark = folder.join("installed");
    if std::fs::read_to_string(&mark).is_ok_and(|installed| installed == wanted) {
        return Ok(folder);
    }
    let mut pip = Blocking::new(PYTHON);
    pip.args(["-m", "pip", "install", "--quiet", "--upgrade", "--target"])
        .arg(&folder)
        .arg("--requirement")
        .arg(example().join("requirements.txt"));
    run(&mut pip).map_err(|why| {
        format!("nats-py could not be installed with pip ({why}); the package index must be reachable, or a mirror named in PIP_INDEX_URL")
    })?;
    std::fs::write(&mark, wanted).unwrap();
    Ok(folder)
}

fn run(command: &mut Blocking) -> Result<String, String> {
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!("{}: {}", output.status, said.trim()))
}

fn name(at: Moment) -> &'static str {
    match at {
        Moment::AfterClaim => "after_claim",
        Moment::Armed => "armed",
        Moment::Effect => "effect",
        Moment::Logged => "logged",
    }
}

/// The worker, in the nodes' account or as if in its domain's.
struct Python {
    asks: bool,
}

impl Rig for Python {
    fn command(&self, life: &Life) -> Result<Command, String> {
        let mut command = Command::new(PYTHON);
        command
            .arg(example().join("worker.py"))
            .args(["--nats", &life.nats, "--name", &life.name, "--data"])
            .arg(&life.data)
            .arg("--outbox")
            .arg(&life.effects)
            .env("PYTHONPATH", packages()?)
            .env("PYTHONDONTWRITEBYTECODE", "1");
        if self.asks {
            command.args(["--domain", "default"]);
        }
        if let Some(at) = life.stall {
            command.env("LEASEHOLD_STALL", name(at));
        }
        if let Some(slow) = life.slow {
            let stall = format!("{}:{}", name(Moment::Effect), slow.as_secs_f64());
            command.env("LEASEHOLD_STALL", stall);
        }
        Ok(command)
    }

    fn reached(&self, at: Moment) -> String {
        format!("reached {}", name(at))
    }

    fn outlives_its_deadline(&self) -> bool {
        true
    }

    fn published(&self, effects: &Path) -> Vec<String> {
        let lines = std::fs::read_to_string(effects).unwrap_or_default();
        let text = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).ok()?;
            Some(line.get("text")?.as_str()?.to_owned())
        };
        lines
            .lines()
            .map(|line| text(line).unwrap_or_else(|| line.to_owned()))
            .collect()
    }
}

leasehold_testkit::worker_conformance_tests!(Python { asks: false });

/// Its reads are questions to nodes, as in a domain's account.
mod asking {
    use super::Python;

    leasehold_testkit::worker_conformance_tests!(Python { asks: true });
}
