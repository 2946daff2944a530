//! Users come into being with their first principal, by an invite or by registering.

use super::{
    AuditRow, KeyWrap, NewPrincipal, Store, StoreError, WorkspaceRow,
    audit::commit_with,
    bound,
    exists::exists,
    invites::{find_invite, use_invite},
    new_id,
    principals::{PrincipalRow, inherit_ceilings, insert_principal},
    sql::{self, Connection},
    workspaces::{insert_key_wrap, insert_member},
};
use crate::{clock, limits::Reached};

/// The new user and principal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// The user, new or proven.
    pub user_id: String,
    /// The new principal.
    pub principal_id: String,
    /// The workspaces of the invite, in its order.
    pub workspaces: Vec<WorkspaceRow>,
}

/// The result of an attempt to join.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Joined {
    /// It worked.
    Done(Membership),
    /// No invite has this token, or it was revoked.
    UnknownInvite,
    /// The invite's time is over.
    ExpiredInvite,
    /// As many have joined by the invite as may.
    UsedUpInvite,
    /// The invite is to several workspaces, of whose keys it can bring one only.
    SeveralWorkspaces,
    /// The e-mail belongs to a user, and the caller did not prove to be that user.
    OtherUser,
    /// The invite brings workspaces, and their key was not wrapped for the new principal.
    KeyMissing,
}

/// The result of an attempt to register.
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
    /// The e-mail belongs to no user, and new ones come by invite.
    InviteOnly,
}

impl Store {
    /// Adds a principal to a user, who is made if the e-mail is new, and the user to the workspaces of the invite. An existing
    /// user is joined only by a `proven` principal of that user, whose ceilings become the new one's: knowing an e-mail address is no
    /// proof.
    pub async fn join(
        &self,
        token: &str,
        email: &str,
        proven: Option<&PrincipalRow>,
        principal: &NewPrincipal,
        wrap: Option<&KeyWrap>,
        audit: &AuditRow,
    ) -> Result<Joined, StoreError> {
        let mut transaction = self.write(audit).await?;
        let Some(invite) = find_invite(&mut transaction, token).await? else { return Ok(Joined::UnknownInvite) };
        if invite.expires_at <= clock::now() {
            return Ok(Joined::ExpiredInvite);
        }
        if invite.workspaces.len() > 1 {
            return Ok(Joined::SeveralWorkspaces);
        }
        if !invite.workspaces.is_empty() && wrap.is_none() {
            return Ok(Joined::KeyMissing);
        }
        let Some(user_id) = user_for(&mut transaction, email, proven).await? else {
            return Ok(Joined::OtherUser);
        };
        if !use_invite(&mut transaction, &invite.id, &user_id).await? {
            return Ok(Joined::UsedUpInvite);
        }
        let principal_id = insert_device(&mut transaction, &user_id, proven, principal, self.limits.principals).await?;
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

    /// Adds a principal to a user, who is made if the e-mail is new and registration is `open`. An existing user is extended only by a
    /// `proven` principal of that user, whose ceilings become the new one's.
    pub async fn register(
        &self,
        email: &str,
        proven: Option<&PrincipalRow>,
        open: bool,
        principal: &NewPrincipal,
        audit: &AuditRow,
    ) -> Result<Registration, StoreError> {
        let mut transaction = self.write(audit).await?;
        if !open && !exists(&mut transaction, "SELECT 1 FROM users WHERE email = ?", &[email]).await? {
            return Ok(Registration::InviteOnly);
        }
        let Some(user_id) = user_for(&mut transaction, email, proven).await? else {
            return Ok(Registration::OtherUser);
        };
        let principal_id = insert_device(&mut transaction, &user_id, proven, principal, self.limits.principals).await?;
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

/// Inserts a principal of a user. A principal for which another principal of the same user vouches inherits its ceilings.
async fn insert_device(
    connection: &mut Connection,
    user_id: &str,
    proven: Option<&PrincipalRow>,
    principal: &NewPrincipal,
    limit: u32,
) -> Result<String, StoreError> {
    let reached = Reached { what: "principals of a user", limit, flag: "--max-principals" };
    let count = "SELECT count(*) FROM principals WHERE user_id = ?";
    bound(connection, sql::query_as(count).bind(user_id), reached).await?;
    let principal_id = insert_principal(connection, Some(user_id), principal).await?;
    if let Some(voucher) = proven.filter(|proven| proven.user_id.as_deref() == Some(user_id)) {
        inherit_ceilings(connection, &voucher.id, &principal_id).await?;
    }
    Ok(principal_id)
}

/// The user of that e-mail: made when nobody has it, otherwise only if it is the proven one.
async fn user_for(
    connection: &mut Connection,
    email: &str,
    proven: Option<&PrincipalRow>,
) -> Result<Option<String>, StoreError> {
    let existing: Option<(String,)> =
        sql::query_as("SELECT id FROM users WHERE email = ?").bind(email).fetch_optional(&mut *connection).await?;
    if let Some((id,)) = existing {
        return Ok(proven.is_some_and(|proven| proven.user_id.as_ref() == Some(&id)).then_some(id));
    }
    let id = new_id();
    sql::query("INSERT INTO users (id, email, created_at, updated_at) VALUES (?1, ?2, ?3, ?3)")
        .bind(&id)
        .bind(email)
        .bind(clock::now())
        .execute(connection)
        .await?;
    Ok(Some(id))
}
