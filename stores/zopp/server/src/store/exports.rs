//! Principals on their way to another device: encrypted, under a code, for a time.

use sha2::{Digest, Sha256};

use super::{
    AuditRow, Store, StoreError, audit,
    audit::commit_with,
    bound, new_id,
    sql::{self, Connection, from_row},
};
use crate::{clock, limits::Reached};

/// The third wrong token hash deletes an export.
const MAXIMUM_ATTEMPTS: i64 = 3;

/// An export to be kept.
#[derive(Debug, Clone)]
pub struct NewExport<'a> {
    /// The code that names it.
    pub code: &'a str,
    /// The secret that the importer proves to know; only its hash is stored.
    pub token_hash: &'a str,
    /// 16 bytes.
    pub verification_salt: &'a [u8],
    /// The user it belongs to.
    pub user_id: &'a str,
    /// The principal that made it.
    pub principal_id: &'a str,
    /// Opaque to the server.
    pub encrypted_data: &'a [u8],
    /// 16 bytes.
    pub salt: &'a [u8],
    /// 24 bytes.
    pub nonce: &'a [u8],
    /// Unix seconds; from this moment on it is gone.
    pub expires_at: i64,
}

/// An export as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportRow {
    /// UUID.
    pub id: String,
    /// The principal that made it.
    pub principal_id: String,
    /// 16 bytes.
    pub verification_salt: Vec<u8>,
    /// Opaque to the server.
    pub encrypted_data: Vec<u8>,
    /// 16 bytes.
    pub salt: Vec<u8>,
    /// 24 bytes.
    pub nonce: Vec<u8>,
    /// Unix seconds.
    pub expires_at: i64,
    proof: String,
    failed_attempts: i64,
}

from_row!(ExportRow {
    id,
    principal_id,
    verification_salt,
    encrypted_data,
    salt,
    nonce,
    expires_at,
    proof,
    failed_attempts
});

/// The request for an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// Its content.
    Read,
    /// That it is deleted.
    Consume,
}

/// The result of an attempt to open an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opened {
    /// The token hash is right.
    Done(ExportRow),
    /// There is none under this code (any more), or its time is over.
    NotFound,
    /// The token hash is wrong. So many attempts are left; with none left the export was deleted.
    Wrong {
        /// Attempts left.
        left: i64,
    },
}

impl Store {
    /// Keeps an export. [`StoreError::Duplicate`] if the code or the token hash is taken. Expired exports are deleted on the way.
    pub async fn create_export(&self, new: &NewExport<'_>, audit: &AuditRow) -> Result<(), StoreError> {
        let mut transaction = self.write(audit).await?;
        let now = clock::now();
        sql::query("DELETE FROM principal_exports WHERE expires_at <= ?").bind(now).execute(&mut *transaction).await?;
        let reached = Reached { what: "open exports of a user", limit: self.limits.exports, flag: "--max-exports" };
        let count = "SELECT count(*) FROM principal_exports WHERE user_id = ?";
        bound(&mut transaction, sql::query_as(count).bind(new.user_id), reached).await?;
        let id = new_id();
        sql::query(
            "INSERT INTO principal_exports (id, export_code, token_hash, verification_salt, user_id, principal_id, \
             encrypted_data, salt, nonce, expires_at, created_at, updated_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?11)",
        )
        .bind(&id)
        .bind(new.code)
        .bind(proof(new.token_hash))
        .bind(new.verification_salt)
        .bind(new.user_id)
        .bind(new.principal_id)
        .bind(new.encrypted_data)
        .bind(new.salt)
        .bind(new.nonce)
        .bind(new.expires_at)
        .bind(now)
        .execute(&mut *transaction)
        .await?;
        commit_with(transaction, &AuditRow { resource_id: id, ..audit.clone() }).await
    }

    /// The export of a code, unless its time is over.
    pub async fn export(&self, code: &str) -> Result<Option<ExportRow>, StoreError> {
        let mut connection = self.readers.acquire().await?;
        find(&mut connection, code).await
    }

    /// Compares the token hash and counts a wrong one; the third wrong one deletes the export. With the right one gives the export,
    /// and deletes it if it is to be consumed. The same transaction records whether the attempt succeeded.
    pub async fn open_export(
        &self,
        code: &str,
        token_hash: &str,
        opening: Opening,
        audit: impl FnOnce(&ExportRow, Option<i64>) -> AuditRow + Send,
    ) -> Result<Opened, StoreError> {
        let mut transaction = self.begin().await?;
        let Some(export) = find(&mut transaction, code).await? else { return Ok(Opened::NotFound) };
        // Digests are compared, not secrets: how far two agree says nothing about the text behind them.
        let opened = if export.proof == proof(token_hash) {
            if opening == Opening::Consume {
                delete(&mut transaction, &export.id).await?;
            }
            audit::insert(&mut transaction, &audit(&export, None)).await?;
            Opened::Done(export)
        } else {
            let left = (MAXIMUM_ATTEMPTS - export.failed_attempts - 1).max(0);
            if left == 0 {
                delete(&mut transaction, &export.id).await?;
            } else {
                sql::query(
                    "UPDATE principal_exports SET failed_attempts = failed_attempts + 1, updated_at = ? WHERE id = ?",
                )
                .bind(clock::now())
                .bind(&export.id)
                .execute(&mut *transaction)
                .await?;
            }
            audit::insert(&mut transaction, &audit(&export, Some(left))).await?;
            Opened::Wrong { left }
        };
        transaction.commit().await?;
        Ok(opened)
    }
}

/// The stored digest of a token hash: with a copy of the database, nobody can open an export at the server.
pub(super) fn proof(token_hash: &str) -> String {
    hex::encode(Sha256::digest(token_hash))
}

async fn find(connection: &mut Connection, code: &str) -> Result<Option<ExportRow>, StoreError> {
    let row = sql::query_as(
        "SELECT id, principal_id, verification_salt, encrypted_data, salt, nonce, expires_at, token_hash AS proof, \
         failed_attempts FROM principal_exports WHERE export_code = ? AND consumed = 0 AND expires_at > ?",
    );
    Ok(row.bind(code).bind(clock::now()).fetch_optional(connection).await?)
}

async fn delete(connection: &mut Connection, id: &str) -> Result<(), StoreError> {
    sql::query("DELETE FROM principal_exports WHERE id = ?").bind(id).execute(connection).await?;
    Ok(())
}
