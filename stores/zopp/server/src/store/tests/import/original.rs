//! A database of the original: its tables, built from its specification, and rows in them. Tests of the program compile this file too.

pub(crate) const USER: &str = "01890a5d-ac96-774b-bcce-b30209900001";
pub(crate) const OTHER_USER: &str = "01890a5d-ac96-774b-bcce-b30209900002";
pub(crate) const LAPTOP: &str = "01890a5d-ac96-774b-bcce-b30209900003";
pub(crate) const OPERATOR: &str = "01890a5d-ac96-774b-bcce-b30209900004";
pub(crate) const WORKSPACE: &str = "01890a5d-ac96-774b-bcce-b30209900005";
pub(crate) const PROJECT: &str = "01890a5d-ac96-774b-bcce-b30209900006";
pub(crate) const ENVIRONMENT: &str = "01890a5d-ac96-774b-bcce-b30209900007";
pub(crate) const INVITE: &str = "01890a5d-ac96-774b-bcce-b30209900008";
pub(crate) const GROUP: &str = "01890a5d-ac96-774b-bcce-b30209900009";
pub(crate) const EXPORT: &str = "01890a5d-ac96-774b-bcce-b3020990000a";
pub(crate) const MADE: &str = "2026-01-05T12:34:56.789+00:00";

/// The tables of the first generation. The capital words stand for the types, which differ between the databases.
pub(crate) const FIRST: &str = "
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
pub(crate) const SECOND: &str = "
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

/// Values that only the original keeps: an address in capitals, an invite with its token, the version of an environment.
pub(crate) const CONTENT: &str = "
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

pub(crate) const SECOND_CONTENT: &str = "
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

/// The statements of these parts, in the database's own spelling.
pub(crate) fn statements(parts: &[&str], is_sqlite: bool) -> Vec<String> {
    parts.iter().flat_map(|part| part.split(';')).map(|statement| spelled(statement, is_sqlite)).collect()
}

fn spelled(statement: &str, is_sqlite: bool) -> String {
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
    sql
}
