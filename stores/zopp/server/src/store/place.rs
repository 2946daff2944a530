//! An environment by its names, as a caller sees it, with the grants that count there: one statement, and so of one moment.

use super::{
    EnvironmentRow, PrincipalRow, Store, StoreError, WorkspaceRow,
    grants::{add, grants_at},
    principals::caller,
    secrets::tag,
    sql::{self, FromRow, Query, Row},
};
use crate::rbac::Grants;

/// A workspace that the caller sees, and what there is in it by the names that the caller gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// The workspace.
    pub workspace: WorkspaceRow,
    /// The project, if it exists.
    pub project_id: Option<String>,
    /// The environment, if it exists.
    pub environment: Option<EnvironmentRow>,
    /// The content of the environment.
    pub content: ContentSize,
    /// The grants that count for the caller at the most precise place that exists.
    pub grants: Grants,
}

/// The content of an environment at one moment: how large it is, and the tag that stands for it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContentSize {
    /// See [`EnvironmentState::tag`](super::EnvironmentState::tag).
    pub tag: String,
    /// How many secrets there are.
    pub keys: i64,
    /// Bytes of their ciphertexts.
    pub bytes: i64,
    /// Bytes of the manifest.
    pub manifest_bytes: i64,
    /// Bytes of the earlier values.
    pub history_bytes: i64,
}

/// Finds a workspace, a project and an environment by their names (`?1` to `?3`), as a principal (`?4`) and its user see them.
/// Users see a workspace by ownership or membership, unless the device is barred from it. Services see it by holding its key.
macro_rules! place {
    ($user:literal) => {
        concat!(
            "SELECT w.id AS workspace_id, w.name AS workspace_name, p.id AS project_id, e.id AS environment_id, e.name AS environment_name, \
                e.dek_wrapped, e.dek_nonce, e.version, e.created_at, e.updated_at, e.change_id, e.key_count, e.byte_count, e.history_bytes, \
                CAST(coalesce(octet_length(e.manifest_ciphertext), 0) AS BIGINT) AS manifest_bytes \
            FROM workspaces w LEFT JOIN projects p ON p.workspace_id = w.id AND p.name = ?2 \
            LEFT JOIN environments e ON e.project_id = p.id AND e.name = ?3 \
            WHERE w.name = ?1 AND ((w.id NOT IN (SELECT workspace_id FROM workspace_bars WHERE principal_id = ?4) \
                AND (w.owner_user_id = ", $user, " OR w.id IN (SELECT workspace_id FROM workspace_members WHERE user_id = ", $user, "))) \
                OR (", $user, " IS NULL AND w.id IN (SELECT workspace_id FROM workspace_principals WHERE principal_id = ?4)))"
        )
    };
}

/// The grants that count at the place.
macro_rules! grants_there {
    ($user:literal) => {
        grants_at!(
            "(SELECT workspace_id FROM place)",
            "(SELECT project_id FROM place)",
            "(SELECT environment_id FROM place)",
            $user
        )
    };
}

const LOCATE: &str = concat!(
    "WITH place AS MATERIALIZED (",
    place!("?5"),
    ") SELECT place.*, held.kind, held.level, held.role FROM place LEFT JOIN (",
    grants_there!("?5"),
    ") held ON TRUE"
);

/// The same, together with the principal, whose user is not known before.
const LOCATE_FOR: &str = concat!(
    "WITH caller AS MATERIALIZED (",
    caller!(),
    " WHERE id = ?4), place AS MATERIALIZED (",
    place!("(SELECT user_id FROM caller)"),
    ") SELECT caller.*, place.*, held.kind, held.level, held.role FROM caller LEFT JOIN place ON TRUE LEFT JOIN (",
    grants_there!("(SELECT user_id FROM caller)"),
    ") held ON place.workspace_id IS NOT NULL"
);

/// The caller, as far as the database knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownCaller {
    /// The principal.
    pub principal: PrincipalRow,
    /// The Unix second in which the database was last restored.
    pub restored_at: Option<i64>,
    /// The place that the call is about, if it was asked for and is there for the principal.
    pub located: Option<Located>,
}

