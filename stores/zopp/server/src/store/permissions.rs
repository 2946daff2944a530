//! Grants to principals, users and groups, on the three levels.

use super::{
    AuditRow, PrincipalRow, Store, StoreError,
    audit::commit_with,
    delegation::{exceeds, highest_role},
    grants::{holdings, principal_holdings, role_from_text, role_text},
    groups::find_user,
    lifecycle::{RemovedHolder, last_copies, owner_of},
    principals::find_principal,
    sql::{self, Connection},
};
use crate::{
    clock,
    rbac::{Grants, Holdings, Level, Node, Role},
};

/// A workspace, a project in it, or an environment in that.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope {
    /// Always.
    pub workspace_id: String,
    /// For a project or an environment.
    pub project_id: Option<String>,
    /// For an environment.
    pub environment_id: Option<String>,
}

impl Scope {
    /// How deep it is.
    pub fn level(&self) -> Level {
        match (&self.project_id, &self.environment_id) {
            (_, Some(_)) => Level::Environment,
            (Some(_), None) => Level::Project,
            (None, None) => Level::Workspace,
        }
    }

    /// Where it is in the tree of its workspace.
    pub fn node(&self) -> Node {
        match (&self.project_id, &self.environment_id) {
            (Some(project), Some(environment)) => {
                Node::Environment { project: project.clone(), environment: environment.clone() }
            }
            (Some(project), None) => Node::Project(project.clone()),
            (None, _) => Node::Workspace,
        }
    }

    /// The id of the innermost one.
    pub fn id(&self) -> &str {
        self.environment_id.as_ref().or(self.project_id.as_ref()).unwrap_or(&self.workspace_id)
    }
}

/// The kind of holder that a grant is made to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HolderKind {
    /// A device of a user, or a service.
    Principal,
    /// A user.
    User,
    /// A group of users.
    Group,
}

/// The holder whose grant is changed.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// A principal.
    Principal(&'a PrincipalRow),
    /// The user with this e-mail address, in its normal form.
    User {
        /// The address.
        email: &'a str,
        /// Whether the user may be given something without being a member of the workspace.
        allow_non_member: bool,
    },
    /// The group of this id.
    Group(&'a str),
}

/// One grant, for listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// To whom: id of a principal, user or group.
    pub holder_id: String,
    /// The name of the principal or group, the e-mail address of the user.
    pub holder_name: String,
    /// The action.
    pub role: Role,
}

/// The result of a change to a grant or a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    /// It is as asked.
    Done,
    /// The decision was no.
    Refused,
    /// There is no such grant or membership to remove.
    NothingToRemove,
    /// No user has this address, or the user is not a member of the workspace.
    NoSuchUser,
}

/// The result of removing all grants of a principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RevokedAll {
    /// They are gone.
    Done {
        /// How many those were.
        removed: u64,
        /// The highest role that the principal has anywhere in the workspace now: a person's device that of its user.
        role: Option<Role>,
    },
    /// They were ceilings, and without them the device would have more than the caller.
    Refused,
}

/// The result of removing a principal from a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// It is out.
    Done,
    /// It belongs to the owner, and the caller does not.
    OwnersKey,
    /// Nobody else could hand on the workspace's key.
    LastCopy,
}

/// The statements of one kind of holder at one level.
struct Statements {
    get: &'static str,
    list: &'static str,
    set: &'static str,
    remove: &'static str,
}

macro_rules! statements {
    ($table:literal, $scope:literal, $holder:literal, $holders:literal, $name:literal) => {
        Statements {
            get: concat!("SELECT role FROM ", $table, " WHERE ", $scope, " = ? AND ", $holder, " = ?"),
            list: concat!(
                "SELECT h.id, h.",
                $name,
                ", g.role FROM ",
                $table,
                " g JOIN ",
                $holders,
                " h ON h.id = g.",
                $holder,
                " WHERE g.",
                $scope,
                " = ? ORDER BY h.",
                $name,
                ", h.id"
            ),
            set: concat!(
                "INSERT INTO ",
                $table,
                " (",
                $scope,
                ", ",
                $holder,
                ", role, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?4) ON CONFLICT (",
                $scope,
                ", ",
                $holder,
                ") DO UPDATE SET role = excluded.role, updated_at = excluded.updated_at"
            ),
            remove: concat!("DELETE FROM ", $table, " WHERE ", $scope, " = ? AND ", $holder, " = ?"),
        }
    };
}

