//! The tools of the workload: one for each way in which a call's fate can be found out. All of them are one ledger, reached over HTTP.
//!
//! | tool | class | probe | asks a person | an unknown attempt ends |
//! |---|---|---|---|---|
//! | `look` | `read_only` | | never | with another attempt |
//! | `note` | `local_mutation` | observing, refuses late requests | never | with the probe's word |
//! | `send` | `remote_mutation` | none | never | with an operator |
//! | `pay` | `remote_mutation` | fencing | where its arguments say so | with the probe's word |
//! | `drop` | `destructive` | fencing | always | with the probe's word |

use std::time::Duration;

/// The tools file and the policy that belong to the table.
pub(crate) const TOOLS_FILE: &str = include_str!("files/tools.toml");
pub(crate) const POLICY_FILE: &str = include_str!("files/policy.toml");

/// How long a call may take: the timeout of every tool in the file.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(1500);

/// What a tool's probe promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Probe {
    /// There is none.
    None,
    /// It says what it sees; the tool refuses requests that come after their deadline.
    Observing,
    /// Once it has said no, the attempts up to that one are refused for ever.
    Fencing,
}

/// One tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tool {
    pub(crate) name: &'static str,
    /// Its side-effect class, as the tools file says.
    pub(crate) class: &'static str,
    pub(crate) probe: Probe,
}

impl Tool {
    pub(crate) const fn has_effects(self) -> bool {
        !matches!(self.class.as_bytes(), b"read_only")
    }

    pub(crate) fn named(name: &str) -> Option<Tool> {
        ALL.into_iter().find(|tool| tool.name == name)
    }
}

/// All of them.
pub(crate) const ALL: [Tool; 5] = [
    Tool {
        name: "look",
        class: "read_only",
        probe: Probe::None,
    },
    Tool {
        name: "note",
        class: "local_mutation",
        probe: Probe::Observing,
    },
    Tool {
        name: "send",
        class: "remote_mutation",
        probe: Probe::None,
    },
    Tool {
        name: "pay",
        class: "remote_mutation",
        probe: Probe::Fencing,
    },
    Tool {
        name: "drop",
        class: "destructive",
        probe: Probe::Fencing,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tools_file_says_what_the_table_says() {
        let file: toml::Table = TOOLS_FILE.parse().unwrap();
        let tools = file["tool"].as_array().unwrap();
        assert_eq!(tools.len(), ALL.len());
        for (tool, written) in ALL.iter().zip(tools) {
            assert_eq!(written["name"].as_str(), Some(tool.name));
            assert_eq!(written["side_effect"].as_str(), Some(tool.class));
            assert_eq!(written["timeout"].as_str(), Some("1500ms"));
            let probe = match written.get("probe").and_then(toml::Value::as_str) {
                None => Probe::None,
                Some("observing") => Probe::Observing,
                Some(_) => Probe::Fencing,
            };
            assert_eq!(probe, tool.probe, "{}", tool.name);
            let late = written.get("refuses_late").and_then(toml::Value::as_bool);
            assert_eq!(late == Some(true), tool.probe == Probe::Observing);
        }
    }
}
