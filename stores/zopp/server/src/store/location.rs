//! Where the database is: the spellings users know, made one.

use std::{fmt, path::PathBuf, str::FromStr};

use sqlx::postgres::PgConnectOptions;

/// Where the database is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// A file of SQLite.
    Sqlite {
        /// The file.
        path: PathBuf,
        /// Is a missing file created?
        create: bool,
    },
    /// A database of PostgreSQL.
    Postgres(PostgresAddress),
}

/// The address of a PostgreSQL database, with whatever secret it holds. Printed, it is without.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresAddress(String);

/// A database address this server cannot use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocationError {
    /// A PostgreSQL address that PostgreSQL's own programs would not take either.
    #[error(
        "database address {0:?} is not understood: a PostgreSQL address is like \
         postgres://user:password@host:5432/database?sslmode=verify-full"
    )]
    Postgres(String),
    /// A database that would be gone with the process.
    #[error(
        "an in-memory database would be lost at exit; give the path of a file, such as sqlite:///var/lib/zopp/zopp.db"
    )]
    InMemory,
    /// Another scheme, or an unknown parameter.
    #[error(
        "database address {0:?} is not understood; use sqlite:///path/to/zopp.db, a path, or postgres://host/database"
    )]
    Unknown(String),
}

impl Location {
    /// A file of SQLite, which is created if it is missing.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self::Sqlite { path: path.into(), create: true }
    }

    /// The same, where a missing file is an error.
    #[must_use]
    pub fn existing(self) -> Self {
        match self {
            Self::Sqlite { path, .. } => Self::Sqlite { path, create: false },
            postgres @ Self::Postgres(_) => postgres,
        }
    }

    /// Reads `postgres:` and `postgresql:` addresses, `sqlite:` addresses (with or without slashes, `?mode=rwc|rw`), and bare paths,
    /// which are created when missing.
    pub fn parse(text: &str) -> Result<Self, LocationError> {
        if let Some(address) = PostgresAddress::parse(text) {
            return address.map(Self::Postgres);
        }
        let Some(rest) = text.strip_prefix("sqlite:") else {
            if text.is_empty() || text.contains("://") {
                return Err(LocationError::Unknown(without_password(text)));
            }
            return Ok(Self::file(text));
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
        Ok(Self::Sqlite { path: path.into(), create })
    }
}

impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Logged, so that a missing or wrong setting is visible.
            Self::Sqlite { path, .. } => std::path::absolute(path).as_ref().unwrap_or(path).display().fmt(formatter),
            Self::Postgres(address) => address.fmt(formatter),
        }
    }
}

impl PostgresAddress {
    /// Reads an address with one of PostgreSQL's two schemes; `None` for any other text.
    pub fn parse(text: &str) -> Option<Result<Self, LocationError>> {
        if !text.starts_with("postgres:") && !text.starts_with("postgresql:") {
            return None;
        }
        let address = Self(text.to_owned());
        Some(match address.options() {
            Ok(_) => Ok(address),
            Err(_) => Err(LocationError::Postgres(without_password(text))),
        })
    }

    /// Returns the options of a connection.
    pub(crate) fn options(&self) -> Result<PgConnectOptions, sqlx::Error> {
        PgConnectOptions::from_str(&self.0)
    }
}

impl fmt::Display for PostgresAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(options) = self.options() else { return formatter.write_str("postgres://…") };
        let host =
            options.get_socket().map_or_else(|| options.get_host().to_owned(), |path| path.display().to_string());
        let database = options.get_database().unwrap_or_default();
        write!(formatter, "postgres://{host}:{}/{database}", options.get_port())
    }
}

impl fmt::Debug for PostgresAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// An address of an unknown kind may hold a password; only its scheme is safe to show.
fn without_password(text: &str) -> String {
    match text.split_once(':') {
        Some((scheme, _)) => format!("{scheme}:…"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, path: &str, create: bool) {
        assert_eq!(Location::parse(text), Ok(Location::Sqlite { path: path.into(), create }), "{text}");
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
    fn both_spellings_of_postgres_are_understood_and_shown_without_password() {
        for scheme in ["postgres", "postgresql"] {
            let location = Location::parse(&format!("{scheme}://user:hunter2@db.example.com:5433/zopp")).unwrap();
            for shown in [location.to_string(), format!("{location:?}")] {
                assert!(shown.contains("db.example.com:5433/zopp") && !shown.contains("hunter2"), "{shown}");
            }
        }
        let error = Location::parse("postgres://user:hunter2@host:no-port/db").unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    #[test]
    fn memory_and_unknown_addresses_are_refused_without_their_password() {
        assert_eq!(Location::parse("sqlite::memory:"), Err(LocationError::InMemory));
        assert_eq!(Location::parse("sqlite://"), Err(LocationError::InMemory));
        let error = Location::parse("mysql://user:hunter2@host/db").unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}
