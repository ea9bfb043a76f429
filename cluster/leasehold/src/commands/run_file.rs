//! A run file: what `leasehold run` submits, as JSON or TOML. Everything wrong with it is said with its place.
//!
//! | field | | |
//! |---|---|---|
//! | `run` | text, optional | the run's name; the same name and content again is the same run. Minted if absent |
//! | `agent` | text, optional | who decides; `script` if absent |
//! | `goal` | text | what for |
//! | `input` | any value, optional | what the agent starts from; its bytes go to the agent as they stand here |
//! | `tools` | array of text, optional | exactly the tools it may use |
//! | `limits` | table, optional | see `limits` in docs/protocol.md |
//! | `client` | text, optional | who asks; `cli` if absent |

use std::fmt;

use leasehold_agents::SCRIPT;
use leasehold_json::{AcceptedJson, MAX_DEPTH};
use leasehold_protocol::{ClientId, Limits, RunId, Submission, WIRE_VERSION};
use serde::Deserialize;
use serde_json::value::RawValue;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The client that a run file without one names.
const CLIENT: &str = "cli";

/// How the file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Toml,
}

/// A run file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) struct RunFileError {
    /// The line, from 1, where one can be named.
    pub(crate) line: Option<usize>,
    pub(crate) message: String,
}

impl fmt::Display for RunFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "line {line}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl RunFileError {
    fn at(bytes: &[u8], offset: usize, message: impl Into<String>) -> Self {
        let before = bytes.iter().take(offset);
        Self {
            line: Some(1 + before.filter(|byte| **byte == b'\n').count()),
            message: message.into(),
        }
    }

    fn whole(message: impl Into<String>) -> Self {
        Self {
            line: None,
            message: message.into(),
        }
    }
}

const FIELDS: [&str; 7] = ["run", "agent", "goal", "input", "tools", "limits", "client"];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    run: Option<RunId>,
    agent: Option<String>,
    goal: String,
    input: Option<Box<RawValue>>,
    #[serde(default)]
    tools: Vec<String>,
    #[serde(default)]
    limits: Limits,
    client: Option<ClientId>,
}

/// Reads a run file. `mint` gives the name of a run that has none.
pub(crate) fn read(
    bytes: &[u8],
    format: Format,
    mint: impl FnOnce() -> String,
) -> Result<Submission, RunFileError> {
    let json = match format {
        Format::Json => AcceptedJson::check(bytes)
            .map_err(|error| RunFileError::at(bytes, error.offset, error.to_string()))?,
        Format::Toml => from_toml(bytes)?,
    };
    let file: File = json.parse().map_err(|error| {
        let message = error.to_string();
        // The reader counts lines in the JSON; that of a TOML file was made here.
        let place = format!(" at line {} column {}", error.line(), error.column());
        match format {
            Format::Json => RunFileError {
                line: Some(line_of_value(bytes, error.line())),
                message: message.replace(&place, &format!(" (column {})", error.column())),
            },
            Format::Toml => RunFileError::whole(message.replace(&place, "")),
        }
    })?;
    let input = file.input.map(|raw| AcceptedJson::from_raw(&raw));
    if file.goal.trim().is_empty() {
        return Err(RunFileError::whole(
            "goal: it is blank; say what the run is for",
        ));
    }
    let id = |error: leasehold_protocol::IdError| RunFileError::whole(error.to_string());
    Ok(Submission {
        v: WIRE_VERSION,
        run: match file.run {
            Some(run) => run,
            None => RunId::new(mint()).map_err(id)?,
        },
        client: match file.client {
            Some(client) => client,
            None => ClientId::new(CLIENT).map_err(id)?,
        },
        agent: file.agent.unwrap_or_else(|| SCRIPT.to_owned()),
        goal: file.goal,
        input: input
            .transpose()
            .map_err(|error| RunFileError::whole(format!("input: {error}")))?,
        tools: file.tools,
        limits: file.limits,
    })
}

/// The reader was given the value without the white space around it.
fn line_of_value(bytes: &[u8], line: usize) -> usize {
    let blank = bytes.iter().take_while(|byte| byte.is_ascii_whitespace());
    line + blank.filter(|byte| **byte == b'\n').count()
}

fn from_toml(bytes: &[u8]) -> Result<AcceptedJson, RunFileError> {
    let text = std::str::from_utf8(bytes)
        .map_err(|error| RunFileError::at(bytes, error.valid_up_to(), "this is not UTF-8"))?;
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().unwrap_or_default().start;
        RunFileError::at(bytes, at, format!("this is not TOML: {}", error.message()))
    })?;
    for key in table.get_ref().keys() {
        let name = key.get_ref().as_ref();
        if !FIELDS.contains(&name) {
            let message = format!("unknown field {name:?}; known: {}", FIELDS.join(", "));
            return Err(RunFileError::at(bytes, key.span().start, message));
        }
    }
    let mut json = String::new();
    object(bytes, table.get_ref(), 1, &mut json)?;
    AcceptedJson::check_str(&json).map_err(|error| RunFileError::whole(error.to_string()))
}

fn object(
    bytes: &[u8],
    table: &DeTable<'_>,
    depth: usize,
    out: &mut String,
) -> Result<(), RunFileError> {
    out.push('{');
    for (place, (key, value)) in table.iter().enumerate() {
        if place > 0 {
            out.push(',');
        }
        string(key.get_ref(), out);
        out.push(':');
        append(bytes, value, depth, out)?;
    }
    out.push('}');
    Ok(())
}

