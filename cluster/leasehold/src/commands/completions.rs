//! `leasehold completions`: what a shell completes after `leasehold`, as that shell's own script.

use clap::CommandFactory as _;
use clap_complete::{Shell, generate};

use crate::Cli;
use crate::failure::{Exit, Failure};
use crate::say;

/// What is typed for this program.
pub(super) const PROGRAM: &str = "leasehold";

/// Arguments of `leasehold completions`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct CompletionsArgs {
    /// The shell that is to complete
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

pub(crate) fn run(args: &CompletionsArgs) -> Result<Exit, Failure> {
    say::line(script(args.shell).trim_end())?;
    Ok(Exit::Done)
}

fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    generate(shell, &mut Cli::command(), PROGRAM, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_completes_every_command_that_is_shown() {
        let shells = [
            Shell::Bash,
            Shell::Zsh,
            Shell::Fish,
            Shell::PowerShell,
            Shell::Elvish,
        ];
        for shell in shells {
            let script = script(shell);
            for command in Cli::command().get_subcommands() {
                let name = command.get_name();
                assert!(
                    command.is_hide_set() || script.contains(name),
                    "{shell}: {name}"
                );
            }
            assert!(script.contains("resume"), "{shell}: local resume");
        }
    }
}
