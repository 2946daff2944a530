//! A SQLite file: one writer, several readers, write-ahead log.

use std::{
    fs::OpenOptions,
    io,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

use sqlx::{
    AssertSqlSafe, Connection,
    migrate::MigrateError,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous},
};

use super::{ACQUIRE_TIMEOUT, BUSY_TIMEOUT, MadeBy, OpenError, made_by, not_migrated};
use crate::store::{migrations, sql::Pool};

/// Readers in parallel. Reads are short; each reader costs a thread and its caches.
const READERS: u32 = 4;
/// The page cache of a reader, in the spelling of SQLite: KiB, as a negative number. The system keeps pages as well, once for all readers.
const READER_CACHE: &str = "-1024";

/// After so many pages, 32 MiB of them, a commit also writes what is in the log into the file. With fewer, one commit of fifty would take several times as
/// long; upkeep empties the log each minute.
const CHECKPOINT_PAGES: &str = "8192";

/// The `user_version` of a file in which nothing that was deleted is left. Files of earlier versions have 0.
const CLEAN: i64 = 1;

/// The next step for a file that takes no changes.
pub(super) const MAKE_WRITABLE: &str =
    "let this user write to the file and to its directory, and check that the file system is not mounted read-only";

/// The connections of the writer and of the readers.
pub(super) async fn open(path: &Path, create: bool) -> Result<(SqlitePool, SqlitePool), OpenError> {
    let connect_error = |source| OpenError::Connect { path: path.to_owned(), source };
    if create {
        create_private(path).map_err(|error| connect_error(sqlx::Error::Io(error)))?;
    }
    warn_of_loose_mode(path);
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(BUSY_TIMEOUT);
    // A commit that fails, as on a full disk, ends the transaction, and sqlx still counts it. After that, the connection begins no
    // other one.
    let pool = || {
        SqlitePoolOptions::new()
            .acquire_timeout(ACQUIRE_TIMEOUT)
            // A file does not hang up.
            .test_before_acquire(false)
            .before_acquire(|connection, _| Box::pin(async move { Ok(!connection.is_in_transaction()) }))
    };

    // SQLite overwrites deleted and replaced content with zeros.
    let writing = options.clone().pragma("secure_delete", "on").pragma("wal_autocheckpoint", CHECKPOINT_PAGES);
    let writer = pool().max_connections(1).connect_with(writing).await.map_err(connect_error)?;
    let made_by = made_by(&Pool::Sqlite(writer.clone())).await.map_err(connect_error)?;
    if made_by == MadeBy::Original {
        return Err(OpenError::Original {
            database: path.display().to_string(),
            from: format!("sqlite:{}", path.display()),
        });
    }
    migrate(&writer).await.map_err(|source| not_migrated(path.display().to_string(), source, MAKE_WRITABLE))?;
    clean(&writer, path, made_by == MadeBy::Nobody).await.map_err(connect_error)?;
    let readers = pool()
        .max_connections(READERS)
        .connect_with(options.pragma("query_only", "on").pragma("cache_size", READER_CACHE))
        .await
        .map_err(connect_error)?;
    Ok((writer, readers))
}

/// Brings the schema up to date in one transaction that takes the write lock at once. Without the lock, a server and an `invite`
/// command that open a new file at the same time would both make the tables.
async fn migrate(writer: &SqlitePool) -> Result<(), MigrateError> {
    let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await?;
    migrations::sqlite().run(&mut *transaction).await?;
    Ok(transaction.commit().await?)
}

/// Removes, once, what earlier versions deleted and left in the file. A file that another process uses is left for the next start.
async fn clean(writer: &SqlitePool, path: &Path, is_new: bool) -> Result<(), sqlx::Error> {
    let mut connection = writer.acquire().await?;
    let version: i64 = sqlx::query_scalar("PRAGMA user_version").fetch_one(&mut *connection).await?;
    if version >= CLEAN {
        return Ok(());
    }
    let cleaned = async {
        if !is_new {
            sqlx::query("VACUUM").execute(&mut *connection).await?;
        }
        // Safe: made of a constant.
        let done = AssertSqlSafe(format!("PRAGMA user_version = {CLEAN}"));
        sqlx::query(done).execute(&mut *connection).await?;
        sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut *connection).await
    };
    if let Err(error) = cleaned.await {
        tracing::warn!(
            database = %path.display(),
            %error,
            "values that an earlier version deleted can still be in the file; the next start tries again to remove them"
        );
    }
    Ok(())
}

/// Warns if others on this machine can read the file or what SQLite keeps beside it.
fn warn_of_loose_mode(path: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        let Ok(metadata) = std::fs::metadata(&name) else { continue };
        let mode = metadata.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            let file = Path::new(&name).display();
            tracing::warn!(%file, mode = %format!("{mode:o}"), "other users of this machine can use the database file: chmod 600 {file}");
        }
    }
}

/// Creates the file, if it is missing, for this user alone; SQLite gives its side files the same mode.
fn create_private(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}
