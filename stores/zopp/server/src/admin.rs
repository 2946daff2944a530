//! `zopp-server invite`: letting people in, on the server's own machine.

use std::io::{self, Write};

use crate::{
    args::InviteCommand,
    clock,
    store::{InviteRow, NewInvite, OpenError, Store, StoreError},
};

/// What `list` puts before the hash of a token, which is all that is kept of it.
const HASH_PREFIX: &str = "sha256:";

/// Why an invite command did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum InviteError {
    /// The database could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The database failed.
    #[error("the database did not take the change: {0}")]
    Store(#[from] StoreError),
    /// No such invite.
    #[error("no invite has this token, or it was revoked already; zopp-server invite list shows those there are")]
    Unknown,
    /// The system gave no random bytes.
    #[error("the operating system gave no random bytes")]
    Random(#[source] getrandom::Error),
    /// Nobody takes what is printed.
    #[error("cannot print")]
    Print(#[source] io::Error),
}

/// Does one command and prints to `out`.
pub async fn run(store: &Store, command: &InviteCommand, out: &mut impl Write) -> Result<(), InviteError> {
    match command {
        InviteCommand::Create { expires_hours, plain } => create(store, *expires_hours, *plain, out).await,
        InviteCommand::List => list(store, out).await,
        InviteCommand::Revoke { token } => revoke(store, token, out).await,
    }
}

async fn create(store: &Store, expires_hours: u32, plain: bool, out: &mut impl Write) -> Result<(), InviteError> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(InviteError::Random)?;
    let token = hex::encode(secret);
    let expires_at = clock::now() + i64::from(expires_hours) * 3600;
    let invite = NewInvite { token: &token, workspace_ids: &[], expires_at, kek_encrypted: None, kek_nonce: None };
    store.create_invite(&invite, None).await?;
    if plain {
        writeln!(out, "{token}")
    } else {
        writeln!(
            out,
            "Server invite created\nToken:   {token}\nExpires: {}\nUse it:  zopp join {token} <email>",
            time(expires_at)
        )
    }
    .map_err(InviteError::Print)
}

async fn list(store: &Store, out: &mut impl Write) -> Result<(), InviteError> {
    let invites = store.invites(None).await?;
    if invites.is_empty() {
        return writeln!(out, "No server invites").map_err(InviteError::Print);
    }
    for invite in invites {
        let state = if invite.expires_at <= clock::now() { " (expired)" } else { "" };
        writeln!(out, "Token:   {}\nExpires: {}{state}\n", name(&invite), time(invite.expires_at))
            .map_err(InviteError::Print)?;
    }
    Ok(())
}

async fn revoke(store: &Store, token: &str, out: &mut impl Write) -> Result<(), InviteError> {
    let invite = if token.starts_with(HASH_PREFIX) {
        store.invites(None).await?.into_iter().find(|invite| name(invite) == token)
    } else {
        store.invite(token).await?
    };
    let invite = invite.ok_or(InviteError::Unknown)?;
    store.revoke_invite(&invite.id, None).await.map_err(|error| match error {
        StoreError::Missing => InviteError::Unknown,
        other => InviteError::Store(other),
    })?;
    writeln!(out, "Invite revoked").map_err(InviteError::Print)
}

fn name(invite: &InviteRow) -> String {
    format!("{HASH_PREFIX}{}", hex::encode(&invite.token_hash))
}

fn time(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |time| time.to_string())
}