impl Store {
    /// Looks up the names of a workspace, a project and an environment for a principal (of a user, or a service's). `None` if there is no such
    /// workspace for it. An error is an error, never "no grants".
    pub async fn locate(
        &self,
        [workspace, project, environment]: [&str; 3],
        principal_id: &str,
        user_id: Option<&str>,
    ) -> Result<Option<Located>, StoreError> {
        let rows = sql::query(LOCATE)
            .bind(workspace)
            .bind(project)
            .bind(environment)
            .bind(principal_id)
            .bind(user_id)
            .fetch_all(&self.readers)
            .await?;
        located(&rows, user_id.is_some())
    }

    /// Looks up a principal, and what it gets to see by the names of a workspace, a project and an environment, if there are any.
    pub async fn caller(
        &self,
        principal_id: &str,
        names: Option<[&str; 3]>,
    ) -> Result<Option<KnownCaller>, StoreError> {
        let query = match names {
            None => sql::query(concat!(caller!(), " WHERE id = ?")),
            Some([workspace, project, environment]) => {
                sql::query(LOCATE_FOR).bind(workspace).bind(project).bind(environment)
            }
        };
        let rows = self.ask_first(query.bind(principal_id)).await?;
        let Some(first) = rows.first() else { return Ok(None) };
        let principal = PrincipalRow::from_row(first)?;
        let restored_at = first.try_get::<Option<String>>("restored_at")?;
        let restored_at = restored_at.map(|text| text.parse().map_err(|_| StoreError::Corrupt("restored_at")));
        let located = if names.is_some() { located(&rows, principal.user_id.is_some())? } else { None };
        Ok(Some(KnownCaller { principal, restored_at: restored_at.transpose()?, located }))
    }

    /// Asks the first question of a call. So this one finds out that a connection is gone, and tries another one.
    pub(super) async fn ask_first(&self, query: Query<'_>) -> Result<Vec<Row>, StoreError> {
        match query.clone().fetch_all(&self.readers).await.map_err(StoreError::from) {
            Err(StoreError::Outage(error)) if !matches!(error, sqlx::Error::PoolTimedOut) => {
                Ok(query.fetch_all(&self.readers).await?)
            }
            rows => rows,
        }
    }

    /// The bytes of all keys of an environment.
    pub async fn key_bytes(&self, environment_id: &str) -> Result<i64, StoreError> {
        let sum = "SELECT CAST(coalesce(sum(octet_length(key_name)), 0) AS BIGINT) FROM secrets WHERE env_id = ?";
        let (bytes,): (i64,) = sql::query_as(sum).bind(environment_id).fetch_one(&self.readers).await?;
        Ok(bytes)
    }
}

/// The place that rows of [`LOCATE`] are about, for a person's principal or a service.
fn located(rows: &[Row], human: bool) -> Result<Option<Located>, StoreError> {
    let Some(first) = rows.first() else { return Ok(None) };
    let Some(workspace_id) = first.try_get("workspace_id")? else { return Ok(None) };
    let mut located = Located {
        workspace: WorkspaceRow { id: workspace_id, name: first.try_get("workspace_name")? },
        project_id: first.try_get("project_id")?,
        environment: environment_of(first)?,
        content: content_of(first)?,
        grants: Grants { human, ..Grants::default() },
    };
    for row in rows {
        // Without any grant there is one row, and no kind in it.
        let Some(kind) = row.try_get::<Option<String>>("kind")? else { continue };
        add(&mut located.grants, &kind, row.try_get("level")?, row.try_get("role")?)?;
    }
    Ok(Some(located))
}

fn environment_of(row: &Row) -> Result<Option<EnvironmentRow>, StoreError> {
    let Some(id) = row.try_get("environment_id")? else { return Ok(None) };
    Ok(Some(EnvironmentRow {
        id,
        project_id: row.try_get("project_id")?,
        name: row.try_get("environment_name")?,
        dek_wrapped: row.try_get("dek_wrapped")?,
        dek_nonce: row.try_get("dek_nonce")?,
        version: row.try_get("version")?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
    }))
}

fn content_of(row: &Row) -> Result<ContentSize, StoreError> {
    let Some(id) = row.try_get::<Option<String>>("environment_id")? else { return Ok(ContentSize::default()) };
    let change_id: String = row.try_get("change_id")?;
    Ok(ContentSize {
        tag: tag(&id, row.try_get("version")?, &change_id),
        keys: row.try_get("key_count")?,
        bytes: row.try_get("byte_count")?,
        manifest_bytes: row.try_get("manifest_bytes")?,
        history_bytes: row.try_get("history_bytes")?,
    })
}
