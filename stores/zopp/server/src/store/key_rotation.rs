//! Replacing the key of a workspace: for its holders and for its environments at once. All keys are opaque to the server.

use super::{
    AuditRow, KeyWrap, Store, StoreError,
    audit::commit_with,
    keys::counting_up,
    new_id,
    sql::{self, Connection, from_row},
    workspaces::insert_key_wrap,
};
use crate::clock;

/// A principal that holds a workspace's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyHolderRow {
    /// UUID.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Of its user; `None` for a service.
    pub email: Option<String>,
    /// Its user; `None` for a service.
    pub user_id: Option<String>,
    /// Since when it is disabled.
    pub disabled_at: Option<i64>,
    /// Ed25519.
    pub public_key: Vec<u8>,
    /// X25519.
    pub x25519_public_key: Option<Vec<u8>>,
    /// Of the wrap that it holds.
    pub ephemeral_pub: Vec<u8>,
    /// The wrap that it holds.
    pub kek_wrapped: Vec<u8>,
    /// Of the wrap that it holds.
    pub kek_nonce: Vec<u8>,
    /// Over the wrap that it holds.
    pub signature: Option<Vec<u8>>,
    /// The principal that made the wrap; `None` if it is the holder itself.
    pub signer_id: Option<String>,
}

from_row!(KeyHolderRow {
    id,
    name,
    email,
    user_id,
    disabled_at,
    public_key,
    x25519_public_key,
    ephemeral_pub,
    kek_wrapped,
    kek_nonce,
    signature,
    signer_id,
});

/// An environment whose key a workspace's key wraps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyedEnvironmentRow {
    /// UUID.
    pub id: String,
    /// The name of its project.
    pub project: String,
    /// Its name.
    pub name: String,
    /// 48 bytes.
    pub dek_wrapped: Vec<u8>,
    /// 24 bytes.
    pub dek_nonce: Vec<u8>,
    /// The generation of the workspace's key under which its key was made.
    pub made_under: u32,
}

from_row!(KeyedEnvironmentRow { id, project, name, dek_wrapped, dek_nonce, made_under });

/// The key of a workspace, all of one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyState {
    /// How often it was replaced, from 1.
    pub generation: u32,
    /// By ID.
    pub holders: Vec<KeyHolderRow>,
    /// By project and name.
    pub environments: Vec<KeyedEnvironmentRow>,
}

/// The step to a generation of a workspace's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyLinkRow {
    /// The new one.
    pub generation: u32,
    /// Of the former key, 20 bytes.
    pub former_fingerprint: Vec<u8>,
    /// Of the new key, 20 bytes.
    pub fingerprint: Vec<u8>,
    /// 24 bytes.
    pub former_nonce: Vec<u8>,
    /// The former key, sealed under the new one.
    pub former_sealed: Vec<u8>,
    /// Of the principal that made the link.
    pub signature: Vec<u8>,
    /// That principal's ID.
    pub signer_id: String,
    /// Its name then.
    pub signer_name: String,
    /// Ed25519.
    pub signer_public_key: Vec<u8>,
    /// X25519; empty if it had none.
    pub signer_x25519_public_key: Vec<u8>,
    /// Unix seconds.
    pub created_at: i64,
    /// Fingerprints, 20 bytes each, of the principals that may replace the new key. `None` if an earlier client made the link.
    pub administrators: Option<Vec<u8>>,
    /// By the signer, over the administrators and the new key.
    pub administrators_signature: Option<Vec<u8>>,
}

from_row!(KeyLinkRow {
    generation,
    former_fingerprint,
    fingerprint,
    former_nonce,
    former_sealed,
    signature,
    signer_id,
    signer_name,
    signer_public_key,
    signer_x25519_public_key,
    created_at,
    administrators,
    administrators_signature,
});

/// A new key of a workspace.
#[derive(Debug, Clone)]
pub struct KeyRotation {
    /// The generation that the workspace's key must have before.
    pub expected_generation: u32,
    /// From the former key.
    pub link: KeyLinkRow,
    /// By principal.
    pub wraps: Vec<(String, KeyWrap)>,
    /// The holders that do not get it.
    pub left_out: Vec<String>,
    /// The keys of all environments, by ID: wrapped with the new key (48 bytes), and the nonce (24 bytes).
    pub environments: Vec<(String, Vec<u8>, Vec<u8>)>,
}

