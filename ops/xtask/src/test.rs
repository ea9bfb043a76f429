//! `cargo xtask test`: the one test command, on a developer's machine and in CI.
//!
//! It needs Rust and nothing else. With cargo-nextest installed the tests run under it, which is faster and isolates them; without, under
//! `cargo test`. Either way the documentation's examples run too. A test that this machine cannot run says so by a line
//! `SKIPPED needs: WHAT: TEST`; those are counted apart, told by need, and with `--require-all` they are failures.

use std::io::{BufRead as _, BufReader, Read};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use crate::cargo::cargo;
use crate::tests_said::{Runner, Said};

/// Arguments of `cargo xtask test`.
#[derive(Debug, clap::Args)]
pub(crate) struct TestArgs {
    /// Fail if anything could not run here
    #[arg(long)]
    require_all: bool,
    /// Use `cargo test` even where cargo-nextest is installed
    #[arg(long)]
    plain: bool,
}

/// Where a runner tells how its tests went.
enum Tells {
    Output,
    Error,
}

pub(crate) fn run(args: &TestArgs) -> anyhow::Result<()> {
    let mut said = Said::default();
    if !args.plain && has_nextest() {
        let mut tests = cargo();
        tests.args(["nextest", "run", "--workspace", "--all-targets"]);
        tests.args(["--no-fail-fast", "--color", "never"]);
        // Only in the output of a passing test does it say that it was not really run.
        tests.args(["--success-output", "immediate"]);
        tests.args(["--failure-output", "immediate"]);
        follow(tests, Runner::Nextest, Tells::Error, &mut said)?;
    } else {
        let mut tests = cargo();
        tests.args(["test", "--workspace", "--all-targets", "--no-fail-fast"]);
        tests.args(["--", "--show-output"]);
        follow(tests, Runner::Libtest, Tells::Output, &mut said)?;
    }
    let mut examples = cargo();
    examples.args(["test", "--workspace", "--doc", "--no-fail-fast"]);
    follow(examples, Runner::Libtest, Tells::Output, &mut said)?;
    close(&said, args.require_all)
}

fn has_nextest() -> bool {
    let mut version = cargo();
    version.args(["nextest", "--version"]);
    version.stdout(Stdio::null()).stderr(Stdio::null());
    version.status().is_ok_and(|status| status.success())
}

/// Runs the command, shows what it says and keeps count.
fn follow(
    mut command: Command,
    runner: Runner,
    tells: Tells,
    said: &mut Said,
) -> anyhow::Result<()> {
    match tells {
        Tells::Output => command.stdout(Stdio::piped()),
        Tells::Error => command.stderr(Stdio::piped()),
    };
    let mut child = command.spawn().context("starting cargo")?;
    let told: Option<Box<dyn Read>> = match tells {
        Tells::Output => child.stdout.take().map(|told| Box::new(told) as _),
        Tells::Error => child.stderr.take().map(|told| Box::new(told) as _),
    };
    let failed_before = said.failed;
    let mut reading = said.of(runner);
    let mut lines = BufReader::new(told.context("the runner's output is not there")?);
    let mut line = Vec::new();
    // By bytes: a test may print what is no UTF-8.
    while lines.read_until(b'\n', &mut line)? > 0 {
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        if reading.line(text) {
            println!("{text}");
        }
        line.clear();
    }
    let status = child.wait()?;
    if !status.success() && said.failed == failed_before {
        // It did not build, or the runner itself broke: no test is to blame, and it is no success.
        println!("the test runner ended with {status}");
        said.failed += 1;
    }
    Ok(())
}

fn close(said: &Said, require_all: bool) -> anyhow::Result<()> {
    println!();
    for (need, tests) in &said.not_run {
        println!("{} not run: needs {need}", tests.len());
        for test in tests {
            println!("    {test}");
        }
    }
    if said.ignored > 0 {
        println!(
            "{} not run: measurements, run by hand with --ignored in release",
            said.ignored
        );
    }
    let not_run = said.not_run_here();
    let failed = said.failed + if require_all { not_run } else { 0 };
    let skipped = said.ignored + if require_all { 0 } else { not_run };
    println!(
        "{} passed, {failed} failed, {skipped} skipped",
        said.passed.saturating_sub(not_run)
    );
    match (said.failed, not_run) {
        (0, not_run) if require_all && not_run > 0 => {
            bail!("{not_run} tests could not run here, and all were required")
        }
        (0, _) => Ok(()),
        (failed, _) => bail!("{failed} tests failed"),
    }
}
