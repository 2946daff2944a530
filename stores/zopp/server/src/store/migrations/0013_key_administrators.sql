-- Fingerprints, 20 bytes each, of the principals that may replace the key, and the signature over them. Missing: an earlier client made the link.
ALTER TABLE workspace_key_links ADD COLUMN administrators BLOB;
ALTER TABLE workspace_key_links ADD COLUMN administrators_signature BLOB;
