//! Databases of the original, whose schema is built from its specification, read into ours.

use sqlx::AssertSqlSafe;

use super::*;
use crate::rbac::Role;

on_both! {
    ids_versions_and_ciphertexts_stay_and_tokens_become_hashes,
    what_todays_rules_refuse_is_taken_and_reported,
    the_first_generation_has_fewer_tables,
    a_row_that_cannot_be_understood_is_named_and_nothing_is_left_behind,
    a_database_of_the_original_is_not_served_and_the_command_is_named,
}

mod original;

use original::{
    CONTENT, ENVIRONMENT, EXPORT, FIRST, GROUP, INVITE, LAPTOP, OPERATOR, OTHER_USER, PROJECT, SECOND, SECOND_CONTENT,
    USER, WORKSPACE, statements,
};

/// Runs statements in the database's own spelling.
async fn run(database: &Database, parts: &[&str]) {
    let is_sqlite = matches!(database.location, Location::Sqlite { .. });
    for sql in statements(parts, is_sqlite) {
        let done = match &database.location {
            Location::Sqlite { path, .. } => {
                let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path).create_if_missing(true);
                let pool = sqlx::SqlitePool::connect_with(options).await.unwrap();
                let done = sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(&pool).await.map(drop);
                pool.close().await;
                done
            }
            Location::Postgres(address) => {
                let pool = sqlx::PgPool::connect_with(address.options().unwrap()).await.unwrap();
                let done = sqlx::raw_sql(AssertSqlSafe(sql.clone())).execute(&pool).await.map(drop);
                pool.close().await;
                done
            }
        };
        done.unwrap_or_else(|error| panic!("{error}: {sql}"));
    }
}

/// A place for a new database, and the import into it.
async fn imported(from: &Database) -> (Database, Imported) {
    let to = Database::sqlite();
    let imported = Store::import(&from.location, &to.location, &row(Action::DatabaseImport)).await.unwrap();
    (to, imported)
}

async fn ids_versions_and_ciphertexts_stay_and_tokens_become_hashes(database: Database) {
    run(&database, &[FIRST, SECOND, CONTENT, SECOND_CONTENT]).await;
    let into_postgres = Database::postgres().await;
    let audit = row(Action::DatabaseImport);
    let elsewhere = Store::import(&database.location, &into_postgres.location, &audit).await.unwrap();
    let (to, imported) = imported(&database).await;
    assert_eq!(elsewhere, imported, "the same into either database");
    let again = Store::import(&database.location, &into_postgres.location, &audit).await.unwrap_err();
    assert!(matches!(again, ImportError::New(BackupError::NotEmpty(_))), "{again}");
    for target in [to, into_postgres] {
        let store = target.open().await;
        let snapshot = store.snapshot(ENVIRONMENT).await.unwrap().unwrap();
        assert_eq!(snapshot.version, 42);
        let lengths: Vec<(&str, usize)> =
            snapshot.secrets.iter().map(|secret| (secret.key.as_str(), secret.ciphertext.len())).collect();
        assert_eq!(lengths, [("A", 20), ("B", 30)]);
        let laptop = store.principal(LAPTOP).await.unwrap().unwrap();
        assert_eq!((laptop.name.as_str(), laptop.public_key.len()), ("laptop", 32));
        let made: Vec<(i64,)> =
            sql::query_as("SELECT DISTINCT created_at FROM principals").fetch_all(&store.readers).await.unwrap();
        assert_eq!(made, [(1_767_616_496,)]);
        assert_eq!(store.user_by_email("owner@example.com").await.unwrap().as_deref(), Some(USER));
        let invite = store.invite("the token").await.unwrap().unwrap();
        assert_eq!(
            (invite.id.as_str(), invite.workspaces[0].id.as_str(), invite.workspaces.len()),
            (INVITE, WORKSPACE, 1)
        );
        let export =
            store.open_export("exp_aaaaaaaa", "the hash", Opening::Read, |_, _| row(Action::PrincipalExportRead)).await;
        assert!(matches!(export.unwrap(), Opened::Done(_)));
        let scope = |environment_id: Option<&str>| Scope {
            workspace_id: WORKSPACE.into(),
            project_id: environment_id.map(|_| PROJECT.into()),
            environment_id: environment_id.map(Into::into),
        };
        let grants = store.grants(OPERATOR, None, &scope(Some(ENVIRONMENT))).await.unwrap();
        assert!(grants.allow(Role::Read) && !grants.allow(Role::Write), "{grants:?}");
        let grants = store.grants("nobody", Some(OTHER_USER), &scope(None)).await.unwrap();
        assert_eq!(grants.user, Some(Role::Write));
        let full: (i64, i64) =
            sql::query_as("SELECT key_count, byte_count FROM environments").fetch_one(&store.readers).await.unwrap();
        assert_eq!(full, (2, 50));
        let log = store.audit_log((None, None), None, 10).await.unwrap();
        let actions: Vec<&str> = log.iter().map(|entry| entry.action.as_str()).collect();
        assert_eq!(actions, ["secret.read", "database.import", "principal_export.read"]);
        assert_eq!(log[0].timestamp, 1_767_616_496_789);
        store.close().await;
    }
}

