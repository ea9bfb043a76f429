//! What a tool says about itself: the specification that is registered, shown to the agent and hashed into every
//! approval.
//!
//! A [`ToolSpec`] is plain data and may be wrong; [`compile_tool`](crate::compile_tool) is the one check that turns
//! it into something callable. Field order is fixed, so that its JSON is the same everywhere.

use std::{fmt, str::FromStr, sync::Arc};

use leasehold_json::{AcceptedJson, Digest, DigestBuilder};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The class of a tool: the registrar's claim about what a call changes. It decides recovery: only `read_only`
/// continues without evidence, a probe or an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "&'static str")]
pub enum SideEffect {
    /// Changes nothing that anybody could notice.
    ReadOnly,
    /// Changes something on the worker's own machine.
    LocalMutation,
    /// Changes something elsewhere.
    RemoteMutation,
    /// Destroys something, or cannot be undone.
    Destructive,
}

/// A word that names no side-effect class.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown side effect `{0}`; use read_only, local_mutation, remote_mutation or destructive")]
pub struct UnknownSideEffect(pub String);

impl SideEffect {
    /// All classes, from the harmless to the worst.
    pub const ALL: [Self; 4] = [
        Self::ReadOnly,
        Self::LocalMutation,
        Self::RemoteMutation,
        Self::Destructive,
    ];

    /// The machine code of the class.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "read_only",
            Self::LocalMutation => "local_mutation",
            Self::RemoteMutation => "remote_mutation",
            Self::Destructive => "destructive",
        }
    }

    /// Whether a further attempt is harmless whatever the earlier one did.
    pub const fn is_read_only(self) -> bool {
        matches!(self, Self::ReadOnly)
    }
}

impl FromStr for SideEffect {
    type Err = UnknownSideEffect;

    fn from_str(word: &str) -> Result<Self, UnknownSideEffect> {
        let found = Self::ALL.into_iter().find(|class| class.as_str() == word);
        found.ok_or_else(|| UnknownSideEffect(word.to_owned()))
    }
}

impl TryFrom<String> for SideEffect {
    type Error = UnknownSideEffect;

    fn try_from(word: String) -> Result<Self, UnknownSideEffect> {
        word.parse()
    }
}

impl From<SideEffect> for &'static str {
    fn from(class: SideEffect) -> Self {
        class.as_str()
    }
}

impl fmt::Display for SideEffect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whose authority a tool runs with. There is no default: the registrar says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trust {
    /// Runs with the worker's own authority.
    Authoritative,
    /// Runs where an executor points, and holds no authority.
    Sandboxed,
}

/// Whether a tool's results may serve as evidence, policy input or control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultTrust {
    /// They may.
    Trusted,
    /// They are only data for the agent, and marked as such everywhere.
    Untrusted,
}

/// What the answer `not_done` of a tool's probe is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeKind {
    /// `not_done` makes the service refuse that key's attempts so far for ever: it counts at once.
    Fencing,
    /// The probe only looks: `not_done` counts only for a tool that refuses late requests, after the deadline.
    Observing,
}

/// Hints in the words of the Model Context Protocol; stored and shown, never used to weaken the recovery class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Annotations {
    /// The tool changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_hint: Option<bool>,
    /// The tool may destroy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    /// A second call with the same arguments adds nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
    /// The tool reaches into the open world.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_world_hint: Option<bool>,
}

/// The text of a JSON schema, exactly as it was written and not yet checked. Serialised as a string.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SchemaText(Arc<str>);

impl SchemaText {
    /// The text as it was given.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T: Into<Arc<str>>> From<T> for SchemaText {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for SchemaText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Everything a tool says about itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolSpec {
    /// The name as written; checked by [`compile_tool`](crate::compile_tool).
    pub name: String,
    /// What the agent reads on every request, unchanged.
    pub description: String,
    /// The JSON schema of the arguments.
    pub input_schema: SchemaText,
    /// The JSON schema of results, where the tool promises one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<SchemaText>,
    /// The class that decides recovery.
    pub side_effect: SideEffect,
    /// How long one attempt may execute, in milliseconds; more than zero.
    pub timeout_ms: u64,
    /// Success completes the run with the tool's result.
    #[serde(default)]
    pub terminal: bool,
    /// The tool may end the whole run; it is then dispatched only while no sibling call is in flight.
    #[serde(default)]
    pub may_abort: bool,
    /// Whose authority it runs with.
    pub trust: Trust,
    /// Whether its results may be more than data.
    pub result_trust: ResultTrust,
    /// Hints, for people and models.
    #[serde(default)]
    pub annotations: Annotations,
    /// The kind of its probe, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<ProbeKind>,
    /// The service checks the deadline it was sent inside the effect's own transaction; needs a probe.
    #[serde(default)]
    pub refuses_late: bool,
    /// Optional strings that are blank, and nulls for optional properties, are passed on instead of removed.
    #[serde(default)]
    pub keep_blank: bool,
    /// Calls of all tools with this key share one bound on how many run at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency_key: Option<String>,
    /// That bound; more than zero.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrency: Option<u32>,
    /// Calls of all tools with this key share one rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_key: Option<String>,
}

impl ToolSpec {
    /// A specification with the fields that every tool has. It is authoritative and its results are untrusted,
    /// until said otherwise; everything else is absent.
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        input_schema: impl Into<SchemaText>,
        side_effect: SideEffect,
        timeout: std::time::Duration,
    ) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            input_schema: input_schema.into(),
            output_schema: None,
            side_effect,
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            terminal: false,
            may_abort: false,
            trust: Trust::Authoritative,
            result_trust: ResultTrust::Untrusted,
            annotations: Annotations::default(),
            probe: None,
            refuses_late: false,
            keep_blank: false,
            concurrency_key: None,
            max_concurrency: None,
            rate_key: None,
        }
    }

    /// The identity of the whole specification: SHA-256 of the canonical form of its JSON. Any change of any field is
    /// another hash; the schemas count as text, so a change of their whitespace is one too.
    pub fn hash(&self) -> Digest {
        match AcceptedJson::from_serialize(self) {
            Ok(json) => json.digest(),
            // Text, numbers and booleans at depth 2 always have a form; should that change, specs still differ.
            Err(_) => DigestBuilder::new("leasehold/unwritable-tool-spec/1")
                .field(format!("{self:?}"))
                .finish(),
        }
    }
}
