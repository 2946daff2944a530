//! `zopp user`.

use clap::Subcommand;
use konverge_zopp_proto::{
    Empty,
    identity::{RemoveUserRequest, RemoveUserResponse},
};
use serde::Serialize;

use crate::{
    context::Context,
    failure::{Failure, failed},
    output::{Outcome, listing, plain},
};

/// `zopp user`
#[derive(Debug, Subcommand)]
pub enum UserCommand {
    /// Remove yourself from the server, with all your devices
    #[command(
        after_help = "Example:\n  zopp user remove alice@example.com\n\nA user who owns a workspace transfers it first: zopp \
                            workspace transfer. The server's operator can\nremove anybody: zopp-server user remove.\n\nWho is gone \
                            replaces no keys: an admin of each workspace does it with zopp workspace\nremove-member. This device gives \
                            no key to the removed devices any more."
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
    /// Workspaces whose keys the user's devices may know, and which stay.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    former_keys: Vec<String>,
}

pub(super) async fn execute(context: &Context, command: UserCommand) -> Outcome {
    let UserCommand::Remove { email } = command;
    let client = context.client()?;
    let what = format!("cannot remove user {email}");
    let workspaces = client.list_workspaces(Empty {}).await.map_err(failed(what.clone(), None))?.workspaces;
    let former_keys: Vec<_> = workspaces.into_iter().map(|workspace| workspace.name).collect();
    let request = RemoveUserRequest { user_email: email.clone() };
    let answer = client.remove_user(request).await.map_err(failed(what, None))?;
    revoke_devices(context, &email)?;
    let RemoveUserResponse { principals_removed, invites_revoked } = answer;
    let commands = former_keys.iter().map(|workspace| format!("  zopp workspace remove-member {email} -w {workspace}"));
    let keys = listing(
        "The user's devices may know the keys of these workspaces. An admin of each replaces them:",
        "The user was a member of no workspace, so no keys need to be replaced",
        commands,
    );
    let text = format!(
        "User {email} removed from the server\nPrincipals removed: {principals_removed}\nInvites revoked:    \
         {invites_revoked}\nTheir keys on this device are of no use any more: zopp principal delete <name>\n{keys}"
    );
    Ok(plain(RemovedUser { email, principals_removed, invites_revoked, former_keys }, text))
}

/// Remembers the devices of the user as removed: other users of this device give them no key, even if the server goes on naming them.
fn revoke_devices(context: &Context, email: &str) -> Result<(), Failure> {
    let is_of_user = |owner: Option<&str>| owner.is_some_and(|owner| owner.eq_ignore_ascii_case(email));
    let trust = context.trust()?;
    for principal in Context::config()?.principals.iter().filter(|principal| is_of_user(principal.email.as_deref())) {
        let keys = [Some(&principal.public_key), principal.x25519_public_key.as_ref()];
        let keys: Vec<_> = keys.into_iter().flatten().filter_map(|key| hex::decode(key).ok()).collect();
        trust.revoke(&principal.id, None, &keys.iter().map(Vec::as_slice).collect::<Vec<_>>());
    }
    for (id, _) in trust.accepted().into_iter().filter(|(_, accepted)| is_of_user(accepted.email.as_deref())) {
        trust.revoke(&id, None, &[]);
    }
    Ok(())
}
