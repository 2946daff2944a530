//! Invites, kept under the hash of what the joiner presents.

use sha2::{Digest, Sha256};

use super::{
    AuditRow, Store, StoreError, WorkspaceRow, audit, bound, new_id,
    sql::{self, Connection, from_row},
};
use crate::{clock, limits::Reached};

/// An invite as it is kept. Its token is not known here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InviteRow {
    /// UUID.
    pub id: String,
    /// The hash it is kept under.
    pub token_hash: Vec<u8>,
    /// The workspaces, in the creator's order; none for an invite to the server.
    pub workspaces: Vec<WorkspaceRow>,
    /// Unix seconds.
    pub created_at: i64,
    /// Unix seconds; from this moment on it is of no use.
    pub expires_at: i64,
    /// The workspace key, encrypted with the invite's secret.
    pub kek_encrypted: Option<Vec<u8>>,
    /// 24 bytes.
    pub kek_nonce: Option<Vec<u8>>,
    /// How often somebody joined by it.
    pub uses: u32,
    /// The number of times that the key was read in order to join.
    pub reads: u32,
    /// The maximum number of joins; `None` for no limit.
    pub max_uses: Option<u32>,
}

impl InviteRow {
    /// Returns the number of uses. A reader of the key knows it without joining, so reads count.
    pub fn uses_or_reads(&self) -> u32 {
        self.uses.max(self.reads)
    }

    /// Returns `true` if the invite is used up.
    pub fn is_used_up(&self) -> bool {
        self.max_uses.is_some_and(|max| self.uses_or_reads() >= max)
    }
}

/// An invite to be made.
#[derive(Debug, Clone)]
pub struct NewInvite<'a> {
    /// The token that the joiner will present. Only its hash is kept.
    pub token: &'a str,
    /// Ids, in the creator's order.
    pub workspace_ids: &'a [String],
    /// Unix seconds.
    pub expires_at: i64,
    /// The workspace key, encrypted with the invite's secret.
    pub kek_encrypted: Option<&'a [u8]>,
    /// 24 bytes.
    pub kek_nonce: Option<&'a [u8]>,
    /// How often somebody may join by it; `None` for as often as somebody likes.
    pub max_uses: Option<u32>,
}