async fn what_todays_rules_refuse_is_taken_and_reported(database: Database) {
    let odd = "
        INSERT INTO users VALUES ('EXPORT', 'OWNER@example.com', '2026-02-01T00:00:00+00:00', 'MADE');
        INSERT INTO principals VALUES ('GROUP', 'EXPORT', 'phone', bytes(32), NULL, '2026-02-01T00:00:00+00:00', 'MADE');
        INSERT INTO projects VALUES ('INVITE', 'WORKSPACE', 'back:end', 'MADE', 'MADE');
        INSERT INTO secrets VALUES ('OPERATOR', 'WORKSPACE', 'ENVIRONMENT', 'A:B', bytes(23), bytes(20), 'MADE', 'MADE');
        CREATE TABLE billing (id TEXT);
        INSERT INTO billing VALUES ('x')";
    run(&database, &[FIRST, CONTENT, odd]).await;
    let (to, imported) = imported(&database).await;
    let all = imported.remarks.join("\n");
    for expected in [
        &format!("user \"OWNER@example.com\" ({EXPORT}) has the address of user {USER}"),
        &format!("principal \"phone\" ({GROUP}) and principal {LAPTOP} share a public key"),
        "project \"back:end\"",
        "key \"A:B\" in environment",
        "nobody can open it",
        "table billing is none",
        "user member@example.com in workspace \"acme\" has no role",
        "has a weak public key",
    ] {
        assert!(all.contains(expected), "{expected}: {all}");
    }
    let store = to.open().await;
    assert_eq!(store.user_by_email("owner@example.com").await.unwrap().as_deref(), Some(USER), "the first one");
    assert_eq!(store.secret(ENVIRONMENT, "A:B").await.unwrap().unwrap().nonce.len(), 23);
    assert!(store.project(WORKSPACE, "back:end").await.unwrap().is_some());
}

async fn the_first_generation_has_fewer_tables(database: Database) {
    run(&database, &[FIRST, CONTENT]).await;
    let (to, imported) = imported(&database).await;
    let counts: Vec<_> = imported.rows.iter().filter(|(_, count)| *count > 0).copied().collect();
    assert_eq!(
        counts,
        [
            ("users", 2),
            ("principals", 2),
            ("workspaces", 1),
            ("workspace_members", 2),
            ("workspace_principals", 1),
            ("invites", 1),
            ("invite_workspaces", 1),
            ("projects", 1),
            ("environments", 1),
            ("secrets", 2)
        ]
    );
    assert_eq!(to.open().await.environment_version(ENVIRONMENT).await.unwrap(), Some(42));
}

async fn a_row_that_cannot_be_understood_is_named_and_nothing_is_left_behind(database: Database) {
    // Refers to a project that is not there, which the original's foreign keys would not let in.
    let orphan = "INSERT INTO environments VALUES ('EXPORT', 'WORKSPACE', 'GROUP', 'x', bytes(48), bytes(24), 1, 'MADE', 'MADE')";
    run(&database, &[FIRST, CONTENT, orphan]).await;
    let to = Database::sqlite();
    let refused = Store::import(&database.location, &to.location, &row(Action::DatabaseImport)).await.unwrap_err();
    assert!(matches!(refused, ImportError::Insert { table: "environments", .. }), "{refused}");
    assert_eq!(std::fs::read_dir(to.directory.path()).unwrap().count(), 0, "nothing half-imported is left");
}

