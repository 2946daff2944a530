//! Decisions of the server's operator that count in each look at roles.

use super::{Store, StoreError, grants::role_text, sql};
use crate::rbac::Role;

/// The setting with the role that each member of a workspace has without any grant.
const MEMBER_ROLE: &str = "member_role";

impl Store {
    /// Sets the role that each member of a workspace has without any grant, or that there is none. All replicas share it.
    pub async fn set_member_role(&self, role: Option<Role>) -> Result<(), StoreError> {
        let before: Option<(String,)> = sql::query_as("SELECT value FROM settings WHERE name = ?")
            .bind(MEMBER_ROLE)
            .fetch_optional(&self.readers)
            .await?;
        if before.as_ref().map(|(role,)| role.as_str()) == role.map(role_text) {
            return Ok(());
        }
        let mut transaction = self.begin().await?;
        sql::query("DELETE FROM settings WHERE name = ?").bind(MEMBER_ROLE).execute(&mut *transaction).await?;
        if let Some(role) = role {
            sql::query("INSERT INTO settings (name, value) VALUES (?, ?)")
                .bind(MEMBER_ROLE)
                .bind(role_text(role))
                .execute(&mut *transaction)
                .await?;
        }
        Ok(transaction.commit().await?)
    }
}
