-- Since step 5, used signatures have a table of their own.
ALTER TABLE audit_logs DROP COLUMN signature_digest;

-- The row that readiness writes, to find out whether anything can be written.
CREATE TABLE readiness (
    id INTEGER PRIMARY KEY,
    -- Unix seconds.
    checked_at INTEGER NOT NULL
) STRICT;
INSERT INTO readiness (id, checked_at) VALUES (1, 0);
