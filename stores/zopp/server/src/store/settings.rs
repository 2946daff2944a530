//! Decisions of the server's operator that count in each look at roles.

use clap::ValueEnum;

use super::{
    Store, StoreError,
    grants::role_text,
    sql::{self, Connection, Query},
};
use crate::{clock, policy::MemberRole};

/// The setting with the role that each member of a workspace has without any grant. Missing: no role.
const IN_FORCE: &str = "member_role";
/// The setting with the operator's choice. It outlives a start by which the role is not in force.
const CHOICE: &str = "v1_member_role";

/// The setting with the Unix second of the last restore.
const RESTORED_AT: &str = "restored_at";

impl Store {
    /// Puts the role that each member of a workspace has without any grant in force, for all replicas: the chosen one, else the one that was chosen
    /// before, else the default. Returns it.
    pub async fn choose_member_role(&self, chosen: Option<MemberRole>) -> Result<MemberRole, StoreError> {
        let mut transaction = self.begin().await?;
        let kept = match setting(&mut transaction, CHOICE).await? {
            Some(text) => Some(MemberRole::from_str(&text, false).map_err(|_| StoreError::Corrupt("v1_member_role"))?),
            None => None,
        };
        let role = chosen.or(kept).unwrap_or_default();
        let choice = role.to_possible_value().map(|value| value.get_name().to_owned());
        set(&mut transaction, CHOICE, choice.as_deref()).await?;
        set(&mut transaction, IN_FORCE, role.role().map(role_text)).await?;
        transaction.commit().await?;
        Ok(role)
    }

    /// Leaves members of workspaces the roles that they are granted, and no other. The choice of [`Store::choose_member_role`] stays.
    pub async fn remove_member_role(&self) -> Result<(), StoreError> {
        let mut transaction = self.begin().await?;
        set(&mut transaction, IN_FORCE, None).await?;
        Ok(transaction.commit().await?)
    }
}

/// Remembers that the database is restored now.
pub(super) async fn remember_restore(connection: &mut Connection) -> Result<(), StoreError> {
    set(connection, RESTORED_AT, Some(&clock::now().to_string())).await
}

/// Finds a row if the database was restored in this Unix second at last, if ever.
pub(super) fn was_restored(at: Option<i64>) -> Query<'static> {
    let query = "SELECT 1 WHERE (SELECT value FROM settings WHERE name = 'restored_at') IS NOT DISTINCT FROM ?";
    sql::query(query).bind(at.map(|at| at.to_string()))
}

async fn setting(connection: &mut Connection, name: &str) -> Result<Option<String>, StoreError> {
    let row: Option<(String,)> =
        sql::query_as("SELECT value FROM settings WHERE name = ?").bind(name).fetch_optional(connection).await?;
    Ok(row.map(|(value,)| value))
}

/// Writes a setting, or removes it, unless it is so already.
async fn set(connection: &mut Connection, name: &str, value: Option<&str>) -> Result<(), StoreError> {
    if setting(connection, name).await?.as_deref() == value {
        return Ok(());
    }
    sql::query("DELETE FROM settings WHERE name = ?").bind(name).execute(&mut *connection).await?;
    if let Some(value) = value {
        sql::query("INSERT INTO settings (name, value) VALUES (?, ?)")
            .bind(name)
            .bind(value)
            .execute(connection)
            .await?;
    }
    Ok(())
}
