//! Reading a rule file: TOML into rules, every fault at once, each with the line it stands on.
//!
//! The tree of the TOML parser is walked by hand, because it keeps numbers as they are written (a typed read would round them) and knows
//! where each key stands. A file with a syntax error is read as far as it goes: what can be seen is checked, what is missing is not
//! complained about, because it may be what could not be read.

use std::fmt;
use std::ops::Range;

use leasehold_json::{AcceptedJson, Decimal, MAX_DEPTH};
use leasehold_tools::{SideEffect, ToolName};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::rules::{Answer, Condition, Rule, Test};

/// Largest rule file in bytes. Rules are written by hand and tried one after the other for every call.
pub const MAX_POLICY_BYTES: usize = 1 << 20;

/// Most characters of a policy's name and of its version: both stand in the identity that is recorded with every verdict.
const MAX_LABEL_CHARS: usize = 128;

/// One fault of a rule file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct PolicyError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there, and what to write.
    pub message: String,
}

/// Every fault of a rule file, in order of lines; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyErrors(Vec<PolicyError>);

impl PolicyErrors {
    /// The faults.
    pub fn as_slice(&self) -> &[PolicyError] {
        &self.0
    }
}

impl fmt::Display for PolicyErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the policy file cannot be used:")?;
        self.0.iter().try_for_each(|error| write!(f, "\n  {error}"))
    }
}

impl std::error::Error for PolicyErrors {}

/// What a rule file says.
pub(super) struct File {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) rules: Vec<Rule>,
}

/// Reads a rule file, or says all that is wrong with it.
pub(super) fn read(text: &str) -> Result<File, PolicyErrors> {
    if text.len() > MAX_POLICY_BYTES {
        let message = format!(
            "the file has {} bytes; at most {MAX_POLICY_BYTES} are read",
            text.len()
        );
        return Err(PolicyErrors(vec![PolicyError { line: 1, message }]));
    }
    let (table, syntax) = DeTable::parse_recoverable(text);
    let mut reader = Reader {
        text,
        partial: !syntax.is_empty(),
        errors: Vec::new(),
    };
    for error in syntax {
        let at = error.span().unwrap_or_default();
        reader.say(at, format!("not TOML: {}", error.message()));
    }
    let broken: Vec<usize> = reader.errors.iter().map(|error| error.line).collect();
    let file = reader.file(table.span(), table.get_ref());
    let mut errors = reader.errors;
    let mut place = 0;
    // On a line that is no TOML, whatever else was found is guesswork.
    errors.retain(|error| {
        place += 1;
        place <= broken.len() || !broken.contains(&error.line)
    });
    errors.sort_by_key(|error| error.line);
    match file {
        Some(file) if errors.is_empty() => Ok(file),
        _ => Err(PolicyErrors(errors)),
    }
}

struct Reader<'t> {
    text: &'t str,
    /// The text is not TOML throughout: absences are not reported.
    partial: bool,
    errors: Vec<PolicyError>,
}

/// A table whose keys are all known.
struct Fields<'a, 't> {
    at: Range<usize>,
    what: &'static str,
    table: &'a DeTable<'t>,
}

const FILE_KEYS: &[&str] = &["name", "version", "rule"];
const RULE_KEYS: &[&str] = &[
    "tool",
    "class",
    "where",
    "verdict",
    "approval_kind",
    "capability",
    "show",
    "reason",
];
const CONDITION_KEYS: &[&str] = &["arg", "is", "in", "over", "at_most", "present"];
const TEST_KEYS: &[&str] = &["is", "in", "over", "at_most", "present"];
const VERDICTS: &str = "allow, deny, require_approval or abort";

