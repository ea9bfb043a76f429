//! What a policy is asked and by whom it is answered: the [`Policy`] trait, the default, and the rule file.
//!
//! A policy sees the request, the tool's specification and the run's history, and changes nothing. Its identity is recorded with every
//! verdict, so that a later reader can ask the same policy again. A call of a tool that nobody has specified is denied whatever else is
//! said; a policy that cannot answer is an error, never a permission.

mod file;
mod rules;

use leasehold_tools::{SideEffect, ToolSpec};

pub use file::{MAX_POLICY_BYTES, PolicyError, PolicyErrors};
pub use rules::RulePolicy;

use crate::run::PolicyRequest;
use crate::wire::Verdict;

/// Says of each call whether it may be made.
pub trait Policy: Send + Sync {
    /// Which policy, in which version. Two policies that can answer differently have different identities.
    fn identity(&self) -> String;

    /// Judges one call. `spec` is the tool's specification as registered now; absent if there is none.
    ///
    /// # Errors
    /// The policy cannot answer; the run ends as failed with the reason `internal_error` and these words.
    fn judge(&self, request: &PolicyRequest, spec: Option<&ToolSpec>) -> Result<Verdict, String>;
}

/// Judges by class alone: read_only and local_mutation go ahead, remote_mutation asks a person, destructive is denied (S30).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DefaultPolicy;

impl Policy for DefaultPolicy {
    fn identity(&self) -> String {
        "default@1".to_owned()
    }

    fn judge(&self, request: &PolicyRequest, spec: Option<&ToolSpec>) -> Result<Verdict, String> {
        let Some(spec) = spec else {
            return Ok(unmapped(request));
        };
        Ok(match spec.side_effect {
            SideEffect::ReadOnly | SideEffect::LocalMutation => Verdict::Allow,
            SideEffect::RemoteMutation => Verdict::RequireApproval {
                approval_kind: SideEffect::RemoteMutation.as_str().to_owned(),
                capability: format!("call {} once", request.tool),
                presentation: request.arguments.clone(),
            },
            SideEffect::Destructive => Verdict::Deny {
                reason: "a destructive tool is denied unless a policy rule permits it".to_owned(),
            },
        })
    }
}

/// The answer of every policy here to a call of a tool without specification.
fn unmapped(request: &PolicyRequest) -> Verdict {
    Verdict::Deny {
        reason: format!(
            "unmapped tool: no specification of {:?} is registered",
            request.tool
        ),
    }
}

#[cfg(test)]
mod tests;
