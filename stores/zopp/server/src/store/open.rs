//! Opening the database: connections, settings, schema.

mod postgres;
mod sqlite;

use std::{path::PathBuf, time::Duration};

use super::{Location, Store, sql::Pool};
use crate::limits::Limits;

/// Readers in parallel. Reads are short and mostly in a cache; more connections than this only cost memory.
const READERS: u32 = 8;
/// How long a request may wait for a connection; longer than any transaction, shorter than a caller's patience.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the database could not be opened. Names the database and what to do.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file cannot be opened or created, or is not a database.
    #[error(
        "cannot open the database {}: {source}; check that the file is a SQLite database and that this user may write to \
         it and to its directory", path.display()
    )]
    Connect {
        /// The file.
        path: PathBuf,
        /// The error of SQLite.
        source: sqlx::Error,
    },
    /// The PostgreSQL server cannot be reached, or does not let this program in.
    #[error(
        "cannot connect to the database {address}: {source}; check that PostgreSQL runs there, that the database exists, and \
         the user and password of --database-url"
    )]
    ConnectPostgres {
        /// The address, without its password.
        address: String,
        /// The cause.
        source: sqlx::Error,
    },
    /// The schema could not be brought up to date.
    #[error(
        "cannot bring the database {database} up to date: {source}; if another program or a newer zopp-server made this \
         database, use that one or give another database"
    )]
    Migrate {
        /// The database, without a password.
        database: String,
        /// The failed step.
        source: sqlx::migrate::MigrateError,
    },
}

impl Store {
    /// Opens the database, creating a missing file if the location allows it, and brings its schema up to date.
    pub async fn open(location: &Location) -> Result<Self, OpenError> {
        let (writer, readers) = match location {
            Location::Sqlite { path, create } => {
                let (writer, readers) = sqlite::open(path, *create).await?;
                (Pool::Sqlite(writer), Pool::Sqlite(readers))
            }
            Location::Postgres(address) => {
                let (writer, readers) = postgres::open(address).await?;
                (Pool::Postgres(writer), Pool::Postgres(readers))
            }
        };
        Ok(Self { writer, readers, limits: Limits::default(), announces: false })
    }
}
