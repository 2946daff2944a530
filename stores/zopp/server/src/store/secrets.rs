//! Secrets: opaque ciphertexts under readable keys. Each change counts the environment's version up by one.

use futures::TryStreamExt;

use super::{
    Action, AuditRow, Store, StoreError,
    audit::commit_with,
    history::{Ending, keep},
    new_id,
    sql::{self, Connection},
};
use crate::{
    clock,
    events::Event,
    limits::{Limits, Reached},
};

/// One secret.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretRow {
    /// Unique in the environment.
    pub key: String,
    /// 24 bytes.
    pub nonce: Vec<u8>,
    /// The encrypted value and its tag.
    pub ciphertext: Vec<u8>,
}

/// All secrets of an environment at one moment.
#[derive(Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The version they make up.
    pub version: i64,
    /// By key.
    pub secrets: Vec<SecretRow>,
}

/// The effect of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    /// The version of the environment from now on.
    pub version: i64,
    /// Was the key new?
    pub created: bool,
}

impl Store {
    /// Sets one key. `audit` is recorded as a creation or an update, whichever it was.
    pub async fn upsert_secret(
        &self,
        workspace_id: &str,
        environment_id: &str,
        secret: &SecretRow,
        audit: &AuditRow,
    ) -> Result<Change, StoreError> {
        let mut transaction = self.write_secret(audit).await?;
        let Counted { version, .. } = count_up(&mut transaction, environment_id, 1).await?;
        let setting = Setting { version, by: &audit.principal_id, keeps_former: true };
        let created = put(&mut transaction, workspace_id, environment_id, secret, &setting, &self.limits).await?;
        self.announce(&mut transaction, environment_id, &changed(&secret.key, version, false)).await?;
        let action = if created { Action::SecretCreate } else { Action::SecretUpdate };
        commit_with(transaction, &AuditRow { action, ..audit.clone() }).await?;
        Ok(Change { version, created })
    }

    /// Deletes one key; [`StoreError::Missing`] changes nothing. Returns the new version.
    pub async fn delete_secret(&self, environment_id: &str, key: &str, audit: &AuditRow) -> Result<i64, StoreError> {
        let mut transaction = self.write_secret(audit).await?;
        // The environment first, as each change of its secrets does: none waits for one that waits for it.
        let Counted { version, .. } = count_up(&mut transaction, environment_id, 1).await?;
        let ending = Ending { version, by: &audit.principal_id, deleted: true };
        keep(&mut transaction, environment_id, key, &ending, &self.limits).await?;
        remove(&mut transaction, environment_id, key).await?;
        self.announce(&mut transaction, environment_id, &changed(key, version, true)).await?;
        commit_with(transaction, audit).await?;
        Ok(version)
    }

    /// One secret.
    pub async fn secret(&self, environment_id: &str, key: &str) -> Result<Option<SecretRow>, StoreError> {
        let row = sql::query("SELECT key_name, nonce, ciphertext FROM secrets WHERE env_id = ? AND key_name = ?")
            .bind(environment_id)
            .bind(key)
            .fetch_optional(&self.readers)
            .await?;
        row.map(|row| Ok(SecretRow { key: row.try_get(0)?, nonce: row.try_get(1)?, ciphertext: row.try_get(2)? }))
            .transpose()
    }

    /// All secrets with the version they make up, by one query and so of one moment; `None` if the environment is gone.
    pub async fn snapshot(&self, environment_id: &str) -> Result<Option<Snapshot>, StoreError> {
        // Row by row: the list is in memory once.
        let mut rows = sql::query(
            "SELECT e.version, s.key_name, s.nonce, s.ciphertext FROM environments e LEFT JOIN secrets s ON s.env_id = e.id \
             WHERE e.id = ? ORDER BY s.key_name",
        )
        .bind(environment_id)
        .fetch(&self.readers);
        let (mut version, mut secrets) = (None, Vec::new());
        while let Some(row) = rows.try_next().await? {
            version = Some(row.try_get(0)?);
            // An empty environment is one row without a key.
            if let Some(key) = row.try_get(1)? {
                secrets.push(SecretRow { key, nonce: row.try_get(2)?, ciphertext: row.try_get(3)? });
            }
        }
        let Some(version) = version else { return Ok(None) };
        Ok(Some(Snapshot { version, secrets }))
    }
}

/// The change that sets a value.
pub(super) struct Setting<'a> {
    /// The version of the environment from then on.
    pub(super) version: i64,
    /// The principal.
    pub(super) by: &'a str,
    /// Whether the value that it replaces is kept as an earlier one.
    pub(super) keeps_former: bool,
}

