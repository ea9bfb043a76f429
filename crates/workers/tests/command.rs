//! Command tools against real processes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper of a test fails the test"
)]

mod support;

use std::{collections::BTreeMap, path::Path, time::Duration};

use leasehold_tools::{ProbeAnswer, ProbeError, Tool, ToolError};
use leasehold_workers::{CommandError, CommandTool, MAX_EXCERPT_BYTES};
use support::{ARGUMENTS, LONG, Witness, call, call_with, fifo, question, soon};

/// Long enough for a script to have begun, on a busy machine too.
const SHORT: Duration = Duration::from_secs(1);

/// A shell script whose `$0` is the folder.
fn script(folder: &Path, text: &str) -> CommandTool {
    CommandTool::new(["sh", "-c", text, folder.to_str().unwrap()]).unwrap()
}

fn plain(text: &str) -> CommandTool {
    script(Path::new("/"), text)
}

#[tokio::test]
async fn s14_a_command_reads_the_arguments_byte_for_byte() {
    let output = CommandTool::new(["cat"]).unwrap().call(call()).await;
    assert_eq!(output.unwrap().content, ARGUMENTS.trim().as_bytes());
}

#[tokio::test]
async fn s14_a_command_learns_who_asks_and_nothing_else() {
    let call = call();
    let key = call.idempotency_key.to_string();
    let tool = CommandTool::new(["env", "-0"])
        .unwrap()
        .with_env(["PATH"])
        .unwrap();
    let output = tool.call(call).await.unwrap();
    let text = String::from_utf8(output.content).unwrap();
    let env: BTreeMap<&str, &str> = text
        .split_terminator('\0')
        .map(|line| line.split_once('=').unwrap())
        .collect();
    let path = std::env::var("PATH").unwrap();
    let expected = BTreeMap::from([
        ("LEASEHOLD_RUN", "r é/1"),
        ("LEASEHOLD_STEP", "2\r\n0"),
        ("LEASEHOLD_ATTEMPT", "3"),
        ("LEASEHOLD_EPOCH", "4"),
        ("LEASEHOLD_IDEMPOTENCY_KEY", key.as_str()),
        ("LEASEHOLD_SECONDS_LEFT", "20.000"),
        ("LEASEHOLD_DEADLINE_UNIX_MS", "1700000000123"),
        ("PATH", path.as_str()),
    ]);
    assert_eq!(env, expected);
}

