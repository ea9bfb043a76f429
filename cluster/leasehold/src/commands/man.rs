//! `leasehold man`: one manual page for the program and one for each command that is shown, written from the command line's own
//! description, so that they cannot say anything else than `--help`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use clap_mangen::Man;

use super::completions::PROGRAM;
use crate::Cli;
use crate::failure::{Exit, Failure};
use crate::say;
use crate::view::shell_word;

/// What stands at the foot of each page, and above it.
const SOURCE: &str = concat!("leasehold ", env!("CARGO_PKG_VERSION"));
const MANUAL: &str = "Leasehold";

/// Arguments of `leasehold man`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ManArgs {
    /// The folder for the pages, for example /usr/local/share/man/man1; made if it is not there
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

pub(crate) fn run(args: &ManArgs) -> Result<Exit, Failure> {
    let folder = &args.folder;
    write(folder).map_err(|error| {
        Failure::usage(format!(
            "the pages cannot be written to {}: {error}; name a folder that you may write to",
            folder.display()
        ))
    })?;
    let first = folder.join(format!("{PROGRAM}.1")).display().to_string();
    say::line(&format!("read them with: man -l {}", shell_word(&first)))?;
    Ok(Exit::Done)
}

fn write(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    // `--help` says more than pages about `help` would.
    let mut program = Cli::command().disable_help_subcommand(true);
    program.build();
    pages(&program, folder)
}

fn pages(command: &clap::Command, folder: &Path) -> io::Result<()> {
    for below in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        pages(below, folder)?;
    }
    let page = Man::new(command.clone()).source(SOURCE).manual(MANUAL);
    page.generate_to(folder).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page's name of each command that is shown, with the long flags that its own page has to have.
    fn shown(command: &clap::Command, name: &str, out: &mut Vec<(String, Vec<String>)>) {
        let flags = command.get_arguments().filter(|arg| !arg.is_hide_set());
        let flags = flags.filter_map(|arg| arg.get_long()).map(str::to_owned);
        out.push((format!("{name}.1"), flags.collect()));
        for below in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            shown(below, &format!("{name}-{}", below.get_name()), out);
        }
    }

    #[test]
    fn every_command_that_is_shown_has_a_page_with_all_its_flags_and_no_other_has_one() {
        let folder = tempfile::tempdir().unwrap();
        let pages = folder.path().join("share/man1");
        write(&pages).unwrap();
        let mut wanted = Vec::new();
        shown(&Cli::command(), PROGRAM, &mut wanted);
        assert!(
            wanted
                .iter()
                .any(|(page, _)| page == "leasehold-local-up.1")
        );
        for (page, flags) in &wanted {
            let text = fs::read_to_string(pages.join(page)).unwrap_or_default();
            assert!(text.contains(".TH leasehold"), "{page}: {text}");
            assert!(text.contains(SOURCE), "{page}: {text}");
            for flag in flags {
                let printed = format!("\\-\\-{}", flag.replace('-', "\\-"));
                assert!(text.contains(&printed), "{page} lacks --{flag}: {text}");
            }
        }
        assert_eq!(fs::read_dir(&pages).unwrap().count(), wanted.len());
    }

    #[test]
    fn the_command_line_contradicts_itself_nowhere() {
        Cli::command().debug_assert();
    }
}
