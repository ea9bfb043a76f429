use std::time::Duration;

use leasehold_json::AcceptedJson;
use leasehold_tools::{SideEffect, ToolSpec};

use super::{DefaultPolicy, Policy, RulePolicy};
use crate::ids::RunId;
use crate::run::PolicyRequest;
use crate::wire::{Limits, Verdict};

const DESK: &str = include_str!("../../../../examples/refund-desk/policy.toml");

fn json(text: &str) -> AcceptedJson {
    AcceptedJson::check_str(text).unwrap()
}

fn request(tool: &str, arguments: &str) -> PolicyRequest {
    PolicyRequest {
        run: RunId::new("r").unwrap(),
        step: "1-0".parse().unwrap(),
        attempt: 1,
        tool: tool.into(),
        arguments: json(arguments),
        goal: "g".into(),
        turns: Vec::new(),
        approvals: Vec::new(),
        limits: Limits::default(),
    }
}

fn spec(name: &str, class: SideEffect) -> ToolSpec {
    ToolSpec::new(
        name,
        "A tool.",
        r#"{"type":"object"}"#,
        class,
        Duration::from_secs(1),
    )
}

fn judge(policy: &dyn Policy, tool: &str, class: SideEffect, arguments: &str) -> Verdict {
    policy
        .judge(&request(tool, arguments), Some(&spec(tool, class)))
        .unwrap()
}

/// A policy with one rule for the tool `t` that allows under these conditions; without a match, `destructive` is denied.
fn allows(conditions: &str, arguments: &str) -> bool {
    let text = format!(
        "name = \"p\"\nversion = \"1\"\n[[rule]]\ntool = \"t\"\nwhere = [ {conditions} ]\nverdict = \"allow\"\n"
    );
    let policy = RulePolicy::parse(&text).unwrap();
    match judge(&policy, "t", SideEffect::Destructive, arguments) {
        Verdict::Allow => true,
        Verdict::Deny { .. } => false,
        other => panic!("{other:?}"),
    }
}

fn faults(text: &str) -> Vec<(usize, String)> {
    let errors = RulePolicy::parse(text).expect_err("it parsed");
    errors
        .as_slice()
        .iter()
        .map(|error| (error.line, error.message.clone()))
        .collect()
}

