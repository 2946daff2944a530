//! A SQLite file: one writer, several readers, write-ahead log.

use std::{fs::OpenOptions, io, os::unix::fs::OpenOptionsExt, path::Path, time::Duration};

use sqlx::{
    migrate::MigrateError,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous},
};

use super::{ACQUIRE_TIMEOUT, OpenError, READERS};
use crate::store::migrations;

/// How long another process (an `invite` command) may hold the write lock before a write here fails.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// The connections of the writer and of the readers.
pub(super) async fn open(path: &Path, create: bool) -> Result<(SqlitePool, SqlitePool), OpenError> {
    let connect_error = |source| OpenError::Connect { path: path.to_owned(), source };
    if create {
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
    migrate(&writer).await.map_err(|source| OpenError::Migrate { database: path.display().to_string(), source })?;
    let readers = pool()
        .max_connections(READERS)
        .connect_with(options.pragma("query_only", "on"))
        .await
        .map_err(connect_error)?;
    Ok((writer, readers))
}

/// Brings the schema up to date in one transaction that takes the write lock at once: a server and an `invite` command that open a
/// new file at the same time would otherwise both make the tables.
async fn migrate(writer: &SqlitePool) -> Result<(), MigrateError> {
    let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await?;
    migrations::sqlite().run(&mut *transaction).await?;
    Ok(transaction.commit().await?)
}

/// Creates the file, if it is missing, for this user alone; SQLite gives its side files the same mode.
fn create_private(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}
