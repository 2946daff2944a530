//! The database behind the servers of this suite: a SQLite file, or a PostgreSQL database where the environment says so.
//!
//! `ZOPP_TEST_DATABASE=postgres cargo test -p konverge-zopp-server --test it -- NAME` runs tests on PostgreSQL.

use std::{path::PathBuf, process::Command};

use konverge_zopp_server::{serve::Options, store::Location};
use konverge_zopp_testing::postgres_database;
use sqlx::{AssertSqlSafe, FromRow, PgPool, SqlitePool, postgres::PgRow, sqlite::SqliteRow};

/// Names the database.
const SWITCH: &str = "ZOPP_TEST_DATABASE";
/// The lock that each change of the server takes on PostgreSQL.
const CHANGES: &str = "SELECT pg_advisory_xact_lock(8821962840116625409)";

/// Whether this run is on PostgreSQL.
pub(crate) fn is_postgres() -> bool {
    std::env::var(SWITCH).is_ok_and(|database| database == "postgres")
}

/// The database that belongs to a folder: always the same one.
pub(crate) async fn location(directory: &tempfile::TempDir) -> Location {
    if !is_postgres() {
        return Location::file(file(directory));
    }
    let kept = directory.path().join("postgres-address");
    if !kept.exists() {
        std::fs::write(&kept, postgres_database().await).unwrap();
    }
    Location::parse(&std::fs::read_to_string(kept).unwrap()).unwrap()
}

/// Options for a server on the database of a folder.
pub(crate) async fn options(directory: &tempfile::TempDir) -> Options {
    let location = location(directory).await;
    // As "serve" does by itself.
    let events = match &location {
        Location::Postgres(address) => Some(address.clone()),
        Location::Sqlite { .. } => None,
    };
    Options { events, ..Options::local(location) }
}

/// The SQLite file of a folder.
pub(crate) fn file(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("zopp.db")
}

/// A connection of somebody who reads and alters the database past the server.
pub(crate) enum Saboteur {
    /// One connection, which knows of its own changes to the schema.
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

/// Keeps the server from changing anything until it is released.
pub(crate) enum WriteLock {
    Sqlite(sqlx::Transaction<'static, sqlx::Sqlite>),
    Postgres(sqlx::Transaction<'static, sqlx::Postgres>),
}

/// A row of either database.
pub(crate) trait Row: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin {}

impl<T> Row for T where T: for<'r> FromRow<'r, SqliteRow> + for<'r> FromRow<'r, PgRow> + Send + Unpin {}

impl Saboteur {
    /// Of the database of a folder.
    pub(crate) async fn of(directory: &tempfile::TempDir) -> Self {
        if is_postgres() {
            let address = std::fs::read_to_string(directory.path().join("postgres-address")).unwrap();
            return Self::Postgres(PgPool::connect(&address).await.unwrap());
        }
        let url = format!("sqlite://{}", file(directory).display());
        let pool = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1).connect(&url).await.unwrap();
        Self::Sqlite(pool)
    }

    /// Runs a statement that both databases know.
    pub(crate) async fn run(&self, sql: &str) {
        let sql = AssertSqlSafe(sql.to_owned());
        match self {
            Self::Sqlite(pool) => drop(sqlx::query(sql).execute(pool).await.unwrap()),
            Self::Postgres(pool) => drop(sqlx::query(sql).execute(pool).await.unwrap()),
        }
    }

    /// The rows of a query that both databases know.
    pub(crate) async fn rows<T: Row>(&self, sql: &str) -> Vec<T> {
        let sql = AssertSqlSafe(sql.to_owned());
        match self {
            Self::Sqlite(pool) => sqlx::query_as(sql).fetch_all(pool).await.unwrap(),
            Self::Postgres(pool) => sqlx::query_as(sql).fetch_all(pool).await.unwrap(),
        }
    }

    /// Takes the lock that each change takes.
    pub(crate) async fn lock(&self) -> WriteLock {
        match self {
            Self::Sqlite(pool) => WriteLock::Sqlite(pool.begin_with("BEGIN IMMEDIATE").await.unwrap()),
            Self::Postgres(pool) => {
                let mut transaction = pool.begin().await.unwrap();
                sqlx::query(CHANGES).execute(&mut *transaction).await.unwrap();
                WriteLock::Postgres(transaction)
            }
        }
    }

    /// Lets no row into the audit log from now on.
    pub(crate) async fn fill_audit_log(&self) {
        self.run(match self {
            Self::Sqlite(_) => "CREATE TRIGGER full BEFORE INSERT ON audit_logs BEGIN SELECT RAISE(ABORT, 'full'); END",
            Self::Postgres(_) => "ALTER TABLE audit_logs ADD CONSTRAINT full_log CHECK (false) NOT VALID",
        })
        .await;
    }

    /// Lets rows in again.
    pub(crate) async fn empty_audit_log(&self) {
        self.run(match self {
            Self::Sqlite(_) => "DROP TRIGGER full",
            Self::Postgres(_) => "ALTER TABLE audit_logs DROP CONSTRAINT full_log",
        })
        .await;
    }
}

impl WriteLock {
    /// Gives it back.
    pub(crate) async fn release(self) {
        match self {
            Self::Sqlite(transaction) => transaction.rollback().await.unwrap(),
            Self::Postgres(transaction) => transaction.rollback().await.unwrap(),
        }
    }
}

/// All tests that do not choose their database, once more. Their server is started once, by a process of its own.
#[test]
fn the_suite_passes_on_postgres_as_well() {
    if is_postgres() {
        return;
    }
    let mut suite = Command::new(std::env::current_exe().unwrap());
    suite.env(SWITCH, "postgres");
    for chosen in ["command::", "crash::", "kills::", "outages::", "replicas::", "database::"] {
        suite.args(["--skip", chosen]);
    }
    let output = suite.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    let passed = said.split("test result: ok. ").nth(1).and_then(|rest| rest.split(' ').next()?.parse::<u32>().ok());
    assert!(passed.is_some_and(|passed| passed > 80), "{said}");
}
