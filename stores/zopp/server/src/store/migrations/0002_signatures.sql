-- Which signed request a change was made by: SHA-256 of principal id and signature. Read at the start of the server for as long
-- as signatures are valid; of no use after that.
ALTER TABLE audit_logs ADD COLUMN signature_digest BLOB;
