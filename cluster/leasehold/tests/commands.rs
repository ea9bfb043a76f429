//! The commands against a running `dev`: submitting, answering, showing, verifying, and every refusal with its exit code.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper of a test fails the test"
)]

mod support;

use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use support::{Place, call, texts, with_input};

#[test]
fn a_run_is_submitted_followed_shown_and_verified() {
    let place = Place::new();
    let _dev = place.dev(&[]);
    let file = place.run_file("r1", &[&call("look")]);
    let told = place.ends(0, &["run", file.to_str().unwrap(), "--wait"]);
    assert!(
        told.contains("step 1-0 finished by attempt 1: tool_result"),
        "{told}"
    );
    assert!(told.ends_with("completed (goal_completed)\n"), "{told}");

    let shown = place.ends(0, &["show", "r1"]);
    for words in [
        "status:    completed (goal_completed)",
        "outcome",
        r#"{"seen":true}"#,
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let shown = place.json(0, &["show", "r1", "--json"]);
    assert_eq!(shown["status"], "completed");
    assert_eq!(shown["steps"][0]["tool"], "look");
    assert!(shown["timeline"].as_array().unwrap().len() > 5, "{shown}");

    let runs = place.json(0, &["runs", "--json"]);
    assert_eq!(runs[0]["run"], "r1");
    assert_eq!(
        place.json(0, &["runs", "--json", "--status", "failed"]),
        serde_json::json!([])
    );
    let verified = place.json(0, &["verify", "--json"]);
    assert_eq!(verified["violations"], 0);
    assert_eq!(verified["runs"].as_array().unwrap().len(), 1);
    let dump = place.ends(0, &["dump"]);
    assert!(
        dump.lines().all(|line| line.starts_with(r#"{"seq":"#)),
        "{dump}"
    );
    assert!(dump.contains(r#""stream":"call""#), "{dump}");
}

#[test]
fn readers_work_on_a_folder_that_nobody_runs_on_and_say_the_same() {
    let place = Place::new();
    let dev = place.dev(&[]);
    let file = place.run_file("r1", &[&call("look")]);
    place.ends(0, &["run", file.to_str().unwrap(), "--wait"]);
    let commands: [&[&str]; 4] = [&["runs"], &["show", "r1"], &["verify"], &["dump"]];
    let live = commands.map(|args| place.ends(0, args));
    dev.kill();
    assert_eq!(commands.map(|args| place.ends(0, args)), live);
    // Writers need somebody who runs the run.
    for args in [
        &["run", "-"] as &[&str],
        &["approve", "r1"],
        &["cancel", "r1"],
        &["status"],
    ] {
        let output = with_input(place.command(args), r#"{"goal":"g"}"#);
        let (_, err) = texts(&output);
        assert_eq!(output.status.code(), Some(6), "{args:?}: {err}");
        assert!(
            err.contains("start one with: leasehold dev --data"),
            "{err}"
        );
    }
}

#[test]
fn bad_run_files_are_refused_with_their_place_and_nothing_is_written() {
    let place = Place::new();
    let _dev = place.dev(&[]);
    let deep = format!(
        r#"{{"goal":"g","input":{}{}}}"#,
        "[".repeat(300),
        "]".repeat(300)
    );
    for (text, words) in [
        (
            r#"{"goal":"g","tools":["nope"]}"#,
            r#"no tool is called "nope"; known tools: append, note, look"#,
        ),
        (
            "{\"goal\":\"g\",\n\"goal\":\"h\"}",
            r#"line 2: repeated key "goal""#,
        ),
        (&deep, "nested deeper than 256 levels"),
        (r#"{"goal":"  "}"#, "goal: it is blank"),
        (r#"{"goal":"g","gaol":1}"#, "unknown field `gaol`"),
        (
            r#"{"goal":"g","agent":"nobody"}"#,
            r#"no agent is called "nobody""#,
        ),
        (
            r#"{"goal":"g","tools":["look","look"]}"#,
            r#"tool "look" is named more than once"#,
        ),
        (
            r#"{"goal":"g","limits":{"max_steps":0}}"#,
            "limit max_steps",
        ),
        (r#"{"goal":"g"} {"#, "more than one value"),
        ("goal = 'g'\ngaol = 1\n", r#"line 2: unknown field "gaol""#),
        ("goal = 'g'\nmore", "this is not TOML"),
        ("", "line 1: empty"),
    ] {
        let output = with_input(place.command(&["run", "-"]), text);
        let (out, err) = texts(&output);
        assert_eq!(output.status.code(), Some(2), "{text}: {out}{err}");
        assert!(err.contains(words), "{text}: {err}");
    }
    let err = place.refused(2, &["run", "/nowhere/run.json", "--json"]);
    assert!(
        support::json(&err)["error"]["message"]
            .as_str()
            .unwrap()
            .contains("/nowhere/run.json")
    );
    assert_eq!(place.json(0, &["runs", "--json"]), serde_json::json!([]));
    assert_eq!(place.ends(0, &["dump"]), "");
}

#[test]
fn the_same_id_with_the_same_content_is_the_same_run_and_with_other_content_refused() {
    let place = Place::new();
    let _dev = place.dev(&[]);
    let file = place.run_file("twice", &[&call("look")]);
    let file = file.to_str().unwrap();
    let first = place.json(0, &["run", file, "--json", "--wait"]);
    assert_eq!(
        (&first["repeated"], &first["state"]["status"]),
        (&false.into(), &"completed".into())
    );
    let again = place.json(0, &["run", file, "--json"]);
    assert_eq!(
        (&again["repeated"], &again["inbox"]),
        (&true.into(), &first["inbox"])
    );
    assert!(place.ends(0, &["run", file]).contains("the same run"));
    place.run_file("twice", &[]);
    let err = place.refused(2, &["run", file]);
    assert!(
        err.contains("run id twice is used by another submission"),
        "{err}"
    );
    assert_eq!(
        place.json(0, &["runs", "--json"]).as_array().unwrap().len(),
        1
    );
}

#[test]
fn s34_a_question_is_answered_by_its_hash_and_by_no_other() {
    let place = Place::new();
    let _dev = place.dev(&[]);
    let file = place.run_file("ask", &[&call("note")]);
    let told = place.ends(5, &["run", file.to_str().unwrap(), "--wait"]);
    assert!(told.contains(" approve ask 1-0.1"), "{told}");
    assert_eq!(place.lines(), 0, "nothing happens before a decision");

    let shown = place.json(0, &["show", "ask", "--json"]);
    let question = &shown["questions"][0];
    let hash = question["hash"].as_str().unwrap();
    let listed = place.json(0, &["questions", "--json"]);
    assert_eq!(listed[0]["hash"], *hash);
    assert!(
        place
            .ends(0, &["show", "ask"])
            .contains(&format!("hash:      {hash}"))
    );

    let zeros = "0".repeat(64);
    let err = place.refused(2, &["approve", "ask", "--yes", "--hash", &zeros]);
    assert!(
        err.contains(&format!("has hash {hash}, not {zeros}")),
        "{err}"
    );
    let err = place.refused(2, &["approve", "ask"]);
    assert!(err.contains(&format!("--yes --hash {hash}")), "{err}");
    let err = place.refused(2, &["approve", "ask", "--yes"]);
    assert!(err.contains("--hash"), "{err}");
    let err = place.refused(
        2,
        &["resolve", "ask", "--run-again", "--yes", "--hash", hash],
    );
    assert!(err.contains("does not offer run again"), "{err}");
    assert_eq!(place.lines(), 0);

    let approve = [
        "approve", "ask", "--yes", "--hash", hash, "--note", "checked",
    ];
    assert!(place.ends(0, &approve).contains("recorded for ana"));
    let file = file.to_str().unwrap();
    place.ends(0, &["run", file, "--wait"]);
    assert_eq!(place.lines(), 1);
    // A script that repeats itself hears the same; another answer comes too late.
    place.ends(0, &approve);
    place.refused(
        2,
        &["reject", "ask", "--yes", "--hash", hash, "--by", "bob"],
    );
    assert_eq!(place.lines(), 1);
    let shown = place.json(0, &["show", "ask", "--json"]);
    assert_eq!(shown["questions"][0]["by"], "ana");
    // Numbers keep their digits all the way.
    assert_eq!(shown["result"]["json"], r#"{"noted":9007199254740993}"#);
    assert_eq!(place.json(0, &["verify", "--json"])["violations"], 0);
}

#[test]
fn s8_a_rejected_and_a_cancelled_run_end_as_cancelled() {
    let place = Place::new();
    let _dev = place.dev(&[]);
    for run in ["no", "stop"] {
        let file = place.run_file(run, &[&call("note")]);
        place.ends(5, &["run", file.to_str().unwrap(), "--wait"]);
    }
    let questions = place.json(0, &["questions", "--json"]);
    let hash = questions[0]["hash"].as_str().unwrap();
    place.ends(0, &["reject", "no", "--yes", "--hash", hash]);
    place.ends(0, &["cancel", "stop", "--note", "changed my mind"]);
    for run in ["no", "stop"] {
        let file = place.path(&format!("{run}.json"));
        place.ends(4, &["run", file.to_str().unwrap(), "--wait"]);
    }
    assert!(
        place
            .ends(0, &["cancel", "stop"])
            .contains("was told to end before")
    );
    assert!(
        place
            .ends(0, &["cancel", "stop", "--by", "bob"])
            .contains("had ended before")
    );
    assert!(
        place
            .refused(2, &["cancel", "nobody"])
            .contains("there is no run nobody")
    );
    assert_eq!(place.lines(), 0);
}

#[test]
fn a_failed_run_exits_with_three() {
    let place = Place::new();
    let _dev = place.dev(&[]);
    let file = place.run_file("f", &[r#"{"kind":"fail","message":"no way"}"#]);
    let told = place.json(3, &["run", file.to_str().unwrap(), "--wait", "--json"]);
    assert_eq!(told["state"]["reason"], "goal_failed");
}

#[test]
fn a_second_dev_on_the_folder_is_refused_and_the_first_goes_on() {
    let place = Place::new();
    let dev = place.dev(&[]);
    let (status, err) = support::Dev::spawn(&place, &[]).wait();
    assert_eq!(status.code(), Some(7), "{err}");
    assert!(
        err.contains(&format!("is in use by process {}", dev.child.id())),
        "{err}"
    );
    let status = place.json(0, &["status", "--json"]);
    assert_eq!(status["pid"], dev.child.id());
    assert_eq!(
        status["agents"].as_array().unwrap().last().unwrap(),
        "script"
    );
}

#[test]
fn the_socket_and_its_folder_are_the_owners_alone() {
    let place = Place::new();
    let _dev = place.dev(&[]);
    let mode = |path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(place.data()), 0o700);
    assert_eq!(mode(place.data().join("leasehold.sock")), 0o600);
}

#[test]
fn a_folder_with_a_long_path_is_served_as_well() {
    let place = Place::with_data(&format!("{}/data", "long".repeat(40)));
    let _dev = place.dev(&[]);
    place.ends(0, &["status"]);
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let place = Place::new();
    let _dev = place.dev(&[]);
    place.submit("r", &[&call("look")]);
    for args in [&["show", "r"] as &[&str], &["dump"], &["runs"], &["verify"]] {
        let mut child = place
            .command(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let (_, err) = texts(&output);
        assert_eq!(
            (output.status.code(), err.as_str()),
            (Some(0), ""),
            "{args:?}"
        );
    }
}

#[test]
fn tools_check_tells_every_error_with_its_line_or_shows_the_tools() {
    let place = Place::new();
    let file = place.path("tools.toml");
    let file = file.to_str().unwrap();
    let err = place.refused(2, &["tools", "check", file]);
    assert_eq!(err.matches("${PLACE}").count(), 2, "{err}");
    let shown = place.ends(0, &["tools", "check", file, "--set", "PLACE=/x"]);
    assert!(shown.contains("remote_mutation"), "{shown}");
    let tools = place.json(0, &["tools", "check", file, "--set", "PLACE=/x", "--json"]);
    assert_eq!(tools["tools"][2]["name"], "look");
    let bad = place.write("bad.toml", "[[tool]]\nname = 'a'\nside_effect = 'none'\n");
    let told = place.json(2, &["tools", "check", bad.to_str().unwrap(), "--json"]);
    assert_eq!(told["ok"], false);
    assert!(told["errors"].as_array().unwrap().len() > 2, "{told}");
    let errors = told["errors"].as_array().unwrap();
    assert!(errors.iter().any(|error| error["line"] == 3), "{told}");
}

#[test]
fn exit_codes_are_documented() {
    let help = texts(&support::leasehold().arg("--help").output().unwrap()).0;
    for code in 0..=7 {
        assert!(help.contains(&format!("\n  {code}  ")), "{code}: {help}");
    }
}
