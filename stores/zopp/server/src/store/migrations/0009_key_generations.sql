-- How the keys of workspaces were replaced. All of it is opaque to the server.

ALTER TABLE workspaces ADD COLUMN key_generation INTEGER NOT NULL DEFAULT 1;
-- The generation of the workspace's key under which the environment's key was made.
ALTER TABLE environments ADD COLUMN made_under INTEGER NOT NULL DEFAULT 1;

-- The signer's keys are kept here, because the chain is needed for longer than the signer.
CREATE TABLE workspace_key_links (
    workspace_id TEXT NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    generation INTEGER NOT NULL,
    former_fingerprint BLOB NOT NULL,
    fingerprint BLOB NOT NULL,
    former_nonce BLOB NOT NULL,
    former_sealed BLOB NOT NULL,
    signature BLOB NOT NULL,
    signer_id TEXT NOT NULL,
    signer_name TEXT NOT NULL,
    signer_public_key BLOB NOT NULL,
    signer_x25519_public_key BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, generation)
) STRICT, WITHOUT ROWID;
