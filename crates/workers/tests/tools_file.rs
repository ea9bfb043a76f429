//! `tools.toml`: what a right file gives, and everything that a wrong one is told.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a helper of a test fails the test"
)]

mod support;

use std::{collections::BTreeSet, fs, path::Path};

use leasehold_tools::{Origin, ProbeKind, Registry, ResultTrust, SideEffect, Trust};
use leasehold_workers::{ToolsFileErrors, load};
use support::call;

fn vars(name: &str) -> Option<String> {
    match name {
        "PAYMENTS" => Some("127.0.0.1:9".into()),
        "PROGRAM" => Some("cat".into()),
        _ => None,
    }
}

fn errors_of(text: &str) -> Vec<(Option<usize>, Option<String>, String)> {
    let errors = load_text(text)
        .expect_err("the file is wrong")
        .errors()
        .to_vec();
    errors
        .into_iter()
        .map(|e| (e.line, e.tool, e.message))
        .collect()
}

fn load_text(text: &str) -> Result<Vec<leasehold_tools::Registered>, ToolsFileErrors> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tools.toml");
    fs::write(&path, text).unwrap();
    load(&path, &vars).map(|file| file.into_registered())
}

/// A right tool, line by line; tests change or drop lines of it.
const RIGHT: [&str; 12] = [
    "[[tool]]",
    "name = 'pay'",
    "description = 'Pays.'",
    "side_effect = 'remote_mutation'",
    "timeout = '5s'",
    "trust = 'authoritative'",
    "probe = 'observing'",
    "input_schema = '{}'",
    "",
    "[tool.http]",
    "url = 'http://${PAYMENTS}/pay'",
    "probe_url = 'http://${PAYMENTS}/probe'",
];

fn right_but(line: usize, text: &str) -> String {
    let mut lines = RIGHT;
    lines[line - 1] = text;
    lines.join("\n")
}

#[tokio::test]
async fn a_right_file_gives_tools_that_assemble_and_run() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("schemas")).unwrap();
    fs::write(
        folder.path().join("schemas/in.json"),
        r#"{"type":"object"}"#,
    )
    .unwrap();
    let text = r#"
[[tool]]
name = "read file"
description = "Reads."
side_effect = "read_only"
timeout = "1500ms"
trust = "authoritative"
results = "trusted"
terminal = true
may_abort = true
keep_blank = true
max_concurrency = 4
rate_key = "disk"
input_schema_file = "schemas/in.json"
output_schema = '{"type":"object"}'
[tool.annotations]
read_only_hint = true
open_world_hint = false
[tool.command]
argv = ["sh", "-c", "pwd >&2; exec ${PROGRAM}"]
nothing_happened_exit = [75]
env = ["PATH"]
cwd = "schemas"

[[tool]]
name = "pay"
description = "Pays."
side_effect = "destructive"
timeout = "2m"
trust = "authoritative"
probe = "fencing"
refuses_late = true
input_schema = '''{"type":"object"}'''
[tool.http]
url = "http://${PAYMENTS}/"
probe_url = "http://h/p"

[[tool]]
name = "far"
description = "Runs elsewhere."
side_effect = "local_mutation"
timeout = "1s"
trust = "sandboxed"
input_schema = "{}"
"#;
    let path = folder.path().join("tools.toml");
    fs::write(&path, text).unwrap();
    let tools = load(&path, &vars)
        .unwrap_or_else(|errors| panic!("{errors}"))
        .into_registered();
    let [read, pay, far] = tools.as_slice() else {
        panic!("{tools:?}");
    };
    assert_eq!(
        (read.origin, pay.origin, far.origin),
        (Origin::Command, Origin::Http, Origin::Sandbox)
    );
    let spec = &read.spec;
    assert_eq!(
        (spec.timeout_ms, spec.side_effect),
        (1500, SideEffect::ReadOnly)
    );
    assert!(spec.terminal && spec.may_abort && spec.keep_blank && !spec.refuses_late);
    assert_eq!(spec.max_concurrency, Some(4));
    assert_eq!(spec.concurrency_key.as_deref(), Some("read file"));
    assert_eq!(spec.rate_key.as_deref(), Some("disk"));
    assert_eq!(spec.result_trust, ResultTrust::Trusted);
    assert_eq!(spec.annotations.read_only_hint, Some(true));
    assert_eq!(spec.annotations.open_world_hint, Some(false));
    assert_eq!(spec.annotations.idempotent_hint, None);
    assert_eq!(
        (pay.spec.timeout_ms, pay.spec.probe),
        (120_000, Some(ProbeKind::Fencing))
    );
    assert_eq!(
        (pay.spec.result_trust, pay.spec.refuses_late),
        (ResultTrust::Untrusted, true)
    );
    assert_eq!(far.spec.trust, Trust::Sandboxed);

    let call = call();
    let sent = call.arguments.clone();
    let output = read
        .implementation
        .as_ref()
        .unwrap()
        .call(call)
        .await
        .unwrap();
    assert_eq!(output.content, sent.as_bytes());
    let registry = Registry::assemble(tools).unwrap();
    assert_eq!(registry.len(), 3);
}

