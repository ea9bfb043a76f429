//! A policy written as rules: the first rule that matches a call decides, and a call without one is judged by its class.
//!
//! Numbers are compared by their exact decimal value, everything else by its canonical form. A condition on an argument that is missing,
//! or that is no number where a number is compared, does not hold: so a rule that allows never matches what it could not read. A string
//! of digits is no number.

use std::fmt;
use std::str::FromStr;

use leasehold_json::{AcceptedJson, Decimal, Digest, Kind};
use leasehold_tools::{SideEffect, ToolSpec};

use super::file::{self, PolicyErrors};
use super::{DefaultPolicy, Policy, unmapped};
use crate::run::PolicyRequest;
use crate::wire::Verdict;

/// Hexadecimal digits of the text's SHA-256 that stand in an identity: enough that no two versions of one policy meet by chance.
const IDENTITY_DIGITS: usize = 16;

/// A policy read from a rule file. The format, in TOML:
///
/// ```toml
/// name = "refund-desk"
/// version = "1"
///
/// [[rule]]                      # the first rule that matches a call decides
/// tool = "refund_order"         # this tool ...
/// class = "remote_mutation"     # ... of this class; one of the two may be left out
/// where = [                     # all must hold; each one has a pointer into the arguments and one test:
///   { arg = "/currency", in = ["EUR", "USD"] },   # is, in: the same JSON value
///   { arg = "/amount", at_most = "100.00" },      # over, at_most: exact decimals
///   { arg = "/note", present = true },            # present: there, or not
/// ]
/// verdict = "require_approval"  # allow, deny, require_approval, abort
/// approval_kind = "over_limit"  # require_approval: machine code of the kind
/// capability = "one refund"     # require_approval: what is granted
/// show = ["/amount"]            # require_approval: what the person is shown; left out: all arguments
/// # reason = "..."              # deny, abort: told to the agent, or written at the run's end
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct RulePolicy {
    identity: String,
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rule {
    pub(super) tool: Option<String>,
    pub(super) class: Option<SideEffect>,
    pub(super) conditions: Vec<Condition>,
    pub(super) answer: Answer,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Condition {
    /// JSON pointer into the arguments.
    pub(super) arg: String,
    pub(super) test: Test,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Test {
    /// The canonical form is one of these.
    OneOf(Vec<String>),
    /// The number is greater.
    Over(Decimal),
    /// The number is not greater.
    AtMost(Decimal),
    /// The argument is there, or is not.
    Present(bool),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answer {
    Allow,
    Deny {
        reason: String,
    },
    RequireApproval {
        kind: String,
        capability: String,
        show: Option<Vec<String>>,
    },
    Abort {
        reason: String,
    },
}

impl RulePolicy {
    /// Reads a rule file.
    ///
    /// # Errors
    /// Every fault of the text at once, each with its line. Unknown keys are faults.
    pub fn parse(text: &str) -> Result<Self, PolicyErrors> {
        let file = file::read(text)?;
        let mut digest = Digest::of(text.as_bytes()).to_string();
        digest.truncate(IDENTITY_DIGITS);
        Ok(Self {
            identity: format!("{}@{}#{digest}", file.name, file.version),
            rules: file.rules,
        })
    }

    /// How many rules it has.
    pub fn rules(&self) -> usize {
        self.rules.len()
    }
}

impl FromStr for RulePolicy {
    type Err = PolicyErrors;

    fn from_str(text: &str) -> Result<Self, PolicyErrors> {
        Self::parse(text)
    }
}

impl fmt::Display for RulePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.identity)
    }
}

impl Policy for RulePolicy {
    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn judge(&self, request: &PolicyRequest, spec: Option<&ToolSpec>) -> Result<Verdict, String> {
        // Before any rule: a rule that names a tool does not stand in for its specification.
        let Some(spec) = spec else {
            return Ok(unmapped(request));
        };
        match self.rules.iter().find(|rule| rule.matches(request, spec)) {
            Some(rule) => rule.answer.verdict(&request.arguments),
            None => DefaultPolicy.judge(request, Some(spec)),
        }
    }
}

impl Rule {
    fn matches(&self, request: &PolicyRequest, spec: &ToolSpec) -> bool {
        self.tool.as_ref().is_none_or(|tool| *tool == request.tool)
            && self.class.is_none_or(|class| class == spec.side_effect)
            && self
                .conditions
                .iter()
                .all(|condition| condition.holds(&request.arguments))
    }
}

impl Condition {
    fn holds(&self, arguments: &AcceptedJson) -> bool {
        let argument = arguments.pointer(&self.arg);
        match (&self.test, argument) {
            (Test::Present(wanted), argument) => *wanted == argument.is_some(),
            (_, None) => false,
            (Test::OneOf(values), Some(argument)) => values.contains(&argument.canonical()),
            (Test::Over(bound), Some(argument)) => {
                number(&argument).is_some_and(|value| value > *bound)
            }
            (Test::AtMost(bound), Some(argument)) => {
                number(&argument).is_some_and(|value| value <= *bound)
            }
        }
    }
}

fn number(argument: &AcceptedJson) -> Option<Decimal> {
    (argument.kind() == Kind::Number)
        .then(|| argument.as_str().parse().ok())
        .flatten()
}

impl Answer {
    fn verdict(&self, arguments: &AcceptedJson) -> Result<Verdict, String> {
        Ok(match self {
            Answer::Allow => Verdict::Allow,
            Answer::Deny { reason } => Verdict::Deny {
                reason: reason.clone(),
            },
            Answer::Abort { reason } => Verdict::Abort {
                reason: reason.clone(),
            },
            Answer::RequireApproval {
                kind,
                capability,
                show,
            } => Verdict::RequireApproval {
                approval_kind: kind.clone(),
                capability: capability.clone(),
                presentation: match show {
                    None => arguments.clone(),
                    Some(pointers) => shown(arguments, pointers)?,
                },
            },
        })
    }
}

/// An object of the arguments at the pointers, exact bytes, keyed by pointer. An argument that is not there is not shown.
fn shown(arguments: &AcceptedJson, pointers: &[String]) -> Result<AcceptedJson, String> {
    let parts: Vec<(&str, AcceptedJson)> = pointers
        .iter()
        .filter_map(|pointer| Some((pointer.as_str(), arguments.pointer(pointer)?)))
        .collect();
    AcceptedJson::object(parts.iter().map(|(pointer, part)| (*pointer, part)))
        .map_err(|refusal| format!("what the approval would show is not usable JSON: {refusal}"))
}
