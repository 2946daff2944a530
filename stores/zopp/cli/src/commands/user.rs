//! `zopp user`.

use clap::Subcommand;
use konverge_zopp_proto::identity::{RemoveUserRequest, RemoveUserResponse};
use serde::Serialize;

use crate::{
    context::Context,
    failure::failed,
    output::{Outcome, plain},
};

/// `zopp user`
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Remove yourself from the server, with all your devices
    #[command(
        after_help = "Example:\n  zopp user remove alice@example.com\n\nA user who owns a workspace transfers it first: zopp \
                            workspace transfer. The server's operator can\nremove anybody: zopp-server user remove."
    )]
    Remove {
        /// Your own e-mail address, so that it is no slip
        email: String,
    },
}

/// `user remove`
#[derive(Serialize)]
struct RemovedUser {
    email: String,
    principals_removed: u32,
    invites_revoked: u32,
}

pub(super) async fn execute(context: &Context, command: UserCommand) -> Outcome {
    let UserCommand::Remove { email } = command;
    let client = context.client()?;
    let request = RemoveUserRequest { user_email: email.clone() };
    let answer = client.remove_user(request).await.map_err(failed(format!("cannot remove user {email}"), None))?;
    let RemoveUserResponse { principals_removed, invites_revoked } = answer;
    let text = format!(
        "User {email} removed from the server\nPrincipals removed: {principals_removed}\nInvites revoked:    \
         {invites_revoked}\nTheir keys on this device are of no use any more: zopp principal delete <name>"
    );
    Ok(plain(RemovedUser { email, principals_removed, invites_revoked }, text))
}