/// The result of an attempt to replace a workspace's key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rotated {
    /// It was replaced, and so many open invites were revoked.
    Done {
        /// They carried the former key.
        invites: u64,
    },
    /// The key was replaced meanwhile, or its holders or the environments are others.
    Outdated,
    /// A disabled principal would get it.
    Disabled,
    /// The former key is not the one of which the last link tells.
    Broken,
}

impl Store {
    /// The key of a workspace with its holders and environments; `None` if the workspace is gone.
    pub async fn key_state(&self, workspace_id: &str) -> Result<Option<KeyState>, StoreError> {
        let mut transaction = self.read().await?;
        let Some(generation) = generation(&mut transaction, workspace_id).await? else { return Ok(None) };
        let holders = sql::query_as(
            "SELECT p.id, p.name, u.email, p.user_id, p.disabled_at, p.public_key, p.x25519_public_key, k.ephemeral_pub, k.kek_wrapped, \
             k.kek_nonce, k.signature, k.signer_id FROM workspace_principals k JOIN principals p ON p.id = k.principal_id \
             LEFT JOIN users u ON u.id = p.user_id WHERE k.workspace_id = ? ORDER BY p.id",
        );
        let holders = holders.bind(workspace_id).fetch_all(&mut *transaction).await?;
        let environments = sql::query_as(
            "SELECT e.id, p.name AS project, e.name, e.dek_wrapped, e.dek_nonce, e.made_under FROM environments e \
             JOIN projects p ON p.id = e.project_id WHERE e.workspace_id = ? ORDER BY p.name, e.name",
        );
        let environments = environments.bind(workspace_id).fetch_all(&mut *transaction).await?;
        Ok(Some(KeyState { generation, holders, environments }))
    }

    /// How often the key of a workspace was replaced, from 1; `None` if the workspace is gone.
    pub async fn key_generation(&self, workspace_id: &str) -> Result<Option<u32>, StoreError> {
        generation(&mut self.readers.acquire().await?, workspace_id).await
    }

    /// How the key of a workspace was replaced, the newest generation first.
    pub async fn key_chain(&self, workspace_id: &str) -> Result<Vec<KeyLinkRow>, StoreError> {
        let rows = sql::query_as(
            "SELECT generation, former_fingerprint, fingerprint, former_nonce, former_sealed, signature, signer_id, signer_name, \
             signer_public_key, signer_x25519_public_key, created_at, administrators, administrators_signature \
             FROM workspace_key_links WHERE workspace_id = ? ORDER BY generation DESC",
        );
        Ok(rows.bind(workspace_id).fetch_all(&self.readers).await?)
    }

    /// Replaces the key of a workspace: for its holders, for all of its environments, and in the chain. Open invites carry the former key and
    /// are revoked. All of it happens, or nothing.
    pub async fn rotate_key(
        &self,
        workspace_id: &str,
        rotation: &KeyRotation,
        audit: &AuditRow,
    ) -> Result<Rotated, StoreError> {
        let mut transaction = self.write(audit).await?;
        if generation(&mut transaction, workspace_id).await? != Some(rotation.expected_generation) {
            return Ok(Rotated::Outdated);
        }
        if let Some(refused) = unfit(&mut transaction, workspace_id, rotation).await? {
            return Ok(refused);
        }
        insert_link(&mut transaction, workspace_id, &rotation.link).await?;
        sql::query("UPDATE workspaces SET key_generation = ?, updated_at = ? WHERE id = ?")
            .bind(i64::from(rotation.link.generation))
            .bind(clock::now())
            .bind(workspace_id)
            .execute(&mut *transaction)
            .await?;
        sql::query("DELETE FROM workspace_principals WHERE workspace_id = ?")
            .bind(workspace_id)
            .execute(&mut *transaction)
            .await?;
        for (principal_id, wrap) in &rotation.wraps {
            insert_key_wrap(&mut transaction, workspace_id, principal_id, wrap).await?;
        }
        for (environment_id, dek_wrapped, dek_nonce) in &rotation.environments {
            // With another tag: a change that brings a new key of the environment, wrapped with the former one, comes too late.
            let change_id = new_id();
            let counted = counting_up(environment_id, &change_id, 0).execute(&mut *transaction).await?;
            if counted.rows_affected() == 0 {
                return Err(StoreError::Missing);
            }
            sql::query("UPDATE environments SET dek_wrapped = ?, dek_nonce = ? WHERE id = ?")
                .bind(dek_wrapped)
                .bind(dek_nonce)
                .bind(environment_id)
                .execute(&mut *transaction)
                .await?;
        }
        let invites = sql::query(
            "UPDATE invites SET revoked = 1, updated_at = ? WHERE revoked = 0 AND kek_encrypted IS NOT NULL \
             AND id IN (SELECT invite_id FROM invite_workspaces WHERE workspace_id = ?)",
        );
        let invites = invites.bind(clock::now()).bind(workspace_id).execute(&mut *transaction).await?.rows_affected();
        commit_with(transaction, audit).await?;
        Ok(Rotated::Done { invites })
    }
}

