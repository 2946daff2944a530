//! Projects.

use super::{
    AuditRow, Store, StoreError,
    audit::commit_with,
    bound, new_id,
    sql::{self, from_row},
};
use crate::{clock, events::Event, limits::Reached};

/// A project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectRow {
    /// UUID.
    pub id: String,
    /// In which workspace.
    pub workspace_id: String,
    /// Unique in the workspace.
    pub name: String,
    /// Unix seconds.
    pub created_at: i64,
    /// Unix seconds.
    pub updated_at: i64,
}

from_row!(ProjectRow { id, workspace_id, name, created_at, updated_at });

impl Store {
    /// Makes a project.
    pub async fn create_project(
        &self,
        workspace_id: &str,
        name: &str,
        audit: &AuditRow,
    ) -> Result<ProjectRow, StoreError> {
        let now = clock::now();
        let project = ProjectRow {
            id: new_id(),
            workspace_id: workspace_id.to_owned(),
            name: name.to_owned(),
            created_at: now,
            updated_at: now,
        };
        let mut transaction = self.write(audit).await?;
        let reached = Reached { what: "projects in a workspace", limit: self.limits.projects, flag: "--max-projects" };
        let count = "SELECT count(*) FROM projects WHERE workspace_id = ?";
        bound(&mut transaction, sql::query_as(count).bind(workspace_id), reached).await?;
        sql::query("INSERT INTO projects (id, workspace_id, name, created_at, updated_at) VALUES (?1, ?2, ?3, ?4, ?4)")
            .bind(&project.id)
            .bind(workspace_id)
            .bind(name)
            .bind(now)
            .execute(&mut *transaction)
            .await?;
        let audit = AuditRow { resource_id: project.id.clone(), project_id: Some(project.id.clone()), ..audit.clone() };
        commit_with(transaction, &audit).await?;
        Ok(project)
    }

    /// The projects of a workspace, newest first.
    pub async fn projects(&self, workspace_id: &str) -> Result<Vec<ProjectRow>, StoreError> {
        let rows = sql::query_as(
            "SELECT id, workspace_id, name, created_at, updated_at FROM projects WHERE workspace_id = ? \
             ORDER BY created_at DESC, id DESC",
        );
        Ok(rows.bind(workspace_id).fetch_all(&self.readers).await?)
    }

    /// The project of that name.
    pub async fn project(&self, workspace_id: &str, name: &str) -> Result<Option<ProjectRow>, StoreError> {
        let row = sql::query_as(
            "SELECT id, workspace_id, name, created_at, updated_at FROM projects WHERE workspace_id = ? AND name = ?",
        );
        Ok(row.bind(workspace_id).bind(name).fetch_optional(&self.readers).await?)
    }

    /// Deletes a project and all in it. Returns the ids of the environments that went with it.
    pub async fn delete_project(&self, id: &str, audit: &AuditRow) -> Result<Vec<String>, StoreError> {
        let mut transaction = self.write(audit).await?;
        let environments: Vec<(String,)> = sql::query_as("SELECT id FROM environments WHERE project_id = ?")
            .bind(id)
            .fetch_all(&mut *transaction)
            .await?;
        let deleted = sql::query("DELETE FROM projects WHERE id = ?").bind(id).execute(&mut *transaction).await?;
        if deleted.rows_affected() == 0 {
            return Err(StoreError::Missing);
        }
        for (environment_id,) in &environments {
            self.announce(&mut transaction, environment_id, &Event::EnvironmentDeleted).await?;
        }
        commit_with(transaction, audit).await?;
        Ok(environments.into_iter().map(|(id,)| id).collect())
    }
}