#[tokio::test]
async fn a_tool_that_is_served_elsewhere_is_declared_without_saying_how_it_runs() {
    let tool = |line: &str| format!("{}\n{line}\n{}", RIGHT[..6].join("\n"), RIGHT[7]);
    let tools = load_text(&tool("elsewhere = true")).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(tools[0].origin, Origin::Elsewhere);
    assert!(tools[0].implementation.is_none());
    assert_eq!(tools[0].spec.result_trust, ResultTrust::Untrusted);
    assert_eq!(Registry::assemble(tools).unwrap().elsewhere().count(), 1);

    for (text, line, message) in [
        (tool("elsewhere = 1"), 7, "make it true or false"),
        (tool("elsewhere = false"), 1, "or elsewhere = true"),
        (
            tool("elsewhere = true\nprobe = 'observing'"),
            8,
            "drop the key",
        ),
        (
            format!(
                "{}\n[tool.http]\nurl = 'http://h/'",
                tool("elsewhere = true")
            ),
            9,
            "remove this section",
        ),
        (
            tool("elsewhere = true").replace("authoritative", "sandboxed"),
            7,
            "remove elsewhere",
        ),
    ] {
        let errors = errors_of(&text);
        assert!(
            errors
                .iter()
                .any(|(at, _, found)| *at == Some(line) && found.contains(message)),
            "{line}: {message}: {errors:?}\n{text}"
        );
    }
}

#[tokio::test]
async fn the_python_workers_tool_loads_and_runs_elsewhere() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/python-worker/tools.toml");
    let tools = load(&path, &vars).unwrap_or_else(|errors| panic!("{errors}"));
    let registry = Registry::assemble(tools.into_registered()).unwrap();
    assert_eq!(registry.elsewhere().collect::<Vec<_>>(), ["publish"]);
}

#[tokio::test]
async fn the_refund_desk_of_the_examples_loads() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/refund-desk/tools.toml");
    let tools = load(&path, &vars)
        .unwrap_or_else(|errors| panic!("{errors}"))
        .into_registered();
    Registry::assemble(tools).unwrap();
    let unset = load(&path, &|_| None).unwrap_err();
    assert!(
        unset
            .errors()
            .iter()
            .all(|error| error.message.contains("${PAYMENTS} is not set")),
        "{unset}"
    );
}

