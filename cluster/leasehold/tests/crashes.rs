//! `dev` killed and stopped at chosen moments: what is in the world, in the journal, and what a person is asked.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper of a test fails the test"
)]

mod support;

use std::fs;

use rustix::process::Signal;
use support::{Follower, Place, call, until};

#[test]
fn s51_a_command_killed_after_its_effect_is_not_run_again_and_an_operator_settles_it() {
    let place = Place::new();
    let dev = place.dev(&[]);
    place.submit("r", &[&call("append")]);
    until("the tool has appended its line", || place.lines() == 1);
    dev.kill();
    // The command outlives its worker; it must not disturb the next life.
    place.go();

    let _dev = place.dev(&[]);
    let file = place.path("r.json");
    let file = file.to_str().unwrap();
    let told = place.ends(5, &["run", file, "--wait"]);
    assert!(told.contains(" resolve r 1-0.1 --run-again"), "{told}");
    assert_eq!(place.lines(), 1, "the effect happened once");
    let shown = place.json(0, &["show", "r", "--json"]);
    let question = &shown["questions"][0];
    assert_eq!(question["question"]["ask"], "interrupted_side_effect");
    assert_eq!(shown["takeovers"], 1);
    let listed = place.json(0, &["runs", "--json", "--waiting-for", "append"]);
    assert_eq!(listed[0]["open"][0]["phase"], "interrupted_side_effect");
    let text = place.ends(0, &["show", "r"]);
    for words in ["evidence", "unsure", "claimed by worker local"] {
        assert!(text.contains(words), "{words}: {text}");
    }

    let hash = question["hash"].as_str().unwrap();
    let done = r#"{"appended":1}"#;
    let err =
        support::texts(&place.output(&["resolve", "r", "--done", "{", "--yes", "--hash", hash])).1;
    assert!(
        err.contains("--done: the result is no usable JSON"),
        "{err}"
    );
    place.ends(
        0,
        &["resolve", "r", "--done", done, "--yes", "--hash", hash],
    );
    let told = place.json(0, &["run", file, "--wait", "--json"]);
    assert_eq!(told["state"]["result"]["json"], done);
    assert_eq!(place.lines(), 1);
    let verified = place.json(0, &["verify", "--json"]);
    assert_eq!(verified["violations"], 0, "{verified}");
}

#[test]
fn s53_killed_at_every_stage_of_a_recorded_call_it_acts_once_and_replays_to_the_same_bytes() {
    // Where the call was never begun it is begun again by itself; where it was, its outcome is there or a person is asked.
    // R5 alone would let the worker run on beside it, to wherever the kill meets it.
    for (points, code, lines) in [
        (&["R5", "W1"] as &[&str], 0, 1),
        (&["W1"], 0, 1),
        (&["W3"], 0, 1),
        (&["W7"], 5, 1),
        (&["W8"], 0, 1),
        (&["R7"], 0, 1),
        (&["R14"], 0, 1),
    ] {
        let place = Place::new();
        place.go();
        let record = place.path("inputs.jsonl");
        let record = record.to_str().unwrap();
        let mut args = vec!["--record", record];
        args.extend(points.iter().flat_map(|point| ["--stall", *point]));
        let mut dev = place.dev(&args);
        place.submit("r", &[&call("append")]);
        dev.wait_for_all(points.iter().map(|point| format!("reached {point}")));
        let point = points.join(" and ");
        dev.kill();
        let _dev = place.dev(&["--record", record]);
        let file = place.path("r.json");
        place.ends(code, &["run", file.to_str().unwrap(), "--wait"]);
        assert_eq!(place.lines(), lines, "{point}");
        assert_eq!(
            place.json(0, &["verify", "--json"])["violations"],
            0,
            "{point}"
        );

        let report = place.json(0, &["replay-inputs", record, "--json"]);
        assert_eq!(report["differing"], 0, "{point}: {report}");
        assert_eq!(report["lives"], 2, "{point}");
        let commits = place.json(0, &["runs", "--json"])[0]["commits"]
            .as_u64()
            .unwrap();
        assert_eq!(
            report["compared"], commits,
            "{point}: every commit is compared"
        );
        let dump = place.write("dump.jsonl", &place.ends(0, &["dump"]));
        let by_dump = place.json(
            0,
            &[
                "replay-inputs",
                record,
                "--json",
                "--dump",
                dump.to_str().unwrap(),
            ],
        );
        assert_eq!(by_dump, report, "{point}");
    }
}

