//! `leasehold accounts`: the NATS accounts of a cluster, from a file that says who there is.
//!
//! The same file gives the same text, so both can be kept together and compared. It needs no cluster and changes none.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use leasehold_nats::{AccountPlan, DomainPlan};
use leasehold_protocol::{ClientId, OperatorId, WorkerId};
use serde::Deserialize;

use crate::dev;
use crate::failure::{Exit, Failure};
use crate::say;
use crate::variables::Variable;

/// Arguments of `leasehold accounts`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct AccountsArgs {
    /// Clients, operators, and the domains of tools with their workers, as a TOML file (see cluster/nats/accounts.toml)
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Write the names of the variables that the servers need instead, one a line: each holds a password
    #[arg(long)]
    variables: bool,
    /// A value for ${NAME} in the domains' tools files; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<Variable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    clients: BTreeSet<ClientId>,
    #[serde(default)]
    operators: BTreeSet<OperatorId>,
    domains: BTreeMap<String, Domain>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Domain {
    /// The tools file of its workers, from which their pools follow.
    tools: Option<PathBuf>,
    /// Or their pools.
    pools: Option<BTreeSet<BTreeSet<String>>>,
    workers: BTreeSet<WorkerId>,
}

pub(crate) fn run(args: &AccountsArgs) -> Result<Exit, Failure> {
    let plan = plan(&args.file, &args.set)?;
    let refused =
        |why: leasehold_nats::PlanError| Failure::usage(format!("{}: {why}", args.file.display()));
    let text = if args.variables {
        plan.variables().map_err(refused)?.join("\n")
    } else {
        plan.config().map_err(refused)?
    };
    say::line(text.trim_end())?;
    Ok(Exit::Done)
}

fn plan(path: &Path, set: &[Variable]) -> Result<AccountPlan, Failure> {
    let refused = |why: String| Failure::usage(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(path)
        .map_err(|error| refused(format!("the file cannot be read: {error}")))?;
    let file: File = toml::from_str(&text).map_err(|error| refused(error.to_string()))?;
    let mut plan = AccountPlan {
        clients: file.clients,
        operators: file.operators,
        domains: BTreeMap::new(),
    };
    for (name, domain) in file.domains {
        let pools = match (domain.tools, domain.pools) {
            (None, Some(pools)) => pools,
            (Some(tools), None) => {
                // As everywhere: beside the file that names it.
                let tools = path.parent().unwrap_or(Path::new("")).join(tools);
                let pools = leasehold_actors::pools(&dev::registry(&tools, set)?);
                pools.into_iter().map(BTreeSet::from_iter).collect()
            }
            _ => {
                return Err(refused(format!(
                    "domain {name} says either `tools`, a tools file, or `pools`, the names of the tools that are pulled together"
                )));
            }
        };
        let workers = domain.workers;
        plan.domains.insert(name, DomainPlan { pools, workers });
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The folder of the shipped configurations.
    const SHIPPED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../nats");

    #[test]
    fn the_shipped_accounts_are_what_the_shipped_plan_makes() {
        let plan = plan(&Path::new(SHIPPED).join("accounts.toml"), &[]).unwrap();
        let shipped = std::fs::read_to_string(Path::new(SHIPPED).join("accounts.conf")).unwrap();
        assert_eq!(plan.config().unwrap(), shipped);
    }

    #[test]
    fn the_pools_of_a_tools_file_are_those_that_its_worker_pulls() {
        let folder = tempfile::tempdir().unwrap();
        let tool = |name: &str, more: &str| {
            let schema = r#"input_schema = '{"type": "object"}'"#;
            format!(
                "[[tool]]\nname = \"{name}\"\ndescription = \"x\"\nside_effect = \"local_mutation\"\ntimeout = \"9s\"\ntrust = \"authoritative\"\n{schema}\n{more}\n[tool.command]\nargv = [\"true\"]\n"
            )
        };
        let tools = [
            tool("a", ""),
            tool("b", "max_concurrency = 1"),
            tool("c", ""),
        ]
        .concat();
        std::fs::write(folder.path().join("t.toml"), tools).unwrap();
        let file = folder.path().join("accounts.toml");
        std::fs::write(
            &file,
            "[domains.d]\ntools = \"t.toml\"\nworkers = [\"w\"]\n",
        )
        .unwrap();
        let plan = plan(&file, &[]).unwrap_or_else(|error| panic!("{error}"));
        let pool = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let pools: BTreeSet<BTreeSet<String>> = [pool(&["a", "c"]), pool(&["b"])].into();
        assert_eq!(plan.domains["d"].pools, pools);
    }

    #[test]
    fn a_domain_says_its_tools_in_one_way_and_nothing_that_is_not_known() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("accounts.toml");
        for text in [
            "[domains.d]\nworkers = [\"w\"]\n",
            "[domains.d]\ntools = \"t\"\npools = [[\"a\"]]\nworkers = [\"w\"]\n",
            "[domains.d]\npools = [[\"a\"]]\nworkers = [\"w\"]\nmore = 1\n",
        ] {
            std::fs::write(&file, text).unwrap();
            assert!(plan(&file, &[]).is_err(), "{text}");
        }
    }
}
