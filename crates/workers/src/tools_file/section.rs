//! One table of a tools file, read key by key. A key that is not known, a value of the wrong type and a word that is
//! none of the choices are errors at their own line, with the likely word beside them.

use std::ops::Range;

use toml::{
    Spanned,
    de::{DeArray, DeTable, DeValue},
};

use super::{faults::Faults, text::expand};

/// The values that `${NAME}` stands for.
pub(super) type Vars<'a> = &'a dyn Fn(&str) -> Option<String>;

/// How alike two words must be (Jaro-Winkler, 1 is equal) for one to be taken for a misspelling of the other: enough
/// for a letter that is missing or swapped, or an ending that was forgotten.
const ALIKE: f64 = 0.85;

pub(super) struct Section<'a> {
    table: &'a DeTable<'a>,
    at: Range<usize>,
    name: &'static str,
}

impl<'a> Section<'a> {
    /// Opens a table, reporting every key that is not among the known ones.
    pub(super) fn open(
        value: &'a Spanned<DeValue<'a>>,
        name: &'static str,
        known: &[&str],
        faults: &mut Faults<'_>,
    ) -> Option<Self> {
        let Some(table) = value.get_ref().as_table() else {
            faults.add(
                &value.span(),
                format!("{name} is {}; make it a table", kind(value.get_ref())),
            );
            return None;
        };
        Some(Self::of_table(table, value.span(), name, known, faults))
    }

    pub(super) fn of_table(
        table: &'a DeTable<'a>,
        at: Range<usize>,
        name: &'static str,
        known: &[&str],
        faults: &mut Faults<'_>,
    ) -> Self {
        for key in table.keys() {
            let word = key.get_ref().as_ref();
            if !known.contains(&word) {
                let help = likely(word, known);
                faults.add(
                    &key.span(),
                    format!("unknown key {word:?} in {name}; {help}"),
                );
            }
        }
        Self { table, at, name }
    }

    /// The place of a key's value, or of the table if it has none.
    pub(super) fn place(&self, key: &str) -> Range<usize> {
        self.table
            .get(key)
            .map_or_else(|| self.at.clone(), Spanned::span)
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    pub(super) fn value(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.table.get(key)
    }

    /// Reports a key that has to be there and is not.
    pub(super) fn require(&self, key: &str, why: &str, faults: &mut Faults<'_>) {
        if !self.has(key) {
            faults.add(&self.at, format!("{} lacks {key:?}; {why}", self.name));
        }
    }

    fn read<T>(
        &self,
        key: &str,
        wanted: &str,
        read: impl FnOnce(&'a DeValue<'a>) -> Option<T>,
        faults: &mut Faults<'_>,
    ) -> Option<T> {
        let value = self.table.get(key)?;
        let found = read(value.get_ref());
        if found.is_none() {
            let kind = kind(value.get_ref());
            faults.add(&value.span(), format!("{key} is {kind}; make it {wanted}"));
        }
        found
    }

    pub(super) fn string(&self, key: &str, faults: &mut Faults<'_>) -> Option<&'a str> {
        self.read(key, "a string", DeValue::as_str, faults)
    }

    pub(super) fn flag(&self, key: &str, faults: &mut Faults<'_>) -> Option<bool> {
        self.read(key, "true or false", DeValue::as_bool, faults)
    }

    pub(super) fn count(&self, key: &str, faults: &mut Faults<'_>) -> Option<u32> {
        self.read(key, "a whole number from 0 to 4294967295", whole, faults)
    }

    /// One of several words.
    pub(super) fn choice<T: Copy>(
        &self,
        key: &str,
        choices: &[(&str, T)],
        faults: &mut Faults<'_>,
    ) -> Option<T> {
        let word = self.string(key, faults)?;
        let found = choices.iter().find(|(choice, _)| *choice == word);
        if found.is_none() {
            let words: Vec<_> = choices.iter().map(|(choice, _)| *choice).collect();
            let help = likely(word, &words);
            faults.add(&self.place(key), format!("unknown {key} {word:?}; {help}"));
        }
        found.map(|(_, meaning)| *meaning)
    }

    /// An array of strings, each with its place.
    pub(super) fn strings(
        &self,
        key: &str,
        faults: &mut Faults<'_>,
    ) -> Option<Vec<(&'a str, Range<usize>)>> {
        let wanted = "a string";
        self.elements(key, "an array of strings", wanted, DeValue::as_str, faults)
    }

    pub(super) fn numbers(&self, key: &str, faults: &mut Faults<'_>) -> Option<Vec<i64>> {
        let wanted = "a whole number";
        let found = self.elements(key, "an array of whole numbers", wanted, whole, faults)?;
        Some(found.into_iter().map(|(number, _)| number).collect())
    }

    fn elements<T>(
        &self,
        key: &str,
        wanted: &str,
        of: &str,
        read: impl Fn(&'a DeValue<'a>) -> Option<T>,
        faults: &mut Faults<'_>,
    ) -> Option<Vec<(T, Range<usize>)>> {
        let array: &'a DeArray<'a> = self.read(key, wanted, DeValue::as_array, faults)?;
        let mut all = Some(Vec::new());
        for element in array.iter() {
            match (read(element.get_ref()), &mut all) {
                (Some(value), Some(values)) => values.push((value, element.span())),
                (Some(_), None) => {}
                (None, _) => {
                    let kind = kind(element.get_ref());
                    faults.add(
                        &element.span(),
                        format!("an element of {key} is {kind}; make it {of}"),
                    );
                    all = None;
                }
            }
        }
        all
    }

    /// A string in which every `${NAME}` is replaced.
    pub(super) fn expanded(
        &self,
        key: &str,
        vars: Vars<'_>,
        faults: &mut Faults<'_>,
    ) -> Option<String> {
        let text = self.string(key, faults)?;
        faults.keep(&self.place(key), expand(text, vars))
    }

    /// An array of such strings.
    pub(super) fn all_expanded(
        &self,
        key: &str,
        vars: Vars<'_>,
        faults: &mut Faults<'_>,
    ) -> Option<Vec<String>> {
        // Every element is looked at, so that every unset name is told.
        let found: Vec<_> = self
            .strings(key, faults)?
            .into_iter()
            .map(|(text, at)| faults.keep(&at, expand(text, vars)))
            .collect();
        found.into_iter().collect()
    }
}

fn whole<T: TryFrom<i64>>(value: &DeValue<'_>) -> Option<T> {
    let integer = value.as_integer()?;
    let number = i64::from_str_radix(integer.as_str(), integer.radix()).ok()?;
    number.try_into().ok()
}

/// "did you mean", or all that is known.
fn likely(word: &str, known: &[&str]) -> String {
    let nearest = known
        .iter()
        .map(|known| (strsim::jaro_winkler(word, known), known))
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .filter(|(likeness, _)| *likeness >= ALIKE);
    match nearest {
        Some((_, known)) => format!("did you mean {known:?}?"),
        None => format!("use one of {}", known.join(", ")),
    }
}

fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(integer)
            if i64::from_str_radix(integer.as_str(), integer.radix()).is_err() =>
        {
            "a number beyond 64 bits"
        }
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}
