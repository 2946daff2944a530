-- How full an environment is, kept with each change of it, so that its limits cost no count.
ALTER TABLE environments ADD COLUMN key_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE environments ADD COLUMN byte_count INTEGER NOT NULL DEFAULT 0;
UPDATE environments SET
    key_count = (SELECT count(*) FROM secrets WHERE env_id = environments.id),
    byte_count = (SELECT coalesce(sum(length(ciphertext)), 0) FROM secrets WHERE env_id = environments.id);