#[test]
fn i16_k42_a_run_that_kills_every_process_that_opens_it_waits_for_an_operator_and_the_others_go_on()
{
    let place = Place::new();
    let record = place.path("inputs.jsonl");
    let record = record.to_str().unwrap();
    let stalled = ["--record", record, "--stall", "R17"];
    let mut dev = place.dev(&stalled);
    place.submit("r", &[&call("look")]);
    for _ in 0..2 {
        dev.wait_for("reached R17");
        dev.kill();
        dev = place.dev(&stalled);
    }
    dev.wait_for("reached R17");
    dev.kill();

    let _dev = place.dev(&["--record", record]);
    let file = place.path("r.json");
    let file = file.to_str().unwrap();
    let told = place.ends(5, &["run", file, "--wait"]);
    assert!(told.contains(" approve r run.1"), "{told}");
    let other = place.run_file("s", &[&call("look")]);
    place.ends(0, &["run", other.to_str().unwrap(), "--wait"]);
    let listed = place.json(0, &["runs", "--json", "--status", "waiting"]);
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert_eq!(listed[0]["waiting_on"]["kind"], "quarantined");
    assert_eq!(listed[0]["takeovers"], 3);
    assert!(place.ends(0, &["runs"]).contains("quarantined"));
    let text = place.ends(0, &["show", "r"]);
    for words in [
        "waiting (quarantined, question run.1)",
        "lost:",
        "node local, session",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let shown = place.json(0, &["show", "r", "--json"]);
    let question = &shown["questions"][0];
    let lost = question["question"]["lost"].as_array().unwrap();
    assert_eq!(lost.len(), 3);

    let hash = question["hash"].as_str().unwrap();
    place.ends(0, &["approve", "r", "--yes", "--hash", hash]);
    let told = place.json(0, &["run", file, "--wait", "--json"]);
    assert_eq!(told["state"]["status"], "completed");
    assert_eq!(place.json(0, &["verify", "--json"])["violations"], 0);
    let report = place.json(0, &["replay-inputs", record, "--json"]);
    assert_eq!(report["differing"], 0, "{report}");
}

#[test]
fn s51_a_logbook_that_was_moved_here_says_unsure_where_it_would_have_said_not_started() {
    // Claimed and not armed: on the machine of the logbook this is proved not to have begun, and is begun again.
    for (moved, code, lines) in [(false, 0, 1), (true, 5, 0)] {
        let place = Place::new();
        place.go();
        let mut dev = place.dev(&["--stall", "W3"]);
        place.submit("r", &[&call("append")]);
        dev.wait_for("reached W3");
        dev.kill();
        let _dev = if moved {
            let Some(mut dev) = support::Dev::spawn_elsewhere(&place, "0123456789abcdef") else {
                println!(
                    "SKIPPED needs: mount namespaces: s51_a_logbook_that_was_moved_here_says_unsure_where_it_would_have_said_not_started"
                );
                return;
            };
            dev.wait_for("ready: ");
            dev.wait_err("the worker's logbook was made on another machine");
            dev
        } else {
            place.dev(&[])
        };
        let file = place.path("r.json");
        place.ends(code, &["run", file.to_str().unwrap(), "--wait"]);
        assert_eq!(place.lines(), lines);
        let text = place.ends(0, &["show", "r"]);
        let why = "moved here from machine ";
        assert_eq!(text.contains(why), moved, "{text}");
        assert_eq!(place.json(0, &["verify", "--json"])["violations"], 0);
    }
}

#[test]
fn a_recording_that_was_changed_does_not_replay() {
    let place = Place::new();
    let record = place.path("inputs.jsonl");
    let dev = place.dev(&["--record", record.to_str().unwrap()]);
    for run in ["r", "s"] {
        let file = place.run_file(run, &[&call("look")]);
        place.ends(0, &["run", file.to_str().unwrap(), "--wait"]);
    }
    dev.kill();
    let whole = fs::read_to_string(&record).unwrap();
    let replay = |text: &str| {
        let changed = place.write("changed.jsonl", text);
        place.output(&["replay-inputs", changed.to_str().unwrap(), "--json"])
    };
    assert_eq!(replay(&whole).status.code(), Some(0));
    // Another answer of the tool is another journal; a missing input leaves commits that nobody asked for.
    assert_eq!(
        replay(&whole.replace("default@1", "default@2"))
            .status
            .code(),
        Some(1)
    );
    let lines: Vec<&str> = whole.lines().collect();
    let without_end = lines[..lines.len() / 2].join("\n");
    assert_eq!(replay(&without_end).status.code(), Some(1));
    // What a kill cut off is skipped at the end of a life only.
    assert_eq!(replay(&format!("{whole}{{\"rec")).status.code(), Some(0));
    assert_eq!(
        replay(&whole.replacen("{\"record\"", "{\"rec", 1))
            .status
            .code(),
        Some(1)
    );
}

#[test]
fn sigterm_lets_a_call_finish_and_the_next_start_goes_on() {
    let place = Place::new();
    let dev = place.dev(&[]);
    let file = place.run_file("r", &[&call("append"), &call("look")]);
    place.ends(0, &["run", file.to_str().unwrap()]);
    until("the tool has appended its line", || place.lines() == 1);
    dev.signal(Signal::TERM);
    place.go();
    let (status, err) = dev.wait();
    assert_eq!(status.code(), Some(0), "{err}");
    assert!(err.contains("stopped"), "{err}");
    assert!(!place.data().join("leasehold.sock").exists());

    let _dev = place.dev(&[]);
    let told = place.json(0, &["run", file.to_str().unwrap(), "--wait", "--json"]);
    assert_eq!(told["state"]["status"], "completed");
    assert_eq!(place.lines(), 1);
    assert_eq!(place.json(0, &["verify", "--json"])["violations"], 0);
}

#[test]
fn a_second_signal_stops_at_once_and_loses_nothing() {
    let place = Place::new();
    let mut dev = place.dev(&[]);
    place.submit("r", &[&call("append")]);
    until("the tool has appended its line", || place.lines() == 1);
    dev.signal(Signal::TERM);
    dev.wait_err("SIGTERM: stopping");
    dev.signal(Signal::INT);
    let (status, err) = dev.wait();
    assert_eq!(status.code(), Some(1), "{err}");
    assert!(
        err.contains("the next start settles what was in hand"),
        "{err}"
    );
    place.go();
    let _dev = place.dev(&[]);
    let file = place.path("r.json");
    place.ends(5, &["run", file.to_str().unwrap(), "--wait"]);
    assert_eq!(place.lines(), 1);
}

#[test]
fn a_follower_is_told_when_dev_stops_and_the_run_goes_on_later() {
    let place = Place::new();
    let dev = place.dev(&[]);
    let file = place.run_file("r", &[&call("append")]);
    let mut follower = Follower::start(&place, &file);
    follower.wait_for("dispatched");
    dev.kill();
    assert_eq!(follower.code(), Some(6));
}

#[test]
fn a_data_folder_that_cannot_be_written_or_is_damaged_is_refused_and_says_what_to_do() {
    let place = Place::new();
    place.dev(&[]).kill();
    // Tests may run as root, whom no permission stops: a file where a folder has to be stops everybody.
    let blocked = place.write("blocked", "");
    let mut command = support::leasehold();
    command
        .args(["dev", "--tools"])
        .arg(place.path("tools.toml"));
    command
        .arg("--set")
        .arg("PLACE=/x")
        .arg("--data")
        .arg(blocked.join("data"));
    let output = command.output().unwrap();
    let (_, err) = support::texts(&output);
    assert_eq!(output.status.code(), Some(7), "{err}");
    assert!(err.contains("blocked"), "{err}");

    let err = place_refused(&place, "nothing-here");
    assert!(err.contains("holds no leasehold data"), "{err}");

    fs::remove_dir_all(place.data().join("store")).unwrap();
    for args in [&["runs"] as &[&str], &["dump"], &["verify"]] {
        let err = place.refused(7, args);
        assert!(err.contains("was emptied"), "{err}");
    }
    let (status, err) = support::Dev::spawn(&place, &[]).wait();
    assert_eq!(status.code(), Some(7), "{err}");
    assert!(err.contains("put the missing files back"), "{err}");
}

fn place_refused(place: &Place, name: &str) -> String {
    let mut command = support::leasehold();
    command.arg("--data").arg(place.path(name)).arg("runs");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    support::texts(&output).1
}

#[test]
fn a_read_only_data_folder_is_refused_and_nothing_is_lost() {
    let place = Place::new();
    let dev = place.dev(&[]);
    let file = place.run_file("r", &[&call("look")]);
    place.ends(0, &["run", file.to_str().unwrap(), "--wait"]);
    dev.kill();
    // A read-only bind mount stops root as well; it takes a mount namespace, which not every machine gives.
    let data = place.data();
    let script = format!(
        "mount --bind {0} {0} && mount -o remount,ro,bind {0} || exit 77; exec {1} --data {0} runs",
        data.display(),
        env!("CARGO_BIN_EXE_leasehold")
    );
    let output = std::process::Command::new("unshare")
        .args(["--mount", "--map-root-user", "sh", "-c", &script])
        .output();
    match output {
        Ok(output) if output.status.code() == Some(7) => {
            let (_, err) = support::texts(&output);
            assert!(
                err.contains("mount it read-write or fix its permissions"),
                "{err}"
            );
        }
        Ok(output) if output.status.code() != Some(77) && !is_refused_by_unshare(&output) => {
            panic!("{:?}: {:?}", output.status, support::texts(&output))
        }
        _ => println!(
            "SKIPPED needs: mount namespaces: a_read_only_data_folder_is_refused_and_nothing_is_lost"
        ),
    }
    assert_eq!(place.json(0, &["runs", "--json"])[0]["status"], "completed");
}

fn is_refused_by_unshare(output: &std::process::Output) -> bool {
    support::texts(output).1.starts_with("unshare:")
}