/// Why a rotation does not fit the holders, the environments or the chain that a workspace has; `None` if it does.
async fn unfit(
    connection: &mut Connection,
    workspace_id: &str,
    rotation: &KeyRotation,
) -> Result<Option<Rotated>, StoreError> {
    let holders: Vec<(String, Option<i64>)> = sql::query_as(
        "SELECT k.principal_id, p.disabled_at FROM workspace_principals k JOIN principals p ON p.id = k.principal_id \
         WHERE k.workspace_id = ?",
    )
    .bind(workspace_id)
    .fetch_all(&mut *connection)
    .await?;
    let getting = || rotation.wraps.iter().map(|(id, _)| id.as_str());
    let named = getting().chain(rotation.left_out.iter().map(String::as_str));
    if !are_same(named, holders.iter().map(|(id, _)| id.as_str())) {
        return Ok(Some(Rotated::Outdated));
    }
    if holders.iter().any(|(id, disabled_at)| disabled_at.is_some() && getting().any(|getting| getting == id)) {
        return Ok(Some(Rotated::Disabled));
    }
    let environments: Vec<(String,)> = sql::query_as("SELECT id FROM environments WHERE workspace_id = ?")
        .bind(workspace_id)
        .fetch_all(&mut *connection)
        .await?;
    let rewrapped = rotation.environments.iter().map(|(id, ..)| id.as_str());
    if !are_same(rewrapped, environments.iter().map(|(id,)| id.as_str())) {
        return Ok(Some(Rotated::Outdated));
    }
    let last: Option<(Vec<u8>,)> =
        sql::query_as("SELECT fingerprint FROM workspace_key_links WHERE workspace_id = ? AND generation = ?")
            .bind(workspace_id)
            .bind(i64::from(rotation.expected_generation))
            .fetch_optional(&mut *connection)
            .await?;
    if last.is_some_and(|(fingerprint,)| fingerprint != rotation.link.former_fingerprint) {
        return Ok(Some(Rotated::Broken));
    }
    Ok(None)
}

async fn generation(connection: &mut Connection, workspace_id: &str) -> Result<Option<u32>, StoreError> {
    let row: Option<(u32,)> = sql::query_as("SELECT key_generation FROM workspaces WHERE id = ?")
        .bind(workspace_id)
        .fetch_optional(connection)
        .await?;
    Ok(row.map(|(generation,)| generation))
}

async fn insert_link(connection: &mut Connection, workspace_id: &str, link: &KeyLinkRow) -> Result<(), StoreError> {
    sql::query(
        "INSERT INTO workspace_key_links (workspace_id, generation, former_fingerprint, fingerprint, former_nonce, former_sealed, \
         signature, signer_id, signer_name, signer_public_key, signer_x25519_public_key, created_at, \
         administrators, administrators_signature) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(workspace_id)
    .bind(i64::from(link.generation))
    .bind(&link.former_fingerprint)
    .bind(&link.fingerprint)
    .bind(&link.former_nonce)
    .bind(&link.former_sealed)
    .bind(&link.signature)
    .bind(&link.signer_id)
    .bind(&link.signer_name)
    .bind(&link.signer_public_key)
    .bind(&link.signer_x25519_public_key)
    .bind(link.created_at)
    .bind(&link.administrators)
    .bind(&link.administrators_signature)
    .execute(connection)
    .await?;
    Ok(())
}

/// Whether both are the same IDs, each as often.
fn are_same<'a>(some: impl Iterator<Item = &'a str>, others: impl Iterator<Item = &'a str>) -> bool {
    let sorted = |mut ids: Vec<&'a str>| {
        ids.sort_unstable();
        ids
    };
    sorted(some.collect()) == sorted(others.collect())
}