/// Sets one key and returns whether it is new. Fails if the environment would grow beyond its limits.
pub(super) async fn put(
    connection: &mut Connection,
    workspace_id: &str,
    environment_id: &str,
    secret: &SecretRow,
    setting: &Setting<'_>,
    limits: &Limits,
) -> Result<bool, StoreError> {
    let now = clock::now();
    let length = i64::try_from(secret.ciphertext.len()).unwrap_or(i64::MAX);
    if fill(connection, environment_id, &secret.key, length, limits).await? {
        if setting.keeps_former {
            let ending = Ending { version: setting.version, by: setting.by, deleted: false };
            keep(connection, environment_id, &secret.key, &ending, limits).await?;
        }
        let update = "UPDATE secrets SET nonce = ?, ciphertext = ?, updated_at = ?, version = ?, set_by = ? \
                      WHERE env_id = ? AND key_name = ?";
        sql::query(update)
            .bind(&secret.nonce)
            .bind(&secret.ciphertext)
            .bind(now)
            .bind(setting.version)
            .bind(setting.by)
            .bind(environment_id)
            .bind(&secret.key)
            .execute(connection)
            .await?;
        return Ok(false);
    }
    sql::query(
        "INSERT INTO secrets (id, workspace_id, env_id, key_name, nonce, ciphertext, created_at, updated_at, version, set_by) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?8, ?9)",
    )
    .bind(new_id())
    .bind(workspace_id)
    .bind(environment_id)
    .bind(&secret.key)
    .bind(&secret.nonce)
    .bind(&secret.ciphertext)
    .bind(now)
    .bind(setting.version)
    .bind(setting.by)
    .execute(connection)
    .await?;
    Ok(true)
}

/// Deletes one key. Fails if it is not there.
pub(super) async fn remove(connection: &mut Connection, environment_id: &str, key: &str) -> Result<(), StoreError> {
    let deleted: Option<(i64,)> =
        sql::query_as("DELETE FROM secrets WHERE env_id = ? AND key_name = ? RETURNING length(ciphertext)")
            .bind(environment_id)
            .bind(key)
            .fetch_optional(&mut *connection)
            .await?;
    let Some((length,)) = deleted else { return Err(StoreError::Missing) };
    sql::query("UPDATE environments SET key_count = key_count - 1, byte_count = byte_count - ? WHERE id = ?")
        .bind(length)
        .bind(environment_id)
        .execute(connection)
        .await?;
    Ok(())
}

pub(super) fn changed(key: &str, version: i64, deleted: bool) -> Event {
    Event::Changed { key: key.to_owned(), version, deleted, timestamp: clock::now() }
}

/// Counts a value that is about to be set under a key, and returns whether the key has one already. Fails if the environment would grow beyond its
/// limits. The environment's row is locked by then, so nobody sets or deletes the key meanwhile.
async fn fill(
    connection: &mut Connection,
    environment_id: &str,
    key: &str,
    length: i64,
    limits: &Limits,
) -> Result<bool, StoreError> {
    let former: Option<(i64,)> =
        sql::query_as("SELECT length(ciphertext) FROM secrets WHERE env_id = ? AND key_name = ?")
            .bind(environment_id)
            .bind(key)
            .fetch_optional(&mut *connection)
            .await?;
    let (keys, bytes): (i64, i64) = sql::query_as(
        "UPDATE environments SET key_count = key_count + ?, byte_count = byte_count + ? WHERE id = ? \
         RETURNING key_count, byte_count",
    )
    .bind(i64::from(former.is_none()))
    .bind(length - former.map_or(0, |(length,)| length))
    .bind(environment_id)
    .fetch_one(connection)
    .await?;
    if former.is_none() && keys > i64::from(limits.environment_keys) {
        let limit = limits.environment_keys;
        return Err(Reached { what: "keys in an environment", limit, flag: "--max-environment-keys" }.into());
    }
    // A write that shrinks an environment is accepted even above the limit.
    if former.is_none_or(|(former,)| length > former) && bytes > i64::from(limits.environment_bytes) {
        let limit = limits.environment_bytes;
        return Err(Reached {
            what: "bytes of encrypted values in an environment",
            limit,
            flag: "--max-environment-bytes",
        }
        .into());
    }
    Ok(former.is_some())
}

/// The state of an environment after a change.
pub(super) struct Counted {
    pub(super) version: i64,
    pub(super) tag: String,
}

/// Counts a change of an environment by `steps`, which may be none. The first statement of every change: it orders them.
pub(super) async fn count_up(
    connection: &mut Connection,
    environment_id: &str,
    steps: i64,
) -> Result<Counted, StoreError> {
    let change_id = new_id();
    let row: Option<(i64,)> = sql::query_as(
        "UPDATE environments SET version = version + ?, change_id = ?, updated_at = ? WHERE id = ? RETURNING version",
    )
    .bind(steps)
    .bind(&change_id)
    .bind(clock::now())
    .bind(environment_id)
    .fetch_optional(connection)
    .await?;
    let (version,) = row.ok_or(StoreError::Missing)?;
    Ok(Counted { version, tag: tag(environment_id, version, &change_id) })
}

/// Stands for the content of an environment. The version alone does not: a restore of the database brings old ones back.
pub(super) fn tag(environment_id: &str, version: i64, change_id: &str) -> String {
    format!("{environment_id}.{version}.{change_id}")
}