impl Reader<'_> {
    fn say(&mut self, at: Range<usize>, message: impl Into<String>) {
        let before = self.text.get(..at.start).unwrap_or(self.text);
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        self.errors.push(PolicyError {
            line,
            message: message.into(),
        });
    }

    fn absent<T>(&mut self, fields: &Fields<'_, '_>, key: &str) -> Option<T> {
        if !self.partial {
            self.say(fields.at.clone(), format!("{} has no `{key}`", fields.what));
        }
        None
    }

    fn fields<'a, 't>(
        &mut self,
        at: Range<usize>,
        what: &'static str,
        table: &'a DeTable<'t>,
        known: &[&str],
    ) -> Fields<'a, 't> {
        for (key, _) in table
            .iter()
            .filter(|(key, _)| !known.contains(&key.get_ref().as_ref()))
        {
            self.say(
                key.span(),
                format!(
                    "{what} has no key `{}`; its keys are {}",
                    key.get_ref(),
                    known.join(", ")
                ),
            );
        }
        Fields { at, what, table }
    }

    /// A text that is not blank; `None` and an error if it is something else, `None` alone if it is not there.
    fn text<'a>(&mut self, fields: &Fields<'a, '_>, key: &str) -> Option<(Range<usize>, &'a str)> {
        let value = fields.table.get(key)?;
        match value.get_ref().as_str() {
            Some(text) if !text.trim().is_empty() => Some((value.span(), text)),
            Some(_) => self.refuse(value.span(), format!("`{key}` is blank")),
            None => self.refuse(value.span(), format!("`{key}` must be a text in quotes")),
        }
    }

    fn needed<'a>(
        &mut self,
        fields: &Fields<'a, '_>,
        key: &str,
    ) -> Option<(Range<usize>, &'a str)> {
        if fields.table.contains_key(key) {
            self.text(fields, key)
        } else {
            self.absent(fields, key)
        }
    }

    fn refuse<T>(&mut self, at: Range<usize>, message: impl Into<String>) -> Option<T> {
        self.say(at, message);
        None
    }

    fn file(&mut self, at: Range<usize>, table: &DeTable<'_>) -> Option<File> {
        let fields = self.fields(at.start..at.start, "the policy", table, FILE_KEYS);
        let name = self.label(&fields, "name");
        let version = self.label(&fields, "version");
        let mut rules = Vec::new();
        if let Some(value) = fields.table.get("rule") {
            match value.get_ref().as_array() {
                Some(array) => {
                    for (number, item) in (1..).zip(array.iter()) {
                        rules.push(self.rule(number, item));
                    }
                }
                None => self.say(value.span(), "write each rule as its own [[rule]]"),
            }
        }
        Some(File {
            name: name?,
            version: version?,
            rules: rules.into_iter().collect::<Option<_>>()?,
        })
    }

    /// A part of the identity: `@` and `#` separate the parts there.
    fn label(&mut self, fields: &Fields<'_, '_>, key: &str) -> Option<String> {
        let (at, text) = self.needed(fields, key)?;
        if text.chars().any(|c| c.is_control() || c == '@' || c == '#')
            || text.chars().nth(MAX_LABEL_CHARS).is_some()
        {
            return self.refuse(at, format!("`{key}` has at most {MAX_LABEL_CHARS} characters, none of them @, # or a control character"));
        }
        Some(text.to_owned())
    }

    fn rule(&mut self, number: usize, item: &Spanned<DeValue<'_>>) -> Option<Rule> {
        let Some(table) = item.get_ref().as_table() else {
            return self.refuse(item.span(), "a rule is a table: write [[rule]]");
        };
        let fields = self.fields(item.span(), "the rule", table, RULE_KEYS);
        let tool = self.text(&fields, "tool");
        let tool = match tool.map(|(at, name)| (at, ToolName::parse(name))) {
            Some((_, Ok(name))) => Some(String::from(name)),
            Some((at, Err(error))) => self.refuse(at, error.to_string()),
            None => None,
        };
        let class = match self
            .text(&fields, "class")
            .map(|(at, word)| (at, word.parse::<SideEffect>()))
        {
            Some((_, Ok(class))) => Some(class),
            Some((at, Err(error))) => self.refuse(at, error.to_string()),
            None => None,
        };
        let named = |key| fields.table.contains_key(key);
        if !named("tool") && !named("class") && !self.partial {
            self.say(
                item.span(),
                "the rule has neither `tool` nor `class`: it would match every call; name one",
            );
        }
        let conditions = self.conditions(&fields);
        let answer = self.answer(number, &fields);
        Some(Rule {
            tool,
            class,
            conditions: conditions?,
            answer: answer?,
        })
    }

    fn answer(&mut self, number: usize, fields: &Fields<'_, '_>) -> Option<Answer> {
        let (at, verdict) = self.needed(fields, "verdict")?;
        let allowed: &[&str] = match verdict {
            "allow" => &[],
            "deny" | "abort" => &["reason"],
            "require_approval" => &["approval_kind", "capability", "show"],
            _ => return self.refuse(at, format!("`verdict` is {VERDICTS}, not {verdict:?}")),
        };
        for key in ["approval_kind", "capability", "show", "reason"] {
            if let Some((found, _)) = fields
                .table
                .get_key_value(key)
                .filter(|_| !allowed.contains(&key))
            {
                self.say(
                    found.span(),
                    format!("`{key}` means nothing with the verdict {verdict}"),
                );
            }
        }
        let reason = |reader: &mut Self, word: &str| match reader.text(fields, "reason") {
            Some((_, text)) => text.to_owned(),
            None => format!("{word} by rule {number} of the policy"),
        };
        Some(match verdict {
            "allow" => Answer::Allow,
            "deny" => Answer::Deny {
                reason: reason(self, "denied"),
            },
            "abort" => Answer::Abort {
                reason: reason(self, "ended"),
            },
            _ => {
                let kind = self.needed(fields, "approval_kind");
                let capability = self.needed(fields, "capability");
                let show = self.show(fields);
                Answer::RequireApproval {
                    kind: kind?.1.to_owned(),
                    capability: capability?.1.to_owned(),
                    show,
                }
            }
        })
    }

    fn show(&mut self, fields: &Fields<'_, '_>) -> Option<Vec<String>> {
        let (at, array) = self.array(fields, "show")?;
        if array.is_empty() {
            return self.refuse(
                at,
                "`show` shows nothing; leave it out to show all arguments",
            );
        }
        let mut shown: Vec<String> = Vec::new();
        for item in array.iter() {
            let Some(pointer) = self.pointer(item) else {
                continue;
            };
            if pointer.is_empty() {
                self.say(
                    item.span(),
                    "\"\" is all arguments; leave `show` out for that",
                );
            } else if shown.contains(&pointer) {
                self.say(item.span(), format!("{pointer} is shown twice"));
            } else {
                shown.push(pointer);
            }
        }
        Some(shown)
    }

    fn conditions(&mut self, fields: &Fields<'_, '_>) -> Option<Vec<Condition>> {
        if !fields.table.contains_key("where") {
            return Some(Vec::new());
        }
        let (_, array) = self.array(fields, "where")?;
        let conditions: Vec<Option<Condition>> =
            array.iter().map(|item| self.condition(item)).collect();
        conditions.into_iter().collect()
    }

    fn condition(&mut self, item: &Spanned<DeValue<'_>>) -> Option<Condition> {
        let Some(table) = item.get_ref().as_table() else {
            return self.refuse(
                item.span(),
                "a condition is written { arg = \"/pointer\", is = ... }",
            );
        };
        let fields = self.fields(item.span(), "the condition", table, CONDITION_KEYS);
        let arg = match fields.table.get("arg") {
            Some(value) => self.pointer(value),
            None => self.absent(&fields, "arg"),
        };
        let mut tests = TEST_KEYS
            .iter()
            .filter_map(|key| Some((*key, fields.table.get(*key)?)));
        let test = match (tests.next(), tests.next()) {
            (Some((key, value)), None) => self.test(key, value),
            (Some(_), Some((second, value))) => self.refuse(
                value.span(),
                format!("a condition has one test; write `{second}` as a condition of its own"),
            ),
            (None, _) if self.partial => None,
            (None, _) => self.refuse(
                item.span(),
                format!(
                    "the condition has no test; give it one of {}",
                    TEST_KEYS.join(", ")
                ),
            ),
        };
        Some(Condition {
            arg: arg?,
            test: test?,
        })
    }

    fn test(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<Test> {
        match key {
            "is" => Some(Test::OneOf(vec![self.json(value, 0)?.canonical()])),
            "in" => {
                let Some(array) = value.get_ref().as_array() else {
                    return self
                        .refuse(value.span(), "`in` is a list of values: [\"EUR\", \"USD\"]");
                };
                if array.is_empty() {
                    return self.refuse(
                        value.span(),
                        "`in` lists nothing, so the condition could never hold",
                    );
                }
                let values: Vec<Option<AcceptedJson>> =
                    array.iter().map(|item| self.json(item, 0)).collect();
                Some(Test::OneOf(
                    values
                        .into_iter()
                        .map(|json| Some(json?.canonical()))
                        .collect::<Option<_>>()?,
                ))
            }
            "over" => Some(Test::Over(self.decimal(key, value)?)),
            "at_most" => Some(Test::AtMost(self.decimal(key, value)?)),
            _ => match value.get_ref().as_bool() {
                Some(wanted) => Some(Test::Present(wanted)),
                None => self.refuse(value.span(), "`present` is true or false"),
            },
        }
    }

    fn array<'a, 't>(
        &mut self,
        fields: &Fields<'a, 't>,
        key: &str,
    ) -> Option<(Range<usize>, &'a DeArray<'t>)> {
        let value = fields.table.get(key)?;
        match value.get_ref().as_array() {
            Some(array) => Some((value.span(), array)),
            None => self.refuse(value.span(), format!("`{key}` must be a list in brackets")),
        }
    }

    fn pointer(&mut self, value: &Spanned<DeValue<'_>>) -> Option<String> {
        let Some(pointer) = value.get_ref().as_str() else {
            return self.refuse(
                value.span(),
                "an argument is named by a JSON pointer in quotes, such as \"/amount\"",
            );
        };
        let rooted = pointer.is_empty() || pointer.starts_with('/');
        let escaped = pointer
            .split('~')
            .skip(1)
            .all(|rest| rest.starts_with(['0', '1']));
        if !rooted || !escaped {
            let hint = "it begins with / and writes ~ as ~0 and / in a name as ~1";
            return self.refuse(
                value.span(),
                format!("{pointer:?} is no JSON pointer: {hint}"),
            );
        }
        Some(pointer.to_owned())
    }

    fn decimal(&mut self, key: &str, value: &Spanned<DeValue<'_>>) -> Option<Decimal> {
        let text = match value.get_ref() {
            DeValue::String(text) => Some(text.as_ref()),
            other => literal(other),
        };
        let Some(text) = text else {
            return self.refuse(
                value.span(),
                format!("`{key}` is a decimal number in quotes, such as \"100.00\""),
            );
        };
        match text.parse() {
            Ok(decimal) => Some(decimal),
            Err(error) => self.refuse(value.span(), format!("`{key}`: {error}")),
        }
    }

    /// A TOML value as the JSON value that it stands for, numbers as they are written.
    fn json(&mut self, value: &Spanned<DeValue<'_>>, depth: usize) -> Option<AcceptedJson> {
        if depth >= MAX_DEPTH {
            return self.refuse(
                value.span(),
                format!("nested deeper than {MAX_DEPTH} levels"),
            );
        }
        let json = match value.get_ref() {
            DeValue::String(text) => {
                AcceptedJson::from_serialize(text.as_ref()).map_err(|error| error.to_string())
            }
            DeValue::Boolean(truth) => {
                AcceptedJson::from_serialize(truth).map_err(|error| error.to_string())
            }
            DeValue::Datetime(_) => Err(
                "JSON has no dates; write the date in quotes, as the argument has it".to_owned(),
            ),
            DeValue::Array(array) => {
                let items: Vec<Option<AcceptedJson>> = array
                    .iter()
                    .map(|item| self.json(item, depth + 1))
                    .collect();
                let items: Vec<AcceptedJson> = items.into_iter().collect::<Option<_>>()?;
                AcceptedJson::array(&items).map_err(|refusal| refusal.to_string())
            }
            DeValue::Table(table) => {
                let mut members = Vec::new();
                for (key, member) in table.iter() {
                    members.push((key.get_ref().as_ref(), self.json(member, depth + 1)));
                }
                let members: Vec<(&str, AcceptedJson)> = members
                    .into_iter()
                    .map(|(key, json)| Some((key, json?)))
                    .collect::<Option<_>>()?;
                AcceptedJson::object(members.iter().map(|(key, json)| (*key, json)))
                    .map_err(|refusal| refusal.to_string())
            }
            number => match literal(number) {
                Some(text) => AcceptedJson::check_str(text).map_err(|refusal| refusal.to_string()),
                None => Err("write the number in decimal digits".to_owned()),
            },
        };
        match json {
            Ok(json) => Some(json),
            Err(error) => self.refuse(value.span(), error),
        }
    }
}

/// A decimal number as it is written, without the sign that JSON does not know. What JSON has no number for comes out as no JSON.
fn literal<'a>(value: &'a DeValue<'_>) -> Option<&'a str> {
    let text = match value {
        DeValue::Integer(integer) if integer.radix() == 10 => integer.as_str(),
        DeValue::Float(float) => float.as_str(),
        _ => return None,
    };
    Some(text.strip_prefix('+').unwrap_or(text))
}
