//! `leasehold-check DUMP BOOKS`: checks a dump against the books (a payments database or an effect ledger) and prints the report
//! as JSON. Exit code 0: every promise held; 1: a promise is broken; 2: the input cannot be read.

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: leasehold-check DUMP BOOKS\n       leasehold-check DUMP --timeline RUN";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match run(&args) {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "leasehold-check: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &[&str]) -> anyhow::Result<ExitCode> {
    let mut out = std::io::stdout().lock();
    match args {
        [dump, "--timeline", run] => {
            for line in leasehold_checker::timeline(Path::new(dump), run)? {
                writeln!(out, "{line}")?;
            }
            Ok(ExitCode::SUCCESS)
        }
        [dump, books] => {
            let report = leasehold_checker::check(Path::new(dump), Path::new(books), &[])?;
            writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
            Ok(if report.violations.is_empty() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            })
        }
        _ => anyhow::bail!(USAGE),
    }
}
