-- Signatures by which changes were made. Unique here, in the change's own transaction, so that no request takes effect twice, by
-- whichever replica it is received. A row can go once the signature is too old to be accepted.
CREATE TABLE used_signatures (
    -- SHA-256 of principal id and signature.
    digest BLOB PRIMARY KEY,
    principal_id TEXT NOT NULL,
    -- Unix seconds.
    used_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX used_signatures_by_time ON used_signatures (used_at);
-- Those that can still be valid; audit_logs.signature_digest is not written any more.
INSERT INTO used_signatures (digest, principal_id, used_at)
SELECT signature_digest, min(principal_id), max(timestamp) / 1000 FROM audit_logs
WHERE signature_digest IS NOT NULL AND timestamp > (SELECT max(timestamp) - 600000 FROM audit_logs)
GROUP BY signature_digest;
