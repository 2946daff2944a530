//! Secrets: opaque ciphertexts under readable keys. Each change counts the environment's version up by one.

use futures::TryStreamExt;

use super::{
    AuditRow, BESIDE_OTHERS, SQLITE_BEGIN, Store, StoreError,
    audit::{insertion, insertion_of_set},
    history::{ROW_BYTES, growth, keeping, trimming},
    new_id, signatures,
    sql::{self, Answer, Query, Row, Step},
};
use crate::{
    clock,
    events::Event,
    limits::{Limits, Reached},
};

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
        let change = KeyChange::of(environment_id, &secret.key, audit);
        let id = new_id();
        let set = || change.set(NewValue { workspace_id, secret, id: &id }, &self.limits, audit);
        let Outcome { version, created, .. } = self.change_key(&change, set, Some(&id), audit).await?;
        Ok(Change { version, created })
    }

    /// Deletes one key; [`StoreError::Missing`] changes nothing. Returns the new version.
    pub async fn delete_secret(&self, environment_id: &str, key: &str, audit: &AuditRow) -> Result<i64, StoreError> {
        let change = KeyChange::of(environment_id, key, audit);
        let delete = || change.delete(&self.limits, audit);
        Ok(self.change_key(&change, delete, None, audit).await?.version)
    }

    /// Changes one key in a transaction of its own, which is one round trip to PostgreSQL. `id` is that of a new key's row, if one is set.
    async fn change_key<'a>(
        &self,
        change: &KeyChange<'a>,
        steps: impl Fn() -> Vec<Step<'a>>,
        id: Option<&'a str>,
        audit: &'a AuditRow,
    ) -> Result<Outcome, StoreError> {
        let change_id = new_id();
        let mut authority = audit.authority.clone();
        let mut attempt = 0;
        loop {
            if !authority.is_decided() {
                authority = authority.check(&mut self.readers.acquire().await?).await?;
            }
            attempt += 1;
            let count_up = counting_up(change.environment_id, &change_id, 1);
            let mut whole = vec![Step::of_postgres(sql::query(BESIDE_OTHERS))];
            whole.extend(authority.step());
            whole.extend(signatures::step(audit));
            // The environment first, as each change of its secrets does: none waits for one that waits for it.
            whole.push(Step::must_write(count_up, StoreError::Missing));
            whole.extend(steps());
            whole.extend(self.announcing_change(change.environment_id, change.key, id.is_none()));
            match self.writer.change(SQLITE_BEGIN, whole, change.outcome(id)).await {
                Err(StoreError::RightsChanged) if attempt < DECISIONS => {}
                changed => {
                    let outcome = Outcome::of(&changed?)?;
                    self.trim_history_beyond(change.environment_id, outcome.history).await;
                    return Ok(outcome);
                }
            }
            authority = authority.check(&mut self.readers.acquire().await?).await?;
        }
    }

    /// Erases the oldest earlier values of an environment that has more than the limit allows. If that fails, the next change or start does it.
    async fn trim_history_beyond(&self, environment_id: &str, bytes: i64) {
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

/// Counts keys (`?1`) and bytes (`?2`) in the place of those that an environment (`?3`) has of a key (`?4`).
macro_rules! count {
    () => {
        "key_count = key_count + ?1 - (SELECT count(*) FROM secrets WHERE env_id = ?3 AND key_name = ?4), \
         byte_count = byte_count + ?2 - (SELECT CAST(coalesce(sum(length(ciphertext)), 0) AS BIGINT) FROM secrets \
            WHERE env_id = ?3 AND key_name = ?4)"
    };
}

/// A change of one key. The statements of it come after the environment is counted up, which locks the environment's row.
pub(super) struct KeyChange<'a> {
    pub(super) environment_id: &'a str,
    pub(super) key: &'a str,
    /// The principal that makes it.
    pub(super) by: &'a str,
    /// Whether the value that ends is kept as an earlier one.
    pub(super) keeps_former: bool,
}

/// A value to be set.
#[derive(Clone, Copy)]
pub(super) struct NewValue<'a> {
    pub(super) workspace_id: &'a str,
    pub(super) secret: &'a SecretRow,
    /// The identifier of its row, if the key is new.
    pub(super) id: &'a str,
}

impl<'a> KeyChange<'a> {
    /// By the principal of an audit row, with the value that ends kept.
    fn of(environment_id: &'a str, key: &'a str, audit: &'a AuditRow) -> Self {
        Self { environment_id, key, by: &audit.principal_id, keeps_former: true }
    }

