//! The grants that decide, read in one query: those of one place, or all of a holder in a workspace.

use super::{
    HolderKind, Scope, Store, StoreError,
    exists::exists,
    sql::{self, Connection, Query, Row},
};
use crate::rbac::{Grants, Holdings, Level, Node, Role};

/// The grants that count for a principal (`?4`) and its user at the place with these ids: kind, level, role.
macro_rules! grants_at {
    ($workspace:literal, $project:literal, $environment:literal, $user:literal) => {
        concat!(
            "SELECT 'barred' AS kind, 0 AS level, 'read' AS role \
                WHERE NOT EXISTS (SELECT 1 FROM principals WHERE id = ?4 AND disabled_at IS NULL) \
                OR EXISTS (SELECT 1 FROM workspace_bars WHERE workspace_id = ", $workspace, " AND principal_id = ?4) \
            UNION ALL SELECT 'owner', 0, 'admin' FROM workspaces WHERE id = ", $workspace, " AND owner_user_id = ", $user, " \
            UNION ALL SELECT 'principal', 0, role FROM workspace_permissions \
                WHERE workspace_id = ", $workspace, " AND principal_id = ?4 \
            UNION ALL SELECT 'principal', 1, role FROM project_permissions \
                WHERE project_id = ", $project, " AND principal_id = ?4 \
            UNION ALL SELECT 'principal', 2, role FROM environment_permissions \
                WHERE environment_id = ", $environment, " AND principal_id = ?4 \
            UNION ALL SELECT 'user', 0, role FROM user_workspace_permissions \
                WHERE workspace_id = ", $workspace, " AND user_id = ", $user, " \
            UNION ALL SELECT 'user', 0, s.value FROM settings s \
                JOIN workspace_members m ON m.workspace_id = ", $workspace, " AND m.user_id = ", $user, " \
                WHERE s.name = 'member_role' \
            UNION ALL SELECT 'user', 1, role FROM user_project_permissions \
                WHERE project_id = ", $project, " AND user_id = ", $user, " \
            UNION ALL SELECT 'user', 2, role FROM user_environment_permissions \
                WHERE environment_id = ", $environment, " AND user_id = ", $user, " \
            UNION ALL SELECT 'group', 0, p.role FROM group_workspace_permissions p JOIN group_members m USING (group_id) \
                WHERE p.workspace_id = ", $workspace, " AND m.user_id = ", $user, " \
            UNION ALL SELECT 'group', 1, p.role FROM group_project_permissions p JOIN group_members m USING (group_id) \
                WHERE p.project_id = ", $project, " AND m.user_id = ", $user, " \
            UNION ALL SELECT 'group', 2, p.role FROM group_environment_permissions p JOIN group_members m USING (group_id) \
                WHERE p.environment_id = ", $environment, " AND m.user_id = ", $user
        )
    };
}

pub(super) use grants_at;

const GRANTS: &str = grants_at!("?1", "?2", "?3", "?5");

/// Finds a row if the grants are those that have the [`number`] `?6`.
const SAME: &str = concat!(
    "SELECT 1 FROM (SELECT coalesce(max(CASE kind WHEN 'barred' THEN 1 END), 0) + coalesce(max(CASE kind WHEN 'owner' THEN 4 END), 0) \
        + coalesce(max(CASE WHEN kind = 'principal' AND level = 0 THEN 16 * weight END), 0) \
        + coalesce(max(CASE WHEN kind = 'principal' AND level = 1 THEN 64 * weight END), 0) \
        + coalesce(max(CASE WHEN kind = 'principal' AND level = 2 THEN 256 * weight END), 0) \
        + coalesce(max(CASE kind WHEN 'user' THEN 1024 * weight END), 0) \
        + coalesce(max(CASE kind WHEN 'group' THEN 4096 * weight END), 0) AS number \
        FROM (SELECT kind, level, CASE role WHEN 'admin' THEN 3 WHEN 'write' THEN 2 ELSE 1 END AS weight FROM (",
    grants_at!("?1", "?2", "?3", "?5"),
    ") held) weighed) counted WHERE number = ?6"
);

/// All that a role depends on, as a number: two bits for each part.
pub(super) fn number(grants: Grants) -> i64 {
    let weight = |role: Option<Role>| match role {
        None => 0,
        Some(Role::Read) => 1,
        Some(Role::Write) => 2,
        Some(Role::Admin) => 3,
    };
    let Grants { barred, owner, principal, user, group, human: _ } = grants;
    let parts = [i64::from(barred), i64::from(owner)].into_iter();
    let parts = parts.chain(principal.into_iter().chain([user, group]).map(weight));
    parts.enumerate().map(|(place, part)| part << (2 * place)).sum()
}

