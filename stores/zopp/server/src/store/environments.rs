//! Environments: what secrets are in, with one key each.

use super::{
    AuditRow, Store, StoreError,
    audit::commit_with,
    bound, new_id,
    sql::{self, from_row},
};
use crate::{clock, events::Event, limits::Reached};

/// An environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvironmentRow {
    /// UUID.
    pub id: String,
    /// In which project.
    pub project_id: String,
    /// Unique in the project.
    pub name: String,
    /// Its key, wrapped with the workspace's; 48 bytes.
    pub dek_wrapped: Vec<u8>,
    /// 24 bytes.
    pub dek_nonce: Vec<u8>,
    /// How many changes its secrets have seen.
    pub version: i64,
    /// Unix seconds.
    pub created_at: i64,
    /// Unix seconds.
    pub updated_at: i64,
}

from_row!(EnvironmentRow { id, project_id, name, dek_wrapped, dek_nonce, version, created_at, updated_at });

/// An environment to be made.
#[derive(Debug, Clone)]
pub struct NewEnvironment<'a> {
    /// In which workspace.
    pub workspace_id: &'a str,
    /// In which project.
    pub project_id: &'a str,
    /// Unique in the project.
    pub name: &'a str,
    /// 48 bytes.
    pub dek_wrapped: &'a [u8],
    /// 24 bytes.
    pub dek_nonce: &'a [u8],
}

impl Store {
    /// Makes an environment, at version 0.
    pub async fn create_environment(
        &self,
        new: &NewEnvironment<'_>,
        audit: &AuditRow,
    ) -> Result<EnvironmentRow, StoreError> {
        let now = clock::now();
        let environment = EnvironmentRow {
            id: new_id(),
            project_id: new.project_id.to_owned(),
            name: new.name.to_owned(),
            dek_wrapped: new.dek_wrapped.to_vec(),
            dek_nonce: new.dek_nonce.to_vec(),
            version: 0,
            created_at: now,
            updated_at: now,
        };
        let mut transaction = self.write(audit).await?;
        let reached = Reached {
            what: "environments in a workspace",
            limit: self.limits.environments,
            flag: "--max-environments",
        };
        let count = "SELECT count(*) FROM environments WHERE workspace_id = ?";
        bound(&mut transaction, sql::query_as(count).bind(new.workspace_id), reached).await?;
        sql::query(
            "INSERT INTO environments (id, workspace_id, project_id, name, dek_wrapped, dek_nonce, created_at, updated_at, made_under) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?7, (SELECT key_generation FROM workspaces WHERE id = ?2))",
        )
        .bind(&environment.id)
        .bind(new.workspace_id)
        .bind(new.project_id)
        .bind(new.name)
        .bind(new.dek_wrapped)
        .bind(new.dek_nonce)
        .bind(now)
        .execute(&mut *transaction)
        .await?;
        let audit = AuditRow {
            resource_id: environment.id.clone(),
            environment_id: Some(environment.id.clone()),
            ..audit.clone()
        };
        commit_with(transaction, &audit).await?;
        Ok(environment)
    }

    /// The environments of a project, newest first.
    pub async fn environments(&self, project_id: &str) -> Result<Vec<EnvironmentRow>, StoreError> {
        let rows = sql::query_as(
            "SELECT id, project_id, name, dek_wrapped, dek_nonce, version, created_at, updated_at FROM environments \
             WHERE project_id = ? ORDER BY created_at DESC, id DESC",
        );
        Ok(rows.bind(project_id).fetch_all(&self.readers).await?)
    }

    /// The environment of that name.
    pub async fn environment(&self, project_id: &str, name: &str) -> Result<Option<EnvironmentRow>, StoreError> {
        let row = sql::query_as(
            "SELECT id, project_id, name, dek_wrapped, dek_nonce, version, created_at, updated_at FROM environments \
             WHERE project_id = ? AND name = ?",
        );
        Ok(row.bind(project_id).bind(name).fetch_optional(&self.readers).await?)
    }

    /// The version of an environment, unless it is gone.
    pub async fn environment_version(&self, id: &str) -> Result<Option<i64>, StoreError> {
        let row: Option<(i64,)> = sql::query_as("SELECT version FROM environments WHERE id = ?")
            .bind(id)
            .fetch_optional(&self.readers)
            .await?;
        Ok(row.map(|(version,)| version))
    }

    /// Deletes an environment and its secrets.
    pub async fn delete_environment(&self, id: &str, audit: &AuditRow) -> Result<(), StoreError> {
        let mut transaction = self.write(audit).await?;
        let deleted = sql::query("DELETE FROM environments WHERE id = ?").bind(id).execute(&mut *transaction).await?;
        if deleted.rows_affected() == 0 {
            return Err(StoreError::Missing);
        }
        self.announce(&mut transaction, id, &Event::EnvironmentDeleted).await?;
        commit_with(transaction, audit).await
    }
}
