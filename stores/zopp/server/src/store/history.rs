//! Earlier values of secrets: kept when a value is replaced or deleted, within the limits, until the environment gets a new key.

use futures::TryStreamExt;

use super::{
    AuditRow, BESIDE, SQLITE_BEGIN, Store, StoreError,
    audit::commit_with,
    sql::{self, Connection, Query, Row},
};
use crate::{clock, limits::Limits};

/// The size of an earlier value beside its ciphertext, as the limit counts it: its row, and its places in two indexes.
pub(super) const ROW_BYTES: i64 = 256;

/// The versions of a secret that a reader wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// All of them, without ciphertexts.
    Numbers,
    /// All of them.
    All,
    /// The one of this number.
    One(i64),
}

/// Versions of a secret, and the key that opens them, of one moment.
#[derive(Clone, PartialEq, Eq)]
pub struct HistoryState {
    /// The environment's key, wrapped with the workspace's.
    pub dek_wrapped: Vec<u8>,
    /// 24 bytes.
    pub dek_nonce: Vec<u8>,
    /// The newest first.
    pub versions: Vec<VersionRow>,
}

/// One version of a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct VersionRow {
    /// The version of the environment at which it was set; 0 if that was not recorded.
    pub version: i64,
    /// 24 bytes.
    pub nonce: Vec<u8>,
    /// Empty if the reader does not want it.
    pub ciphertext: Vec<u8>,
    /// When it was set (Unix seconds).
    pub set_at: i64,
    /// The principal that set it: its ID, and its name unless it is gone.
    pub set_by: Option<(String, Option<String>)>,
    /// How it ended; `None` if it is the current one.
    pub end: Option<EndRow>,
}

/// How a version of a secret ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndRow {
    /// The version of the environment from then on.
    pub version: i64,
    /// When (Unix seconds).
    pub at: i64,
    /// The principal that ended it: its ID, and its name unless it is gone.
    pub by: (String, Option<String>),
    /// Whether the key was deleted with it.
    pub deleted: bool,
}

impl Store {
    /// Reads versions of a secret, with the key that opens them; `None` if the environment is gone.
    pub async fn secret_history(
        &self,
        environment_id: &str,
        key: &str,
        extent: Extent,
    ) -> Result<Option<HistoryState>, StoreError> {
        let mut transaction = self.read().await?;
        let dek = sql::query("SELECT dek_wrapped, dek_nonce FROM environments WHERE id = ?").bind(environment_id);
        let Some(dek) = dek.fetch_optional(&mut *transaction).await? else { return Ok(None) };
        let (dek_wrapped, dek_nonce) = (dek.try_get(0)?, dek.try_get(1)?);
        let mut versions = Vec::new();
        for table in [CURRENT, EARLIER] {
            let ciphertext = if extent == Extent::Numbers { "x.nonce" } else { "x.ciphertext" };
            let one = if matches!(extent, Extent::One(_)) { "AND x.version = ?" } else { "" };
            let query = sql::query_made(format!(
                "SELECT x.version, x.nonce, {ciphertext}, {table} {one} ORDER BY x.version DESC"
            ));
            let query = query.bind(environment_id).bind(key);
            let query = if let Extent::One(version) = extent { query.bind(version) } else { query };
            let mut rows = query.fetch(&mut *transaction);
            while let Some(row) = rows.try_next().await? {
                versions.push(version(&row, extent)?);
            }
        }
        Ok(Some(HistoryState { dek_wrapped, dek_nonce, versions }))
    }

    /// Erases the earlier values of a key. Returns how many there were.
    pub async fn forget_history(&self, environment_id: &str, key: &str, audit: &AuditRow) -> Result<u64, StoreError> {
        let mut transaction = self.write_secret(audit).await?;
        add_bytes(&mut transaction, environment_id, 0).await?;
        let erase = "DELETE FROM secret_versions WHERE env_id = ? AND key_name = ? RETURNING length(ciphertext)";
        let erased: Vec<(i64,)> =
            sql::query_as(erase).bind(environment_id).bind(key).fetch_all(&mut *transaction).await?;
        add_bytes(&mut transaction, environment_id, -size(&erased)).await?;
        let details = serde_json::json!({ "count": erased.len() }).to_string();
        commit_with(transaction, &AuditRow { details: Some(details), ..audit.clone() }).await?;
        Ok(erased.len() as u64)
    }

