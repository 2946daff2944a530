//! Opening the database: connections, settings, schema.

mod postgres;
mod sqlite;

use std::{path::PathBuf, time::Duration};

use sqlx::migrate::MigrateError;

use super::{
    Location, Store, StoreError,
    batched_changes::BatchedChanges,
    error::{is_lock_timeout, is_read_only},
    sql::{self, Pool, Procedures},
};
use crate::limits::Limits;

/// How long another process (an `invite` command) may hold the write lock of a SQLite file before a write here fails.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a request may wait for a connection; longer than any transaction, shorter than a caller's patience.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// The first number of the original's migrations, which are named by their dates. Ours are counted from 1.
const ORIGINAL_MIGRATIONS: i64 = 20_000_000_000_000;

/// The program that made a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MadeBy {
    /// This server, of whichever version.
    Us,
    /// The original server.
    Original,
    /// Nobody: there are no tables, or none of either server.
    Nobody,
}

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
    /// The original server made the database.
    #[error(
        "the database {database} was made by the original zopp-server; read it into a new one: zopp-server import --from {from} \
         --database-url sqlite:///path/to/new.db?mode=rwc"
    )]
    Original {
        /// The database, without a password.
        database: String,
        /// The address to give, without a password.
        from: String,
    },
    /// The database takes no changes.
    #[error("the database {database} takes no changes: {source}; {next}")]
    ReadOnly {
        /// The database, without a password.
        database: String,
        /// The next step.
        next: &'static str,
        /// The error of the database.
        source: sqlx::Error,
    },
    /// Another session has locked tables that a migration has to change.
    #[error(
        "cannot bring the database {database} up to date, because another session has used its tables for more than 10 seconds: {source}; start zopp-server \
         again once the backup, the pg_dump or the other session is done"
    )]
    InUse {
        /// The database, without a password.
        database: String,
        /// The error of the database.
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
        source: MigrateError,
    },
}

/// The error for a schema that could not be brought up to date. `next` is for a database that takes no changes.
fn not_migrated(database: String, source: MigrateError, next: &'static str) -> OpenError {
    match source {
        MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _) if is_read_only(&source) => {
            OpenError::ReadOnly { database, next, source }
        }
        MigrateError::Execute(source) | MigrateError::ExecuteMigration(source, _) if is_lock_timeout(&source) => {
            OpenError::InUse { database, source }
        }
        source => OpenError::Migrate { database, source },
    }
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
        Ok(Self {
            writer,
            readers,
            limits: Limits::default(),
            announces: false,
            procedures: Procedures::default(),
            batched: BatchedChanges::default(),
        })
    }
}

impl Store {
    /// Fails if the database at this location takes no changes. Changes nothing.
    pub async fn refuse_read_only(&self, location: &Location) -> Result<(), OpenError> {
        let tried = async {
            let mut transaction = self.begin_apart().await?;
            // SQLite begins any transaction on a read-only file, and refuses the first statement that writes. Nobody commits this one.
            Ok::<_, StoreError>(sql::query(TOUCH).execute(&mut *transaction).await.map(drop)?)
        };
        match (tried.await, location) {
            (Err(StoreError::Outage(source)), Location::Sqlite { path, .. }) if is_read_only(&source) => {
                Err(OpenError::ReadOnly { database: path.display().to_string(), next: sqlite::MAKE_WRITABLE, source })
            }
            (Err(StoreError::Outage(source)), Location::Postgres(address)) if is_read_only(&source) => {
                let next = postgres::WHERE_CHANGES_ARE_TAKEN;
                Err(OpenError::ReadOnly { database: address.to_string(), next, source })
            }
            // Readiness shows other failures, and they may end.
            _ => Ok(()),
        }
    }
}

/// A change that changes nothing.
const TOUCH: &str = "UPDATE readiness SET checked_at = checked_at";

/// Returns which program made the database, by the migrations that it had.
pub(super) async fn made_by(database: &Pool) -> Result<MadeBy, sqlx::Error> {
    let table = match database {
        Pool::Sqlite(_) => "SELECT name FROM sqlite_master WHERE name = '_sqlx_migrations'",
        Pool::Postgres(_) => {
            "SELECT table_name::text FROM information_schema.tables \
             WHERE table_schema = current_schema() AND table_name = '_sqlx_migrations'"
        }
    };
    if sql::query(table).fetch_optional(database).await?.is_none() {
        return Ok(MadeBy::Nobody);
    }
    let (newest,): (Option<i64>,) =
        sql::query_as("SELECT max(version) FROM _sqlx_migrations").fetch_one(database).await?;
    Ok(match newest {
        None => MadeBy::Nobody,
        Some(newest) if newest >= ORIGINAL_MIGRATIONS => MadeBy::Original,
        Some(_) => MadeBy::Us,
    })
}
