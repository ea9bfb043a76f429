//! `tools.toml`: the tools of a worker, declared.
//!
//! ```toml
//! [[tool]]
//! name = "refund_order"
//! description = "Pays one order back."
//! side_effect = "remote_mutation"   # read_only | local_mutation | remote_mutation | destructive
//! timeout = "5s"                    # ms | s | m
//! trust = "authoritative"           # authoritative | sandboxed; there is no default
//! probe = "observing"               # optional: observing | fencing
//! refuses_late = true               # optional, as are results, terminal, may_abort, keep_blank,
//!                                   # max_concurrency, concurrency_key, rate_key, output_schema
//! input_schema = '''{"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]}'''
//!
//! [tool.annotations]                # optional hints
//! idempotent_hint = false
//!
//! [tool.http]                       # or [tool.command] with argv, nothing_happened_exit, env, cwd, probe_argv,
//!                                   # or elsewhere = true above: workers serve it that do not read this file
//! url = "http://${PAYMENTS}/refunds"
//! probe_url = "http://${PAYMENTS}/probe"
//! ```
//!
//! `${NAME}` in addresses, argument vectors and `cwd` is replaced by a value that the caller gives. Paths
//! (`input_schema_file`, `output_schema_file`, `cwd`) start from the folder of the file. A wrong file tells everything
//! that is wrong with it, by line.

mod faults;
mod section;
mod text;
mod tool;

use std::{collections::HashMap, fs, io::Read, path::Path};

pub use faults::{ToolsFileError, ToolsFileErrors};
use leasehold_tools::Registered;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use self::{faults::Faults, section::Section, tool::Context};
use crate::post::HttpClient;

/// The largest file that is read: some thousand tools with large schemas.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// The tools of one file, in its order; each of them passed every check that can be made before a call.
#[derive(Debug)]
pub struct ToolsFile {
    tools: Vec<Registered>,
}

impl ToolsFile {
    /// The tools, ready for [`Registry::assemble`](leasehold_tools::Registry::assemble).
    pub fn into_registered(self) -> Vec<Registered> {
        self.tools
    }
}

/// Reads a file. `vars` gives the value of a `${NAME}`, or none if it is not set.
///
/// # Errors
/// Everything that is wrong, by line. Where the file is not TOML, that is told together with what is wrong in the
/// tools that can be read all the same.
pub fn load(
    path: &Path,
    vars: &dyn Fn(&str) -> Option<String>,
) -> Result<ToolsFile, ToolsFileErrors> {
    let text = read(path).map_err(|why| ToolsFileErrors::whole(path, why))?;
    let mut faults = Faults::new(&text);
    let (document, broken) = DeTable::parse_recoverable(&text);
    let mut broken_lines = Vec::new();
    for error in &broken {
        let at = error.span().unwrap_or_default();
        let line = faults.line(at.start);
        // Further ones on a line come from the first.
        if !broken_lines.contains(&line) {
            broken_lines.push(line);
            faults.add(&at, format!("this is not TOML: {}", error.message()));
        }
    }
    let root = Section::of_table(document.get_ref(), 0..0, "the file", &["tool"], &mut faults);
    let context = Context {
        folder: path.parent().unwrap_or(Path::new("")),
        vars,
        client: &HttpClient::new(),
    };
    let values = tool_tables(&root, broken.is_empty(), &mut faults);
    let mut tools = Vec::new();
    let mut names: HashMap<&str, usize> = HashMap::new();
    let mut values = values.iter().peekable();
    while let Some(value) = values.next() {
        let first = faults.line(value.span().start);
        let end = values
            .peek()
            .map_or(usize::MAX, |next| faults.line(next.span().start));
        // What was lost there would be told as missing.
        if broken_lines.iter().any(|line| (first..end).contains(line)) {
            continue;
        }
        let name = tool::name_of(value);
        faults.tool = name.as_ref().map(|(name, _)| (*name).to_owned());
        if let Some((name, at)) = name {
            let line = faults.line(at.start);
            if let Some(earlier) = names.insert(name, line) {
                faults.add(
                    &at,
                    format!(
                        "the name is taken by the tool on line {earlier}; give each tool its own"
                    ),
                );
            }
        }
        tools.extend(tool::read(value, &context, &mut faults));
        faults.tool = None;
    }
    faults.finish(path, ToolsFile { tools })
}

fn tool_tables<'a>(
    root: &Section<'a>,
    is_toml: bool,
    faults: &mut Faults<'_>,
) -> &'a [Spanned<DeValue<'a>>] {
    match root.value("tool") {
        Some(value) => match value.get_ref().as_array() {
            Some(array) => array,
            None => {
                faults.add(
                    &value.span(),
                    "tool is not a list; head each tool with [[tool]]",
                );
                &[]
            }
        },
        None => {
            if is_toml {
                faults.add(
                    &(0..0),
                    "the file declares no tool; head each tool with [[tool]]",
                );
            }
            &[]
        }
    }
}

fn read(path: &Path) -> Result<String, String> {
    let cannot = |error: std::io::Error| format!("the file cannot be read: {error}");
    let file = fs::File::open(path).map_err(cannot)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(cannot)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!(
            "the file has more than {MAX_FILE_BYTES} bytes; split it"
        ));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("the file is not UTF-8: byte {at} is the first that does not fit")
    })
}
