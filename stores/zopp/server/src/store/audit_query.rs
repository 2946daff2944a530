//! Reading the audit log, and forgetting its oldest part.

use super::{
    Outcome, Store, StoreError,
    sql::{self, Connection, FromRow, QueryAs, from_row},
};

/// An entry as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// UUID.
    pub id: String,
    /// Unix milliseconds.
    pub timestamp: i64,
    /// The principal, or a word for nobody.
    pub principal_id: String,
    /// The principal's user, unless it is a service.
    pub user_id: Option<String>,
    /// As [`Action::as_str`](super::Action::as_str), or of another version.
    pub action: String,
    /// The kind of thing it was done to.
    pub resource_type: String,
    /// Its id or name.
    pub resource_id: String,
    /// UUID.
    pub workspace_id: Option<String>,
    /// UUID.
    pub project_id: Option<String>,
    /// UUID.
    pub environment_id: Option<String>,
    /// As [`Outcome`] is kept.
    pub result: String,
    /// The status message of a refusal.
    pub reason: Option<String>,
    /// JSON.
    pub details: Option<String>,
    /// From where.
    pub client_ip: Option<String>,
}

from_row!(AuditEntry {
    id,
    timestamp,
    principal_id,
    user_id,
    action,
    resource_type,
    resource_id,
    workspace_id,
    project_id,
    environment_id,
    result,
    reason,
    details,
    client_ip
});

/// Which entries are wanted. `None` is no restriction.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuditFilter {
    /// Always one workspace's.
    pub workspace_id: String,
    /// By this principal.
    pub principal_id: Option<String>,
    /// By principals of this user.
    pub user_id: Option<String>,
    /// In this project.
    pub project_id: Option<String>,
    /// In one of these environments.
    pub environment_ids: Option<Vec<String>>,
    /// Of this kind.
    pub action: Option<String>,
    /// That ended so.
    pub outcome: Option<Outcome>,
    /// From this moment on (Unix milliseconds).
    pub from: Option<i64>,
    /// Before this moment (Unix milliseconds).
    pub to: Option<i64>,
}

/// The condition of a filter, with its parameters as [`bind`] gives them.
macro_rules! matching {
    ($before:literal, $after:literal) => {
        concat!(
            $before,
            " FROM audit_logs WHERE workspace_id = ?1 AND (?2 IS NULL OR principal_id = ?2) \
             AND (?3 IS NULL OR user_id = ?3) AND (?4 IS NULL OR project_id = ?4) \
             AND (?5 IS NULL OR ?5 LIKE '%' || environment_id || '%') \
             AND (?6 IS NULL OR action = ?6) AND (?7 IS NULL OR result = ?7) \
             AND (?8 IS NULL OR timestamp >= ?8) AND (?9 IS NULL OR timestamp < ?9)",
            $after
        )
    };
}

impl Store {
    /// The entries that match, newest first, a page of them; and how many match in all. Of one moment.
    pub async fn audit_entries(
        &self,
        filter: &AuditFilter,
        limit: u32,
        offset: u32,
    ) -> Result<(Vec<AuditEntry>, u64), StoreError> {
        let mut transaction = self.read().await?;
        let page = sql::query_as(matching!(
            "SELECT id, timestamp, principal_id, user_id, action, resource_type, resource_id, workspace_id, project_id, \
             environment_id, result, reason, details, client_ip",
            " ORDER BY timestamp DESC, id DESC LIMIT ?10 OFFSET ?11"
        ));
        let entries = bind(page, filter).bind(limit).bind(offset).fetch_all(&mut *transaction).await?;
        let total = count(&mut transaction, filter).await?;
        Ok((entries, total))
    }

    /// How many entries match.
    pub async fn audit_count(&self, filter: &AuditFilter) -> Result<u64, StoreError> {
        let mut connection = self.readers.acquire().await?;
        count(&mut connection, filter).await
    }

    /// One entry of a workspace.
    pub async fn audit_entry(&self, workspace_id: &str, id: &str) -> Result<Option<AuditEntry>, StoreError> {
        let row = sql::query_as(
            "SELECT id, timestamp, principal_id, user_id, action, resource_type, resource_id, workspace_id, project_id, \
             environment_id, result, reason, details, client_ip FROM audit_logs WHERE workspace_id = ? AND id = ?",
        );
        Ok(row.bind(workspace_id).bind(id).fetch_optional(&self.readers).await?)
    }

    /// The environments of that name in a workspace, or in one project of it.
    pub async fn environment_ids(
        &self,
        workspace_id: &str,
        project_id: Option<&str>,
        name: &str,
    ) -> Result<Vec<String>, StoreError> {
        let rows: Vec<(String,)> = sql::query_as(
            "SELECT id FROM environments WHERE workspace_id = ?1 AND (?2 IS NULL OR project_id = ?2) AND name = ?3",
        )
        .bind(workspace_id)
        .bind(project_id)
        .bind(name)
        .fetch_all(&self.readers)
        .await?;
        Ok(rows.into_iter().map(|(id,)| id).collect())
    }

    /// Entries of all workspaces and of none, oldest first: those of from `from` on and before `to` (Unix milliseconds) that
    /// follow `after` (the time and the id of one), so many at most.
    pub async fn audit_log(
        &self,
        (from, to): (Option<i64>, Option<i64>),
        after: Option<&(i64, String)>,
        limit: u32,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        let (time, id) = after.map_or((i64::MIN, ""), |(time, id)| (*time, id.as_str()));
        let rows = sql::query_as(
            "SELECT id, timestamp, principal_id, user_id, action, resource_type, resource_id, workspace_id, project_id, \
             environment_id, result, reason, details, client_ip FROM audit_logs \
             WHERE (?1 IS NULL OR timestamp >= ?1) AND (?2 IS NULL OR timestamp < ?2) AND (timestamp, id) > (?3, ?4) \
             ORDER BY timestamp, id LIMIT ?5",
        );
        Ok(rows.bind(from).bind(to).bind(time).bind(id).bind(limit).fetch_all(&self.readers).await?)
    }

    /// Deletes the oldest entries of before a moment (Unix milliseconds), so many at most. Returns how many were deleted.
    pub async fn delete_audit_before(&self, moment: i64, limit: u32) -> Result<u64, StoreError> {
        let mut transaction = self.begin_apart().await?;
        let deleted = sql::query(
            "DELETE FROM audit_logs WHERE id IN \
             (SELECT id FROM audit_logs WHERE timestamp < ? ORDER BY timestamp LIMIT ?)",
        )
        .bind(moment)
        .bind(limit)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(deleted.rows_affected())
    }
}

async fn count(connection: &mut Connection, filter: &AuditFilter) -> Result<u64, StoreError> {
    let (count,): (i64,) = bind(sql::query_as(matching!("SELECT count(*)", "")), filter).fetch_one(connection).await?;
    u64::try_from(count).map_err(|_| StoreError::Corrupt("count"))
}

fn bind<'q, T: FromRow>(query: QueryAs<'q, T>, filter: &'q AuditFilter) -> QueryAs<'q, T> {
    // Ids are UUIDs: none is a part of another, and nothing in them needs escaping.
    let environments = filter.environment_ids.as_ref().map(|ids| ids.join(","));
    query
        .bind(&filter.workspace_id)
        .bind(&filter.principal_id)
        .bind(&filter.user_id)
        .bind(&filter.project_id)
        .bind(environments)
        .bind(filter.action.as_deref())
        .bind(filter.outcome.map(Outcome::as_str))
        .bind(filter.from)
        .bind(filter.to)
}
