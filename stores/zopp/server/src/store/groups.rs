//! Groups of users, and their members.

use super::{
    AuditRow, Changed, HolderKind, Store, StoreError,
    audit::commit_with,
    bound,
    grants::{holdings, principal_holdings},
    new_id,
    sql::{self, Connection, from_row},
};
use crate::{clock, limits::Reached, rbac::Holdings};

/// A group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupRow {
    /// UUID.
    pub id: String,
    /// In which workspace.
    pub workspace_id: String,
    /// Unique in the workspace.
    pub name: String,
    /// For people.
    pub description: Option<String>,
    /// Unix seconds.
    pub created_at: i64,
    /// Unix seconds.
    pub updated_at: i64,
}

from_row!(GroupRow { id, workspace_id, name, description, created_at, updated_at });

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberRow {
    /// The user.
    pub user_id: String,
    /// Its e-mail address.
    pub email: String,
    /// Unix seconds.
    pub created_at: i64,
}

from_row!(MemberRow { user_id, email, created_at });

/// The change of a group.
#[derive(Debug, Clone, Copy)]
pub enum GroupChange<'a> {
    /// Gives it another name (unless `None`) and another description.
    Update {
        /// The new name.
        name: Option<&'a str>,
        /// The new description; empty for none.
        description: &'a str,
    },
    /// Deletes it with its grants and memberships.
    Delete,
    /// Adds the user with this e-mail address.
    Add {
        /// The address, in its normal form.
        email: &'a str,
        /// Whether the user may be added without being a member of the workspace.
        allow_non_member: bool,
    },
    /// Removes the user with this e-mail address.
    Remove {
        /// The address, in its normal form.
        email: &'a str,
    },
}

/// The parties to a decision about a group: the caller's principal with its user, in a workspace.
#[derive(Debug, Clone, Copy)]
pub struct GroupCaller<'a> {
    /// The caller's principal.
    pub principal_id: &'a str,
    /// The user it belongs to.
    pub user_id: Option<&'a str>,
    /// The workspace of the group.
    pub workspace_id: &'a str,
}

impl Store {
    /// Makes a group if `decide`, given all grants of the caller, says so; `None` if not.
    pub async fn create_group(
        &self,
        caller: GroupCaller<'_>,
        name: &str,
        description: &str,
        audit: &AuditRow,
        decide: impl FnOnce(&Holdings) -> bool + Send,
    ) -> Result<Option<GroupRow>, StoreError> {
        let mut transaction = self.write(audit).await?;
        let workspace_id = caller.workspace_id;
        let callers = principal_holdings(&mut transaction, workspace_id, caller.principal_id, caller.user_id).await?;
        if !decide(&callers) {
            return Ok(None);
        }
        let reached = Reached { what: "groups in a workspace", limit: self.limits.groups, flag: "--max-groups" };
        let count = "SELECT count(*) FROM groups WHERE workspace_id = ?";
        bound(&mut transaction, sql::query_as(count).bind(workspace_id), reached).await?;
        let now = clock::now();
        let group = GroupRow {
            id: new_id(),
            workspace_id: workspace_id.to_owned(),
            name: name.to_owned(),
            description: (!description.is_empty()).then(|| description.to_owned()),
            created_at: now,
            updated_at: now,
        };
        sql::query(
            "INSERT INTO groups (id, workspace_id, name, description, created_at, updated_at) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?5)",
        )
        .bind(&group.id)
        .bind(workspace_id)
        .bind(name)
        .bind(&group.description)
        .bind(now)
        .execute(&mut *transaction)
        .await?;
        commit_with(transaction, &AuditRow { resource_id: group.id.clone(), ..audit.clone() }).await?;
        Ok(Some(group))
    }

    /// Changes a group if `decide`, given all grants of the caller and of the group, says so.
    pub async fn change_group(
        &self,
        caller: GroupCaller<'_>,
        group_id: &str,
        change: GroupChange<'_>,
        audit: &AuditRow,
        decide: impl FnOnce(&Holdings, &Holdings) -> bool + Send,
    ) -> Result<Changed, StoreError> {
        let mut transaction = self.write(audit).await?;
        let workspace_id = caller.workspace_id;
        let callers = principal_holdings(&mut transaction, workspace_id, caller.principal_id, caller.user_id).await?;
        let held = holdings(&mut transaction, workspace_id, HolderKind::Group, group_id).await?;
        if !decide(&callers, &held) {
            return Ok(Changed::Refused);
        }
        let (changed, user_id) = apply(&mut transaction, workspace_id, group_id, change).await?;
        if changed != Changed::Done {
            return Ok(changed);
        }
        let details = user_id.map(|id| format!("{{\"user_id\":\"{id}\"}}"));
        commit_with(transaction, &AuditRow { details, ..audit.clone() }).await?;
        Ok(Changed::Done)
    }