#[test]
fn s30_the_default_judges_by_class() {
    let by = |class| judge(&DefaultPolicy, "t", class, r#"{"a":1.0}"#);
    assert_eq!(by(SideEffect::ReadOnly), Verdict::Allow);
    assert_eq!(by(SideEffect::LocalMutation), Verdict::Allow);
    let Verdict::RequireApproval { presentation, .. } = by(SideEffect::RemoteMutation) else {
        panic!("no approval asked")
    };
    assert_eq!(
        presentation.as_str(),
        r#"{"a":1.0}"#,
        "the person sees the exact arguments"
    );
    assert!(matches!(by(SideEffect::Destructive), Verdict::Deny { .. }));
}

#[test]
fn s30_a_tool_without_specification_is_denied_whatever_a_rule_says() {
    let open = RulePolicy::parse(
        "name = \"p\"\nversion = \"1\"\n[[rule]]\ntool = \"t\"\nverdict = \"allow\"\n",
    )
    .unwrap();
    for policy in [&DefaultPolicy as &dyn Policy, &open] {
        let verdict = policy.judge(&request("t", "{}"), None).unwrap();
        assert!(
            matches!(&verdict, Verdict::Deny { reason } if reason.contains("unmapped tool")),
            "{verdict:?}"
        );
    }
}

#[test]
fn s30_the_first_rule_that_matches_decides_and_without_one_the_class_does() {
    let policy = RulePolicy::parse(
        r#"
name = "p"
version = "1"
[[rule]]
tool = "wipe"
class = "destructive"
where = [ { arg = "/path", is = "/tmp" } ]
verdict = "allow"
[[rule]]
class = "destructive"
verdict = "abort"
reason = "not here"
[[rule]]
tool = "wipe"
verdict = "deny"
"#,
    )
    .unwrap();
    assert_eq!(
        judge(
            &policy,
            "wipe",
            SideEffect::Destructive,
            r#"{"path":"/tmp"}"#
        ),
        Verdict::Allow
    );
    assert_eq!(
        judge(&policy, "wipe", SideEffect::Destructive, r#"{"path":"/"}"#),
        Verdict::Abort {
            reason: "not here".into()
        }
    );
    assert_eq!(
        judge(&policy, "other", SideEffect::Destructive, "{}"),
        Verdict::Abort {
            reason: "not here".into()
        }
    );
    let denied = judge(&policy, "wipe", SideEffect::ReadOnly, r#"{"path":"/tmp"}"#);
    assert_eq!(
        denied,
        Verdict::Deny {
            reason: "denied by rule 3 of the policy".into()
        }
    );
    assert_eq!(
        judge(&policy, "look", SideEffect::ReadOnly, "{}"),
        Verdict::Allow
    );
}

#[test]
fn s31_the_refund_desks_policy_asks_above_the_limit_of_each_currency() {
    let policy = RulePolicy::parse(DESK).unwrap();
    let refund = |arguments: &str| {
        judge(
            &policy,
            "refund_order",
            SideEffect::RemoteMutation,
            arguments,
        )
    };
    for small in [
        r#"{"order_id":1,"currency":"EUR","amount":100.00}"#,
        r#"{"order_id":1,"currency":"USD","amount":100}"#,
        r#"{"order_id":1,"currency":"JPY","amount":15000}"#,
        r#"{"order_id":1,"currency":"KWD","amount":30}"#,
    ] {
        assert_eq!(refund(small), Verdict::Allow, "{small}");
    }
    for large in [
        r#"{"order_id":9007199254740993,"currency":"EUR","amount":100.0000000000000000001}"#,
        r#"{"order_id":9007199254740993,"currency":"EUR","amount":"100.00"}"#,
        r#"{"order_id":9007199254740993,"currency":"KWD","amount":30.001}"#,
        r#"{"order_id":9007199254740993,"currency":"GBP","amount":1}"#,
        r#"{"order_id":9007199254740993,"amount":1}"#,
    ] {
        let Verdict::RequireApproval {
            approval_kind,
            capability,
            presentation,
        } = refund(large)
        else {
            panic!("{large}")
        };
        assert_eq!(
            (approval_kind.as_str(), capability.as_str()),
            ("refund_over_limit", "refund one order")
        );
        assert_eq!(
            presentation.member("/order_id").unwrap().as_str(),
            "9007199254740993"
        );
        let amount = json(large).member("amount").unwrap();
        assert_eq!(
            presentation.member("/amount").unwrap().as_str(),
            amount.as_str(),
            "exact bytes"
        );
    }
    // An argument that is not there is not shown.
    let Verdict::RequireApproval { presentation, .. } = refund(r#"{"order_id":7,"amount":1.50}"#)
    else {
        panic!()
    };
    assert_eq!(presentation.as_str(), r#"{"/order_id":7,"/amount":1.50}"#);
}

#[test]
fn s31_numbers_are_compared_exactly() {
    let cases = [
        (r#"{ arg = "/n", is = 100 }"#, r#"{"n":100.00}"#, true),
        (r#"{ arg = "/n", is = 1e2 }"#, r#"{"n":100}"#, true),
        (r#"{ arg = "/n", is = +1_00 }"#, r#"{"n":100}"#, true),
        (
            r#"{ arg = "/n", is = 9007199254740992 }"#,
            r#"{"n":9007199254740993}"#,
            false,
        ),
        (
            r#"{ arg = "/n", is = 9007199254740993.0 }"#,
            r#"{"n":9007199254740993}"#,
            true,
        ),
        (
            r#"{ arg = "/n", over = "9007199254740992" }"#,
            r#"{"n":9007199254740993}"#,
            true,
        ),
        (
            r#"{ arg = "/n", at_most = "9007199254740992" }"#,
            r#"{"n":9007199254740993}"#,
            false,
        ),
        (
            r#"{ arg = "/n", at_most = 0.1234567890123456789 }"#,
            r#"{"n":0.12345678901234567891}"#,
            false,
        ),
        (
            r#"{ arg = "/n", at_most = "100.00" }"#,
            r#"{"n":100}"#,
            true,
        ),
        (r#"{ arg = "/n", over = "100.00" }"#, r#"{"n":1e2}"#, false),
        (r#"{ arg = "/n", over = "-0" }"#, r#"{"n":-1e-400}"#, false),
    ];
    for (condition, arguments, holds) in cases {
        assert_eq!(
            allows(condition, arguments),
            holds,
            "{condition} on {arguments}"
        );
    }
}

#[test]
fn s31_a_condition_on_what_is_missing_or_no_number_does_not_hold() {
    for condition in [
        r#"{ arg = "/n", over = "0" }"#,
        r#"{ arg = "/n", at_most = "100" }"#,
    ] {
        for arguments in [
            "{}",
            r#"{"n":"50"}"#,
            r#"{"n":null}"#,
            r#"{"n":[50]}"#,
            r#"{"n":true}"#,
            "[]",
            "null",
        ] {
            assert!(!allows(condition, arguments), "{condition} on {arguments}");
        }
        assert!(allows(condition, r#"{"n":50}"#));
    }
    assert!(!allows(r#"{ arg = "/n", is = 50 }"#, "{}"));
    assert!(!allows(r#"{ arg = "/n", is = 50 }"#, r#"{"n":"50"}"#));
    assert!(
        allows(r#"{ arg = "/n", present = true }"#, r#"{"n":null}"#),
        "null is there"
    );
    assert!(!allows(r#"{ arg = "/n", present = true }"#, "{}"));
    assert!(allows(r#"{ arg = "/n", present = false }"#, "{}"));
    assert!(!allows(r#"{ arg = "/n", present = false }"#, r#"{"n":0}"#));
}

#[test]
fn s31_values_are_compared_by_their_canonical_form_and_all_conditions_must_hold() {
    assert!(allows(
        r#"{ arg = "/o", is = { b = [1, "é"], a = true } }"#,
        r#"{"o":{ "a":true, "b":[1.0,"\u00e9"] }}"#
    ));
    assert!(!allows(
        r#"{ arg = "/o", is = { b = 1 } }"#,
        r#"{"o":{"b":1,"c":2}}"#
    ));
    assert!(allows(
        r#"{ arg = "/a~1b/1", in = ["x", 2] }"#,
        r#"{"a/b":[0,2.0]}"#
    ));
    let both = r#"{ arg = "/a", is = 1 }, { arg = "/b", is = 2 }"#;
    assert!(allows(both, r#"{"a":1,"b":2}"#));
    assert!(!allows(both, r#"{"a":1,"b":3}"#));
    assert!(!allows(both, r#"{"a":0,"b":2}"#));
}

#[test]
fn s31_the_identity_names_the_text_and_changes_with_every_byte_of_it() {
    let one = RulePolicy::parse("name = \"p\"\nversion = \"2\"\n").unwrap();
    let two = RulePolicy::parse("name = \"p\"\nversion = \"2\"\n\n").unwrap();
    let digest = leasehold_json::Digest::of(b"name = \"p\"\nversion = \"2\"\n").to_string();
    assert_eq!(one.identity(), format!("p@2#{}", &digest[..16]));
    assert_ne!(one.identity(), two.identity());
    assert_eq!(DefaultPolicy.identity(), "default@1");
}

#[test]
fn s31_every_fault_of_a_file_comes_at_once_with_its_line() {
    let found = faults(
        r#"nmae = "p"
version = ""
[[rule]]
verdict = "maybe"
[[rule]]
tool = "t"
class = "harmless"
where = [
  { arg = "amount", at_most = "1" },
  { arg = "/a", over = "ten" },
  { arg = "/a", is = 1, in = [2] },
  { arg = "/a" },
  { arg = "/a", in = [] },
  { arg = "/a", is = 1979-05-27 },
  { arg = "/a", is = inf },
  { arg = "/a", present = "yes" },
  { arg = "/a", under = 3 },
  { is = 3 },
]
verdict = "allow"
reason = "because"
[[rule]]
tool = "t"
verdict = "require_approval"
show = ["/a", "/a", ""]
[[rule]]
tool = 7
"#,
    );
    let expected = [
        (1, "no key `nmae`"),
        (1, "has no `name`"),
        (2, "`version` is blank"),
        (3, "neither `tool` nor `class`"),
        (4, "not \"maybe\""),
        (7, "unknown side effect `harmless`"),
        (9, "no JSON pointer"),
        (10, "`over`: \"ten\" is not a json number"),
        (11, "one test"),
        (12, "no test"),
        (13, "lists nothing"),
        (14, "no dates"),
        (15, "unexpected"),
        (16, "true or false"),
        (17, "no key `under`"),
        (17, "no test"),
        (18, "has no `arg`"),
        (21, "means nothing with the verdict allow"),
        (22, "has no `approval_kind`"),
        (22, "has no `capability`"),
        (25, "shown twice"),
        (25, "is all arguments"),
        (26, "has no `verdict`"),
        (27, "`tool` must be a text"),
    ];
    for (line, part) in expected {
        assert!(
            found
                .iter()
                .any(|(at, message)| *at == line && message.contains(part)),
            "line {line}: {part}\n{found:#?}"
        );
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    assert!(found.is_sorted_by_key(|(line, _)| *line));
}

#[test]
fn s31_a_file_that_is_no_toml_shows_its_other_faults_too_and_complains_of_no_absence() {
    let found =
        faults("name = \"p\"\nversion =\n[[rule]]\ntool = \"t\"\nverdict = \"maybe\"\nname = x\n");
    assert!(
        found
            .iter()
            .any(|(line, message)| *line == 2 && message.contains("not TOML")),
        "{found:#?}"
    );
    assert!(
        found
            .iter()
            .any(|(line, message)| *line == 5 && message.contains("maybe")),
        "{found:#?}"
    );
    assert!(
        found
            .iter()
            .all(|(_, message)| !message.contains("has no `")),
        "{found:#?}"
    );
    let twice = faults("name = \"p\"\nname = \"q\"\nversion = \"1\"\n");
    assert!(twice.iter().any(|(line, _)| *line == 2), "{twice:#?}");
}

#[test]
fn s31_a_huge_or_deep_file_is_refused() {
    assert!(
        faults(&" ".repeat(super::MAX_POLICY_BYTES + 1))[0]
            .1
            .contains("at most")
    );
    let deep = format!(
        "name = \"p\"\nversion = \"1\"\n[[rule]]\ntool = \"t\"\nverdict = \"allow\"\nwhere = [{{ arg = \"\", is = {}1{} }}]\n",
        "[".repeat(9_000),
        "]".repeat(9_000)
    );
    assert!(!faults(&deep).is_empty());
    let dotted = format!(
        "name = \"p\"\nversion = \"1\"\n[[rule]]\ntool = \"t\"\nverdict = \"allow\"\nwhere = [{{ arg = \"\", is = {{ {}a = 1 }} }}]\n",
        "a.".repeat(9_000)
    );
    assert!(!faults(&dotted).is_empty());
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Either the exact order of the decimals decides, or nothing does: no bound is ever crossed by rounding.
        #[test]
        fn s31_over_and_at_most_split_the_numbers(value in "-?(0|[1-9][0-9]{0,24})(\\.[0-9]{1,24})?", bound in "-?(0|[1-9][0-9]{0,24})(\\.[0-9]{1,24})?") {
            let arguments = format!("{{\"n\":{value}}}");
            let over = allows(&format!("{{ arg = \"/n\", over = \"{bound}\" }}"), &arguments);
            let at_most = allows(&format!("{{ arg = \"/n\", at_most = \"{bound}\" }}"), &arguments);
            prop_assert_ne!(over, at_most);
        }

        /// Whatever the text, there is an answer: a policy or faults with lines that the text has.
        #[test]
        fn s31_any_text_is_read_or_refused(text in "(name|version|rule|tool|where|arg|is|[\\[\\]{}=,.\"\\n #a1é-]){0,60}") {
            if let Err(errors) = RulePolicy::parse(&text) {
                prop_assert!(!errors.as_slice().is_empty());
                let lines = text.split('\n').count();
                prop_assert!(errors.as_slice().iter().all(|error| error.line >= 1 && error.line <= lines));
            }
        }
    }
}