#[tokio::test]
async fn s16_exit_codes_say_what_is_known_of_the_effect() {
    let declared = |text| plain(text).with_nothing_happened_exit([75]).unwrap();
    let done = declared("echo '{}'; echo chatter >&2").call(call()).await;
    assert_eq!(done.unwrap().content, b"{}\n");

    let refused = declared("echo 'no such order' >&2; exit 75")
        .call(call())
        .await;
    assert_eq!(refused, Err(ToolError::nothing_happened("no such order")));
    let silent = declared("exit 75").call(call()).await;
    assert_eq!(
        silent,
        Err(ToolError::nothing_happened(
            "the command says that nothing happened (exit status: 75)"
        ))
    );

    for (tool, says) in [
        (
            plain("echo why >&2; exit 75"),
            "exit status: 75; the end of its standard error: why",
        ),
        (
            declared("echo why >&2; exit 1"),
            "exit status: 1; the end of its standard error: why",
        ),
        (declared("kill -9 $$"), "signal: 9"),
        (declared("kill -15 $$"), "signal: 15"),
    ] {
        match tool.call(call()).await {
            Err(ToolError::Unclassified(text)) => assert!(text.contains(says), "{text}"),
            other => panic!("{says}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn s16_what_cannot_be_started_did_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let plain_file = folder.path().join("plain");
    std::fs::write(&plain_file, "no program").unwrap();
    let plain_file = plain_file.to_str().unwrap();
    for tool in [
        CommandTool::new(["no-such-program-anywhere"]).unwrap(),
        CommandTool::new([plain_file]).unwrap(),
        CommandTool::new(["/"]).unwrap(),
        CommandTool::new(["true", "\0"]).unwrap(),
        CommandTool::new(["true"])
            .unwrap()
            .with_cwd(folder.path().join("missing")),
    ] {
        let answer = tool.call(call()).await;
        assert!(
            matches!(&answer, Err(ToolError::NothingHappened { .. })),
            "{tool:?}: {answer:?}"
        );
    }
}

#[tokio::test]
async fn s16_nothing_happened_is_not_believed_of_a_command_that_leaves_somebody_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut witness = Witness::new(folder.path());
    let text = r#"exec 9>"$0/witness"; sleep 300 >/dev/null 2>&1 & echo up >&9; exit 75"#;
    let tool = script(folder.path(), text)
        .with_nothing_happened_exit([75])
        .unwrap();
    let answer = tool.call(call()).await;
    assert!(
        matches!(&answer, Err(ToolError::Unclassified(text)) if text.contains("leaving processes behind")),
        "{answer:?}"
    );
    witness.all_gone().await;
}

/// Opens the witness in the leader and in a grandchild, and waits.
const LEADER_AND_CHILD: &str =
    r#"exec 9>"$0/witness"; sh -c 'sleep 300 & echo up >&9; wait' & wait"#;

#[tokio::test]
async fn k39_at_the_deadline_the_whole_group_dies_and_the_effect_is_unknown() {
    let folder = tempfile::tempdir().unwrap();
    let mut witness = Witness::new(folder.path());
    let tool = script(folder.path(), LEADER_AND_CHILD);
    let answer = tool.call(call_with("{}", SHORT)).await;
    assert!(
        matches!(&answer, Err(ToolError::Unclassified(text)) if text.contains("its time ran out")),
        "{answer:?}"
    );
    witness.all_gone().await;
}

#[tokio::test]
async fn k39_a_group_that_ignores_the_request_to_stop_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut witness = Witness::new(folder.path());
    let tool = script(folder.path(), &format!("trap '' TERM; {LEADER_AND_CHILD}"));
    let answer = tool.call(call_with("{}", SHORT)).await;
    assert!(
        matches!(&answer, Err(ToolError::Unclassified(text)) if text.contains("it was killed")),
        "{answer:?}"
    );
    witness.all_gone().await;
}

#[tokio::test]
async fn k39_a_cancelled_command_dies_with_its_group() {
    let folder = tempfile::tempdir().unwrap();
    let mut witness = Witness::new(folder.path());
    let tool = script(folder.path(), LEADER_AND_CHILD);
    let call = call();
    let cancel = call.cancel.clone();
    let (answer, ()) = tokio::join!(tool.call(call), async {
        assert_eq!(witness.line().await, "up");
        cancel.cancel();
    });
    assert!(
        matches!(&answer, Err(ToolError::Unclassified(text)) if text.contains("it was cancelled")),
        "{answer:?}"
    );
    witness.all_gone().await;
}

#[tokio::test]
async fn k39_a_dropped_call_takes_its_group_along() {
    let folder = tempfile::tempdir().unwrap();
    let mut witness = Witness::new(folder.path());
    let tool = script(folder.path(), &format!("trap '' TERM; {LEADER_AND_CHILD}"));
    tokio::select! {
        answer = tool.call(call()) => panic!("{answer:?}"),
        line = witness.line() => assert_eq!(line, "up"),
    }
    witness.all_gone().await;
}

#[tokio::test]
async fn k39_a_truth_told_within_the_grace_is_kept() {
    let text = r#"trap 'echo "{\"paid\":true}"; exit 0' TERM; sleep 300 & wait"#;
    let answer = plain(text).call(call_with("{}", SHORT)).await;
    assert_eq!(answer.unwrap().content, b"{\"paid\":true}\n");
}

#[tokio::test]
async fn k44_a_process_that_left_the_group_makes_the_end_unknown_and_lives_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut witness = Witness::new(folder.path());
    let release = fifo(folder.path(), "release");
    let text = r#"setsid sh -c 'exec 9>"$0/witness"; echo up >&9; read line <"$0/release"' "$0" & exit 75"#;
    let tool = script(folder.path(), text)
        .with_nothing_happened_exit([75])
        .unwrap();
    let call = call();
    let cancel = call.cancel.clone();
    let (answer, ()) = tokio::join!(tool.call(call), async {
        assert_eq!(witness.line().await, "up");
        cancel.cancel();
    });
    assert!(
        matches!(&answer, Err(ToolError::Unclassified(_))),
        "{answer:?}"
    );
    assert!(
        witness.somebody_is_there(),
        "the limit that the documentation states is gone"
    );
    std::fs::write(release, "go\n").unwrap();
    witness.all_gone().await;
}

#[tokio::test]
async fn k50_result_bytes_that_are_no_text_arrive_as_they_are() {
    let tool = plain(r"printf '\342\115\055\136\344'; printf '\270\255'");
    let content = tool.call(call()).await.unwrap().content;
    assert_eq!(content, b"\xe2\x4d\x2d\x5e\xe4\xb8\xad");
}

