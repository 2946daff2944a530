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

const USER: &str = "01890a5d-ac96-774b-bcce-b30209900001";
const OTHER_USER: &str = "01890a5d-ac96-774b-bcce-b30209900002";
const LAPTOP: &str = "01890a5d-ac96-774b-bcce-b30209900003";
const OPERATOR: &str = "01890a5d-ac96-774b-bcce-b30209900004";
const WORKSPACE: &str = "01890a5d-ac96-774b-bcce-b30209900005";
const PROJECT: &str = "01890a5d-ac96-774b-bcce-b30209900006";
const ENVIRONMENT: &str = "01890a5d-ac96-774b-bcce-b30209900007";
const INVITE: &str = "01890a5d-ac96-774b-bcce-b30209900008";
const GROUP: &str = "01890a5d-ac96-774b-bcce-b30209900009";
const EXPORT: &str = "01890a5d-ac96-774b-bcce-b3020990000a";
const MADE: &str = "2026-01-05T12:34:56.789+00:00";

/// The tables of the first generation. The capital words stand for the types, which differ between the databases.
const FIRST: &str = "
    CREATE TABLE _sqlx_migrations (version BIGINT PRIMARY KEY, description TEXT NOT NULL, success BOOLEAN NOT NULL, checksum BYTES NOT NULL,
        execution_time BIGINT NOT NULL);
    CREATE TABLE users (id UUID PRIMARY KEY, email TEXT NOT NULL UNIQUE, STAMPS);
    CREATE TABLE principals (id UUID PRIMARY KEY, user_id UUID REFERENCES users (id), name TEXT NOT NULL, public_key BYTES NOT NULL,
        x25519_public_key BYTES, STAMPS);
    CREATE TABLE workspaces (id UUID PRIMARY KEY, name TEXT NOT NULL UNIQUE, owner_user_id UUID NOT NULL REFERENCES users (id),
        kdf_salt BYTES NOT NULL, kdf_m_cost_kib INTEGER NOT NULL, kdf_t_cost INTEGER NOT NULL, kdf_p_cost INTEGER NOT NULL, STAMPS);
    CREATE TABLE workspace_members (workspace_id UUID, user_id UUID, created_at TIME NOT NULL);
    CREATE TABLE workspace_principals (workspace_id UUID, principal_id UUID, ephemeral_pub BYTES NOT NULL, kek_wrapped BYTES NOT NULL,
        kek_nonce BYTES NOT NULL, created_at TIME NOT NULL);
    CREATE TABLE invites (id UUID PRIMARY KEY, token TEXT NOT NULL UNIQUE, kek_encrypted BYTES, kek_nonce BYTES, expires_at TIME NOT NULL,
        created_by_user_id UUID, revoked FLAG NOT NULL, STAMPS);
    CREATE TABLE invite_workspaces (invite_id UUID, workspace_id UUID, created_at TIME NOT NULL);
    CREATE TABLE projects (id UUID PRIMARY KEY, workspace_id UUID NOT NULL, name TEXT NOT NULL, STAMPS);
    CREATE TABLE environments (id UUID PRIMARY KEY, workspace_id UUID NOT NULL, project_id UUID NOT NULL, name TEXT NOT NULL,
        dek_wrapped BYTES NOT NULL, dek_nonce BYTES NOT NULL, version BIGINT NOT NULL DEFAULT 0, STAMPS);
    CREATE TABLE secrets (id UUID PRIMARY KEY, workspace_id UUID NOT NULL, env_id UUID NOT NULL, key_name TEXT NOT NULL,
        nonce BYTES NOT NULL, ciphertext BYTES NOT NULL, STAMPS)";

/// The tables of its successor, beside those.
const SECOND: &str = "
    ROLE_TYPE;
    CREATE TABLE workspace_permissions (workspace_id UUID, principal_id UUID, role ROLE NOT NULL, STAMPS);
    CREATE TABLE user_workspace_permissions (workspace_id UUID, user_id UUID, role ROLE NOT NULL, STAMPS);
    CREATE TABLE environment_permissions (environment_id UUID, principal_id UUID, role ROLE NOT NULL, created_at TIME NOT NULL);
    CREATE TABLE groups (id UUID PRIMARY KEY, workspace_id UUID NOT NULL, name TEXT NOT NULL, description TEXT, STAMPS);
    CREATE TABLE group_members (group_id UUID, user_id UUID, created_at TIME NOT NULL);
    CREATE TABLE group_project_permissions (project_id UUID, group_id UUID, role ROLE NOT NULL, STAMPS);
    CREATE TABLE audit_logs (id UUID PRIMARY KEY, timestamp TIME NOT NULL, principal_id UUID NOT NULL, user_id UUID, action TEXT NOT NULL,
        resource_type TEXT NOT NULL, resource_id TEXT NOT NULL, workspace_id UUID, project_id UUID, environment_id UUID,
        result TEXT NOT NULL, reason TEXT, details JSON, client_ip TEXT);
    CREATE TABLE principal_exports (id UUID PRIMARY KEY, export_code TEXT NOT NULL UNIQUE, token_hash TEXT NOT NULL UNIQUE,
        verification_salt BYTES NOT NULL, user_id UUID NOT NULL, principal_id UUID NOT NULL, encrypted_data BYTES NOT NULL,
        salt BYTES NOT NULL, nonce BYTES NOT NULL, expires_at TIME NOT NULL, consumed FLAG NOT NULL, failed_attempts INTEGER NOT NULL,
        created_at TIME NOT NULL)";

