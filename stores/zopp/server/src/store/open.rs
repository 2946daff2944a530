//! Opening the file: connections, settings, schema.

use std::{
    fs::OpenOptions,
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use sqlx::{
    migrate::MigrateError,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous},
};

use crate::limits::Limits;

use super::{Location, Store, migrations::migrator};

/// Readers in parallel. Reads are short and mostly in the page cache; more connections than this only cost memory.
const READERS: u32 = 8;
/// How long another process (an `invite` command) may hold the write lock before a write here fails.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a request may wait for a connection; longer than any transaction, shorter than a caller's patience.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);

/// Why the database could not be opened. Names the file and what to do.
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
        /// What SQLite said.
        source: sqlx::Error,
    },
    /// The schema could not be brought up to date.
    #[error(
        "cannot bring the database {} up to date: {source}; if another program or a newer zopp-server made this file, use \
         that one or give another file", path.display()
    )]
    Migrate {
        /// The file.
        path: PathBuf,
        /// What failed.
        source: sqlx::migrate::MigrateError,
    },
}

impl Store {
    /// Opens the file, creating it if the location allows it, and brings its schema up to date.
    pub async fn open(location: &Location) -> Result<Self, OpenError> {
        let path = &location.path;
        let connect_error = |source| OpenError::Connect { path: path.clone(), source };
        if location.create {
            create_private(path).map_err(|error| connect_error(sqlx::Error::Io(error)))?;
        }
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(false)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(BUSY_TIMEOUT);
        let pool = || SqlitePoolOptions::new().acquire_timeout(ACQUIRE_TIMEOUT);

        let writer = pool().max_connections(1).connect_with(options.clone()).await.map_err(connect_error)?;
        migrate(&writer).await.map_err(|source| OpenError::Migrate { path: path.clone(), source })?;
        let readers = pool()
            .max_connections(READERS)
            .connect_with(options.pragma("query_only", "on"))
            .await
            .map_err(connect_error)?;
        Ok(Self { writer, readers, limits: Limits::default() })
    }
}

/// Brings the schema up to date in one transaction that takes the write lock at once: a server and an `invite` command that open a
/// new file at the same time would otherwise both make the tables.
async fn migrate(writer: &SqlitePool) -> Result<(), MigrateError> {
    let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await?;
    migrator().run(&mut *transaction).await?;
    Ok(transaction.commit().await?)
}

/// Creates the file, if it is missing, for this user alone; SQLite gives its side files the same mode.
fn create_private(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}
