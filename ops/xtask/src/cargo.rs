//! How this program asks cargo for things: always the cargo that started it, never with standard input.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use serde_json::Value;

/// The cargo that runs this program.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.stdin(Stdio::null());
    command
}

/// What `cargo metadata` says about the workspace's own packages.
pub(crate) fn metadata() -> anyhow::Result<Value> {
    let output = cargo()
        .args(["metadata", "--no-deps", "--locked", "--format-version", "1"])
        .stderr(Stdio::inherit())
        .output()
        .context("running cargo metadata")?;
    if !output.status.success() {
        bail!("cargo metadata failed: {}", output.status);
    }
    parse(&output.stdout)
}

/// Reads JSON that cargo, or a program of this workspace, has written.
#[expect(
    clippy::disallowed_methods,
    reason = "a developer's tool reading what this workspace's own programs print"
)]
pub(crate) fn parse(bytes: &[u8]) -> anyhow::Result<Value> {
    serde_json::from_slice(bytes).context("reading JSON")
}

/// Builds a program of the workspace in release and says where it is.
pub(crate) fn build_release(package: &str, program: &str) -> anyhow::Result<PathBuf> {
    let status = cargo()
        .args(["build", "--release", "--locked", "--package", package])
        .status()
        .context("running cargo build")?;
    if !status.success() {
        bail!("{package} does not build");
    }
    let metadata = metadata()?;
    let target = metadata["target_directory"].as_str();
    let target = target.context("cargo metadata names no target directory")?;
    Ok(PathBuf::from(target).join("release").join(program))
}

/// Builds a program of the workspace in release and runs it.
pub(crate) fn run_release(package: &str, arguments: &[String]) -> anyhow::Result<()> {
    let program = build_release(package, package)?;
    let status = Command::new(&program)
        .args(arguments)
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("starting {}", program.display()))?;
    if status.success() {
        Ok(())
    } else {
        bail!("{package} ended with {status}")
    }
}