    /// Erases the oldest earlier values of an environment, if it has more than the limit allows.
    pub(super) async fn trim_history(&self, environment_id: &str) -> Result<(), StoreError> {
        let mut transaction = self.writer.begin(SQLITE_BEGIN, BESIDE).await?;
        let bytes = add_bytes(&mut transaction, environment_id, 0).await?;
        erase_beyond(&mut transaction, environment_id, bytes, &self.limits).await?;
        Ok(transaction.commit().await?)
    }

    /// Erases earlier values beyond the limits, which may be lower than when the values were kept.
    pub async fn trim_histories(&self) -> Result<(), StoreError> {
        let mut transaction = self.begin().await?;
        let trim = "DELETE FROM secret_versions WHERE (env_id, key_name, version) IN (SELECT env_id, key_name, version FROM (SELECT env_id, \
                    key_name, version, row_number() OVER (PARTITION BY env_id, key_name ORDER BY version DESC) AS place \
                    FROM secret_versions) placed WHERE place > ?)";
        let trimmed = sql::query(trim).bind(i64::from(self.limits.history_versions)).execute(&mut *transaction).await?;
        if trimmed.rows_affected() > 0 {
            let count = "UPDATE environments SET history_bytes = (SELECT coalesce(sum(length(ciphertext) + ?), 0) \
                         FROM secret_versions WHERE env_id = environments.id) WHERE history_bytes > 0";
            sql::query(count).bind(ROW_BYTES).execute(&mut *transaction).await?;
        }
        let full: Vec<(String, i64)> =
            sql::query_as("SELECT id, history_bytes FROM environments WHERE history_bytes > ?")
                .bind(i64::from(self.limits.history_bytes))
                .fetch_all(&mut *transaction)
                .await?;
        for (environment_id, bytes) in full {
            erase_oldest(&mut transaction, &environment_id, bytes, self.limits.history_bytes.into()).await?;
        }
        Ok(transaction.commit().await?)
    }
}

/// The statement that keeps the value, if there is one, which a key has until the version that the environment has now. A principal (`by`) sets or
/// deletes the key. The environment's row must be locked.
pub(super) fn keeping<'q>(environment_id: &'q str, key: &'q str, by: &'q str, deleted: bool) -> Query<'q> {
    // A conflict means that versions were counted anew by other means than a restore. The change is worth more than the history.
    let keep = "INSERT INTO secret_versions (env_id, key_name, version, nonce, ciphertext, set_at, set_by, ended_version, ended_at, ended_by, \
                deleted) SELECT s.env_id, s.key_name, s.version, s.nonce, s.ciphertext, s.updated_at, s.set_by, e.version, ?, ?, ? \
                FROM secrets s JOIN environments e ON e.id = s.env_id \
                WHERE s.env_id = ? AND s.key_name = ? ON CONFLICT (env_id, key_name, version) DO NOTHING";
    sql::query(keep).bind(clock::now()).bind(by).bind(i64::from(deleted)).bind(environment_id).bind(key)
}

/// By how many bytes the earlier values of an environment grow by [`keeping`] one and [`trimming`] afterwards, as an expression between the two in
/// a statement about the environment's row. Parameters from `?3` on: environment, key, [`ROW_BYTES`], the number of earlier values of a key.
macro_rules! growth {
    () => {
        "(SELECT CAST(coalesce(sum(length(ciphertext) + ?5), 0) AS BIGINT) FROM secret_versions \
            WHERE env_id = ?3 AND key_name = ?4 AND ended_version = environments.version) \
         - (SELECT CAST(coalesce(sum(length(ciphertext) + ?5), 0) AS BIGINT) FROM secret_versions \
            WHERE env_id = ?3 AND key_name = ?4 AND version NOT IN (SELECT version FROM secret_versions \
                WHERE env_id = ?3 AND key_name = ?4 ORDER BY version DESC LIMIT ?6))"
    };
}

pub(super) use growth;

/// The statement that erases the oldest earlier values of a key beyond the limit.
pub(super) fn trimming<'q>(environment_id: &'q str, key: &'q str, limits: &Limits) -> Query<'q> {
    let trim = "DELETE FROM secret_versions WHERE env_id = ?1 AND key_name = ?2 AND version NOT IN (SELECT version FROM secret_versions \
                WHERE env_id = ?1 AND key_name = ?2 ORDER BY version DESC LIMIT ?3)";
    sql::query(trim).bind(environment_id).bind(key).bind(limits.history_versions)
}

