//! Principals: the devices of users, and services.

use super::{
    AuditRow, KeyWrap, Store, StoreError,
    audit::commit_with,
    bound,
    grants::role_from_text,
    new_id,
    sql::{self, Connection, from_row},
    workspaces::insert_key_wrap,
};
use crate::{clock, limits::Reached, rbac::Role};

/// A principal as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrincipalRow {
    /// UUID.
    pub id: String,
    /// The user of the device; `None` for a service.
    pub user_id: Option<String>,
    /// As shown.
    pub name: String,
    /// Ed25519, 32 bytes.
    pub public_key: Vec<u8>,
    /// X25519, 32 bytes.
    pub x25519_public_key: Option<Vec<u8>>,
    /// Unix seconds from which on nothing is accepted from it.
    pub disabled_at: Option<i64>,
}

from_row!(PrincipalRow { id, user_id, name, public_key, x25519_public_key, disabled_at });

/// A principal to be made.
#[derive(Debug, Clone)]
pub struct NewPrincipal {
    /// As shown.
    pub name: String,
    /// Ed25519, 32 bytes.
    pub public_key: Vec<u8>,
    /// X25519, 32 bytes; without it no key can be wrapped for the principal.
    pub x25519_public_key: Option<Vec<u8>>,
}

/// A service principal of a workspace, for listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServicePrincipalRow {
    /// UUID.
    pub id: String,
    /// As shown.
    pub name: String,
    /// Unix seconds.
    pub created_at: i64,
    /// Its grants below the workspace: project, environment (if not the whole project), role.
    pub grants: Vec<(String, Option<String>, Role)>,
}

/// The columns of a principal, and when the database was last restored.
macro_rules! caller {
    () => {
        "SELECT id, user_id, name, public_key, x25519_public_key, disabled_at, \
            (SELECT value FROM settings WHERE name = 'restored_at') AS restored_at FROM principals"
    };
}

pub(super) use caller;

const SELECT_BY_ID: &str =
    "SELECT id, user_id, name, public_key, x25519_public_key, disabled_at FROM principals WHERE id = ?";

impl Store {
    /// The principal of that id.
    pub async fn principal(&self, id: &str) -> Result<Option<PrincipalRow>, StoreError> {
        Ok(sql::query_as(SELECT_BY_ID).bind(id).fetch_optional(&self.readers).await?)
    }

    /// The principals of a user, by name.
    pub async fn principals_of_user(&self, user_id: &str) -> Result<Vec<PrincipalRow>, StoreError> {
        let rows = sql::query_as(
            "SELECT id, user_id, name, public_key, x25519_public_key, disabled_at FROM principals WHERE user_id = ? ORDER BY name",
        );
        Ok(rows.bind(user_id).fetch_all(&self.readers).await?)
    }

    /// The principal that a person names by e-mail and name.
    pub async fn principal_by_email_and_name(
        &self,
        email: &str,
        name: &str,
    ) -> Result<Option<PrincipalRow>, StoreError> {
        let row = sql::query_as(
            "SELECT p.id, p.user_id, p.name, p.public_key, p.x25519_public_key, p.disabled_at \
             FROM principals p JOIN users u ON u.id = p.user_id WHERE u.email = ? AND p.name = ?",
        );
        Ok(row.bind(email).bind(name).fetch_optional(&self.readers).await?)
    }

    /// Gives a principal another name.
    pub async fn rename_principal(&self, id: &str, name: &str, audit: &AuditRow) -> Result<(), StoreError> {
        let mut transaction = self.write(audit).await?;
        let renamed = sql::query("UPDATE principals SET name = ?, updated_at = ? WHERE id = ?")
            .bind(name)
            .bind(clock::now())
            .bind(id)
            .execute(&mut *transaction)
            .await?;
        if renamed.rows_affected() == 0 {
            return Err(StoreError::Missing);
        }
        commit_with(transaction, audit).await
    }

    /// Makes a service principal and gives it the workspace key, both or neither. Returns its id.
    pub async fn create_service_principal(
        &self,
        workspace_id: &str,
        principal: &NewPrincipal,
        wrap: &KeyWrap,
        audit: &AuditRow,
    ) -> Result<String, StoreError> {
        let mut transaction = self.write(audit).await?;
        let reached = Reached {
            what: "service principals in a workspace",
            limit: self.limits.principals,
            flag: "--max-principals",
        };
        let count = "SELECT count(*) FROM workspace_principals k JOIN principals p ON p.id = k.principal_id \
                     WHERE k.workspace_id = ? AND p.user_id IS NULL";
        bound(&mut transaction, sql::query_as(count).bind(workspace_id), reached).await?;
        let id = insert_principal(&mut transaction, None, principal).await?;
        insert_key_wrap(&mut transaction, workspace_id, &id, wrap).await?;
        commit_with(transaction, &AuditRow { resource_id: id.clone(), ..audit.clone() }).await?;
        Ok(id)
    }

