//! Secrets: opaque ciphertexts under readable keys. Each change counts the environment's version up by one.

use futures::TryStreamExt;

use super::{
    Action, AuditRow, Store, StoreError,
    audit::insertion,
    history::{Ending, ROW_BYTES, erase_oldest, growth, keeping, trimming},
    new_id,
    sql::{self, Connection, Query, Row},
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
        let (Counted { version, .. }, former) = count_one(&mut transaction, environment_id, &secret.key).await?;
        let setting = Setting { workspace_id, version, by: &audit.principal_id, keeps_former: true, former };
        let audit = AuditRow { action: setting.action(), ..audit.clone() };
        put(&mut transaction, environment_id, secret, &setting, &self.limits, &audit).await?;
        self.announce(&mut transaction, environment_id, &changed(&secret.key, version, false)).await?;
        transaction.commit().await?;
        Ok(Change { version, created: former.is_none() })
    }

    /// Deletes one key; [`StoreError::Missing`] changes nothing. Returns the new version.
    pub async fn delete_secret(&self, environment_id: &str, key: &str, audit: &AuditRow) -> Result<i64, StoreError> {
        let mut transaction = self.write_secret(audit).await?;
        // The environment first, as each change of its secrets does: none waits for one that waits for it.
        let (Counted { version, .. }, former) = count_one(&mut transaction, environment_id, key).await?;
        let ending = Ending { version, by: &audit.principal_id, deleted: true };
        remove(&mut transaction, environment_id, (key, former), ending, &self.limits, audit).await?;
        self.announce(&mut transaction, environment_id, &changed(key, version, true)).await?;
        transaction.commit().await?;
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
    pub(super) workspace_id: &'a str,
    /// The version of the environment from then on.
    pub(super) version: i64,
    /// The principal.
    pub(super) by: &'a str,
    /// Whether the value that it replaces is kept as an earlier one.
    pub(super) keeps_former: bool,
    /// The length of the value that it replaces; `None` for a new key.
    pub(super) former: Option<i64>,
}

impl Setting<'_> {
    /// The name of the change in the audit log.
    pub(super) fn action(&self) -> Action {
        if self.former.is_some() { Action::SecretUpdate } else { Action::SecretCreate }
    }
}

/// Sets one key, and records that. Fails if the environment would grow beyond its limits.
pub(super) async fn put(
    connection: &mut Connection,
    environment_id: &str,
    secret: &SecretRow,
    setting: &Setting<'_>,
    limits: &Limits,
    audit: &AuditRow,
) -> Result<(), StoreError> {
    let length = i64::try_from(secret.ciphertext.len()).unwrap_or(i64::MAX);
    let Setting { version, by, keeps_former, former, .. } = *setting;
    let ending = (keeps_former && former.is_some()).then_some(Ending { version, by, deleted: false });
    let growth = Growth { keys: i64::from(former.is_none()), bytes: length - former.unwrap_or(0) };
    let place = (environment_id, secret.key.as_str());
    let write = writing(environment_id, secret, setting);
    let Size { keys, bytes, history } = change(connection, place, growth, (write, ending), limits, audit).await?;
    if former.is_none() && keys > i64::from(limits.environment_keys) {
        let limit = limits.environment_keys;
        return Err(Reached { what: "keys in an environment", limit, flag: "--max-environment-keys" }.into());
    }
    // A write that shrinks an environment is accepted even above the limit.
    if former.is_none_or(|former| length > former) && bytes > i64::from(limits.environment_bytes) {
        let limit = limits.environment_bytes;
        return Err(Reached {
            what: "bytes of encrypted values in an environment",
            limit,
            flag: "--max-environment-bytes",
        }
        .into());
    }
    erase_oldest(connection, environment_id, history, limits).await
}

/// The statement that sets a key.
fn writing<'q>(environment_id: &'q str, secret: &'q SecretRow, setting: &Setting<'q>) -> Query<'q> {
    let now = clock::now();
    if setting.former.is_some() {
        let update = "UPDATE secrets SET nonce = ?, ciphertext = ?, updated_at = ?, version = ?, set_by = ? \
                      WHERE env_id = ? AND key_name = ?";
        return sql::query(update)
            .bind(&secret.nonce)
            .bind(&secret.ciphertext)
            .bind(now)
            .bind(setting.version)
            .bind(setting.by)
            .bind(environment_id)
            .bind(&secret.key);
    }
    let insert = "INSERT INTO secrets (id, workspace_id, env_id, key_name, nonce, ciphertext, created_at, updated_at, version, set_by) \
                  VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?8, ?9)";
    sql::query(insert)
        .bind(new_id())
        .bind(setting.workspace_id)
        .bind(environment_id)
        .bind(&secret.key)
        .bind(&secret.nonce)
        .bind(&secret.ciphertext)
        .bind(now)
        .bind(setting.version)
        .bind(setting.by)
}

/// Deletes one key, whose value has the `former` length, and records that. Fails if it is not there.
pub(super) async fn remove(
    connection: &mut Connection,
    environment_id: &str,
    (key, former): (&str, Option<i64>),
    ending: Ending<'_>,
    limits: &Limits,
    audit: &AuditRow,
) -> Result<(), StoreError> {
    let length = former.ok_or(StoreError::Missing)?;
    let growth = Growth { keys: -1, bytes: -length };
    let delete = sql::query("DELETE FROM secrets WHERE env_id = ? AND key_name = ?").bind(environment_id).bind(key);
    let place = (environment_id, key);
    let Size { history, .. } = change(connection, place, growth, (delete, Some(ending)), limits, audit).await?;
    erase_oldest(connection, environment_id, history, limits).await
}

