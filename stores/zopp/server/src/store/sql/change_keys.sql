CREATE PROCEDURE {name}({types}
    p_principal TEXT, p_user TEXT, p_workspace TEXT, p_environment TEXT, p_project TEXT, p_recorded_workspace TEXT,
    p_recorded_environment TEXT, p_resource TEXT,
    p_outcome TEXT, p_now BIGINT, p_milliseconds BIGINT,
    p_change TEXT, p_step BIGINT, p_channel TEXT,
    p_keeps BOOLEAN, p_versions BIGINT, p_row_bytes BIGINT, p_max_keys BIGINT, p_max_bytes BIGINT,
    p_digests BYTEA[], p_keys TEXT[], p_nonces BYTEA[], p_ciphertexts BYTEA[], p_ids TEXT[],
    p_audit_ids TEXT[], p_actions TEXT[], p_names TEXT[], p_details TEXT[], p_addresses TEXT[],
    p_before TEXT[], p_after TEXT[],
    INOUT zopp_version BIGINT, INOUT zopp_history BIGINT, INOUT zopp_created BIGINT[])
LANGUAGE plpgsql AS $zopp$
DECLARE
    -- The environment as it becomes.
    v_version BIGINT;
    v_keys BIGINT;
    v_bytes BIGINT;
    v_history BIGINT;
    -- What a key has before.
    v_exists BOOLEAN;
    v_id TEXT;
    v_since BIGINT;
    v_nonce BYTEA;
    v_ciphertext BYTEA;
    v_set_at BIGINT;
    v_set_by TEXT;
    v_former_length BIGINT;
    -- NULL: the key is deleted.
    v_length BIGINT;
    v_erased BIGINT;
BEGIN
    -- Functions have their schema: on the search path there can be another role's function whose types fit better.
    -- Each statement sees what was committed before it began, such as a revocation that it waited for. A session that a pooler opened
    -- without our settings may be another one.
    IF pg_catalog.current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'a change needs the isolation level read committed: let the pooler pass the settings of a session on';
    END IF;
    -- As an expression, which PostgreSQL evaluates without a plan.
    IF pg_catalog.pg_advisory_xact_lock_shared(8821962840116625409) IS NULL THEN END IF;
    {questions}
    -- In one order, so that replicas that got the same requests do not wait for each other.
    INSERT INTO used_signatures (digest, principal_id, used_at)
        SELECT digest, p_principal, p_now FROM pg_catalog.unnest(p_digests) digest ORDER BY digest ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS v_length = ROW_COUNT;
    IF v_length < pg_catalog.cardinality(p_digests) THEN
        RAISE EXCEPTION USING ERRCODE = 'ZP001', MESSAGE = 'the change is refused: replayed';
    END IF;

    -- The environment first, as each change of its secrets does: none waits for one that waits for it.
    SELECT version, key_count, byte_count, history_bytes INTO v_version, v_keys, v_bytes, v_history
        FROM environments WHERE id = p_environment FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'ZP001', MESSAGE = 'the change is refused: environment';
    END IF;
    zopp_created := '{}';
    FOR i IN 1 .. pg_catalog.cardinality(p_keys) LOOP
        v_version := v_version + p_step;
        SELECT id, version, nonce, ciphertext, updated_at, set_by INTO v_id, v_since, v_nonce, v_ciphertext, v_set_at, v_set_by
            FROM secrets WHERE env_id = p_environment AND key_name = p_keys[i];
        v_exists := FOUND;
        v_former_length := pg_catalog.length(v_ciphertext);
        v_length := pg_catalog.length(p_ciphertexts[i]);
        IF v_exists AND p_keeps THEN
            -- A conflict means that versions were counted anew by other means than a restore. The change is worth more than the history.
            INSERT INTO secret_versions (env_id, key_name, version, nonce, ciphertext, set_at, set_by, ended_version, ended_at, ended_by, deleted)
                VALUES (p_environment, p_keys[i], v_since, v_nonce, v_ciphertext, v_set_at, v_set_by,
                    v_version, p_now, p_principal, CASE WHEN v_length IS NULL THEN 1 ELSE 0 END)
                ON CONFLICT (env_id, key_name, version) DO NOTHING;
            IF FOUND THEN
                v_history := v_history + v_former_length + p_row_bytes;
            END IF;
            FOR v_erased IN
                DELETE FROM secret_versions WHERE env_id = p_environment AND key_name = p_keys[i] AND version <= (
                    SELECT version FROM secret_versions WHERE env_id = p_environment AND key_name = p_keys[i]
                    ORDER BY version DESC OFFSET p_versions LIMIT 1)
                RETURNING pg_catalog.length(ciphertext)
            LOOP
                v_history := v_history - v_erased - p_row_bytes;
            END LOOP;
        END IF;

        IF v_exists THEN
            v_keys := v_keys - 1;
            v_bytes := v_bytes - v_former_length;
        END IF;
        IF v_length IS NULL THEN
            IF NOT v_exists THEN
                RAISE EXCEPTION USING ERRCODE = 'ZP001', MESSAGE = 'the change is refused: missing';
            END IF;
            DELETE FROM secrets WHERE id = v_id;
        ELSE
            v_keys := v_keys + 1;
            v_bytes := v_bytes + v_length;
            IF v_keys > p_max_keys AND NOT v_exists THEN
                RAISE EXCEPTION USING ERRCODE = 'ZP001', MESSAGE = 'the change is refused: keys';
            END IF;
            -- A write that makes an environment no larger is accepted even above the limit.
            IF v_bytes > p_max_bytes AND NOT (v_exists AND v_former_length >= v_length) THEN
                RAISE EXCEPTION USING ERRCODE = 'ZP001', MESSAGE = 'the change is refused: bytes';
            END IF;
            IF v_exists THEN
                UPDATE secrets SET nonce = p_nonces[i], ciphertext = p_ciphertexts[i], updated_at = p_now, version = v_version,
                    set_by = p_principal WHERE id = v_id;
            ELSE
                INSERT INTO secrets (id, workspace_id, env_id, key_name, nonce, ciphertext, created_at, updated_at, version, set_by)
                    VALUES (p_ids[i], p_workspace, p_environment, p_keys[i], p_nonces[i], p_ciphertexts[i], p_now, p_now, v_version,
                        p_principal);
                zopp_created := pg_catalog.array_append(zopp_created, i::BIGINT);
            END IF;
        END IF;
        INSERT INTO audit_logs (id, timestamp, principal_id, user_id, action, resource_type, resource_id, workspace_id, project_id,
                environment_id, result, reason, details, client_ip)
            VALUES (p_audit_ids[i], p_milliseconds, p_principal, p_user,
                CASE WHEN v_exists THEN p_actions[i] ELSE 'secret.create' END, p_resource, p_names[i], p_recorded_workspace, p_project,
                p_recorded_environment, p_outcome, NULL, p_details[i], p_addresses[i]);
        IF p_channel IS NOT NULL THEN
            IF pg_catalog.pg_notify(p_channel, p_before[i] || v_version::TEXT || p_after[i]) IS NULL THEN END IF;
        END IF;
    END LOOP;
    UPDATE environments SET version = v_version, change_id = coalesce(p_change, change_id), updated_at = p_now,
        key_count = v_keys, byte_count = v_bytes, history_bytes = v_history WHERE id = p_environment;
    zopp_version := v_version;
    zopp_history := v_history;
END
$zopp$