/// What the original keeps, that is: an address in capitals, an invite with its token, the version of an environment.
const CONTENT: &str = "
    INSERT INTO _sqlx_migrations VALUES (20251230171100, 'init', TRUE, bytes(1), 1);
    INSERT INTO users VALUES ('USER', 'Owner@Example.com', 'MADE', 'MADE'), ('OTHER_USER', 'member@example.com', 'MADE', 'MADE');
    INSERT INTO principals VALUES ('LAPTOP', 'USER', 'laptop', bytes(32), bytes(31), 'MADE', 'MADE'),
        ('OPERATOR', NULL, 'operator', bytes(33), NULL, 'MADE', 'MADE');
    INSERT INTO workspaces VALUES ('WORKSPACE', 'acme', 'USER', bytes(16), 65536, 3, 1, 'MADE', 'MADE');
    INSERT INTO workspace_members VALUES ('WORKSPACE', 'USER', 'MADE'), ('WORKSPACE', 'OTHER_USER', 'MADE');
    INSERT INTO workspace_principals VALUES ('WORKSPACE', 'LAPTOP', bytes(32), bytes(48), bytes(24), 'MADE');
    INSERT INTO invites VALUES ('INVITE', 'the token', bytes(48), bytes(24), '2126-01-05T12:34:56+00:00', 'USER', FALSE, 'MADE', 'MADE');
    INSERT INTO invite_workspaces VALUES ('INVITE', 'WORKSPACE', 'MADE');
    INSERT INTO projects VALUES ('PROJECT', 'WORKSPACE', 'backend', 'MADE', 'MADE');
    INSERT INTO environments VALUES ('ENVIRONMENT', 'WORKSPACE', 'PROJECT', 'production', bytes(48), bytes(24), 42, 'MADE', 'MADE');
    INSERT INTO secrets VALUES ('01890a5d-ac96-774b-bcce-b30209900010', 'WORKSPACE', 'ENVIRONMENT', 'A', bytes(24), bytes(20), 'MADE', 'MADE'),
        ('01890a5d-ac96-774b-bcce-b30209900011', 'WORKSPACE', 'ENVIRONMENT', 'B', bytes(24), bytes(30), 'MADE', 'MADE')";

const SECOND_CONTENT: &str = "
    INSERT INTO workspace_permissions VALUES ('WORKSPACE', 'OPERATOR', 'read', 'MADE', 'MADE');
    INSERT INTO user_workspace_permissions VALUES ('WORKSPACE', 'OTHER_USER', 'write', 'MADE', 'MADE');
    INSERT INTO environment_permissions VALUES ('ENVIRONMENT', 'LAPTOP', 'admin', 'MADE');
    INSERT INTO groups VALUES ('GROUP', 'WORKSPACE', 'ops', NULL, 'MADE', 'MADE');
    INSERT INTO group_members VALUES ('GROUP', 'USER', 'MADE');
    INSERT INTO group_project_permissions VALUES ('PROJECT', 'GROUP', 'admin', 'MADE', 'MADE');
    INSERT INTO audit_logs VALUES ('01890a5d-ac96-774b-bcce-b30209900012', 'MADE', 'LAPTOP', 'USER', 'secret.read', 'secret', 'A', 'WORKSPACE',
        NULL, NULL, 'success', NULL, NULL, NULL);
    INSERT INTO principal_exports VALUES ('EXPORT', 'exp_aaaaaaaa', 'the hash', bytes(16), 'USER', 'LAPTOP', bytes(40), bytes(16), bytes(24),
        '2126-01-05T12:34:56+00:00', FALSE, 0, 'MADE')";

/// Runs statements in the database's own spelling.
async fn run(database: &Database, statements: &[&str]) {
    let is_sqlite = matches!(database.location, Location::Sqlite { .. });
    for statement in statements.iter().flat_map(|all| all.split(';')) {
        let mut sql = statement.to_owned();
        let stamps = "created_at TIME NOT NULL, updated_at TIME NOT NULL";
        let ids = [
            ("'OTHER_USER'", OTHER_USER),
            ("'USER'", USER),
            ("'LAPTOP'", LAPTOP),
            ("'OPERATOR'", OPERATOR),
            ("'WORKSPACE'", WORKSPACE),
            ("'PROJECT'", PROJECT),
            ("'ENVIRONMENT'", ENVIRONMENT),
            ("'INVITE'", INVITE),
            ("'GROUP'", GROUP),
            ("'EXPORT'", EXPORT),
            ("'MADE'", MADE),
        ];
        for (word, id) in ids {
            sql = sql.replace(word, &format!("'{id}'"));
        }
        sql = sql.replace("STAMPS", stamps);
        while let Some((before, (length, after))) = sql
            .split_once("bytes(")
            .and_then(|(before, rest)| Some((before.to_owned(), rest.split_once(')')?)))
            .map(|(before, (length, after))| (before, (length.parse::<usize>().unwrap(), after.to_owned())))
        {
            let hex = format!("{length:02x}").repeat(length);
            let literal = if is_sqlite { format!("x'{hex}'") } else { format!("'\\x{hex}'::bytea") };
            sql = before + &literal + &after;
        }
        let types = if is_sqlite {
            [
                (" UUID", " TEXT"),
                (" BYTES", " BLOB"),
                (" TIME ", " TEXT "),
                (" FLAG", " INTEGER"),
                ("ROLE_TYPE", "SELECT 1"),
                (" ROLE ", " TEXT "),
                (" JSON", " TEXT"),
            ]
        } else {
            [
                (" UUID", " UUID"),
                (" BYTES", " BYTEA"),
                (" TIME ", " TIMESTAMPTZ "),
                (" FLAG", " BOOLEAN"),
                ("ROLE_TYPE", "CREATE TYPE role AS ENUM ('admin', 'write', 'read')"),
                (" ROLE ", " role "),
                (" JSON", " JSONB"),
            ]
        };
        for (word, own) in types {
            sql = sql.replace(word, own);
        }
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
