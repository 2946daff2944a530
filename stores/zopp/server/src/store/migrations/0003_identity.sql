-- Losing an identity, and invites that can be used up.

-- From when on nothing is accepted from the principal any more.
ALTER TABLE principals ADD COLUMN disabled_at INTEGER;
-- A key belongs to one principal. Not unique here: files of earlier versions may hold keys twice. The server asks before it
-- inserts, within the transaction that inserts.
CREATE INDEX principals_by_public_key ON principals (public_key);
CREATE INDEX principals_by_x25519_public_key ON principals (x25519_public_key);

-- Devices of members that were taken out of a workspace, until they are granted access again.
CREATE TABLE workspace_bars (
    workspace_id TEXT NOT NULL REFERENCES workspaces (id) ON DELETE CASCADE,
    principal_id TEXT NOT NULL REFERENCES principals (id) ON DELETE CASCADE,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (workspace_id, principal_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX workspace_bars_by_principal ON workspace_bars (principal_id);

ALTER TABLE invites ADD COLUMN uses INTEGER NOT NULL DEFAULT 0;
ALTER TABLE invites ADD COLUMN max_uses INTEGER;
-- Users who joined by an invite: it is revoked when one of them is removed, who may still have the code.
CREATE TABLE invite_uses (
    invite_id TEXT NOT NULL REFERENCES invites (id) ON DELETE CASCADE,
    user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
    used_at INTEGER NOT NULL,
    PRIMARY KEY (invite_id, user_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX invite_uses_by_user ON invite_uses (user_id);
