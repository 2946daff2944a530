//! Workspaces, who belongs to them and who holds their key.

use super::{
    AuditRow, PrincipalRow, Scope, Store, StoreError,
    audit::commit_with,
    bound,
    delegation::{Holder, exceeds},
    exists::exists,
    sql::{self, Connection, from_row},
};
use crate::{
    clock,
    limits::Reached,
    rbac::{Grants, Role},
};

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
    /// The signature of the principal that made it, if it signed.
    pub signature: Option<Vec<u8>>,
    /// The principal that made it; `None` if it is the recipient itself.
    pub signer_id: Option<String>,
}

from_row!(KeyWrap { ephemeral_pub, kek_wrapped, kek_nonce, signature, signer_id });

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

/// The result of granting a principal the workspace's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admitted {
    /// It holds the key.
    Done,
    /// It is disabled.
    Disabled,
    /// It was taken out of the workspace, and the caller may not let it in again.
    Barred,
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
        let mut transaction = self.write(audit).await?;
        let reached = Reached { what: "workspaces of a user", limit: self.limits.workspaces, flag: "--max-workspaces" };
        let count = "SELECT count(*) FROM workspaces WHERE owner_user_id = ?";
        bound(&mut transaction, sql::query_as(count).bind(owner_user_id), reached).await?;
        sql::query(
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

    /// The workspaces a user owns or is a member of and that this device of the user has not been taken out of, by name.
    pub async fn workspaces_of_user(&self, user_id: &str, principal_id: &str) -> Result<Vec<WorkspaceRow>, StoreError> {
        let rows = sql::query_as(
            "SELECT id, name FROM workspaces WHERE (owner_user_id = ?1 \
             OR id IN (SELECT workspace_id FROM workspace_members WHERE user_id = ?1)) \
             AND id NOT IN (SELECT workspace_id FROM workspace_bars WHERE principal_id = ?2) ORDER BY name",
        );
        Ok(rows.bind(user_id).bind(principal_id).fetch_all(&self.readers).await?)
    }

    /// The workspace of that name, if the user owns it or is a member, and this device of the user has not been taken out of it.
    pub async fn workspace_of_user(
        &self,
        name: &str,
        user_id: &str,
        principal_id: &str,
    ) -> Result<Option<WorkspaceRow>, StoreError> {
        let row = sql::query_as(
            "SELECT id, name FROM workspaces WHERE name = ?1 AND (owner_user_id = ?2 \
             OR id IN (SELECT workspace_id FROM workspace_members WHERE user_id = ?2)) \
             AND id NOT IN (SELECT workspace_id FROM workspace_bars WHERE principal_id = ?3)",
        );
        Ok(row.bind(name).bind(user_id).bind(principal_id).fetch_optional(&self.readers).await?)
    }

    /// The workspace of that name, if the principal holds its key.
    pub async fn workspace_of_key_holder(
        &self,
        name: &str,
        principal_id: &str,
    ) -> Result<Option<WorkspaceRow>, StoreError> {
        let row = sql::query_as(
            "SELECT w.id, w.name FROM workspaces w JOIN workspace_principals k ON k.workspace_id = w.id \
             WHERE w.name = ? AND k.principal_id = ?",
        );
        Ok(row.bind(name).bind(principal_id).fetch_optional(&self.readers).await?)
    }

    /// Does the user own the workspace, or is the user a member of it? For ids given by a client, and for the target of a grant.
    pub async fn is_workspace_of_user(&self, workspace_id: &str, user_id: &str) -> Result<bool, StoreError> {
        let row: Option<(i64,)> = sql::query_as(
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
        let row = sql::query_as(
            "SELECT ephemeral_pub, kek_wrapped, kek_nonce, signature, signer_id FROM workspace_principals \
             WHERE workspace_id = ? AND principal_id = ?",
        );
        Ok(row.bind(workspace_id).bind(principal_id).fetch_optional(&self.readers).await?)
    }

    /// Keeps the workspace key wrapped for one more principal. A device that was taken out of the workspace is let in again by an admin
    /// only, who has at least the role everywhere that the device will have.
    pub async fn grant_access(
        &self,
        caller: &PrincipalRow,
        workspace_id: &str,
        target: &PrincipalRow,
        wrap: &KeyWrap,
        audit: &AuditRow,
    ) -> Result<Admitted, StoreError> {
        let mut transaction = self.write(audit).await?;
        if exists(&mut transaction, "SELECT 1 FROM principals WHERE id = ? AND disabled_at IS NOT NULL", &[&target.id])
            .await?
        {
            return Ok(Admitted::Disabled);
        }
        let barred = "SELECT 1 FROM workspace_bars WHERE workspace_id = ? AND principal_id = ?";
        if exists(&mut transaction, barred, &[workspace_id, &target.id]).await? {
            let scope = Scope { workspace_id: workspace_id.to_owned(), project_id: None, environment_id: None };
            let (caller, target) = (Holder::from(caller), Holder::from(target));
            let admitted = |grants| Grants { barred: false, ..grants };
            if !caller.grants(&mut transaction, &scope).await?.allow(Role::Admin)
                || exceeds(&mut transaction, caller, target, &scope, admitted).await?
            {
                return Ok(Admitted::Barred);
            }
            sql::query("DELETE FROM workspace_bars WHERE workspace_id = ? AND principal_id = ?")
                .bind(workspace_id)
                .bind(target.principal_id)
                .execute(&mut *transaction)
                .await?;
        }
        insert_key_wrap(&mut transaction, workspace_id, &target.id, wrap).await?;
        commit_with(transaction, audit).await?;
        Ok(Admitted::Done)
    }
}

pub(super) async fn insert_member(
    connection: &mut Connection,
    workspace_id: &str,
    user_id: &str,
) -> Result<(), StoreError> {
    sql::query(
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
    connection: &mut Connection,
    workspace_id: &str,
    principal_id: &str,
    wrap: &KeyWrap,
) -> Result<(), StoreError> {
    sql::query(
        "INSERT INTO workspace_principals (workspace_id, principal_id, ephemeral_pub, kek_wrapped, kek_nonce, created_at, \
         signature, signer_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(workspace_id)
    .bind(principal_id)
    .bind(&wrap.ephemeral_pub)
    .bind(&wrap.kek_wrapped)
    .bind(&wrap.kek_nonce)
    .bind(clock::now())
    .bind(&wrap.signature)
    .bind(&wrap.signer_id)
    .execute(connection)
    .await?;
    Ok(())
}
