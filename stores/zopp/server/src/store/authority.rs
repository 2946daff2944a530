//! Rights that were decided upon before a change, checked again in the transaction that writes it.
//!
//! A handler looks a place up and asks for a role with one connection, and writes with another. In between, another call may take
//! the right away and be acknowledged. So [`Store::write`](super::Store::write) begins each transaction with a check of the
//! caller's rights, which its audit row carries. So every change obeys each revocation that was committed before it.

use super::{
    Scope, StoreError,
    grants::load,
    sql::{self, Connection},
};
use crate::rbac::Role;

/// A caller, and the rights by which its change was allowed. The default stands for a caller without an identity.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Authority {
    /// Principal, and its user unless it is a service.
    caller: Option<(String, Option<String>)>,
    /// In the order in which they were found out. Each stands here once.
    needs: Vec<Need>,
}

/// One right of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Need {
    /// The workspace of this id is there for the caller's user, on this device.
    Member(String),
    /// The caller holds the key of the workspace of this id.
    KeyHolder(String),
    /// The caller has at least this role at this place.
    Role(Scope, Role),
    /// The key of the workspace of this ID is of this generation: the request carries something that was made of it.
    Generation(String, u32),
}

/// Why a change was not written although it had been allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Revoked {
    /// The principal was disabled or removed.
    Principal,
    /// The workspace is not there for the principal any more.
    Workspace,
    /// The role is too low now.
    Role(Role),
    /// The workspace's key was replaced.
    Key,
}

impl Authority {
    /// The authority of a principal, which is enough for what concerns only the principal.
    pub fn of(principal_id: &str, user_id: Option<&str>) -> Self {
        Self { caller: Some((principal_id.to_owned(), user_id.map(str::to_owned))), needs: Vec::new() }
    }

    /// Adds a right.
    pub fn add(&mut self, need: Need) {
        // A stream asks for the same ones for as long as it lasts.
        if !self.needs.contains(&need) {
            self.needs.push(need);
        }
    }

    /// Fails unless the caller has all the rights right now.
    pub(super) async fn check(&self, connection: &mut Connection) -> Result<(), StoreError> {
        let Some((principal_id, user_id)) = &self.caller else { return Ok(()) };
        let enabled = "SELECT 1 FROM principals WHERE id = ? AND disabled_at IS NULL";
        if !exists(connection, enabled, &[principal_id]).await? {
            return Err(StoreError::Revoked(Revoked::Principal));
        }
        for need in &self.needs {
            let (fulfilled, revoked) = match (need, user_id) {
                (Need::Member(workspace_id), Some(user_id)) => {
                    (is_member(connection, workspace_id, user_id, principal_id).await?, Revoked::Workspace)
                }
                (Need::Member(workspace_id) | Need::KeyHolder(workspace_id), _) => {
                    (holds_key(connection, workspace_id, principal_id).await?, Revoked::Workspace)
                }
                (Need::Role(scope, role), user_id) => {
                    let grants = load(connection, principal_id, user_id.as_deref(), scope).await?;
                    (grants.allow(*role), Revoked::Role(*role))
                }
                (Need::Generation(workspace_id, generation), _) => {
                    (is_of_generation(connection, workspace_id, *generation).await?, Revoked::Key)
                }
            };
            if !fulfilled {
                return Err(StoreError::Revoked(revoked));
            }
        }
        Ok(())
    }
}

async fn is_member(
    connection: &mut Connection,
    workspace_id: &str,
    user_id: &str,
    principal_id: &str,
) -> Result<bool, StoreError> {
    let query = "SELECT 1 FROM workspaces WHERE id = ?1 AND (owner_user_id = ?2 \
                 OR id IN (SELECT workspace_id FROM workspace_members WHERE user_id = ?2)) \
                 AND id NOT IN (SELECT workspace_id FROM workspace_bars WHERE principal_id = ?3)";
    exists(connection, query, &[workspace_id, user_id, principal_id]).await
}

async fn holds_key(connection: &mut Connection, workspace_id: &str, principal_id: &str) -> Result<bool, StoreError> {
    let query = "SELECT 1 FROM workspace_principals WHERE workspace_id = ? AND principal_id = ?";
    exists(connection, query, &[workspace_id, principal_id]).await
}

async fn is_of_generation(
    connection: &mut Connection,
    workspace_id: &str,
    generation: u32,
) -> Result<bool, StoreError> {
    let query = sql::query("SELECT 1 FROM workspaces WHERE id = ? AND key_generation = ?");
    Ok(query.bind(workspace_id).bind(i64::from(generation)).fetch_optional(connection).await?.is_some())
}

/// Does the query, with these texts bound, find a row?
pub(super) async fn exists(
    connection: &mut Connection,
    query: &'static str,
    texts: &[&str],
) -> Result<bool, StoreError> {
    let mut query = sql::query(query);
    for text in texts {
        query = query.bind(*text);
    }
    Ok(query.fetch_optional(connection).await?.is_some())
}
