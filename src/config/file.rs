//! The configuration file: every option, and the budgets, as TOML.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

/// A configuration file, its members taken out one by one: what is left is unknown.
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    left: Table,
}

/// Why a file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It can't be read.
    #[error("can't be read: {0}")]
    Read(io::Error),
    /// It isn't TOML.
    #[error("is not TOML: {0}")]
    Toml(String),
}

impl File {
    /// Reads the file at `path`.
    #[expect(
        clippy::disallowed_methods,
        reason = "the user's own configuration, not a workspace file"
    )]
    pub fn read(path: &Path) -> Result<Self, FileError> {
        let text = std::fs::read_to_string(path).map_err(FileError::Read)?;
        let left = text
            .parse()
            .map_err(|error: toml::de::Error| FileError::Toml(error.message().to_owned()))?;
        Ok(Self {
            path: path.to_path_buf(),
            left,
        })
    }

    /// Where a member stands, for a person.
    pub fn place(&self, member: &str) -> String {
        format!("{}: {member}", self.path.display())
    }

    /// Takes the member called `name`, a text or a number; `Err` says what else it is.
    pub fn take(&mut self, name: &str) -> Option<Result<OsString, &'static str>> {
        self.left.remove(name).map(plain)
    }

    /// Takes the member called `name` of the table called `table`.
    pub fn take_from(&mut self, table: &str, name: &str) -> Option<Result<OsString, &'static str>> {
        let inner = self.left.get_mut(table)?.as_table_mut()?;
        let value = inner.remove(name).map(plain);
        if inner.is_empty() {
            self.left.remove(table);
        }
        value
    }

    /// Takes the member called `name`, true or false.
    pub fn take_flag(&mut self, name: &str) -> Option<Result<bool, &'static str>> {
        let value = self.left.remove(name)?;
        Some(value.as_bool().ok_or_else(|| value.type_str()))
    }

    /// Takes the list of texts called `name` of the table called `table`.
    pub fn take_list(
        &mut self,
        table: &str,
        name: &str,
    ) -> Option<Result<Vec<String>, &'static str>> {
        let inner = self.left.get_mut(table)?.as_table_mut()?;
        let value = inner.remove(name)?;
        if inner.is_empty() {
            self.left.remove(table);
        }
        let Value::Array(list) = value else {
            return Some(Err(value.type_str()));
        };
        let text = |one: &Value| {
            one.as_str()
                .map(str::to_owned)
                .ok_or_else(|| one.type_str())
        };
        Some(list.iter().map(text).collect())
    }

    /// The names of what was not taken: nothing that the relay knows.
    pub fn unknown(&self) -> Vec<String> {
        let names = |(name, value): (&String, &Value)| match value.as_table() {
            Some(table) if !table.is_empty() => table
                .keys()
                .map(|inner| format!("{name}.{inner}"))
                .collect(),
            _ => vec![name.clone()],
        };
        self.left.iter().flat_map(names).collect()
    }
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "called through map on owned values"
)]
fn plain(value: Value) -> Result<OsString, &'static str> {
    match &value {
        Value::String(text) => Ok(text.into()),
        Value::Integer(number) => Ok(number.to_string().into()),
        Value::Float(_)
        | Value::Boolean(_)
        | Value::Datetime(_)
        | Value::Array(_)
        | Value::Table(_) => Err(value.type_str()),
    }
}
