//! Where the database is: the spellings users know, made one.

use std::path::PathBuf;

/// Where the database is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The file.
    pub path: PathBuf,
    /// Is a missing file created?
    pub create: bool,
}

/// A database address this server cannot use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// A PostgreSQL address.
    #[error(
        "this build of zopp-server keeps its data in SQLite only and cannot open a postgres: database; \
         use sqlite:///path/to/zopp.db or a path"
    )]
    Postgres,
    /// A database that would be gone with the process.
    #[error(
        "an in-memory database would be lost at exit; give the path of a file, such as sqlite:///var/lib/zopp/zopp.db"
    )]
    InMemory,
    /// Another scheme, or an unknown parameter.
    #[error("database address {0:?} is not understood; use sqlite:///path/to/zopp.db or a path")]
    Unknown(String),
}

impl Location {
    /// Reads `sqlite:` addresses (with or without slashes, `?mode=rwc|rw`) and bare paths, which are created when missing.
    pub fn parse(text: &str) -> Result<Self, LocationError> {
        if text.starts_with("postgres:") || text.starts_with("postgresql:") {
            return Err(LocationError::Postgres);
        }
        let Some(rest) = text.strip_prefix("sqlite:") else {
            if text.is_empty() || text.contains("://") {
                return Err(LocationError::Unknown(without_password(text)));
            }
            return Ok(Self { path: text.into(), create: true });
        };
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        let (path, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        if path.is_empty() || path == ":memory:" || parameters.contains("mode=memory") {
            return Err(LocationError::InMemory);
        }
        let create = match parameters {
            "" | "mode=rw" => false,
            "mode=rwc" => true,
            _ => return Err(LocationError::Unknown(text.to_owned())),
        };
        Ok(Self { path: path.into(), create })
    }
}

/// An address of an unknown kind may hold a password; only its scheme is safe to show.
fn without_password(text: &str) -> String {
    match text.split_once("://") {
        Some((scheme, _)) => format!("{scheme}://…"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, path: &str, create: bool) {
        assert_eq!(Location::parse(text), Ok(Location { path: path.into(), create }), "{text}");
    }

    #[test]
    fn all_spellings_of_a_file_are_understood() {
        check("sqlite://zopp.db?mode=rwc", "zopp.db", true);
        check("sqlite:///var/lib/zopp.db?mode=rwc", "/var/lib/zopp.db", true);
        check("sqlite:/var/lib/zopp.db", "/var/lib/zopp.db", false);
        check("sqlite://zopp.db?mode=rw", "zopp.db", false);
        check("/var/lib/zopp.db", "/var/lib/zopp.db", true);
        check("zopp.db", "zopp.db", true);
    }

    #[test]
    fn both_spellings_of_postgres_are_refused_as_postgres() {
        assert_eq!(Location::parse("postgres://user:pw@host/db"), Err(LocationError::Postgres));
        assert_eq!(Location::parse("postgresql://user:pw@host/db"), Err(LocationError::Postgres));
    }

    #[test]
    fn memory_and_unknown_addresses_are_refused_without_their_password() {
        assert_eq!(Location::parse("sqlite::memory:"), Err(LocationError::InMemory));
        assert_eq!(Location::parse("sqlite://"), Err(LocationError::InMemory));
        let error = Location::parse("mysql://user:hunter2@host/db").unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}
