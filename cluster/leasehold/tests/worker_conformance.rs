//! `leasehold worker` passes the suite that every worker passes.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "test code")]

use std::path::Path;

use leasehold_testkit::worker::{Life, Moment, Rig, TOOL};
use tokio::process::Command;

/// The tool: appends its arguments, a line of JSON, to the file of effects.
fn tools(life: &Life) -> String {
    let effects = life.effects.display();
    let slow = life.slow.map_or(0.0, |slow| slow.as_secs_f64());
    let script = format!(
        r#"arguments=$(cat); case "$arguments" in '{{"text":"'*) ;; *) echo 'no text' >&2; exit 75;; esac; printf '%s\n' "$arguments" >> '{effects}'; sleep {slow}"#
    );
    format!(
        r#"
[[tool]]
name = "{TOOL}"
description = "Publishes one text. Call it once for each text. It cannot be undone."
side_effect = "remote_mutation"
timeout = "60s"
trust = "authoritative"
input_schema = '{{"type":"object","properties":{{"text":{{"type":"string"}}}},"required":["text"],"additionalProperties":false}}'
[tool.command]
argv = ["sh", "-c", '''{script}''']
nothing_happened_exit = [75]
"#
    )
}

fn point(at: Moment) -> &'static str {
    match at {
        Moment::AfterClaim => "W3",
        Moment::Armed => "W5",
        Moment::Effect => "W7",
        Moment::Logged => "W8",
    }
}

/// The worker, in the nodes' account or as if in its domain's.
struct Leasehold {
    asks: bool,
}

impl Rig for Leasehold {
    fn command(&self, life: &Life) -> Result<Command, String> {
        let file = life.effects.with_file_name("tools.toml");
        std::fs::write(&file, tools(life)).map_err(|error| error.to_string())?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command
            .args(["worker", "--nats", &life.nats, "--name", &life.name])
            .arg("--tools")
            .arg(file)
            .arg("--logbook")
            .arg(&life.data);
        if self.asks {
            command.args(["--domain", "default"]);
        }
        if let Some(at) = life.stall {
            command.args(["--stall", point(at)]);
        }
        Ok(command)
    }

    fn reached(&self, at: Moment) -> String {
        format!("reached {}", point(at))
    }

    fn outlives_its_deadline(&self) -> bool {
        false
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

leasehold_testkit::worker_conformance_tests!(Leasehold { asks: false });

/// Its reads are questions to nodes, as in a domain's account.
mod asking {
    use super::Leasehold;

    leasehold_testkit::worker_conformance_tests!(Leasehold { asks: true });
}
