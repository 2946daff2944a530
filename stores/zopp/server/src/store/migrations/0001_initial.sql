-- Identifiers are UUID text, times Unix seconds (audit: milliseconds), so that instants compare as numbers.

CREATE TABLE users (
    id TEXT PRIMARY KEY,
    email TEXT NOT NULL UNIQUE,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;

CREATE TABLE principals (
    id TEXT PRIMARY KEY,
    user_id TEXT REFERENCES users (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    public_key BLOB NOT NULL,
    x25519_public_key BLOB,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
-- Names of service principals may repeat.
CREATE UNIQUE INDEX principals_by_user_and_name ON principals (user_id, name) WHERE user_id IS NOT NULL;

CREATE TABLE workspaces (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    owner_user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    kdf_salt BLOB NOT NULL,
    kdf_m_cost_kib INTEGER NOT NULL,
    kdf_t_cost INTEGER NOT NULL,
    kdf_p_cost INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
CREATE INDEX workspaces_by_owner ON workspaces (owner_user_id);

CREATE TABLE workspace_members (
    workspace_id TEXT NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, user_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX workspace_members_by_user ON workspace_members (user_id);

CREATE TABLE workspace_principals (
    workspace_id TEXT NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    principal_id TEXT NOT NULL REFERENCES principals (id) ON DELETE CASCADE,
    ephemeral_pub BLOB NOT NULL,
    kek_wrapped BLOB NOT NULL,
    kek_nonce BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, principal_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX workspace_principals_by_principal ON workspace_principals (principal_id);

CREATE TABLE invites (
    id TEXT PRIMARY KEY,
    -- SHA-256 of what the joiner presents: a copy of the database lets nobody in.
    token_hash BLOB NOT NULL UNIQUE,
    kek_encrypted BLOB,
    kek_nonce BLOB,
    expires_at INTEGER NOT NULL,
    created_by_user_id TEXT REFERENCES users (id) ON DELETE CASCADE,
    revoked INTEGER NOT NULL DEFAULT 0 CHECK (revoked IN (0, 1)),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
CREATE INDEX invites_by_creator ON invites (created_by_user_id);

CREATE TABLE invite_workspaces (
    invite_id TEXT NOT NULL REFERENCES invites (id) ON DELETE CASCADE,
    workspace_id TEXT NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    -- The order the creator gave: the first one names the workspace in the encryption context of the key.
    position INTEGER NOT NULL,
    PRIMARY KEY (invite_id, workspace_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX invite_workspaces_by_workspace ON invite_workspaces (workspace_id);

CREATE TABLE projects (
    id TEXT PRIMARY KEY,
    workspace_id TEXT NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    UNIQUE (workspace_id, name)
) STRICT;

CREATE TABLE environments (
    id TEXT PRIMARY KEY,
    workspace_id TEXT NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    project_id TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    dek_wrapped BLOB NOT NULL,
    dek_nonce BLOB NOT NULL,
    version INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    UNIQUE (workspace_id, project_id, name)
) STRICT;
CREATE INDEX environments_by_project ON environments (project_id);

CREATE TABLE secrets (
    id TEXT PRIMARY KEY,
    workspace_id TEXT NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    env_id TEXT NOT NULL REFERENCES environments (id) ON DELETE CASCADE,
    key_name TEXT NOT NULL,
    nonce BLOB NOT NULL,
    ciphertext BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    UNIQUE (workspace_id, env_id, key_name)
) STRICT;
CREATE INDEX secrets_by_environment ON secrets (env_id, key_name);

-- Permissions. Scopes and holders of grants are the same nine times: workspace, project or environment x principal, user or
-- group.
CREATE TABLE workspace_permissions (
    workspace_id TEXT NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    principal_id TEXT NOT NULL REFERENCES principals (id) ON DELETE CASCADE,
    role TEXT NOT NULL CHECK (role IN ('admin', 'write', 'read')),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, principal_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX workspace_permissions_by_principal ON workspace_permissions (principal_id);

CREATE TABLE project_permissions (
    project_id TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    principal_id TEXT NOT NULL REFERENCES principals (id) ON DELETE CASCADE,
    role TEXT NOT NULL CHECK (role IN ('admin', 'write', 'read')),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, principal_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX project_permissions_by_principal ON project_permissions (principal_id);

CREATE TABLE environment_permissions (
    environment_id TEXT NOT NULL REFERENCES environments (id) ON DELETE CASCADE,
    principal_id TEXT NOT NULL REFERENCES principals (id) ON DELETE CASCADE,
    role TEXT NOT NULL CHECK (role IN ('admin', 'write', 'read')),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (environment_id, principal_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX environment_permissions_by_principal ON environment_permissions (principal_id);

CREATE TABLE user_workspace_permissions (
    workspace_id TEXT NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    role TEXT NOT NULL CHECK (role IN ('admin', 'write', 'read')),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, user_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX user_workspace_permissions_by_user ON user_workspace_permissions (user_id);

CREATE TABLE user_project_permissions (
    project_id TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    role TEXT NOT NULL CHECK (role IN ('admin', 'write', 'read')),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, user_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX user_project_permissions_by_user ON user_project_permissions (user_id);

CREATE TABLE user_environment_permissions (
    environment_id TEXT NOT NULL REFERENCES environments (id) ON DELETE CASCADE,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    role TEXT NOT NULL CHECK (role IN ('admin', 'write', 'read')),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (environment_id, user_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX user_environment_permissions_by_user ON user_environment_permissions (user_id);

CREATE TABLE groups (
    id TEXT PRIMARY KEY,
    workspace_id TEXT NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    description TEXT,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    UNIQUE (workspace_id, name)
) STRICT;

CREATE TABLE group_members (
    group_id TEXT NOT NULL REFERENCES groups (id) ON DELETE CASCADE,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (group_id, user_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX group_members_by_user ON group_members (user_id);

CREATE TABLE group_workspace_permissions (
    workspace_id TEXT NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    group_id TEXT NOT NULL REFERENCES groups (id) ON DELETE CASCADE,
    role TEXT NOT NULL CHECK (role IN ('admin', 'write', 'read')),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, group_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX group_workspace_permissions_by_group ON group_workspace_permissions (group_id);

CREATE TABLE group_project_permissions (
    project_id TEXT NOT NULL REFERENCES projects (id) ON DELETE CASCADE,
    group_id TEXT NOT NULL REFERENCES groups (id) ON DELETE CASCADE,
    role TEXT NOT NULL CHECK (role IN ('admin', 'write', 'read')),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (project_id, group_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX group_project_permissions_by_group ON group_project_permissions (group_id);

CREATE TABLE group_environment_permissions (
    environment_id TEXT NOT NULL REFERENCES environments (id) ON DELETE CASCADE,
    group_id TEXT NOT NULL REFERENCES groups (id) ON DELETE CASCADE,
    role TEXT NOT NULL CHECK (role IN ('admin', 'write', 'read')),
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (environment_id, group_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX group_environment_permissions_by_group ON group_environment_permissions (group_id);

-- No foreign keys: what was done stays on record after what it was done to is gone.
CREATE TABLE audit_logs (
    id TEXT PRIMARY KEY,
    timestamp INTEGER NOT NULL,
    principal_id TEXT NOT NULL,
    user_id TEXT,
    action TEXT NOT NULL,
    resource_type TEXT NOT NULL,
    resource_id TEXT NOT NULL,
    workspace_id TEXT,
    project_id TEXT,
    environment_id TEXT,
    result TEXT NOT NULL CHECK (result IN ('success', 'permission_denied', 'not_found', 'invalid_request', 'error')),
    reason TEXT,
    details TEXT,
    client_ip TEXT
) STRICT;
CREATE INDEX audit_logs_by_time ON audit_logs (timestamp DESC);
CREATE INDEX audit_logs_by_principal ON audit_logs (principal_id);
CREATE INDEX audit_logs_by_user ON audit_logs (user_id);
CREATE INDEX audit_logs_by_action ON audit_logs (action);
CREATE INDEX audit_logs_by_result ON audit_logs (result);
CREATE INDEX audit_logs_by_workspace_and_time ON audit_logs (workspace_id, timestamp DESC);

CREATE TABLE principal_exports (
    id TEXT PRIMARY KEY,
    export_code TEXT NOT NULL UNIQUE,
    token_hash TEXT NOT NULL UNIQUE,
    verification_salt BLOB NOT NULL,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    principal_id TEXT NOT NULL REFERENCES principals (id) ON DELETE CASCADE,
    encrypted_data BLOB NOT NULL,
    salt BLOB NOT NULL,
    nonce BLOB NOT NULL,
    expires_at INTEGER NOT NULL,
    consumed INTEGER NOT NULL DEFAULT 0 CHECK (consumed IN (0, 1)),
    failed_attempts INTEGER NOT NULL DEFAULT 0,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT;
CREATE INDEX principal_exports_by_principal ON principal_exports (principal_id);
