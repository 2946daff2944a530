//! Workspaces, who belongs to them and who holds their key.

use sqlx::SqliteConnection;

use super::{AuditRow, Store, StoreError, audit::commit_with, row::from_row};
use crate::clock;

/// A workspace as callers see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceRow {
    /// UUID, chosen by the client that made it.
    pub id: String,
    /// Unique on the server.
    pub name: String,
}

from_row!(WorkspaceRow { id, name });

/// The key of a workspace, wrapped for one principal. Opaque to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyWrap {
    /// X25519, 32 bytes.
    pub ephemeral_pub: Vec<u8>,
    /// 48 bytes.
    pub kek_wrapped: Vec<u8>,
    /// 24 bytes.
    pub kek_nonce: Vec<u8>,
}

from_row!(KeyWrap { ephemeral_pub, kek_wrapped, kek_nonce });

/// A workspace to be made.
#[derive(Debug, Clone)]
pub struct NewWorkspace<'a> {
    /// UUID.
    pub id: &'a str,
    /// Unique on the server.
    pub name: &'a str,
    /// 32 random bytes, kept because the schema has always had them.
    pub kdf_salt: [u8; 32],
}

/// The columns that go with the salt; nothing derives anything from them.
const KDF_MEMORY_KIB: i64 = 65_536;
const KDF_PASSES: i64 = 3;
const KDF_LANES: i64 = 1;

impl Store {
    /// Makes a workspace with its owner as member and the key wrapped for the owner's principal.
    pub async fn create_workspace(
        &self,
        workspace: &NewWorkspace<'_>,
        owner_user_id: &str,
        principal_id: &str,
        wrap: &KeyWrap,
        audit: &AuditRow,
    ) -> Result<(), StoreError> {
        let mut transaction = self.write().await?;
        sqlx::query(
            "INSERT INTO workspaces (id, name, owner_user_id, kdf_salt, kdf_m_cost_kib, kdf_t_cost, kdf_p_cost, created_at, \
             updated_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8)",
        )
        .bind(workspace.id)
        .bind(workspace.name)
        .bind(owner_user_id)
        .bind(workspace.kdf_salt.as_slice())
        .bind(KDF_MEMORY_KIB)
        .bind(KDF_PASSES)
        .bind(KDF_LANES)
        .bind(clock::now())
        .execute(&mut *transaction)
        .await?;
        insert_member(&mut transaction, workspace.id, owner_user_id).await?;
        insert_key_wrap(&mut transaction, workspace.id, principal_id, wrap).await?;
        commit_with(transaction, audit).await
    }

    /// The workspaces a user owns or is a member of, by name.
    pub async fn workspaces_of_user(&self, user_id: &str) -> Result<Vec<WorkspaceRow>, StoreError> {
        let rows = sqlx::query_as(
            "SELECT id, name FROM workspaces WHERE owner_user_id = ?1 \
             OR id IN (SELECT workspace_id FROM workspace_members WHERE user_id = ?1) ORDER BY name",
        );
        Ok(rows.bind(user_id).fetch_all(&self.readers).await?)
    }

    /// The workspace of that name, if the user owns it or is a member.
    pub async fn workspace_of_user(&self, name: &str, user_id: &str) -> Result<Option<WorkspaceRow>, StoreError> {
        let row = sqlx::query_as(
            "SELECT id, name FROM workspaces WHERE name = ?1 AND (owner_user_id = ?2 \
             OR id IN (SELECT workspace_id FROM workspace_members WHERE user_id = ?2))",
        );
        Ok(row.bind(name).bind(user_id).fetch_optional(&self.readers).await?)
    }

    /// The workspace of that name, if the principal holds its key.
    pub async fn workspace_of_key_holder(
        &self,
        name: &str,
        principal_id: &str,
    ) -> Result<Option<WorkspaceRow>, StoreError> {
        let row = sqlx::query_as(
            "SELECT w.id, w.name FROM workspaces w JOIN workspace_principals k ON k.workspace_id = w.id \
             WHERE w.name = ? AND k.principal_id = ?",
        );
        Ok(row.bind(name).bind(principal_id).fetch_optional(&self.readers).await?)
    }

    /// Which of these workspaces exist and are the user's (owned or member). For a list of ids given by a client.
    pub async fn is_workspace_of_user(&self, workspace_id: &str, user_id: &str) -> Result<bool, StoreError> {
        let row: Option<(i64,)> = sqlx::query_as(
            "SELECT 1 FROM workspaces WHERE id = ?1 AND (owner_user_id = ?2 \
             OR id IN (SELECT workspace_id FROM workspace_members WHERE user_id = ?2))",
        )
        .bind(workspace_id)
        .bind(user_id)
        .fetch_optional(&self.readers)
        .await?;
        Ok(row.is_some())
    }

    /// The workspace key as wrapped for a principal.
    pub async fn key_wrap(&self, workspace_id: &str, principal_id: &str) -> Result<Option<KeyWrap>, StoreError> {
        let row = sqlx::query_as(
            "SELECT ephemeral_pub, kek_wrapped, kek_nonce FROM workspace_principals \
             WHERE workspace_id = ? AND principal_id = ?",
        );
        Ok(row.bind(workspace_id).bind(principal_id).fetch_optional(&self.readers).await?)
    }

    /// Keeps the workspace key wrapped for one more principal.
    pub async fn grant_access(
        &self,
        workspace_id: &str,
        principal_id: &str,
        wrap: &KeyWrap,
        audit: &AuditRow,
    ) -> Result<(), StoreError> {
        let mut transaction = self.write().await?;
        insert_key_wrap(&mut transaction, workspace_id, principal_id, wrap).await?;
        commit_with(transaction, audit).await
    }
}

pub(super) async fn insert_member(
    connection: &mut SqliteConnection,
    workspace_id: &str,
    user_id: &str,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO workspace_members (workspace_id, user_id, created_at) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
    )
    .bind(workspace_id)
    .bind(user_id)
    .bind(clock::now())
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn insert_key_wrap(
    connection: &mut SqliteConnection,
    workspace_id: &str,
    principal_id: &str,
    wrap: &KeyWrap,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO workspace_principals (workspace_id, principal_id, ephemeral_pub, kek_wrapped, kek_nonce, created_at) \
         VALUES (?, ?, ?, ?, ?, ?)",
    )
    .bind(workspace_id)
    .bind(principal_id)
    .bind(&wrap.ephemeral_pub)
    .bind(&wrap.kek_wrapped)
    .bind(&wrap.kek_nonce)
    .bind(clock::now())
    .execute(connection)
    .await?;
    Ok(())
}
