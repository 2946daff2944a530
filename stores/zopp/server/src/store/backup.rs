//! Backups: a copy of everything at one moment, and the way back.
//!
//! A backup is a SQLite file, whichever database it was made of, and either database takes it. So a backup also moves a server from one
//! database to the other.
//!
//! A restored database lacks the latest changes, but clients have seen their versions. If the server counted on from the backup, a version would
//! come back with other content. A restore therefore moves the version of each environment past all that were ever announced ([`floor`]).

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

use super::{
    AuditRow, Location, OpenError, SQLITE_BEGIN, Store, StoreError, audit,
    open::{MadeBy, made_by},
    partial::{Partial, SIDE_FILES, remove_abandoned, with_suffix},
    settings::remember_restore,
    sql::{self, Pool, Transaction},
    transfer,
};
use crate::clock;

/// A version beyond the clock was made by a clock that was wrong. No server makes so many changes between a backup and its restore.
const MARGIN: i64 = 1_000_000_000;
/// How PostgreSQL begins to read a whole database of one moment, however long that takes.
const LONG_READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
    SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0";
/// How PostgreSQL begins to write a whole database, alone, however long that takes.
const LONG_WRITE: &str = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0; \
    SET LOCAL idle_in_transaction_session_timeout = 0; SELECT pg_advisory_xact_lock(8821962840116625409)";
/// SQLite's codes of a file that is something else, and of one that is damaged.
const NOT_A_DATABASE: &str = "26";
const CORRUPT: &str = "11";

/// Why there is no backup, or no restored database. Each text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The new database, or the file to be written, is there already.
    #[error("{} exists already; stop the server that uses it and move it away, or name another file", .0.display())]
    Exists(PathBuf),
    /// A side file of an earlier database would be taken for one of the new file's.
    #[error("{} is left of an earlier database; move it away together with that database", .0.display())]
    SideFile(PathBuf),
    /// The PostgreSQL database to restore into has something in it.
    #[error("the database {0} is not empty; make a new one (createdb) and give its address")]
    NotEmpty(String),
    /// The backup was not made by this server.
    #[error("{} is a database of the original zopp-server; read it with: zopp-server import --from sqlite:{}", .0.display(), .0.display())]
    Original(PathBuf),
    /// The file is no database of this server.
    #[error("{} is not a backup of zopp-server", .0.display())]
    NoBackup(PathBuf),
    /// The file is damaged.
    #[error("{} is damaged: {what}; use another backup", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The words of SQLite.
        what: String,
    },
    /// The clock of this machine cannot be right.
    #[error(
        "the clock of this machine is behind the data, which was changed at {changed}: versions would come back with other content; set the \
         clock and try again"
    )]
    Clock {
        /// When the data was changed last.
        changed: jiff::Timestamp,
    },
    /// A file could not be read or written.
    #[error("cannot use {}: {source}; check that its disk has space and that this user may write there", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A database could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Rows could not be copied.
    #[error("copying failed: {0}")]
    Copy(#[from] sqlx::Error),
    /// The database failed.
    #[error("the database failed: {0}")]
    Store(#[from] StoreError),
}

/// The effect of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Restored {
    /// How many rows were copied; none if the database was restored by other means.
    pub rows: u64,
    /// How many environments have a new version.
    pub environments: u64,
    /// When the data was changed last, in Unix seconds; `None` for an empty database. All later changes are lost.
    pub changed_at: Option<i64>,
}

impl Store {
    /// Writes everything, as it is at one moment, into a new SQLite file that only this user can read. Servers go on meanwhile. Returns the number
    /// of rows.
    pub async fn back_up(&self, file: &Path) -> Result<u64, BackupError> {
        let copy = NewDatabase::create(&Location::file(file)).await?;
        let tables = copy.store.tables().await?;
        let mut from = self.readers.begin("BEGIN", LONG_READ).await?;
        let mut to = copy.begin().await?;
        let rows = transfer::copy(&tables, &mut from, &mut to).await?;
        to.commit().await?;
        drop(from);
        copy.publish().await?;
        Ok(rows)
    }