/// The value as JSON. Numbers keep the digits that they are written with.
fn append(
    bytes: &[u8],
    value: &Spanned<DeValue<'_>>,
    depth: usize,
    out: &mut String,
) -> Result<(), RunFileError> {
    let refuse = |why: &str| Err(RunFileError::at(bytes, value.span().start, why));
    if depth >= MAX_DEPTH {
        return refuse(&format!("nested deeper than {MAX_DEPTH} levels"));
    }
    match value.get_ref() {
        DeValue::String(text) => string(text, out),
        DeValue::Boolean(truth) => out.push_str(if *truth { "true" } else { "false" }),
        DeValue::Integer(number) if number.radix() == 10 => {
            out.push_str(number.as_str().trim_start_matches('+'));
        }
        DeValue::Integer(_) => return refuse("write the number in decimal: JSON has no other"),
        DeValue::Float(number) => {
            let digits = number.as_str().trim_start_matches('+');
            if AcceptedJson::check_str(digits).is_err() {
                return refuse("JSON has no such number");
            }
            out.push_str(digits);
        }
        DeValue::Datetime(_) => return refuse("JSON has no dates: write the date in quotes"),
        DeValue::Array(array) => {
            out.push('[');
            for (place, item) in array.iter().enumerate() {
                if place > 0 {
                    out.push(',');
                }
                append(bytes, item, depth + 1, out)?;
            }
            out.push(']');
        }
        DeValue::Table(table) => object(bytes, table, depth + 1, out)?,
    }
    Ok(())
}

fn string(text: &str, out: &mut String) {
    out.push_str(&serde_json::Value::from(text).to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Result<Submission, RunFileError> {
        read(text.as_bytes(), Format::Json, || "minted".to_owned())
    }

    fn toml(text: &str) -> Result<Submission, RunFileError> {
        read(text.as_bytes(), Format::Toml, || "minted".to_owned())
    }

    #[test]
    fn the_same_run_in_json_and_toml_is_the_same_submission() {
        let by_json = json(
            "{\"run\":\"r\",\"goal\":\"g\",\"input\":{\"id\":9007199254740993,\"rate\":1.10},\
             \"tools\":[\"a\"],\"limits\":{\"max_steps\":7}}",
        );
        let by_toml = toml(
            "run = 'r'\ngoal = 'g'\ntools = ['a']\ninput = { id = 9007199254740993, rate = 1.10 }\n\
             [limits]\nmax_steps = 7\n",
        );
        assert_eq!(by_json, by_toml);
        let submission = by_json.unwrap();
        assert_eq!(submission.limits.max_steps, 7);
        assert_eq!(submission.limits.max_repeats, Limits::default().max_repeats);
        let input = submission.input.unwrap();
        assert_eq!(input.as_str(), r#"{"id":9007199254740993,"rate":1.10}"#);
    }

    #[test]
    fn a_run_without_a_name_is_given_one() {
        let submission = json(r#"{"goal":"g"}"#).unwrap();
        assert_eq!(submission.run.as_str(), "minted");
        assert_eq!(submission.agent, SCRIPT);
        assert_eq!(submission.tools, Vec::<String>::new());
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, line, words) in [
            (
                "{\n\"goal\":\"g\",\n\"goal\":\"h\"}",
                Some(3),
                "repeated key \"goal\"",
            ),
            (
                "{\n\n\"goal\":\"g\",\"gaol\":1}",
                Some(3),
                "unknown field `gaol`",
            ),
            ("\n{\"goal\":\n7}", Some(3), "invalid type: integer `7`"),
            ("{\"goal\":\"g\"} x", Some(1), "more than one value"),
            ("", Some(1), "empty"),
            (r#"{"goal":" "}"#, None, "goal: it is blank"),
            (
                r#"{"goal":"g","limits":{"max_step":1}}"#,
                Some(1),
                "unknown field `max_step`",
            ),
            (
                r#"{"goal":"g","run":""}"#,
                Some(1),
                "a run id must not be empty",
            ),
            (r#"{"tools":[]}"#, Some(1), "missing field `goal`"),
        ] {
            let error = json(text).unwrap_err();
            assert_eq!(error.line, line, "{text}: {error}");
            assert!(error.message.contains(words), "{text}: {error}");
        }
        for (text, line, words) in [
            ("goal = 'g'\ngaol = 1\n", Some(2), "unknown field \"gaol\""),
            ("goal = 'g'\ngoal = 'h'\n", Some(2), "this is not TOML"),
            (
                "goal = 'g'\n[input]\nat = 2026-01-01\n",
                Some(3),
                "JSON has no dates",
            ),
            (
                "goal = 'g'\ninput = nan\n",
                Some(2),
                "JSON has no such number",
            ),
            ("goal = ''\n", None, "goal: it is blank"),
            ("agent = 'a'\n", None, "missing field `goal`"),
        ] {
            let error = toml(text).unwrap_err();
            assert_eq!(error.line, line, "{text}: {error}");
            assert!(error.message.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn s12_three_hundred_levels_are_refused() {
        let deep = format!(
            r#"{{"goal":"g","input":{}{}}}"#,
            "[".repeat(300),
            "]".repeat(300)
        );
        let error = json(&deep).unwrap_err();
        assert!(
            error.message.contains("nested deeper than 256 levels"),
            "{error}"
        );
        let deep = format!(
            "goal = 'g'\ninput = {}{}\n",
            "[".repeat(300),
            "]".repeat(300)
        );
        assert!(toml(&deep).is_err());
    }
}
