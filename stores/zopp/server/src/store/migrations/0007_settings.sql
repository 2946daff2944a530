-- Decisions of the server's operator that count in each look at roles, on all replicas.
CREATE TABLE settings (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