    /// Reads the backup in `file` into a new database: a SQLite file that does not exist, or a PostgreSQL database that is empty. `audit` is
    /// recorded in it.
    pub async fn restore(file: &Path, location: &Location, audit: &AuditRow) -> Result<Restored, BackupError> {
        let temporary = match location {
            Location::Sqlite { path, .. } => path.clone(),
            Location::Postgres(_) => std::env::temp_dir().join("zopp-restore"),
        };
        remove_abandoned(&temporary);
        let new = NewDatabase::create(location).await?;
        let unpacked = Partial::beside(&temporary)?;
        let copy = Self::unpack(file, unpacked.path()).await?;
        let tables = copy.tables().await?;
        let mut from = copy.read().await?;
        let mut to = new.begin().await?;
        let rows = transfer::copy(&tables, &mut from, &mut to).await?;
        let restored = move_versions(to, audit).await?;
        drop(from);
        copy.close().await;
        new.publish().await?;
        Ok(Restored { rows, ..restored })
    }

    /// Moves the version of each environment past all that were ever announced, for a database that was restored by other means or that lost
    /// commits in a fail-over. `audit` is recorded.
    pub async fn move_versions(&self, audit: &AuditRow) -> Result<Restored, BackupError> {
        move_versions(self.begin().await?, audit).await
    }

    /// A copy of the backup in `file` at `path`, an empty file, brought up to date.
    async fn unpack(file: &Path, path: &Path) -> Result<Self, BackupError> {
        let io = |source| BackupError::File { path: file.to_owned(), source };
        if !fs::metadata(file).map_err(io)?.is_file() {
            return Err(BackupError::NoBackup(file.to_owned()));
        }
        let damaged = |what: String| BackupError::Damaged { path: file.to_owned(), what };
        let refused = |error: sqlx::Error| match error
            .as_database_error()
            .and_then(sqlx::error::DatabaseError::code)
            .as_deref()
        {
            Some(NOT_A_DATABASE) => BackupError::NoBackup(file.to_owned()),
            Some(CORRUPT) => damaged(error.to_string()),
            _ => BackupError::Copy(error),
        };
        // Not copied as bytes: changes may still be in a side file, where the backup was made by other means.
        let options = SqliteConnectOptions::new().filename(file).create_if_missing(false);
        let source = SqlitePool::connect_with(options).await.map_err(refused)?;
        match made_by(&Pool::Sqlite(source.clone())).await.map_err(refused)? {
            MadeBy::Us => {}
            MadeBy::Original => return Err(BackupError::Original(file.to_owned())),
            MadeBy::Nobody => return Err(BackupError::NoBackup(file.to_owned())),
        }
        let copied = sqlx::query("VACUUM INTO ?").bind(path.to_string_lossy().into_owned()).execute(&source).await;
        copied.map_err(refused)?;
        source.close().await;
        let copy = Self::open(&Location::file(path)).await?;
        let checked: Vec<(String,)> = sql::query_as("PRAGMA integrity_check(1)").fetch_all(&copy.writer).await?;
        match checked.into_iter().next() {
            Some((what,)) if what != "ok" => Err(damaged(what)),
            _ => Ok(copy),
        }
    }

    /// The tables of this SQLite file.
    pub(super) async fn tables(&self) -> Result<Vec<transfer::Table>, sqlx::Error> {
        transfer::tables(&mut self.writer.acquire().await?).await
    }
}

/// A database that is being filled. A SQLite file has its name once it is complete; PostgreSQL gets all in one transaction.
pub(super) struct NewDatabase {
    pub(super) store: Store,
    file: Option<(Partial, PathBuf)>,
}