#[tokio::test]
async fn each_mistake_is_told_at_its_line() {
    assert!(load_text(&RIGHT.join("\n")).is_ok());
    let unknown = "unknown key";
    let table = [
        (right_but(2, ""), 1, "lacks \"name\""),
        (right_but(3, ""), 1, "lacks \"description\""),
        (right_but(4, ""), 1, "lacks \"side_effect\""),
        (right_but(5, ""), 1, "lacks \"timeout\""),
        (right_but(6, ""), 1, "lacks \"trust\""),
        (right_but(8, ""), 1, "lacks \"input_schema\""),
        (right_but(11, ""), 10, "lacks \"url\""),
        (right_but(2, "name = ''"), 2, "the tool name is empty"),
        (
            right_but(2, "name = 7"),
            2,
            "name is a whole number; make it a string",
        ),
        (
            right_but(3, "description = ''"),
            3,
            "the description is empty",
        ),
        (
            right_but(4, "side_effect = 'remote'"),
            4,
            "did you mean \"remote_mutation\"?",
        ),
        (
            right_but(4, "side_effect = 'x'"),
            4,
            "use one of read_only, local_mutation",
        ),
        (right_but(5, "timeout = '0s'"), 5, "the timeout is zero"),
        (right_but(5, "timeout = '5 s'"), 5, "is no duration"),
        (
            right_but(5, "timeout = 5"),
            5,
            "timeout is a whole number; make it a string",
        ),
        (
            right_but(5, "timout = '5s'\ntimeout = '5s'"),
            5,
            "did you mean \"timeout\"?",
        ),
        (
            right_but(6, "trust = 'authorative'"),
            6,
            "did you mean \"authoritative\"?",
        ),
        (
            right_but(7, "probe = 'fence'"),
            7,
            "unknown probe \"fence\"",
        ),
        (right_but(7, ""), 12, "no probe is declared"),
        (right_but(12, ""), 7, "nothing answers it; give probe_url"),
        (right_but(8, "input_schema = '{'"), 8, "the input schema"),
        (
            right_but(8, "input_schema = '{\"$ref\":\"http://a/b\"}'"),
            8,
            "the input schema",
        ),
        (
            right_but(8, "input_schema_file = 'gone.json'"),
            8,
            "cannot be read",
        ),
        (
            right_but(8, "input_schema_file = '/etc/hostname'"),
            8,
            "is absolute",
        ),
        (
            right_but(8, "input_schema_file = '.'"),
            8,
            "it is no regular file",
        ),
        (
            right_but(8, "input_schema = '{}'\ninput_schema_file = 'a'"),
            9,
            "both given",
        ),
        (
            right_but(8, "input_schema = '{}'\noutput_schema = 'x'"),
            9,
            "the output schema",
        ),
        (
            right_but(8, "input_schema = '{}'\nterminal = 'yes'"),
            9,
            "make it true or false",
        ),
        (
            right_but(8, "input_schema = '{}'\nresults = 'trust'"),
            9,
            "did you mean \"trusted\"?",
        ),
        (
            right_but(8, "input_schema = '{}'\nmax_concurrency = 0"),
            9,
            "max_concurrency is zero",
        ),
        (
            right_but(8, "input_schema = '{}'\nmax_concurrency = -1"),
            9,
            "make it a whole number from 0",
        ),
        (
            right_but(8, "input_schema = '{}'\nmax_concurrency = 4294967296"),
            9,
            "whole number from 0",
        ),
        (
            right_but(8, "input_schema = '{}'\nannotations = 1"),
            9,
            "make it a table",
        ),
        (
            right_but(8, "input_schema = '{}'\nannotations.readOnlyHint = true"),
            9,
            unknown,
        ),
        (
            right_but(10, "[tool.command]\nargv = ['true']\n[tool.http]"),
            12,
            "both given",
        ),
        (right_but(10, "[tool.htp]"), 10, "did you mean \"http\"?"),
        (
            right_but(11, "url = 'ftp://h/'"),
            11,
            "only http and https are spoken",
        ),
        (
            right_but(11, "url = 'http://${UNSET}/'"),
            11,
            "${UNSET} is not set",
        ),
        (right_but(11, "url = 'http://${/'"), 11, "write ${NAME}"),
        (
            right_but(12, "probe_url = 'nowhere'"),
            12,
            "it names no scheme",
        ),
        (
            right_but(12, "probe_url = 'http://a/'\nprobe_ulr = ''"),
            13,
            "did you mean \"probe_url\"?",
        ),
        (
            RIGHT[..8].join("\n"),
            1,
            "give [tool.command] or [tool.http]",
        ),
        (right_but(1, "[[tools]]"), 1, "did you mean \"tool\"?"),
        (right_but(1, "[tool]"), 1, "tool is not a list"),
        (String::new(), 1, "declares no tool"),
        (right_but(5, "timeout = "), 5, "this is not TOML"),
        (
            right_but(5, "timeout = '5s'\ntimeout = '5s'"),
            6,
            "this is not TOML: duplicate key",
        ),
    ];
    for (text, line, message) in table {
        let errors = errors_of(&text);
        assert!(
            errors
                .iter()
                .any(|(at, _, found)| *at == Some(line) && found.contains(message)),
            "{line}: {message}: {errors:?}\n{text}"
        );
    }
}