/// Changes one key by a statement, keeps its value if that is `ending`, counts, and records the change. Returns how large the environment is now.
async fn change<'q>(
    connection: &mut Connection,
    (environment_id, key): (&'q str, &'q str),
    growth: Growth,
    (statement, ending): (Query<'q>, Option<Ending<'q>>),
    limits: &Limits,
    audit: &'q AuditRow,
) -> Result<Size, StoreError> {
    let mut statements = Vec::with_capacity(5);
    let ending = ending.filter(|_| limits.history_versions > 0);
    let count = if let Some(ending) = &ending {
        statements.extend([
            keeping(environment_id, key, ending),
            growth.with_kept(environment_id, key, ending, limits),
            trimming(environment_id, key, limits),
        ]);
        1
    } else {
        statements.push(growth.statement(environment_id));
        0
    };
    statements.extend([statement, insertion(audit)]);
    let answers = sql::batch(connection, statements).await?;
    let row = answers.get(count).and_then(|rows| rows.first()).ok_or(StoreError::Missing)?;
    Ok(Size { keys: row.try_get(0)?, bytes: row.try_get(1)?, history: row.try_get(2)? })
}

/// By how much a change makes an environment larger, besides its earlier values.
#[derive(Clone, Copy)]
struct Growth {
    keys: i64,
    bytes: i64,
}

/// How large an environment is after a change.
struct Size {
    keys: i64,
    bytes: i64,
    /// Of its earlier values.
    history: i64,
}

impl Growth {
    /// The statement that counts it.
    fn statement(self, environment_id: &str) -> Query<'_> {
        let update = "UPDATE environments SET key_count = key_count + ?, byte_count = byte_count + ? WHERE id = ? \
                      RETURNING key_count, byte_count, history_bytes";
        sql::query(update).bind(self.keys).bind(self.bytes).bind(environment_id)
    }

    /// The same, together with an earlier value that was just kept.
    fn with_kept<'q>(self, environment_id: &'q str, key: &'q str, ending: &Ending<'_>, limits: &Limits) -> Query<'q> {
        let update = concat!(
            "UPDATE environments SET key_count = key_count + ?1, byte_count = byte_count + ?2, history_bytes = history_bytes + ",
            growth!(),
            " WHERE id = ?3 RETURNING key_count, byte_count, history_bytes"
        );
        sql::query(update)
            .bind(self.keys)
            .bind(self.bytes)
            .bind(environment_id)
            .bind(environment_id)
            .bind(key)
            .bind(ending.version)
            .bind(ROW_BYTES)
            .bind(limits.history_versions)
    }
}

/// The question for the length of a key's value.
fn former_length<'q>(environment_id: &'q str, key: &'q str) -> Query<'q> {
    let query = "SELECT length(ciphertext) FROM secrets WHERE env_id = ? AND key_name = ?";
    sql::query(query).bind(environment_id).bind(key)
}

/// The length of a key's value, if there is one. The environment's row must be locked: nobody sets or deletes the key meanwhile.
pub(super) async fn former(
    connection: &mut Connection,
    environment_id: &str,
    key: &str,
) -> Result<Option<i64>, StoreError> {
    let row = former_length(environment_id, key).fetch_optional(connection).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

pub(super) fn changed(key: &str, version: i64, deleted: bool) -> Event {
    Event::Changed { key: key.to_owned(), version, deleted, timestamp: clock::now() }
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
    let row = counting_up(environment_id, &change_id, steps).fetch_optional(connection).await?;
    Counted::of(environment_id, &change_id, row.as_ref())
}

/// The same for a change of one key, with the length of the value that the key has.
async fn count_one(
    connection: &mut Connection,
    environment_id: &str,
    key: &str,
) -> Result<(Counted, Option<i64>), StoreError> {
    let change_id = new_id();
    let statements = vec![counting_up(environment_id, &change_id, 1), former_length(environment_id, key)];
    let answers = sql::batch(connection, statements).await?;
    let mut firsts = answers.iter().map(|rows| rows.first());
    let counted = Counted::of(environment_id, &change_id, firsts.next().flatten())?;
    let former = firsts.next().flatten().map(|row| row.try_get(0)).transpose()?;
    Ok((counted, former))
}

fn counting_up<'q>(environment_id: &'q str, change_id: &'q str, steps: i64) -> Query<'q> {
    let update =
        "UPDATE environments SET version = version + ?, change_id = ?, updated_at = ? WHERE id = ? RETURNING version";
    sql::query(update).bind(steps).bind(change_id).bind(clock::now()).bind(environment_id)
}

impl Counted {
    fn of(environment_id: &str, change_id: &str, row: Option<&Row>) -> Result<Self, StoreError> {
        let version = row.ok_or(StoreError::Missing)?.try_get(0)?;
        Ok(Self { version, tag: tag(environment_id, version, change_id) })
    }
}

/// Stands for the content of an environment. The version alone does not: a restore of the database brings old ones back.
pub(super) fn tag(environment_id: &str, version: i64, change_id: &str) -> String {
    format!("{environment_id}.{version}.{change_id}")
}
