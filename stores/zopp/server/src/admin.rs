//! `zopp-server invite`, `principal` and `user`: letting people in and cutting them off, on the server's own machine.

mod audit;
mod backup;
mod import;

use std::io::{self, Write};

pub use audit::audit;
pub use backup::{backup, restore, restored_in_place};
pub use import::import;

use crate::{
    args::{InitArguments, InviteCommand, PrincipalCommand, UserCommand},
    audit::row::blank_row,
    clock,
    store::{Action, AuditRow, BackupError, ImportError, InviteRow, Kept, NewInvite, OpenError, Store, StoreError},
};

/// The prefix that `list` shows before the hash of a token; only the hash is stored.
const HASH_PREFIX: &str = "sha256:";

/// The actor in the audit log for these commands.
const OPERATOR: &str = "operator of the server";

/// Why a command did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The database could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The database failed.
    #[error("the database did not take the change: {0}")]
    Store(#[from] StoreError),
    /// There is no backup, or no restored database.
    #[error(transparent)]
    Backup(Box<BackupError>),
    /// Nothing was imported.
    #[error(transparent)]
    Import(Box<ImportError>),
    /// No such invite.
    #[error("no invite has this token, or it was revoked already; zopp-server invite list shows those there are")]
    Unknown,
    /// No such principal.
    #[error("no principal has the id {0:?}; \"zopp principal list\" and \"zopp principal service-list\" show ids")]
    UnknownPrincipal(String),
    /// No such user.
    #[error("no user has the e-mail address {0:?}")]
    UnknownUser(String),
    /// The user owns workspaces.
    #[error("the user owns {0}; have the ownership transferred first: zopp workspace transfer")]
    Owner(String),
    /// The last copy of a key would be of no use.
    #[error(
        "this holds the last copy of a key that can be handed on, of {0}; have another device granted access first (zopp workspace \
         grant-principal-access){1}"
    )]
    LastKey(String, &'static str),
    /// The system gave no random bytes.
    #[error("the operating system gave no random bytes")]
    Random(#[source] getrandom::Error),
    /// Nobody takes what is printed.
    #[error("cannot print")]
    Print(#[source] io::Error),
}

/// Does one command and prints to `out`.
pub async fn run(store: &Store, command: &InviteCommand, out: &mut impl Write) -> Result<(), AdminError> {
    match command {
        InviteCommand::Create { expires_hours, uses, plain } => create(store, *expires_hours, *uses, *plain, out).await,
        InviteCommand::List => list(store, out).await,
        InviteCommand::Revoke { token } => revoke(store, token, out).await,
    }
}

/// Prints the command by which the first user joins, alone in its line.
pub async fn init(store: &Store, arguments: &InitArguments, out: &mut impl Write) -> Result<(), AdminError> {
    let InitArguments { server, email, expires_hours } = arguments;
    let (token, _) = make(store, *expires_hours, Some(1)).await?;
    // The invite is not in the command, because the process list would show it. "zopp join" takes it from standard input.
    writeln!(out, "echo {token} | zopp --server {} join - {}", quoted(server), quoted(email)).map_err(AdminError::Print)
}

/// As a shell takes it for one word.
fn quoted(text: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_.:/@+%,=".contains(character);
    if !text.is_empty() && text.chars().all(is_plain) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

/// A new invite: its token and when it ends.
async fn make(store: &Store, expires_hours: u32, max_uses: Option<u32>) -> Result<(String, i64), AdminError> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(AdminError::Random)?;
    let token = hex::encode(secret);
    let expires_at = clock::now() + i64::from(expires_hours) * 3600;
    let invite =
        NewInvite { token: &token, workspace_ids: &[], expires_at, kek_encrypted: None, kek_nonce: None, max_uses };
    store.create_invite(&invite, None).await?;
    Ok((token, expires_at))
}

async fn create(
    store: &Store,
    expires_hours: u32,
    max_uses: Option<u32>,
    plain: bool,
    out: &mut impl Write,
) -> Result<(), AdminError> {
    let (token, expires_at) = make(store, expires_hours, max_uses).await?;
    if plain {
        writeln!(out, "{token}")
    } else {
        writeln!(
            out,
            "Server invite created\nToken:   {token}\nExpires: {}\nUse it:  zopp join {token} <email>",
            time(expires_at)
        )
    }
    .map_err(AdminError::Print)
}

async fn list(store: &Store, out: &mut impl Write) -> Result<(), AdminError> {
    let invites = store.invites(None).await?;
    if invites.is_empty() {
        return writeln!(out, "No server invites").map_err(AdminError::Print);
    }
    for invite in invites {
        let state = if invite.expires_at <= clock::now() { " (expired)" } else { "" };
        let max = invite.max_uses.map_or_else(String::new, |max| format!(" of {max}"));
        let (name, expires) = (name(&invite), time(invite.expires_at));
        writeln!(out, "Token:   {name}\nExpires: {expires}{state}\nUses:    {}{max}\n", invite.uses)
            .map_err(AdminError::Print)?;
    }
    Ok(())
}

async fn revoke(store: &Store, token: &str, out: &mut impl Write) -> Result<(), AdminError> {
    let invite = if token.starts_with(HASH_PREFIX) {
        store.invites(None).await?.into_iter().find(|invite| name(invite) == token)
    } else {
        store.invite(token).await?
    };
    let invite = invite.ok_or(AdminError::Unknown)?;
    store.revoke_invite(&invite.id, None).await.map_err(|error| match error {
        StoreError::Missing => AdminError::Unknown,
        other => AdminError::Store(other),
    })?;
    writeln!(out, "Invite revoked").map_err(AdminError::Print)
}

/// Disables or enables a principal and prints to `out`.
pub async fn principal(store: &Store, command: &PrincipalCommand, out: &mut impl Write) -> Result<(), AdminError> {
    let (id, disabled, even_if_last_key) = match command {
        PrincipalCommand::Disable { id, even_if_last_key } => (id, true, *even_if_last_key),
        PrincipalCommand::Enable { id } => (id, false, false),
    };
    let action = if disabled { Action::PrincipalDisable } else { Action::PrincipalEnable };
    let row = AuditRow { principal_id: OPERATOR.into(), resource_id: id.clone(), ..blank_row(action, "principal") };
    let changed = store.set_principal_disabled(None, id, disabled, even_if_last_key, &row).await?;
    let name = changed.map_err(|kept| match kept {
        Kept::LastKey(workspaces) => {
            AdminError::LastKey(workspaces.join(", "), ", or disable it all the same with --even-if-last-key")
        }
        _ => AdminError::UnknownPrincipal(id.clone()),
    })?;
    writeln!(out, "Principal '{name}' {}", if disabled { "disabled" } else { "enabled" }).map_err(AdminError::Print)
}

/// Removes a user and prints to `out`.
pub async fn user(store: &Store, command: &UserCommand, out: &mut impl Write) -> Result<(), AdminError> {
    let UserCommand::Remove { email } = command;
    let email = email.trim().to_lowercase();
    let user_id = store.user_by_email(&email).await?.ok_or_else(|| AdminError::UnknownUser(email.clone()))?;
    let row = AuditRow {
        principal_id: OPERATOR.into(),
        resource_id: user_id.clone(),
        ..blank_row(Action::UserRemove, "user")
    };
    let removed = store.remove_user(None, &user_id, &row).await?.map_err(|kept| match kept {
        Kept::Owner(workspaces) => AdminError::Owner(workspaces.join(", ")),
        Kept::LastKey(workspaces) => AdminError::LastKey(workspaces.join(", "), ""),
        _ => AdminError::UnknownUser(email.clone()),
    })?;
    writeln!(
        out,
        "User {email} removed, with {} principals; {} invites revoked\nThe user's devices may know the keys of the user's workspaces. An \
         admin of each replaces them: zopp workspace remove-member {email} -w <workspace>",
        removed.principal_ids.len(),
        removed.invites
    )
    .map_err(AdminError::Print)
}

fn name(invite: &InviteRow) -> String {
    format!("{HASH_PREFIX}{}", hex::encode(&invite.token_hash))
}

fn time(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_takes_each_for_one_word() {
        assert_eq!(quoted("http://127.0.0.1:50051"), "http://127.0.0.1:50051");
        assert_eq!(quoted("it's $(me)"), r"'it'\''s $(me)'");
        assert_eq!(quoted(""), "''");
    }
}