impl NewDatabase {
    /// Makes the file, or opens a PostgreSQL database that must be empty.
    pub(super) async fn create(location: &Location) -> Result<Self, BackupError> {
        match location {
            Location::Sqlite { path, .. } => {
                remove_abandoned(path);
                refuse_existing(path)?;
                let partial = Partial::beside(path)?;
                let store = Store::open(&Location::file(partial.path())).await?;
                Ok(Self { store, file: Some((partial, path.clone())) })
            }
            Location::Postgres(address) => {
                let store = Store::open(location).await?;
                let mut transaction = store.read().await?;
                let (users, invites): (i64, i64) =
                    sql::query_as("SELECT (SELECT count(*) FROM users), (SELECT count(*) FROM invites)")
                        .fetch_one(&mut *transaction)
                        .await?;
                if users + invites > 0 {
                    return Err(BackupError::NotEmpty(address.to_string()));
                }
                Ok(Self { store, file: None })
            }
        }
    }

    /// Begins to fill it.
    pub(super) async fn begin(&self) -> Result<Transaction, sqlx::Error> {
        self.store.writer.begin(SQLITE_BEGIN, LONG_WRITE).await
    }

    /// Closes it. A file is then one that is safely on the disk, without side files, under its name.
    pub(super) async fn publish(self) -> Result<(), BackupError> {
        let Some((partial, path)) = self.file else {
            self.store.close().await;
            return Ok(());
        };
        self.store.readers.close().await;
        // Without side files, also for readers that cannot write.
        sql::query("PRAGMA journal_mode = DELETE").execute(&self.store.writer).await?;
        self.store.writer.close().await;
        partial.publish(&path)
    }
}

/// Moves all versions, records that, and commits.
async fn move_versions(mut transaction: Transaction, audit: &AuditRow) -> Result<Restored, BackupError> {
    let (newest, changed_at, recorded_at): (Option<i64>, Option<i64>, Option<i64>) = sql::query_as(
        "SELECT max(version), max(updated_at), (SELECT max(timestamp) / 1000 FROM audit_logs) FROM environments",
    )
    .fetch_one(&mut *transaction)
    .await?;
    let changed_at = changed_at.max(recorded_at);
    let now = clock::now_microseconds();
    if let Some(changed_at) = changed_at.filter(|changed_at| *changed_at > now / 1_000_000) {
        return Err(BackupError::Clock { changed: jiff::Timestamp::from_second(changed_at).unwrap_or_default() });
    }
    let floor = floor(now, newest.unwrap_or_default());
    let moved = sql::query("UPDATE environments SET version = ?").bind(floor).execute(&mut *transaction).await?;
    remember_restore(&mut transaction).await?;
    let details = serde_json::json!({ "version": floor }).to_string();
    audit::insert(&mut transaction, &AuditRow { details: Some(details), ..audit.clone() }).await?;
    transaction.commit().await?;
    Ok(Restored { rows: 0, environments: moved.rows_affected(), changed_at })
}

/// A version past all that were ever announced: the Unix time in microseconds. Versions count by one from 0, or from an earlier such moment, and no
/// server makes a change each microsecond. If the `newest` version is beyond the clock, which is then wrong or was, a large margin decides.
fn floor(now: i64, newest: i64) -> i64 {
    if newest < now { now } else { newest.saturating_add(MARGIN) }
}

/// Refuses to write over a database, or beside a side file that would be taken for the new one's.
fn refuse_existing(path: &Path) -> Result<(), BackupError> {
    if path.exists() {
        return Err(BackupError::Exists(path.to_owned()));
    }
    match SIDE_FILES.map(|suffix| with_suffix(path, suffix)).into_iter().find(|side| side.exists()) {
        Some(side) => Err(BackupError::SideFile(side)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restored_versions_are_past_all_that_were_announced() {
        let now = 1_800_000_000_000_000;
        for (newest, expected) in [
            (0, now),
            (5_000_000, now),
            // Restored an hour ago, and changed a thousand times a second since.
            (now - 3_600_000_000 + 3_600_000, now),
            // By a clock that was ahead.
            (now, now + MARGIN),
            (now + 77, now + 77 + MARGIN),
            (i64::MAX, i64::MAX),
        ] {
            assert_eq!(floor(now, newest), expected, "{newest}");
        }
    }
}