async fn a_database_of_the_original_is_not_served_and_the_command_is_named(database: Database) {
    run(&database, &[FIRST, CONTENT]).await;
    let refused = Store::open(&database.location).await.unwrap_err();
    assert!(matches!(refused, OpenError::Original { .. }), "{refused}");
    assert!(refused.to_string().contains("zopp-server import --from "), "{refused}");
    // And the other way round.
    let ours = Database::sqlite();
    ours.open().await.close().await;
    let to = Database::sqlite();
    let refused = Store::import(&ours.location, &to.location, &row(Action::DatabaseImport)).await.unwrap_err();
    assert!(matches!(refused, ImportError::Ours(_)), "{refused}");
}

#[tokio::test]
async fn an_invalid_time_is_named_with_its_row() {
    let database = Database::sqlite();
    let late = "INSERT INTO projects VALUES ('INVITE', 'WORKSPACE', 'late', 'yesterday', 'MADE')";
    run(&database, &[FIRST, CONTENT, late]).await;
    let to = Database::sqlite();
    let refused = Store::import(&database.location, &to.location, &row(Action::DatabaseImport)).await.unwrap_err();
    let ImportError::Row { table, id, column } = &refused else { panic!("{refused}") };
    assert_eq!((*table, id.as_str(), *column), ("projects", INVITE, "created_at"));
}

/// Values that SQLite stores in a column of any type.
const ODD_VALUES: [&str; 8] =
    ["NULL", "''", "'not what it should be'", "-1", "9223372036854775807", "1.5", "x'00ff'", "char(0, 55296, 1114111)"];

/// Of all pairs of a column and a value, every so manieth: another one of the same column each time.
const EVERY: usize = 5;

#[tokio::test]
async fn an_odd_value_is_taken_or_named_and_nothing_half_is_left() {
    let original = Database::sqlite();
    run(&original, &[FIRST, SECOND, CONTENT, SECOND_CONTENT]).await;
    let Location::Sqlite { path, .. } = &original.location else { panic!("a file") };
    let url = format!("sqlite://{}", path.display());
    let pool = sqlx::SqlitePool::connect(&url).await.unwrap();
    let columns: Vec<(String, String)> = sqlx::query_as(
        "SELECT m.name, c.name FROM sqlite_master m JOIN pragma_table_info(m.name) c \
         WHERE m.type = 'table' AND m.name <> '_sqlx_migrations' ORDER BY 1, c.cid",
    )
    .fetch_all(&pool)
    .await
    .unwrap();
    pool.close().await;
    let pairs = columns.iter().flat_map(|column| ODD_VALUES.map(|value| (column, value)));
    let (mut taken, mut refused) = (0, 0);
    for ((table, column), value) in pairs.step_by(EVERY) {
        let odd = tempfile::tempdir().unwrap();
        let file = odd.path().join("original.db");
        std::fs::copy(path, &file).unwrap();
        let pool = sqlx::SqlitePool::connect(&format!("sqlite://{}", file.display())).await.unwrap();
        let update = AssertSqlSafe(format!("UPDATE {table} SET {column} = {value}"));
        let updated = sqlx::query(update).execute(&pool).await;
        pool.close().await;
        // The original's own rules keep the rest out.
        if !updated.is_ok_and(|updated| updated.rows_affected() > 0) {
            continue;
        }
        let to = Database::sqlite();
        let imported = Store::import(&Location::file(&file), &to.location, &row(Action::DatabaseImport)).await;
        let place = format!("{table}.{column} = {value}");
        match imported {
            Ok(_) => {
                taken += 1;
                let store = to.open().await;
                let broken: Vec<(String,)> = sql::query_as("SELECT \"table\" FROM pragma_foreign_key_check")
                    .fetch_all(&store.writer)
                    .await
                    .unwrap();
                assert_eq!(broken, [], "{place}");
            }
            Err(error) => {
                refused += 1;
                // By its table, or by that of a row that refers to it.
                let text = error.to_string();
                assert!(columns.iter().any(|(table, _)| text.starts_with(&format!("{table}: "))), "{place}: {text}");
                assert_eq!(std::fs::read_dir(to.directory.path()).unwrap().count(), 0, "{place}");
            }
        }
    }
    assert!(taken > 20 && refused > 20, "{taken} {refused}");
}