/// Under which hash a token is kept.
pub fn hash_token(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

struct Row {
    id: String,
    token_hash: Vec<u8>,
    created_at: i64,
    expires_at: i64,
    kek_encrypted: Option<Vec<u8>>,
    kek_nonce: Option<Vec<u8>>,
    uses: u32,
    reads: u32,
    max_uses: Option<u32>,
}

from_row!(Row { id, token_hash, created_at, expires_at, kek_encrypted, kek_nonce, uses, reads, max_uses });

impl Store {
    /// Makes an invite; with no creator it is the server operator's, and not audited. Returns its id and time of creation.
    pub async fn create_invite(
        &self,
        invite: &NewInvite<'_>,
        creator: Option<(&str, &AuditRow)>,
    ) -> Result<InviteRow, StoreError> {
        let mut transaction = match creator {
            Some((_, row)) => self.write(row).await?,
            None => self.begin().await?,
        };
        if let Some((user_id, _)) = creator {
            let reached = Reached { what: "open invites of a user", limit: self.limits.invites, flag: "--max-invites" };
            let count = "SELECT count(*) FROM invites WHERE created_by_user_id = ? AND revoked = 0 \
                         AND expires_at > ? AND (max_uses IS NULL OR (uses < max_uses AND reads < max_uses))";
            bound(&mut transaction, sql::query_as(count).bind(user_id).bind(clock::now()), reached).await?;
        }
        let id = new_id();
        sql::query(
            "INSERT INTO invites (id, token_hash, kek_encrypted, kek_nonce, expires_at, created_by_user_id, created_at, \
             updated_at, max_uses) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, ?8)",
        )
        .bind(&id)
        .bind(hash_token(invite.token).as_slice())
        .bind(invite.kek_encrypted)
        .bind(invite.kek_nonce)
        .bind(invite.expires_at)
        .bind(creator.map(|(user_id, _)| user_id))
        .bind(clock::now())
        .bind(invite.max_uses)
        .execute(&mut *transaction)
        .await?;
        for (position, workspace_id) in (0_i64..).zip(invite.workspace_ids) {
            sql::query("INSERT INTO invite_workspaces (invite_id, workspace_id, position) VALUES (?, ?, ?)")
                .bind(&id)
                .bind(workspace_id)
                .bind(position)
                .execute(&mut *transaction)
                .await?;
        }
        if let Some((_, row)) = creator {
            audit::insert(&mut transaction, &AuditRow { resource_id: id.clone(), ..row.clone() }).await?;
        }
        let made = find_invite(&mut transaction, invite.token).await?.ok_or(StoreError::Missing)?;
        transaction.commit().await?;
        Ok(made)
    }

    /// The invite of that token, unless revoked. Expired ones are found; see [`InviteRow::expires_at`].
    pub async fn invite(&self, token: &str) -> Result<Option<InviteRow>, StoreError> {
        let mut connection = self.readers.acquire().await?;
        find_invite(&mut connection, token).await
    }

    /// Counts and records a read of the key of a limited invite. Returns `false` if the invite is used up.
    pub async fn count_read(&self, invite: &InviteRow, audit: &AuditRow) -> Result<bool, StoreError> {
        let mut transaction = self.begin().await?;
        let counted =
            sql::query("UPDATE invites SET reads = reads + 1 WHERE id = ? AND revoked = 0 AND reads < max_uses")
                .bind(&invite.id)
                .execute(&mut *transaction)
                .await?;
        if counted.rows_affected() == 0 {
            return Ok(false);
        }
        audit::insert(&mut transaction, audit).await?;
        transaction.commit().await?;
        Ok(true)
    }

    /// The invites a user made and did not revoke, newest first; without a user those of the server's operator.
    pub async fn invites(&self, creator_user_id: Option<&str>) -> Result<Vec<InviteRow>, StoreError> {
        let mut connection = self.readers.acquire().await?;
        let rows: Vec<Row> = sql::query_as(
            "SELECT id, token_hash, created_at, expires_at, kek_encrypted, kek_nonce, uses, reads, max_uses FROM invites \
             WHERE created_by_user_id IS NOT DISTINCT FROM ? AND revoked = 0 ORDER BY created_at DESC, id DESC",
        )
        .bind(creator_user_id)
        .fetch_all(&mut connection)
        .await?;
        let mut invites = Vec::with_capacity(rows.len());
        for row in rows {
            invites.push(with_workspaces(&mut connection, row).await?);
        }
        Ok(invites)
    }

    /// Revokes an invite; by nobody it is the server's operator, and not audited.
    pub async fn revoke_invite(&self, id: &str, audit: Option<&AuditRow>) -> Result<(), StoreError> {
        let mut transaction = match audit {
            Some(row) => self.write(row).await?,
            None => self.begin().await?,
        };
        let revoked = sql::query("UPDATE invites SET revoked = 1, updated_at = ? WHERE id = ? AND revoked = 0")
            .bind(clock::now())
            .bind(id)
            .execute(&mut *transaction)
            .await?;
        if revoked.rows_affected() == 0 {
            return Err(StoreError::Missing);
        }
        if let Some(row) = audit {
            audit::insert(&mut transaction, row).await?;
        }
        Ok(transaction.commit().await?)
    }
}

pub(super) async fn find_invite(connection: &mut Connection, token: &str) -> Result<Option<InviteRow>, StoreError> {
    let row: Option<Row> = sql::query_as(
        "SELECT id, token_hash, created_at, expires_at, kek_encrypted, kek_nonce, uses, reads, max_uses FROM invites \
         WHERE token_hash = ? AND revoked = 0",
    )
    .bind(hash_token(token).as_slice())
    .fetch_optional(&mut *connection)
    .await?;
    match row {
        Some(row) => Ok(Some(with_workspaces(connection, row).await?)),
        None => Ok(None),
    }
}

/// Counts a use of an invite and keeps who used it. `false` if it has been used as often as it may be.
pub(super) async fn use_invite(
    connection: &mut Connection,
    invite_id: &str,
    user_id: &str,
) -> Result<bool, StoreError> {
    let counted =
        sql::query("UPDATE invites SET uses = uses + 1 WHERE id = ? AND (max_uses IS NULL OR uses < max_uses)")
            .bind(invite_id)
            .execute(&mut *connection)
            .await?;
    if counted.rows_affected() == 0 {
        return Ok(false);
    }
    sql::query("INSERT INTO invite_uses (invite_id, user_id, used_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING")
        .bind(invite_id)
        .bind(user_id)
        .bind(clock::now())
        .execute(connection)
        .await?;
    Ok(true)
}

async fn with_workspaces(connection: &mut Connection, row: Row) -> Result<InviteRow, StoreError> {
    let workspaces = sql::query_as(
        "SELECT w.id, w.name FROM invite_workspaces i JOIN workspaces w ON w.id = i.workspace_id \
         WHERE i.invite_id = ? ORDER BY i.position",
    )
    .bind(&row.id)
    .fetch_all(connection)
    .await?;
    Ok(InviteRow {
        id: row.id,
        token_hash: row.token_hash,
        workspaces,
        created_at: row.created_at,
        expires_at: row.expires_at,
        kek_encrypted: row.kek_encrypted,
        kek_nonce: row.kek_nonce,
        uses: row.uses,
        reads: row.reads,
        max_uses: row.max_uses,
    })
}
