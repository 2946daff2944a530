//! Users come into being with their first principal, by an invite or by registering.

use sqlx::SqliteConnection;

use super::{
    AuditRow, KeyWrap, NewPrincipal, Store, StoreError, WorkspaceRow,
    audit::commit_with,
    invites::find_invite,
    new_id,
    principals::insert_principal,
    workspaces::{insert_key_wrap, insert_member},
};
use crate::clock;

/// Who joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// The user, new or proven.
    pub user_id: String,
    /// The new principal.
    pub principal_id: String,
    /// The workspaces of the invite, in its order.
    pub workspaces: Vec<WorkspaceRow>,
}

/// What became of an attempt to join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Joined {
    /// It worked.
    Done(Membership),
    /// No invite has this token, or it was revoked.
    UnknownInvite,
    /// The invite's time is over.
    ExpiredInvite,
    /// The e-mail belongs to a user, and the caller did not prove to be that user.
    OtherUser,
    /// The invite brings workspaces, and their key was not wrapped for the new principal.
    KeyMissing,
}

/// What became of an attempt to register.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Registration {
    /// It worked.
    Done {
        /// The user, new or proven.
        user_id: String,
        /// The new principal.
        principal_id: String,
    },
    /// The e-mail belongs to a user, and the caller did not prove to be that user.
    OtherUser,
}

impl Store {
    /// Adds a principal to a user, who is made if the e-mail is new, and the user to the workspaces of the invite. An existing
    /// user is joined only as `proven_user`: knowing an e-mail address is no proof.
    pub async fn join(
        &self,
        token: &str,
        email: &str,
        proven_user: Option<&str>,
        principal: &NewPrincipal,
        wrap: Option<&KeyWrap>,
        audit: &AuditRow,
    ) -> Result<Joined, StoreError> {
        let mut transaction = self.write().await?;
        let Some(invite) = find_invite(&mut transaction, token).await? else { return Ok(Joined::UnknownInvite) };
        if invite.expires_at <= clock::now() {
            return Ok(Joined::ExpiredInvite);
        }
        if !invite.workspaces.is_empty() && wrap.is_none() {
            return Ok(Joined::KeyMissing);
        }
        let Some(user_id) = user_for(&mut transaction, email, proven_user).await? else {
            return Ok(Joined::OtherUser);
        };
        let principal_id = insert_principal(&mut transaction, Some(&user_id), principal).await?;
        for workspace in &invite.workspaces {
            insert_member(&mut transaction, &workspace.id, &user_id).await?;
            if let Some(wrap) = wrap {
                insert_key_wrap(&mut transaction, &workspace.id, &principal_id, wrap).await?;
            }
        }
        let audit = AuditRow {
            principal_id: principal_id.clone(),
            user_id: Some(user_id.clone()),
            resource_id: user_id.clone(),
            details: Some(format!("{{\"invite_id\":\"{}\"}}", invite.id)),
            ..audit.clone()
        };
        commit_with(transaction, &audit).await?;
        Ok(Joined::Done(Membership { user_id, principal_id, workspaces: invite.workspaces }))
    }

    /// Adds a principal to a user, who is made if the e-mail is new. An existing user is extended only as `proven_user`.
    pub async fn register(
        &self,
        email: &str,
        proven_user: Option<&str>,
        principal: &NewPrincipal,
        audit: &AuditRow,
    ) -> Result<Registration, StoreError> {
        let mut transaction = self.write().await?;
        let Some(user_id) = user_for(&mut transaction, email, proven_user).await? else {
            return Ok(Registration::OtherUser);
        };
        let principal_id = insert_principal(&mut transaction, Some(&user_id), principal).await?;
        let audit = AuditRow {
            principal_id: principal_id.clone(),
            user_id: Some(user_id.clone()),
            resource_id: user_id.clone(),
            ..audit.clone()
        };
        commit_with(transaction, &audit).await?;
        Ok(Registration::Done { user_id, principal_id })
    }
}

/// The user of that e-mail: made when nobody has it, otherwise only if it is the proven one.
async fn user_for(
    connection: &mut SqliteConnection,
    email: &str,
    proven_user: Option<&str>,
) -> Result<Option<String>, StoreError> {
    let existing: Option<(String,)> =
        sqlx::query_as("SELECT id FROM users WHERE email = ?").bind(email).fetch_optional(&mut *connection).await?;
    if let Some((id,)) = existing {
        return Ok((proven_user == Some(&id)).then_some(id));
    }
    let id = new_id();
    sqlx::query("INSERT INTO users (id, email, created_at, updated_at) VALUES (?1, ?2, ?3, ?3)")
        .bind(&id)
        .bind(email)
        .bind(clock::now())
        .execute(connection)
        .await?;
    Ok(Some(id))
}