    /// The service principals that hold the key of a workspace, by name, with their grants below the workspace.
    pub async fn service_principals(&self, workspace_id: &str) -> Result<Vec<ServicePrincipalRow>, StoreError> {
        type Row = (String, String, i64, Option<String>, Option<String>, Option<String>);
        let rows: Vec<Row> = sql::query_as(
            "SELECT p.id, p.name, p.created_at, g.project, g.environment, g.role \
             FROM workspace_principals w \
             JOIN principals p ON p.id = w.principal_id AND p.user_id IS NULL \
             LEFT JOIN ( \
                 SELECT pp.principal_id, pr.name AS project, NULL AS environment, pp.role \
                 FROM project_permissions pp JOIN projects pr ON pr.id = pp.project_id WHERE pr.workspace_id = ?1 \
                 UNION ALL \
                 SELECT ep.principal_id, pr.name, e.name, ep.role \
                 FROM environment_permissions ep JOIN environments e ON e.id = ep.environment_id \
                 JOIN projects pr ON pr.id = e.project_id WHERE e.workspace_id = ?1 \
             ) g ON g.principal_id = p.id \
             WHERE w.workspace_id = ?1 ORDER BY p.name, p.id, g.project, g.environment NULLS FIRST",
        )
        .bind(workspace_id)
        .fetch_all(&self.readers)
        .await?;
        let mut principals: Vec<ServicePrincipalRow> = Vec::new();
        for (id, name, created_at, project, environment, role) in rows {
            if principals.last().is_none_or(|last| last.id != id) {
                principals.push(ServicePrincipalRow { id, name, created_at, grants: Vec::new() });
            }
            if let (Some(last), Some(project), Some(role)) = (principals.last_mut(), project, role) {
                last.grants.push((project, environment, role_from_text(&role)?));
            }
        }
        Ok(principals)
    }
}

pub(super) async fn find_principal(connection: &mut Connection, id: &str) -> Result<Option<PrincipalRow>, StoreError> {
    Ok(sql::query_as(SELECT_BY_ID).bind(id).fetch_optional(connection).await?)
}

/// Puts a principal under the ceilings, and behind the bars, of another one of its user: nobody makes a device that may more than
/// the one that vouches for it.
pub(super) async fn inherit_ceilings(
    connection: &mut Connection,
    voucher_id: &str,
    principal_id: &str,
) -> Result<(), StoreError> {
    for statement in [
        "INSERT INTO workspace_permissions (workspace_id, principal_id, role, created_at, updated_at) \
         SELECT workspace_id, ?2, role, ?3, ?3 FROM workspace_permissions WHERE principal_id = ?1",
        "INSERT INTO project_permissions (project_id, principal_id, role, created_at, updated_at) \
         SELECT project_id, ?2, role, ?3, ?3 FROM project_permissions WHERE principal_id = ?1",
        "INSERT INTO environment_permissions (environment_id, principal_id, role, created_at, updated_at) \
         SELECT environment_id, ?2, role, ?3, ?3 FROM environment_permissions WHERE principal_id = ?1",
        "INSERT INTO workspace_bars (workspace_id, principal_id, created_at) \
         SELECT workspace_id, ?2, ?3 FROM workspace_bars WHERE principal_id = ?1",
    ] {
        let statement = sql::query(statement).bind(voucher_id).bind(principal_id).bind(clock::now());
        statement.execute(&mut *connection).await?;
    }
    Ok(())
}

/// Inserts a principal and returns its id. Neither of its keys may be another principal's.
pub(super) async fn insert_principal(
    connection: &mut Connection,
    user_id: Option<&str>,
    principal: &NewPrincipal,
) -> Result<String, StoreError> {
    let taken = sql::query("SELECT 1 FROM principals WHERE public_key = ? OR x25519_public_key = ?")
        .bind(&principal.public_key)
        .bind(&principal.x25519_public_key)
        .fetch_optional(&mut *connection)
        .await?;
    if taken.is_some() {
        return Err(StoreError::KeyTaken);
    }
    let id = new_id();
    sql::query(
        "INSERT INTO principals (id, user_id, name, public_key, x25519_public_key, created_at, updated_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6)",
    )
    .bind(&id)
    .bind(user_id)
    .bind(&principal.name)
    .bind(&principal.public_key)
    .bind(&principal.x25519_public_key)
    .bind(clock::now())
    .execute(connection)
    .await?;
    Ok(id)
}