/// Finds a row if the role at a place depends on the same grants as those.
pub(super) fn same<'q>(principal_id: &'q str, user_id: Option<&'q str>, scope: &'q Scope, seen: Grants) -> Query<'q> {
    match user_id {
        Some(user_id) if seen.owner && !seen.barred => {
            sql::query(STILL_OWNER).bind(&scope.workspace_id).bind(user_id).bind(principal_id)
        }
        _ => asking(SAME, principal_id, user_id, scope).bind(number(seen)),
    }
}

/// Finds a row if a user owns a workspace, and the device is not barred from it. The role of an owner depends on no grant.
const STILL_OWNER: &str = "SELECT 1 FROM workspaces WHERE id = ?1 AND owner_user_id = ?2 \
    AND id NOT IN (SELECT workspace_id FROM workspace_bars WHERE principal_id = ?3)";

impl Store {
    /// The grants that apply to a principal (of a user, or a service's) at a place. An error is an error, never "no grants".
    pub async fn grants(&self, principal_id: &str, user_id: Option<&str>, scope: &Scope) -> Result<Grants, StoreError> {
        let mut connection = self.readers.acquire().await?;
        load(&mut connection, principal_id, user_id, scope).await
    }

    /// All grants that count for a principal in a workspace, with the tree that they are about, as of one moment.
    pub async fn effective(
        &self,
        workspace_id: &str,
        principal_id: &str,
        user_id: Option<&str>,
    ) -> Result<(Holdings, Vec<Branch>), StoreError> {
        let mut transaction = self.read().await?;
        let held = principal_holdings(&mut transaction, workspace_id, principal_id, user_id).await?;
        let rows: Vec<(String, String, Option<String>, Option<String>)> = sql::query_as(
            "SELECT p.id, p.name, e.id, e.name FROM projects p LEFT JOIN environments e ON e.project_id = p.id \
             WHERE p.workspace_id = ? ORDER BY p.name, e.name",
        )
        .bind(workspace_id)
        .fetch_all(&mut *transaction)
        .await?;
        let mut branches: Vec<Branch> = Vec::new();
        for (id, name, environment_id, environment_name) in rows {
            if branches.last().is_none_or(|last| last.id != id) {
                branches.push(Branch { id, name, environments: Vec::new() });
            }
            if let (Some(last), Some(id), Some(name)) = (branches.last_mut(), environment_id, environment_name) {
                last.environments.push((id, name));
            }
        }
        Ok((held, branches))
    }
}

/// A project with its environments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    /// UUID.
    pub id: String,
    /// Unique in the workspace.
    pub name: String,
    /// Ids and names.
    pub environments: Vec<(String, String)>,
}

pub(super) async fn load(
    connection: &mut Connection,
    principal_id: &str,
    user_id: Option<&str>,
    scope: &Scope,
) -> Result<Grants, StoreError> {
    let rows = question(principal_id, user_id, scope).fetch_all(connection).await?;
    from_rows(rows.iter(), user_id.is_some())
}

/// The question for the grants that apply to a principal (of a user, or a service's) at a place: kind, level, role.
pub(super) fn question<'q>(principal_id: &'q str, user_id: Option<&'q str>, scope: &'q Scope) -> Query<'q> {
    asking(GRANTS, principal_id, user_id, scope)
}

fn asking<'q>(sql: &'static str, principal_id: &'q str, user_id: Option<&'q str>, scope: &'q Scope) -> Query<'q> {
    sql::query(sql)
        .bind(&scope.workspace_id)
        .bind(&scope.project_id)
        .bind(&scope.environment_id)
        .bind(principal_id)
        .bind(user_id)
}

/// The grants that [`question`] found, for a person's principal or a service.
pub(super) fn from_rows<'r>(rows: impl Iterator<Item = &'r Row>, human: bool) -> Result<Grants, StoreError> {
    let mut grants = Grants { human, ..Grants::default() };
    for row in rows {
        add(&mut grants, row.try_get("kind")?, row.try_get("level")?, row.try_get("role")?)?;
    }
    Ok(grants)
}

/// Adds a row of [`grants_at`].
pub(super) fn add(grants: &mut Grants, kind: &str, level: i64, role: &str) -> Result<(), StoreError> {
    let role = Some(role_from_text(role)?);
    match kind {
        "barred" => grants.barred = true,
        "owner" => grants.owner = true,
        "principal" => *grants = grants.with_own(level_from_number(level)?, role),
        "user" => grants.user = grants.user.max(role),
        _ => grants.group = grants.group.max(role),
    }
    Ok(())
}

/// A principal that is disabled, gone, or out of the workspace.
const BARRED: &str = "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM principals WHERE id = ?2 AND disabled_at IS NULL) \
    OR EXISTS (SELECT 1 FROM workspace_bars WHERE workspace_id = ?1 AND principal_id = ?2)";