#[tokio::test]
async fn k57_two_mebibytes_go_in_and_come_out() {
    let arguments = format!("\"{}\"", "x".repeat(2 * 1024 * 1024));
    let tool = CommandTool::new(["cat"]).unwrap();
    let output = tool.call(call_with(&arguments, LONG)).await.unwrap();
    assert!(output.content == arguments.as_bytes());

    let unread = CommandTool::new(["true"]).unwrap();
    let output = unread.call(call_with(&arguments, LONG)).await.unwrap();
    assert_eq!(output.content, b"");
}

#[tokio::test]
async fn k57_a_command_that_never_stops_writing_is_killed_and_may_have_done_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut witness = Witness::new(folder.path());
    let tool = script(folder.path(), r#"exec 9>"$0/witness"; yes"#);
    let answer = soon(tool.call(call())).await;
    assert!(
        matches!(&answer, Err(ToolError::MayHaveHappened { .. })),
        "{answer:?}"
    );
    witness.all_gone().await;
}

#[tokio::test]
async fn only_the_end_of_standard_error_is_kept() {
    let tool = plain("yes noise | head -c 1000000 >&2; echo the reason >&2; exit 3");
    match tool.call(call()).await {
        Err(ToolError::Unclassified(text)) => {
            assert!(text.ends_with("the reason"), "{text}");
            assert!(text.len() < MAX_EXCERPT_BYTES + 200, "{}", text.len());
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn s14_a_probe_command_reads_the_question_and_answers_it() {
    let none = CommandTool::new(["true"]).unwrap().probe(question()).await;
    assert_eq!(none, Err(ProbeError::NoProbe));

    // The question itself as the result shows what was asked.
    let echo = r#"printf '{"answer":"done","result":'; cat; printf '}'"#;
    let tool = plain("exit 1").with_probe(["sh", "-c", echo]).unwrap();
    let asked = question();
    let key = asked.idempotency_key;
    let expected = format!(
        r#"{{"idempotency_key":"{key}","run":"r é/1","step":"2\r\n0","attempt":3,"arguments":{}}}"#,
        ARGUMENTS.trim()
    );
    assert_eq!(
        tool.probe(asked).await,
        Ok(ProbeAnswer::Done(expected.into()))
    );
}

#[tokio::test]
async fn s16_a_probe_command_that_fails_found_out_nothing() {
    for text in [
        "exit 75",
        r#"echo '{"answer":"not_done"}'; exit 1"#,
        "echo not_done",
        r#"echo '{"answer":"not_done"}'; kill -9 $$"#,
    ] {
        let tool = plain("exit 0").with_probe(["sh", "-c", text]).unwrap();
        let answer = tool.probe(question()).await;
        assert!(
            matches!(answer, Err(ProbeError::Failed(_))),
            "{text}: {answer:?}"
        );
    }
    let missing = plain("exit 0")
        .with_probe(["no-such-program-anywhere"])
        .unwrap();
    let answer = missing.probe(question()).await;
    assert!(matches!(answer, Err(ProbeError::Failed(_))), "{answer:?}");

    let mut asked = question();
    asked.time_left = SHORT;
    let stopped = r#"trap 'echo "{\"answer\":\"not_done\"}"; exit 0' TERM; sleep 300 & wait"#;
    let tool = plain("exit 0").with_probe(["sh", "-c", stopped]).unwrap();
    let answer = tool.probe(asked).await;
    assert!(matches!(answer, Err(ProbeError::Failed(_))), "{answer:?}");
}

#[test]
fn a_command_that_cannot_be_meant_is_refused() {
    let nothing: [&str; 0] = [];
    assert_eq!(
        CommandTool::new(nothing).err(),
        Some(CommandError::NoProgram)
    );
    assert_eq!(CommandTool::new([""]).err(), Some(CommandError::NoProgram));
    for code in [0, -1, 256, i64::MAX] {
        let tool = CommandTool::new(["true"]).unwrap();
        let refused = tool.with_nothing_happened_exit([75, code]).err();
        assert_eq!(refused, Some(CommandError::ExitCode(code)));
    }
    let tool = CommandTool::new(["true"]).unwrap();
    assert_eq!(
        tool.with_env(["A=1"]).err(),
        Some(CommandError::EnvName("A=1".into()))
    );
}