/// Erases all earlier values of an environment: its key is another one from now on.
pub(super) async fn erase(connection: &mut Connection, environment_id: &str) -> Result<(), StoreError> {
    sql::query("DELETE FROM secret_versions WHERE env_id = ?").bind(environment_id).execute(&mut *connection).await?;
    let empty = sql::query("UPDATE environments SET history_bytes = 0 WHERE id = ?").bind(environment_id);
    empty.execute(connection).await?;
    Ok(())
}

/// Erases the oldest earlier values of an environment whose `bytes` are beyond the limit. An eighth of the limit is free then, so that few of the changes
/// that follow have to erase anything.
pub(super) async fn erase_beyond(
    connection: &mut Connection,
    environment_id: &str,
    bytes: i64,
    limits: &Limits,
) -> Result<(), StoreError> {
    let limit = i64::from(limits.history_bytes);
    if bytes > limit { erase_oldest(connection, environment_id, bytes, limit - limit / 8).await } else { Ok(()) }
}

/// Erases the oldest earlier values of an environment, of whichever keys, until its `bytes` are no more than so many.
async fn erase_oldest(
    connection: &mut Connection,
    environment_id: &str,
    bytes: i64,
    most: i64,
) -> Result<(), StoreError> {
    let excess = bytes - most;
    if excess <= 0 {
        return Ok(());
    }
    let mut freed = 0;
    while freed < excess {
        let oldest = "SELECT key_name, version, length(ciphertext) FROM secret_versions WHERE env_id = ? \
                      ORDER BY ended_version, key_name LIMIT 100";
        let oldest: Vec<(String, i64, i64)> =
            sql::query_as(oldest).bind(environment_id).fetch_all(&mut *connection).await?;
        if oldest.is_empty() {
            break;
        }
        for (key, version, length) in oldest {
            if freed >= excess {
                break;
            }
            sql::query("DELETE FROM secret_versions WHERE env_id = ? AND key_name = ? AND version = ?")
                .bind(environment_id)
                .bind(key)
                .bind(version)
                .execute(&mut *connection)
                .await?;
            freed += length + ROW_BYTES;
        }
    }
    add_bytes(connection, environment_id, -freed).await.map(drop)
}

/// Adds to the size of an environment's earlier values, and returns it. Locks the environment's row.
async fn add_bytes(connection: &mut Connection, environment_id: &str, bytes: i64) -> Result<i64, StoreError> {
    let add = "UPDATE environments SET history_bytes = history_bytes + ? WHERE id = ? RETURNING history_bytes";
    let row: Option<(i64,)> = sql::query_as(add).bind(bytes).bind(environment_id).fetch_optional(connection).await?;
    row.map(|(bytes,)| bytes).ok_or(StoreError::Missing)
}

fn size(lengths: &[(i64,)]) -> i64 {
    lengths.iter().map(|(length,)| length + ROW_BYTES).sum()
}

/// The rest of the columns, as [`version`] reads them, and where they come from.
const CURRENT: &str = "x.updated_at, x.set_by, s.name, NULL, NULL, NULL, NULL, NULL FROM secrets x \
                       LEFT JOIN principals s ON s.id = x.set_by WHERE x.env_id = ? AND x.key_name = ?";
/// The same of those that ended.
const EARLIER: &str = "x.set_at, x.set_by, s.name, x.ended_version, x.ended_at, x.ended_by, e.name, x.deleted FROM secret_versions x \
                       LEFT JOIN principals s ON s.id = x.set_by LEFT JOIN principals e ON e.id = x.ended_by \
                       WHERE x.env_id = ? AND x.key_name = ?";

fn version(row: &Row, extent: Extent) -> Result<VersionRow, sqlx::Error> {
    let principal = |id: Option<String>, name: usize| {
        Ok::<_, sqlx::Error>(match id {
            Some(id) => Some((id, row.try_get(name)?)),
            None => None,
        })
    };
    let end = match (row.try_get::<Option<i64>>(6)?, principal(row.try_get(8)?, 9)?) {
        (Some(version), Some(by)) => {
            Some(EndRow { version, at: row.try_get(7)?, by, deleted: row.try_get::<i64>(10)? != 0 })
        }
        _ => None,
    };
    let ciphertext = if extent == Extent::Numbers { Vec::new() } else { row.try_get(2)? };
    let set_by = principal(row.try_get(4)?, 5)?;
    Ok(VersionRow {
        version: row.try_get(0)?,
        nonce: row.try_get(1)?,
        ciphertext,
        set_at: row.try_get(3)?,
        set_by,
        end,
    })
}