    /// Sets the key, and records that: `audit` as a creation or an update, whichever it is. Refused if the environment would grow beyond its limits.
    pub(super) fn set(&self, value: NewValue<'a>, limits: &Limits, audit: &'a AuditRow) -> Vec<Step<'a>> {
        let Self { environment_id, key, .. } = *self;
        let length = i64::try_from(value.secret.ciphertext.len()).unwrap_or(i64::MAX);
        let mut steps = self.count(1, length, false, limits);
        steps.extend([
            Step::must_find(has_room_for_key(environment_id, key, limits), too_many_keys(limits)),
            Step::must_find(has_room_for_bytes(environment_id, key, length, limits), too_many_bytes(limits)),
            Step::write(insertion_of_set(audit, environment_id, key)),
            Step::write(self.setting(value)),
        ]);
        steps
    }

    /// Deletes the key, and records that. Refused if it is not there.
    pub(super) fn delete(&self, limits: &Limits, audit: &'a AuditRow) -> Vec<Step<'a>> {
        let Self { environment_id, key, .. } = *self;
        let delete = sql::query("DELETE FROM secrets WHERE env_id = ? AND key_name = ?").bind(environment_id).bind(key);
        let mut steps = self.count(0, 0, true, limits);
        steps.extend([Step::must_write(delete, StoreError::Missing), Step::write(insertion(audit))]);
        steps
    }

    /// Keeps the value that ends, and counts by how much the environment grows with so many keys and bytes in its place.
    fn count(&self, keys: i64, bytes: i64, deleted: bool, limits: &Limits) -> Vec<Step<'a>> {
        let Self { environment_id, key, by, .. } = *self;
        if !self.keeps_former || limits.history_versions == 0 {
            let count = concat!("UPDATE environments SET ", count!(), " WHERE id = ?3");
            return vec![Step::write(sql::query(count).bind(keys).bind(bytes).bind(environment_id).bind(key))];
        }
        let count = concat!(
            "UPDATE environments SET ",
            count!(),
            ", history_bytes = history_bytes + ",
            growth!(),
            " WHERE id = ?3"
        );
        let count = sql::query(count).bind(keys).bind(bytes).bind(environment_id).bind(key).bind(ROW_BYTES);
        vec![
            Step::write(keeping(environment_id, key, by, deleted)),
            Step::write(count.bind(limits.history_versions)),
            Step::write(trimming(environment_id, key, limits)),
        ]
    }

    fn setting(&self, value: NewValue<'a>) -> Query<'a> {
        let set = "INSERT INTO secrets (id, workspace_id, env_id, key_name, nonce, ciphertext, created_at, updated_at, version, set_by) \
                   SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, version, ?8 FROM environments WHERE id = ?3 \
                   ON CONFLICT (workspace_id, env_id, key_name) DO UPDATE SET nonce = excluded.nonce, ciphertext = excluded.ciphertext, \
                   updated_at = excluded.updated_at, version = excluded.version, set_by = excluded.set_by";
        sql::query(set)
            .bind(value.id)
            .bind(value.workspace_id)
            .bind(self.environment_id)
            .bind(self.key)
            .bind(&value.secret.nonce)
            .bind(&value.secret.ciphertext)
            .bind(clock::now())
            .bind(self.by)
    }

    /// The question for the environment after the change. `id` is that of a new key's row, if one is set.
    pub(super) fn outcome(&self, id: Option<&'a str>) -> Answer<'a> {
        let query = "SELECT version, history_bytes, (SELECT count(*) FROM secrets WHERE id = ?2) AS created FROM environments WHERE id = ?1";
        Answer { query: sql::query(query).bind(self.environment_id).bind(id), columns: 3 }
    }
}

/// An environment after a change of one key.
pub(super) struct Outcome {
    pub(super) version: i64,
    /// Bytes of its earlier values.
    pub(super) history: i64,
    /// Was the key new?
    pub(super) created: bool,
}

impl Outcome {
    pub(super) fn of(row: &Row) -> Result<Self, StoreError> {
        Ok(Self { version: row.try_get(0)?, history: row.try_get(1)?, created: row.try_get::<i64>(2)? > 0 })
    }
}

/// Finds a row if the environment has room for the key, which is counted already, or has the key.
fn has_room_for_key<'q>(environment_id: &'q str, key: &'q str, limits: &Limits) -> Query<'q> {
    let query = "SELECT 1 FROM environments WHERE id = ?1 AND (key_count <= ?2 \
                 OR EXISTS (SELECT 1 FROM secrets WHERE env_id = ?1 AND key_name = ?3))";
    sql::query(query).bind(environment_id).bind(limits.environment_keys).bind(key)
}

/// Finds a row if the environment has room for the bytes of the key, which are counted already. A write that makes an environment no larger is accepted even above
/// the limit.
fn has_room_for_bytes<'q>(environment_id: &'q str, key: &'q str, length: i64, limits: &Limits) -> Query<'q> {
    let query = "SELECT 1 FROM environments WHERE id = ?1 AND (byte_count <= ?2 \
                 OR EXISTS (SELECT 1 FROM secrets WHERE env_id = ?1 AND key_name = ?3 AND length(ciphertext) >= ?4))";
    sql::query(query).bind(environment_id).bind(limits.environment_bytes).bind(key).bind(length)
}

fn too_many_keys(limits: &Limits) -> StoreError {
    let limit = limits.environment_keys;
    Reached { what: "keys in an environment", limit, flag: "--max-environment-keys" }.into()
}

fn too_many_bytes(limits: &Limits) -> StoreError {
    let limit = limits.environment_bytes;
    Reached { what: "bytes of encrypted values in an environment", limit, flag: "--max-environment-bytes" }.into()
}

pub(super) fn changed(key: &str, version: i64, deleted: bool) -> Event {
    Event::Changed { key: key.to_owned(), version, deleted, timestamp: clock::now() }
}

/// The statement that counts a change of an environment by `steps`, which may be none. The first statement of every change: it locks the row, and so
/// orders them.
pub(super) fn counting_up<'q>(environment_id: &'q str, change_id: &'q str, steps: i64) -> Query<'q> {
    let update = "UPDATE environments SET version = version + ?, change_id = ?, updated_at = ? WHERE id = ?";
    sql::query(update).bind(steps).bind(change_id).bind(clock::now()).bind(environment_id)
}

/// Stands for the content of an environment. The version alone does not: a restore of the database brings old ones back.
pub(super) fn tag(environment_id: &str, version: i64, change_id: &str) -> String {
    format!("{environment_id}.{version}.{change_id}")
}
