//! Databases of earlier versions are brought up to date with what is in them, also with what would be refused today.

use sqlx::{AssertSqlSafe, SqlSafeStr, migrate::Migrator, sqlite::SqliteConnectOptions};

use super::*;
use crate::store::migrations::{postgres_steps, steps};

/// The first step with which a server worked on PostgreSQL.
const FIRST_ON_POSTGRES: usize = 5;

fn all() -> Vec<sqlx::migrate::Migration> {
    steps(SqlSafeStr::into_sql_str)
}

/// Two principals with one key, and an environment with two values: possible in each version.
const CONTENT: [&str; 8] = [
    "INSERT INTO users VALUES ('u', 'a@example.com', 1, 1)",
    "INSERT INTO principals (id, user_id, name, public_key, x25519_public_key, created_at, updated_at) \
         VALUES ('p', 'u', 'laptop', x'01', x'02', 1, 1), ('q', 'u', 'copy', x'01', x'02', 1, 1)",
    "INSERT INTO workspaces (id, name, owner_user_id, kdf_salt, kdf_m_cost_kib, kdf_t_cost, kdf_p_cost, created_at, updated_at) \
         VALUES ('w', 'acme', 'u', x'00', 1, 1, 1, 1, 1)",
    "INSERT INTO workspace_members VALUES ('w', 'u', 1)",
    "INSERT INTO projects VALUES ('r', 'w', 'backend', 1, 1)",
    "INSERT INTO environments (id, workspace_id, project_id, name, dek_wrapped, dek_nonce, version, created_at, updated_at) \
         VALUES ('e', 'w', 'r', 'production', x'00', x'00', 7, 1, 1)",
    "INSERT INTO secrets (id, workspace_id, env_id, key_name, nonce, ciphertext, created_at, updated_at) \
         VALUES ('s', 'w', 'e', 'A', x'00', zeroblob(20), 1, 1), ('t', 'w', 'e', 'B', x'00', zeroblob(30), 1, 1)",
    "INSERT INTO invites (id, token_hash, expires_at, created_at, updated_at) VALUES ('i', x'00', 9, 1, 1)",
];

/// A file as the version with so many steps left it.
pub(super) async fn file_of_version(path: &std::path::Path, count: usize) {
    let options = SqliteConnectOptions::new().filename(path).create_if_missing(true).foreign_keys(true);
    let pool = sqlx::SqlitePool::connect_with(options).await.unwrap();
    Migrator::with_migrations(all().into_iter().take(count).collect()).run(&pool).await.unwrap();
    for statement in CONTENT {
        sqlx::query(statement).execute(&pool).await.unwrap();
    }
    pool.close().await;
}

/// A database of PostgreSQL as the version with so many steps left it.
async fn postgres_of_version(count: usize) -> Database {
    let database = Database::postgres().await;
    let Location::Postgres(address) = &database.location else { unreachable!("as made") };
    let pool = sqlx::PgPool::connect_with(address.options().unwrap()).await.unwrap();
    Migrator::with_migrations(postgres_steps().into_iter().take(count).collect()).run(&pool).await.unwrap();
    for statement in CONTENT {
        let bytes = [("x'00'", "00"), ("x'01'", "01"), ("x'02'", "02")];
        let statement = bytes.iter().fold(statement.to_owned(), |statement, (literal, hex)| {
            statement.replace(literal, &format!("decode('{hex}', 'hex')"))
        });
        let statement = [20, 30].iter().fold(statement, |statement, length| {
            statement.replace(&format!("zeroblob({length})"), &format!("decode(repeat('00', {length}), 'hex')"))
        });
        sqlx::query(AssertSqlSafe(statement)).execute(&pool).await.unwrap();
    }
    pool.close().await;
    database
}

#[tokio::test]
async fn each_earlier_version_is_brought_up_to_date() {
    for count in 1..=all().len() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("zopp.db");
        file_of_version(&path, count).await;
        is_up_to_date(&Location::Sqlite { path, create: false }, count).await;
    }
}

#[tokio::test]
async fn each_earlier_version_on_postgres_is_brought_up_to_date() {
    for count in FIRST_ON_POSTGRES..=all().len() {
        is_up_to_date(&postgres_of_version(count).await.location, count).await;
    }
}

/// As a backup and `pg_dump` use it.
#[tokio::test]
async fn a_start_while_tables_are_in_use_says_so_and_one_afterwards_is_well() {
    // The next step drops indexes of the audit log.
    let database = postgres_of_version(10).await;
    let Location::Postgres(address) = &database.location else { unreachable!("as made") };
    let reader = sqlx::PgPool::connect_with(address.options().unwrap()).await.unwrap();
    let mut reading = reader.begin().await.unwrap();
    sqlx::query("SELECT count(*) FROM audit_logs").execute(&mut *reading).await.unwrap();
    let refused = Store::open(&database.location).await.unwrap_err();
    assert!(matches!(refused, OpenError::InUse { .. }), "{refused}");
    reading.commit().await.unwrap();
    is_up_to_date(&database.location, 10).await;
}

async fn is_up_to_date(location: &Location, count: usize) {
    let store = Store::open(location).await.unwrap();
    let principal = store.principal("q").await.unwrap().unwrap();
    assert_eq!((principal.name.as_str(), principal.disabled_at), ("copy", None), "{count} steps");
    let invite = store.invites(None).await.unwrap().remove(0);
    assert_eq!((invite.uses, invite.max_uses), (0, None));
    assert_eq!(store.environment_version("e").await.unwrap(), Some(7));
    if count < 4 {
        let full: (i64, i64) =
            sql::query_as("SELECT key_count, byte_count FROM environments").fetch_one(&store.readers).await.unwrap();
        assert_eq!(full, (2, 50), "what was there is counted");
    }
    store.try_write().await.unwrap();
    // The value that was there begins the history.
    store.upsert_secret("w", "e", &secret("A"), &row(Action::SecretUpdate)).await.unwrap();
    let versions = store.secret_history("e", "A", Extent::All).await.unwrap().unwrap().versions;
    let shown: Vec<_> = versions
        .iter()
        .map(|row| (row.version, row.ciphertext.len(), row.set_by.is_some(), row.end.is_some()))
        .collect();
    assert_eq!(shown, [(8, 16, true, false), (0, 20, false, true)], "{count} steps");
    let unused = sql::query("SELECT signature_digest FROM audit_logs").fetch_optional(&store.readers).await;
    assert!(unused.is_err(), "the column is gone");
    // From now on a key is one principal's.
    let taken = NewPrincipal { name: "third".into(), public_key: vec![1], x25519_public_key: None };
    let proven = store.principal("p").await.unwrap();
    let refused = store.register("a@example.com", proven.as_ref(), false, &taken, &row(Action::UserRegister)).await;
    assert!(matches!(refused, Err(StoreError::KeyTaken)), "{refused:?}");
}
