-- Earlier values of secrets. All of them are opaque to the server.

-- The version of the environment at which the value was set, and the principal that set it. 0 and NULL: before this was recorded.
ALTER TABLE secrets ADD COLUMN version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE secrets ADD COLUMN set_by TEXT;
-- The size of the environment's earlier values, as the limit counts it.
ALTER TABLE environments ADD COLUMN history_bytes INTEGER NOT NULL DEFAULT 0;

-- The principals are no references: a version outlives them.
CREATE TABLE secret_versions (
    env_id TEXT NOT NULL REFERENCES environments (id) ON DELETE CASCADE,
    key_name TEXT NOT NULL,
    version INTEGER NOT NULL,
    nonce BLOB NOT NULL,
    ciphertext BLOB NOT NULL,
    set_at INTEGER NOT NULL,
    set_by TEXT,
    ended_version INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    ended_by TEXT NOT NULL,
    -- 1: the key was deleted; 0: it got another value.
    deleted INTEGER NOT NULL,
    PRIMARY KEY (env_id, key_name, version)
) STRICT;
CREATE INDEX secret_versions_by_end ON secret_versions (env_id, ended_version);