#[tokio::test]
async fn each_mistake_in_a_command_is_told_at_its_line() {
    let command = |lines: &str| {
        let head = RIGHT[..6].join("\n");
        format!("{head}\ninput_schema = '{{}}'\n[tool.command]\n{lines}")
    };
    assert!(load_text(&command("argv = ['true']")).is_ok());
    for (lines, line, message) in [
        ("", 8, "lacks \"argv\""),
        ("argv = 'true'", 9, "make it an array of strings"),
        ("argv = []", 9, "the argument vector is empty"),
        (
            "argv = [\n'true',\n1]",
            11,
            "an element of argv is a whole number",
        ),
        ("argv = [\n'true',\n'${UNSET}']", 11, "${UNSET} is not set"),
        (
            "argv = ['true']\nnothing_happened_exit = [0]",
            10,
            "exit code 0 cannot mean",
        ),
        (
            "argv = ['true']\nnothing_happened_exit = ['75']",
            10,
            "make it a whole number",
        ),
        (
            "argv = ['true']\nenv = ['A=B']",
            10,
            "is no name of an environment variable",
        ),
        (
            "argv = ['true']\nprobe_argv = ['true']",
            10,
            "no probe is declared",
        ),
        ("argv = ['true']\nshell = true", 10, "unknown key \"shell\""),
    ] {
        let errors = errors_of(&command(lines));
        let tool = Some("pay".to_owned());
        assert!(
            errors
                .iter()
                .any(|(at, of, found)| *at == Some(line) && *of == tool && found.contains(message)),
            "{line}: {message}: {errors:?}"
        );
    }
}

#[tokio::test]
async fn a_sandboxed_tool_carries_no_implementation() {
    let errors = errors_of(&right_but(6, "trust = 'sandboxed'"));
    let lines: Vec<_> = errors.iter().map(|(line, ..)| line.unwrap()).collect();
    assert_eq!(lines, [7, 10], "{errors:?}");
}

#[tokio::test]
async fn everything_wrong_is_told_at_once_in_the_order_of_the_file() {
    let text = "\
colour = 1
[[tool]]
name = 'a'
description = ''
side_effect = 'readonly'
timeout = 'soon'
trust = 'me'
refuses_late = true
input_schema = 'no'
[tool.http]
url = '${X}'
probe_url = '${Y}'

[[tool]]
name = 'a'
nmae = 'b'

[[tool]]
name = 'broken'
timeout = = 5

[[tool]]
name = 'é'
description = 'D'
side_effect = 'read_only'
timeout = '1s'
trust = 'authoritative'
input_schema = '{}'
[tool.command]
argv = []
";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tools.toml");
    fs::write(&path, text).unwrap();
    let errors = load(&path, &vars).unwrap_err();
    let found: Vec<_> = errors
        .errors()
        .iter()
        .map(|e| (e.line.unwrap(), e.tool.as_deref()))
        .collect();
    let of = |lines: &[usize], tool| lines.iter().map(|line| (*line, tool)).collect::<Vec<_>>();
    let expected = [
        of(&[1], None),
        of(&[4, 5, 6, 7, 8, 9, 11, 12, 12], Some("a")),
        of(&[14, 14, 14, 14, 14, 15, 16], Some("a")),
        of(&[20], None),
        of(&[30], Some("é")),
    ]
    .concat();
    assert_eq!(found, expected, "{errors}");

    let shown = errors.to_string();
    assert_eq!(shown.lines().count(), errors.errors().len());
    let first = format!(
        "{}:1: unknown key \"colour\" in the file; use one of tool",
        path.display()
    );
    assert_eq!(shown.lines().next(), Some(first.as_str()));
    let last = format!(
        "{}:30: tool \"é\": the argument vector is empty",
        path.display()
    );
    assert!(shown.lines().last().unwrap().starts_with(&last), "{shown}");
    let distinct: BTreeSet<_> = shown.lines().collect();
    assert_eq!(
        distinct.len(),
        errors.errors().len(),
        "nothing is told twice: {shown}"
    );
}

#[tokio::test]
async fn a_file_that_cannot_be_read_is_told_without_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tools.toml");
    let missing = load(&path, &vars).unwrap_err();
    assert_eq!(missing.errors().len(), 1);
    assert_eq!(missing.errors()[0].line, None);
    let shown = missing.to_string();
    assert!(
        shown.starts_with(&format!("{}: the file cannot be read: ", path.display())),
        "{shown}"
    );

    fs::write(&path, b"name = '\xff'").unwrap();
    let shown = load(&path, &vars).unwrap_err().to_string();
    assert!(
        shown.ends_with("the file is not UTF-8: byte 8 is the first that does not fit"),
        "{shown}"
    );
}