/// The grants of one kind of holder at all places of a workspace: project, environment, role. Parameters: workspace, holder.
macro_rules! all {
    ($prefix:literal, $from:literal, $holder:literal) => {
        concat!(
            "SELECT NULL, NULL, g.role FROM ",
            $prefix,
            "workspace_permissions g ",
            $from,
            " \
             WHERE g.workspace_id = ?1 AND ",
            $holder,
            " = ?2 \
             UNION ALL SELECT p.id, NULL, g.role FROM ",
            $prefix,
            "project_permissions g \
             JOIN projects p ON p.id = g.project_id ",
            $from,
            " WHERE p.workspace_id = ?1 AND ",
            $holder,
            " = ?2 \
             UNION ALL SELECT e.project_id, e.id, g.role FROM ",
            $prefix,
            "environment_permissions g \
             JOIN environments e ON e.id = g.environment_id ",
            $from,
            " WHERE e.workspace_id = ?1 AND ",
            $holder,
            " = ?2"
        )
    };
}

const OF_PRINCIPAL: &str = all!("", "", "g.principal_id");
const OF_USER: &str = all!("user_", "", "g.user_id");
const OF_GROUP: &str = all!("group_", "", "g.group_id");
const OF_GROUPS_OF_USER: &str = all!("group_", "JOIN group_members m ON m.group_id = g.group_id", "m.user_id");

/// The role that each member of a workspace has without any grant, where the operator of the server set one.
const OF_MEMBERS: &str = "SELECT NULL, NULL, s.value FROM settings s \
    JOIN workspace_members m ON m.workspace_id = ?1 AND m.user_id = ?2 WHERE s.name = 'member_role'";

/// All grants made to one holder in a workspace, and nothing that it has by other ways.
pub(super) async fn holdings(
    connection: &mut Connection,
    workspace_id: &str,
    holder: HolderKind,
    id: &str,
) -> Result<Holdings, StoreError> {
    let statement = match holder {
        HolderKind::Principal => OF_PRINCIPAL,
        HolderKind::User => OF_USER,
        HolderKind::Group => OF_GROUP,
    };
    let own = all_grants(connection, statement, workspace_id, id).await?.into_iter().collect();
    Ok(Holdings { own, ..Holdings::default() })
}

/// All grants that count for a principal in a workspace.
pub(super) async fn principal_holdings(
    connection: &mut Connection,
    workspace_id: &str,
    principal_id: &str,
    user_id: Option<&str>,
) -> Result<Holdings, StoreError> {
    let mut held = holdings(connection, workspace_id, HolderKind::Principal, principal_id).await?;
    held.barred = exists(connection, BARRED, &[workspace_id, principal_id]).await?;
    let Some(user_id) = user_id else { return Ok(held) };
    held.human = true;
    let owner = "SELECT 1 FROM workspaces WHERE id = ? AND owner_user_id = ?";
    held.owner = exists(connection, owner, &[workspace_id, user_id]).await?;
    for statement in [OF_USER, OF_GROUPS_OF_USER, OF_MEMBERS] {
        for (node, role) in all_grants(connection, statement, workspace_id, user_id).await? {
            held.add_base(node, role);
        }
    }
    Ok(held)
}

async fn all_grants(
    connection: &mut Connection,
    statement: &'static str,
    workspace_id: &str,
    holder_id: &str,
) -> Result<Vec<(Node, Role)>, StoreError> {
    let rows: Vec<(Option<String>, Option<String>, String)> =
        sql::query_as(statement).bind(workspace_id).bind(holder_id).fetch_all(connection).await?;
    rows.into_iter()
        .map(|(project, environment, role)| {
            let node = match (project, environment) {
                (Some(project), Some(environment)) => Node::Environment { project, environment },
                (Some(project), None) => Node::Project(project),
                (None, _) => Node::Workspace,
            };
            Ok((node, role_from_text(&role)?))
        })
        .collect()
}

fn level_from_number(number: i64) -> Result<Level, StoreError> {
    match number {
        0 => Ok(Level::Workspace),
        1 => Ok(Level::Project),
        2 => Ok(Level::Environment),
        _ => Err(StoreError::Corrupt("level")),
    }
}

pub(super) fn role_from_text(text: &str) -> Result<Role, StoreError> {
    match text {
        "admin" => Ok(Role::Admin),
        "write" => Ok(Role::Write),
        "read" => Ok(Role::Read),
        _ => Err(StoreError::Corrupt("role")),
    }
}

pub(super) const fn role_text(role: Role) -> &'static str {
    match role {
        Role::Admin => "admin",
        Role::Write => "write",
        Role::Read => "read",
    }
}
