//! Secrets: opaque ciphertexts under readable keys. Each change counts the environment's version up by one.

use futures::TryStreamExt;

use super::{
    AuditRow, Authority, Store, StoreError,
    batched_changes::SingleChange,
    keys::{KeyChange, KeysChange, Outcome},
    sql::{self, Pool},
};
use crate::{clock, events::Event};

/// A change is decided so often, if the rights of its caller change each time before it is made.
const DECISIONS: u32 = 10;

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
        let set = KeyChange { key: &secret.key, value: Some(secret), audit };
        self.change_key(&one(environment_id, Some(workspace_id), set)).await
    }

    /// Deletes one key and returns the new version. Returns [`StoreError::Missing`] if the key does not exist.
    pub async fn delete_secret(&self, environment_id: &str, key: &str, audit: &AuditRow) -> Result<i64, StoreError> {
        let delete = KeyChange { key, value: None, audit };
        Ok(self.change_key(&one(environment_id, None, delete)).await?.version)
    }

    /// Changes one key in a transaction of its own, or on PostgreSQL together with others of the same caller.
    async fn change_key(&self, change: &KeysChange<'_>) -> Result<Change, StoreError> {
        let together = if matches!(self.writer, Pool::Postgres(_)) { SingleChange::of(change) } else { None };
        match together {
            Some(change) => self.change_key_batched(change).await,
            None => self.change_alone(change).await,
        }
    }

    /// Changes one key in a transaction of its own.
    pub(super) async fn change_alone(&self, change: &KeysChange<'_>) -> Result<Change, StoreError> {
        let mut authority = change.keys[0].audit.authority.clone();
        let mut attempt = 0;
        loop {
            if !authority.is_decided() {
                authority = authority.check(&mut self.readers.acquire().await?).await?;
            }
            attempt += 1;
            match self.change_keys(change, &authority).await {
                // A caller that remembered the rights has to forget them, or each change would fail once.
                Err(StoreError::RightsChanged) if attempt < DECISIONS && !authority.is_remembered() => {}
                changed => {
                    let Outcome { version, history, created } = changed?;
                    self.trim_history_beyond(change.environment_id, history).await;
                    return Ok(Change { version, created: created.contains(&true) });
                }
            }
            authority = authority.check(&mut self.readers.acquire().await?).await?;
        }
    }

    /// Erases the oldest earlier values of an environment that has more than the limit allows. If that fails, the next change or start does it.
    pub(super) async fn trim_history_beyond(&self, environment_id: &str, bytes: i64) {
        if bytes > i64::from(self.limits.history_bytes)
            && let Err(error) = self.trim_history(environment_id).await
        {
            tracing::warn!(
                environment = environment_id,
                error = &error as &dyn std::error::Error,
                "earlier values beyond --max-history-bytes could not be erased; the next change of the environment tries again"
            );
        }
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

    /// Reads one secret and verifies the cached rights in one statement. Returns [`StoreError::RightsChanged`] if the rights of the reader are not those of
    /// `authority` any more, if the environment is gone, or if the value is larger than `bytes`.
    pub async fn secret_by(
        &self,
        authority: &Authority,
        environment_id: &str,
        key: &str,
        bytes: u64,
    ) -> Result<Option<SecretRow>, StoreError> {
        let query = "SELECT s.key_name, s.nonce, s.ciphertext FROM environments e \
                     LEFT JOIN secrets s ON s.env_id = e.id AND s.key_name = ?2 \
                     WHERE e.id = ?1 AND coalesce(octet_length(s.ciphertext), 0) <= ?3";
        let query = sql::query(query).bind(environment_id).bind(key).bind(i64::try_from(bytes).unwrap_or(i64::MAX));
        let facts = authority.question().ok_or(StoreError::RightsChanged)?;
        let rows = self.ask_first(query.and_finds(facts)).await?;
        let row = rows.first().ok_or(StoreError::RightsChanged)?;
        // A key that is not there is a row without one.
        let Some(key) = row.try_get(0)? else { return Ok(None) };
        Ok(Some(SecretRow { key, nonce: row.try_get(1)?, ciphertext: row.try_get(2)? }))
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

/// The change of one key.
fn one<'a>(environment_id: &'a str, workspace_id: Option<&'a str>, key: KeyChange<'a>) -> KeysChange<'a> {
    KeysChange { environment_id, workspace_id, keeps_former: true, keys: vec![key] }
}

pub(super) fn changed(key: &str, version: i64, deleted: bool) -> Event {
    Event::Changed { key: key.to_owned(), version, deleted, timestamp: clock::now() }
}

/// Stands for the content of an environment. The version alone does not: a restore of the database brings old ones back.
pub(super) fn tag(environment_id: &str, version: i64, change_id: &str) -> String {
    format!("{environment_id}.{version}.{change_id}")
}
