//! How far a change of somebody's grants reaches: also below the place where it is made.

use super::{
    PrincipalRow, Scope, StoreError,
    grants::load,
    sql::{self, Connection},
};
use crate::rbac::{Grants, Role, stays_within};

/// A principal and its user, whose grants count.
#[derive(Debug, Clone, Copy)]
pub(super) struct Holder<'a> {
    pub(super) principal_id: &'a str,
    /// `None` for a service.
    pub(super) user_id: Option<&'a str>,
}

impl<'a> From<&'a PrincipalRow> for Holder<'a> {
    fn from(row: &'a PrincipalRow) -> Self {
        Self { principal_id: &row.id, user_id: row.user_id.as_deref() }
    }
}

impl Holder<'_> {
    pub(super) async fn grants(self, connection: &mut Connection, scope: &Scope) -> Result<Grants, StoreError> {
        load(connection, self.principal_id, self.user_id, scope).await
    }
}

/// Returns whether `change` touches more of the target's roles, at the scope or anywhere below it, than the caller has there.
pub(super) async fn exceeds(
    connection: &mut Connection,
    caller: Holder<'_>,
    target: Holder<'_>,
    scope: &Scope,
    change: impl Fn(Grants) -> Grants,
) -> Result<bool, StoreError> {
    for place in places(connection, caller, target, scope).await? {
        let caller = caller.grants(connection, &place).await?;
        let before = target.grants(connection, &place).await?;
        if !stays_within(&caller, &before, &change(before)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The highest role that a principal has at a scope or anywhere below it.
pub(super) async fn highest_role(
    connection: &mut Connection,
    holder: Holder<'_>,
    scope: &Scope,
) -> Result<Option<Role>, StoreError> {
    let mut highest = None;
    for place in places(connection, holder, holder, scope).await? {
        highest = highest.max(holder.grants(connection, &place).await?.effective());
    }
    Ok(highest)
}

/// The scope, and what is below it and has grants of its own for one of the two. Everywhere else below, roles are the same as
/// above.
async fn places(
    connection: &mut Connection,
    one: Holder<'_>,
    other: Holder<'_>,
    scope: &Scope,
) -> Result<Vec<Scope>, StoreError> {
    const PLACES: &str = "\
        SELECT p.id, NULL FROM projects p WHERE p.workspace_id = ?1 AND ?2 IS NULL AND ( \
            EXISTS (SELECT 1 FROM project_permissions g WHERE g.project_id = p.id AND g.principal_id IN (?4, ?5)) \
            OR EXISTS (SELECT 1 FROM user_project_permissions g WHERE g.project_id = p.id AND g.user_id IN (?6, ?7)) \
            OR EXISTS (SELECT 1 FROM group_project_permissions g JOIN group_members m USING (group_id) \
                WHERE g.project_id = p.id AND m.user_id IN (?6, ?7))) \
        UNION ALL \
        SELECT e.project_id, e.id FROM environments e \
        WHERE e.workspace_id = ?1 AND (?2 IS NULL OR e.project_id = ?2) AND ?3 IS NULL AND ( \
            EXISTS (SELECT 1 FROM environment_permissions g WHERE g.environment_id = e.id AND g.principal_id IN (?4, ?5)) \
            OR EXISTS (SELECT 1 FROM user_environment_permissions g WHERE g.environment_id = e.id AND g.user_id IN (?6, ?7)) \
            OR EXISTS (SELECT 1 FROM group_environment_permissions g JOIN group_members m USING (group_id) \
                WHERE g.environment_id = e.id AND m.user_id IN (?6, ?7)))";
    let rows: Vec<(String, Option<String>)> = sql::query_as(PLACES)
        .bind(&scope.workspace_id)
        .bind(&scope.project_id)
        .bind(&scope.environment_id)
        .bind(one.principal_id)
        .bind(other.principal_id)
        .bind(one.user_id)
        .bind(other.user_id)
        .fetch_all(connection)
        .await?;
    let below = rows.into_iter().map(|(project_id, environment_id)| Scope {
        workspace_id: scope.workspace_id.clone(),
        project_id: Some(project_id),
        environment_id,
    });
    Ok(std::iter::once(scope.clone()).chain(below).collect())
}