/// By [`HolderKind`], then by [`Level`].
#[rustfmt::skip]
const STATEMENTS: [[Statements; 3]; 3] = [
    [
        statements!("workspace_permissions", "workspace_id", "principal_id", "principals", "name"),
        statements!("project_permissions", "project_id", "principal_id", "principals", "name"),
        statements!("environment_permissions", "environment_id", "principal_id", "principals", "name"),
    ],
    [
        statements!("user_workspace_permissions", "workspace_id", "user_id", "users", "email"),
        statements!("user_project_permissions", "project_id", "user_id", "users", "email"),
        statements!("user_environment_permissions", "environment_id", "user_id", "users", "email"),
    ],
    [
        statements!("group_workspace_permissions", "workspace_id", "group_id", "groups", "name"),
        statements!("group_project_permissions", "project_id", "group_id", "groups", "name"),
        statements!("group_environment_permissions", "environment_id", "group_id", "groups", "name"),
    ],
];

const fn statements(holder: HolderKind, level: Level) -> &'static Statements {
    &STATEMENTS[holder as usize][level as usize]
}

impl Store {
    /// The grant made to a holder exactly here, if any.
    pub async fn permission(&self, scope: &Scope, holder: HolderKind, id: &str) -> Result<Option<Role>, StoreError> {
        let role: Option<(String,)> = sql::query_as(statements(holder, scope.level()).get)
            .bind(scope.id())
            .bind(id)
            .fetch_optional(&self.readers)
            .await?;
        role.map(|(text,)| role_from_text(&text)).transpose()
    }

    /// The grants made exactly here to holders of one kind, by their names.
    pub async fn permissions(&self, scope: &Scope, holder: HolderKind) -> Result<Vec<Grant>, StoreError> {
        let rows: Vec<(String, String, String)> =
            sql::query_as(statements(holder, scope.level()).list).bind(scope.id()).fetch_all(&self.readers).await?;
        rows.into_iter()
            .map(|(holder_id, holder_name, role)| Ok(Grant { holder_id, holder_name, role: role_from_text(&role)? }))
            .collect()
    }

    /// Sets (or with `None` removes) the grant of `target` at `scope` if `decide`, given all grants of caller and target in the
    /// workspace at that moment, says so. Nothing can change between decision and deed.
    pub async fn change_permission(
        &self,
        scope: &Scope,
        caller: (&str, Option<&str>),
        target: Target<'_>,
        role: Option<Role>,
        audit: &AuditRow,
        decide: impl FnOnce(&Holdings, &Holdings) -> bool + Send,
    ) -> Result<Changed, StoreError> {
        let mut transaction = self.write(audit).await?;
        let workspace = &scope.workspace_id;
        let (holder, id) = match target {
            Target::Principal(principal) => (HolderKind::Principal, principal.id.clone()),
            Target::Group(id) => (HolderKind::Group, id.to_owned()),
            Target::User { email, allow_non_member } => {
                // A grant can be taken from a user who is no member any more.
                let any = allow_non_member || role.is_none();
                let Some(id) = find_user(&mut transaction, workspace, email, any).await? else {
                    return Ok(Changed::NoSuchUser);
                };
                (HolderKind::User, id)
            }
        };
        let held = match target {
            Target::Principal(row) => {
                principal_holdings(&mut transaction, workspace, &row.id, row.user_id.as_deref()).await?
            }
            Target::User { .. } | Target::Group(_) => holdings(&mut transaction, workspace, holder, &id).await?,
        };
        let callers = principal_holdings(&mut transaction, workspace, caller.0, caller.1).await?;
        if !decide(&callers, &held) {
            return Ok(Changed::Refused);
        }
        let statements = statements(holder, scope.level());
        if let Some(role) = role {
            sql::query(statements.set)
                .bind(scope.id())
                .bind(&id)
                .bind(role_text(role))
                .bind(clock::now())
                .execute(&mut *transaction)
                .await?;
        } else {
            let removed = sql::query(statements.remove).bind(scope.id()).bind(&id).execute(&mut *transaction).await?;
            if removed.rows_affected() == 0 {
                return Ok(Changed::NothingToRemove);
            }
        }
        commit_with(transaction, &AuditRow { resource_id: id, ..audit.clone() }).await?;
        Ok(Changed::Done)
    }

