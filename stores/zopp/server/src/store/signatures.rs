//! Which signatures were used: each counts once, on all replicas.

use super::{
    AuditRow, Store, StoreError,
    sql::{self, Connection, Query},
};
use crate::clock;

impl Store {
    /// The digests of the signatures that were used in the last `seconds`, each with its principal and the Unix second of its
    /// use, oldest first.
    pub async fn used_signatures(&self, seconds: i64) -> Result<Vec<([u8; 32], String, i64)>, StoreError> {
        let rows: Vec<(Vec<u8>, String, i64)> = sql::query_as(
            "SELECT digest, principal_id, used_at FROM used_signatures WHERE used_at >= ? ORDER BY used_at",
        )
        .bind(clock::now().saturating_sub(seconds))
        .fetch_all(&self.readers)
        .await?;
        let used = rows.into_iter().map(|(digest, principal_id, at)| {
            let digest = digest.try_into().map_err(|_| StoreError::Corrupt("signature digest"))?;
            Ok((digest, principal_id, at))
        });
        used.collect()
    }

    /// Forgets the signatures that were used more than `seconds` ago.
    pub async fn forget_signatures(&self, seconds: i64) -> Result<(), StoreError> {
        let mut transaction = self.begin_apart().await?;
        sql::query("DELETE FROM used_signatures WHERE used_at < ?")
            .bind(clock::now().saturating_sub(seconds))
            .execute(&mut *transaction)
            .await?;
        Ok(transaction.commit().await?)
    }
}

/// Uses up the signature of the request that a row is about, if it has one. Returns `false` if it was used before.
pub(super) async fn use_up(connection: &mut Connection, row: &AuditRow) -> Result<bool, StoreError> {
    let Some(using_up) = using_up(row) else { return Ok(true) };
    Ok(using_up.execute(connection).await?.rows_affected() == 1)
}

/// The statement that writes nothing if the signature was used before.
pub(super) fn using_up(row: &AuditRow) -> Option<Query<'_>> {
    let digest = row.signature.as_ref()?;
    let using_up = sql::query(
        "INSERT INTO used_signatures (digest, principal_id, used_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
    );
    Some(using_up.bind(digest.as_slice()).bind(&row.principal_id).bind(clock::now()))
}