    /// The group of that name in a workspace.
    pub async fn group(&self, workspace_id: &str, name: &str) -> Result<Option<GroupRow>, StoreError> {
        let row = sql::query_as(
            "SELECT id, workspace_id, name, description, created_at, updated_at FROM groups \
             WHERE workspace_id = ? AND name = ?",
        );
        Ok(row.bind(workspace_id).bind(name).fetch_optional(&self.readers).await?)
    }

    /// The groups of a workspace, by name.
    pub async fn groups(&self, workspace_id: &str) -> Result<Vec<GroupRow>, StoreError> {
        let rows = sql::query_as(
            "SELECT id, workspace_id, name, description, created_at, updated_at FROM groups \
             WHERE workspace_id = ? ORDER BY name",
        );
        Ok(rows.bind(workspace_id).fetch_all(&self.readers).await?)
    }

    /// The members of a group, by e-mail address.
    pub async fn group_members(&self, group_id: &str) -> Result<Vec<MemberRow>, StoreError> {
        let rows = sql::query_as(
            "SELECT m.user_id, u.email, m.created_at FROM group_members m JOIN users u ON u.id = m.user_id \
             WHERE m.group_id = ? ORDER BY u.email",
        );
        Ok(rows.bind(group_id).fetch_all(&self.readers).await?)
    }

    /// The groups of a workspace that a user is in, by name. `None` if no such user belongs to the workspace or to a group of it.
    pub async fn groups_of_user(&self, workspace_id: &str, email: &str) -> Result<Option<Vec<GroupRow>>, StoreError> {
        let mut connection = self.readers.acquire().await?;
        let rows: Vec<GroupRow> = sql::query_as(
            "SELECT g.id, g.workspace_id, g.name, g.description, g.created_at, g.updated_at FROM groups g \
             JOIN group_members m ON m.group_id = g.id JOIN users u ON u.id = m.user_id \
             WHERE g.workspace_id = ? AND u.email = ? ORDER BY g.name",
        )
        .bind(workspace_id)
        .bind(email)
        .fetch_all(&mut connection)
        .await?;
        if rows.is_empty() && find_user(&mut connection, workspace_id, email, false).await?.is_none() {
            return Ok(None);
        }
        Ok(Some(rows))
    }
}

/// Also returns the user whose membership changed.
async fn apply(
    connection: &mut Connection,
    workspace_id: &str,
    group_id: &str,
    change: GroupChange<'_>,
) -> Result<(Changed, Option<String>), StoreError> {
    let (done, user_id) = match change {
        GroupChange::Update { name, description } => {
            let updated = sql::query(
                "UPDATE groups SET name = coalesce(?, name), description = nullif(?, ''), updated_at = ? WHERE id = ?",
            );
            let updated = updated.bind(name).bind(description).bind(clock::now()).bind(group_id);
            (updated.execute(connection).await?, None)
        }
        GroupChange::Delete => {
            (sql::query("DELETE FROM groups WHERE id = ?").bind(group_id).execute(connection).await?, None)
        }
        GroupChange::Add { email, allow_non_member } => {
            let Some(user_id) = find_user(connection, workspace_id, email, allow_non_member).await? else {
                return Ok((Changed::NoSuchUser, None));
            };
            let added = sql::query("INSERT INTO group_members (group_id, user_id, created_at) VALUES (?, ?, ?)");
            let added = added.bind(group_id).bind(&user_id).bind(clock::now()).execute(connection).await?;
            (added, Some(user_id))
        }
        GroupChange::Remove { email } => {
            let Some(user_id) = find_user(connection, workspace_id, email, true).await? else {
                return Ok((Changed::NothingToRemove, None));
            };
            let removed = sql::query("DELETE FROM group_members WHERE group_id = ? AND user_id = ?");
            let removed = removed.bind(group_id).bind(&user_id).execute(connection).await?;
            if removed.rows_affected() == 0 {
                return Ok((Changed::NothingToRemove, None));
            }
            (removed, Some(user_id))
        }
    };
    // The group was deleted between its lookup and this transaction.
    if done.rows_affected() == 0 { Err(StoreError::Missing) } else { Ok((Changed::Done, user_id)) }
}

/// The id of the user with this e-mail address (in its normal form), who must own the workspace or be a member of it, unless
/// `any` user will do.
pub(super) async fn find_user(
    connection: &mut Connection,
    workspace_id: &str,
    email: &str,
    any: bool,
) -> Result<Option<String>, StoreError> {
    let row: Option<(String,)> = sql::query_as(
        "SELECT u.id FROM users u WHERE u.email = ?2 AND (?3 \
         OR EXISTS (SELECT 1 FROM workspaces w WHERE w.id = ?1 AND w.owner_user_id = u.id) \
         OR EXISTS (SELECT 1 FROM workspace_members m WHERE m.workspace_id = ?1 AND m.user_id = u.id))",
    )
    .bind(workspace_id)
    .bind(email)
    .bind(any)
    .fetch_optional(connection)
    .await?;
    Ok(row.map(|(id,)| id))
}