    /// Removes every grant made to a principal anywhere in a workspace. Those of a person's device are ceilings: then the caller must
    /// have everywhere what the device will have.
    pub async fn revoke_all_permissions(
        &self,
        caller: &PrincipalRow,
        workspace_id: &str,
        principal_id: &str,
        audit: &AuditRow,
    ) -> Result<RevokedAll, StoreError> {
        let mut transaction = self.write(audit).await?;
        let scope = Scope { workspace_id: workspace_id.to_owned(), project_id: None, environment_id: None };
        let target = find_principal(&mut transaction, principal_id).await?;
        let free = |grants| Grants { principal: [None; 3], ..grants };
        if let Some(target) = &target
            && exceeds(&mut transaction, caller.into(), target.into(), &scope, free).await?
        {
            return Ok(RevokedAll::Refused);
        }
        let removed = remove_all(&mut transaction, workspace_id, principal_id).await?;
        let role = match &target {
            Some(target) => highest_role(&mut transaction, target.into(), &scope).await?,
            None => None,
        };
        commit_with(transaction, audit).await?;
        Ok(RevokedAll::Done { removed, role })
    }

    /// Takes the workspace key and every grant in the workspace from a principal, and bars it from the workspace if it is a member's
    /// device: without its ceilings it would be stronger than before. Nothing to take is fine.
    pub async fn remove_principal_from_workspace(
        &self,
        caller: &PrincipalRow,
        workspace_id: &str,
        principal_id: &str,
        audit: &AuditRow,
    ) -> Result<Removal, StoreError> {
        let mut transaction = self.write(audit).await?;
        let target = find_principal(&mut transaction, principal_id).await?;
        let user_id = target.as_ref().and_then(|target| target.user_id.as_deref());
        if user_id.is_some() && user_id != caller.user_id.as_deref() {
            let owner = owner_of(&mut transaction, workspace_id).await?;
            if user_id == Some(owner.as_str()) {
                return Ok(Removal::OwnersKey);
            }
        }
        let removed = RemovedHolder::Principal(principal_id);
        if !last_copies(&mut transaction, removed, Some(workspace_id), user_id.is_none()).await?.is_empty() {
            return Ok(Removal::LastCopy);
        }
        remove_all(&mut transaction, workspace_id, principal_id).await?;
        sql::query("DELETE FROM workspace_principals WHERE workspace_id = ? AND principal_id = ?")
            .bind(workspace_id)
            .bind(principal_id)
            .execute(&mut *transaction)
            .await?;
        sql::query(
            "INSERT INTO workspace_bars (workspace_id, principal_id, created_at) \
             SELECT w.id, p.id, ?3 FROM workspaces w JOIN principals p ON p.id = ?2 WHERE w.id = ?1 AND (w.owner_user_id = p.user_id \
             OR EXISTS (SELECT 1 FROM workspace_members m WHERE m.workspace_id = w.id AND m.user_id = p.user_id)) \
             ON CONFLICT DO NOTHING",
        )
        .bind(workspace_id)
        .bind(principal_id)
        .bind(clock::now())
        .execute(&mut *transaction)
        .await?;
        commit_with(transaction, audit).await?;
        Ok(Removal::Done)
    }
}

async fn remove_all(connection: &mut Connection, workspace_id: &str, principal_id: &str) -> Result<u64, StoreError> {
    let mut removed = 0;
    for statement in [
        "DELETE FROM workspace_permissions WHERE workspace_id = ?1 AND principal_id = ?2",
        "DELETE FROM project_permissions WHERE principal_id = ?2 \
         AND project_id IN (SELECT id FROM projects WHERE workspace_id = ?1)",
        "DELETE FROM environment_permissions WHERE principal_id = ?2 \
         AND environment_id IN (SELECT id FROM environments WHERE workspace_id = ?1)",
    ] {
        let done = sql::query(statement).bind(workspace_id).bind(principal_id).execute(&mut *connection).await?;
        removed += done.rows_affected();
    }
    Ok(removed)
}
