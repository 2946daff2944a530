-- What proves that a server keeps nothing back, and by whom a workspace key was wrapped. All of it is opaque to the server.

-- Sealed under the environment's key, by the last client of Konverge's that changed the environment.
ALTER TABLE environments ADD COLUMN manifest_nonce BLOB;
ALTER TABLE environments ADD COLUMN manifest_ciphertext BLOB;
-- Another one after each change. With the version it stands for the content, also after a restore that brings versions back.
ALTER TABLE environments ADD COLUMN change_id TEXT NOT NULL DEFAULT '';

-- Ed25519, of the principal that wrapped the key.
ALTER TABLE workspace_principals ADD COLUMN signature BLOB;
-- NULL: the principal itself. Not a reference: a key stays when its signer is removed.
ALTER TABLE workspace_principals ADD COLUMN signer_id TEXT;
