//! An effect ledger as books: one JSON object a line, in the order in which things happened to its writer.
//!
//! | `kind` | further fields | |
//! |---|---|---|
//! | `opened` | `tools`: name to class | once for each life of the writer; every class but `read_only` has effects |
//! | `request` | `n`, `tool`, `key`, `run`, `step`, `attempt`, `args_sha256` | a request was received; `n` counts them |
//! | `effect` | `request` | that request was applied |
//!
//! Other kinds and fields are the writer's own. A last line without an end is a write that a kill cut off: it was never acknowledged, and
//! counts for nothing. So does a cut line in the middle, which the writer's next life has left behind.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use serde_json::Value;

use crate::books::{Books, Request, Row};
use crate::dump::{json, number, text};

/// The class of tools that have no effects.
const READ_ONLY: &str = "read_only";

pub(crate) fn read(path: &Path) -> anyhow::Result<Books> {
    of_text(&String::from_utf8_lossy(&std::fs::read(path)?))
}

fn of_text(lines: &str) -> anyhow::Result<Books> {
    let mut tools = BTreeSet::new();
    let mut requests: BTreeMap<i64, (String, Request)> = BTreeMap::new();
    let mut rows = Vec::new();
    for (index, line) in lines.lines().enumerate() {
        let value = json(line.as_bytes());
        match text(&value, "kind") {
            "opened" => {
                let named = value.get("tools").and_then(Value::as_object);
                let effects = named
                    .into_iter()
                    .flatten()
                    .filter(|(_, class)| *class != READ_ONLY);
                tools.extend(effects.map(|(tool, _)| tool.clone()));
            }
            "request" => {
                let id = id(&value, "n");
                let request = Request {
                    id,
                    key: text(&value, "key").to_owned(),
                    run: text(&value, "run").to_owned(),
                    step: text(&value, "step").to_owned(),
                    attempt: number(&value, "attempt"),
                    args_sha256: text(&value, "args_sha256").to_owned(),
                };
                let entry = (text(&value, "tool").to_owned(), request);
                if requests.insert(id, entry).is_some() {
                    bail!("line {}: a second request {id}", index + 1);
                }
            }
            "effect" => {
                let applied = id(&value, "request");
                let (tool, request) = requests.get(&applied).with_context(|| {
                    format!(
                        "line {}: an effect of request {applied}, which is not there",
                        index + 1
                    )
                })?;
                rows.push(Row {
                    tool: tool.clone(),
                    key: request.key.clone(),
                    order: request.key.clone(),
                    run: request.run.clone(),
                    step: request.step.clone(),
                    attempt: request.attempt,
                    applied,
                });
            }
            _ => {}
        }
    }
    if tools.is_empty() {
        bail!("it names no tool with effects, so nothing could be counted");
    }
    Ok(Books {
        requests: requests.into_values().map(|(_, request)| request).collect(),
        rows,
        tools: Arc::new(tools),
        counted: None,
    })
}

/// Requests count from 1; what is no number belongs to none.
fn id(value: &Value, name: &str) -> i64 {
    value.get(name).and_then(Value::as_i64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEDGER: &str = concat!(
        r#"{"kind":"opened","tools":{"read":"read_only","pay":"remote_mutation"}}"#,
        "\n",
        r#"{"kind":"request","n":1,"tool":"pay","key":"k","run":"r","step":"1-0","attempt":2,"args_sha256":"a","mode":"ok"}"#,
        "\n",
        r#"{"kind":"effect","request":1}"#,
        "\n",
        r#"{"kind":"req"#,
    );

    #[test]
    fn a_ledger_is_read_as_books_and_what_a_kill_cut_off_counts_for_nothing() {
        let books = of_text(LEDGER).unwrap();
        assert_eq!(books.tools.iter().collect::<Vec<_>>(), ["pay"]);
        assert_eq!((books.requests.len(), books.rows.len()), (1, 1));
        assert_eq!(
            (books.rows[0].key.as_str(), books.rows[0].attempt),
            ("k", 2)
        );
        assert!(books.counts("pay"));
    }

    #[test]
    fn an_effect_of_no_request_and_a_ledger_without_tools_are_refused() {
        let stray = LEDGER.replace(r#""request":1"#, r#""request":7"#);
        assert!(of_text(&stray).is_err());
        assert!(of_text("").is_err());
    }
}
