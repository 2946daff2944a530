//! `zopp join`: make keys, present an invite, remember who one is.

use std::{path::PathBuf, process::Command};

use clap::Args;
use konverge_zopp_client::{CallError, Client, ConfigFile, Connection, config_file::Principal};
use konverge_zopp_crypto::{
    Fingerprint, InviteSecret, SigningSeed, WrappedKek, X25519Private, X25519Public,
    invite::{CODE_PREFIX, NameInCode},
};
use konverge_zopp_proto::{GetInviteRequest, JoinRequest, JoinResponse};
use serde::Serialize;
use tonic::Code;

use super::{
    device::{generate_keys, new_principal, refuse_duplicate},
    principal::pending,
    workspace::WorkspaceObject,
    wrapped::WrappedFields,
};
use crate::{
    context::Context,
    escape::visible,
    failure::{Failure, failed},
    file_key, invite_code,
    output::{Outcome, plain},
};

const EXAMPLES: &str = "\
Examples:
  zopp join 5f0c…e1 alice@example.com                  with the server's first invite
  zopp join inv_77ab…09 bob@example.com --principal laptop
  zopp join bob@example.com                     asks for the invite, off the process list
  zopp join --invite-file invite.txt bob@example.com
  zopp join - bob@example.com < invite.txt";

/// The longest e-mail address in bytes that our server accepts.
const MAX_EMAIL: usize = 254;
/// The longest name of a principal in bytes that our server accepts.
const MAX_NAME: usize = 128;

/// `zopp join`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES, override_usage = "zopp join [OPTIONS] [INVITE] <EMAIL>")]
pub struct JoinArguments {
    /// Invite: 64 hexadecimal digits from the server's operator, or inv_… from a workspace; "-" reads it from standard input; if it
    /// is left out, it is asked for. Then your e-mail address
    #[arg(value_names = ["INVITE", "EMAIL"], num_args = 1..=2, required = true)]
    invite_and_email: Vec<String>,
    /// Read the invite from a file
    #[arg(long, value_name = "PATH")]
    invite_file: Option<PathBuf>,
    /// Name for this device's principal [default: the host's name]
    #[arg(long)]
    principal: Option<String>,
}

/// The new identity.
#[derive(Serialize)]
struct Joined {
    user_id: String,
    principal_id: String,
    principal: String,
    workspaces: Vec<WorkspaceObject>,
    config_file: String,
}

/// The KEK of the inviting workspace, wrapped for the one who joins.
struct Invited {
    token: String,
    key: Option<WrappedKek>,
}

/// The key of the inviting workspace. The code vouches for it, because only holders of the code can create its envelope.
struct Vouched {
    secret: InviteSecret,
    workspace_id: String,
    fingerprint: Fingerprint,
}

impl Invited {
    /// Returns the request to join with this invite and these keys.
    fn into_request(self, email: &str, principal: &str, seed: &SigningSeed, exchange: &X25519Private) -> JoinRequest {
        let WrappedFields { ephemeral_pub, kek_nonce, kek_wrapped } =
            self.key.map(WrappedFields::from).unwrap_or_default();
        JoinRequest {
            invite_token: self.token,
            email: email.to_owned(),
            principal_name: principal.to_owned(),
            public_key: seed.public().to_bytes().to_vec(),
            x25519_public_key: exchange.public().to_bytes().to_vec(),
            ephemeral_pub,
            kek_wrapped,
            kek_nonce,
        }
    }
}

pub(super) async fn execute(context: &Context, arguments: JoinArguments) -> Outcome {
    let JoinArguments { invite_and_email, invite_file, principal } = arguments;
    let name = principal.map_or_else(host_name, Ok)?;
    let (argument, email) = split(invite_and_email)?;
    if argument.is_some() && invite_file.is_some() {
        return Err(Failure::usage("the invite is given twice, on the command line and as --invite-file"));
    }
    let token = invite_code::obtain(argument, invite_file.as_deref())?;
    // To the end: no other command changes the file between what is read now and what is saved.
    let lock = Context::lock()?;
    // Before anything is sent: a file that cannot be read would lose the identity that the server is about to know.
    let mut config = Context::config_or_empty()?;
    // The new keys cannot be saved without the passphrase of a protected file.
    file_key::of(&config)?;
    if let Some(position) = pending::position(&config, &name) {
        return pending::join(context, lock, config, position, &token).await;
    }
    refuse_duplicate(&config, &name)?;
    // Before the invite is read, which can use it up.
    check_email(&email)?;
    check_name(&name)?;

    let connection = context.connection()?;
    let (seed, exchange) = generate_keys()?;
    let secret = workspace_secret(&token)?;
    // Before the invite is read, which can use it up: a server of the first generation is joined only on request.
    connection.profile().await.map_err(failed("cannot join", None))?;
    let (invited, vouched) = open_invite(&connection, &token, secret, &exchange.public()).await?;
    let request = invited.into_request(&email, &name, &seed, &exchange);
    let member = member(context, &config, &email);
    let workspace_id = vouched.as_ref().map(|vouched| vouched.workspace_id.as_str());
    let answer = send(&connection, member, request, &seed, workspace_id).await.map_err(failed("cannot join", None))?;

    let mut principal = new_principal(answer.principal_id.clone(), name.clone(), &seed, &exchange);
    principal.user_id = Some(answer.user_id.clone());
    principal.email = Some(email);
    config.principals.push(principal);
    config.current_principal = Some(name.clone());
    Context::save(&config)?;
    drop(lock);
    context.remember_requested()?;
    if let Some(vouched) = vouched {
        pin(context, &answer, &vouched)?;
    }

    let joined = Joined {
        user_id: answer.user_id,
        principal_id: answer.principal_id,
        principal: name,
        workspaces: answer.workspaces.into_iter().map(WorkspaceObject::from).collect(),
        config_file: Context::config_path()?.display().to_string(),
    };
    let text = text(&joined);
    Ok(plain(joined, text))
}

/// Pins the key that the invite vouches for, under the name in the code. A key that is pinned under that name already stays.
fn pin(context: &Context, answer: &JoinResponse, vouched: &Vouched) -> Result<(), Failure> {
    let Vouched { secret, workspace_id, fingerprint } = vouched;
    let not_saved = "The new principal is saved, and no key is pinned. Ask the person who invited you which workspace and server the invite is for.";
    let Some(workspace) = answer.workspaces.iter().find(|workspace| workspace.id == *workspace_id) else {
        return Err(Failure::new("the server says that you joined a different workspace than that of the invite")
            .next(not_saved));
    };
    let name = &workspace.name;
    match secret.name_in_code(workspace_id, name) {
        NameInCode::Same => {}
        NameInCode::Other => {
            return Err(Failure::new(format!(
                "the server calls the workspace '{name}', but the invite has another name"
            ))
            .next(format!("The server may lie. {not_saved}")));
        }
        NameInCode::None => eprintln!(
            "Note: the invite is of a published client and does not name its workspace. The server calls it '{}'",
            visible(name)
        ),
    }
    let trust = context.trust()?;
    match trust.workspace(name) {
        Some(pinned) if pinned != *fingerprint => eprintln!(
            "Note: this device has pinned another key of workspace '{name}', which stays:\n  {pinned}\n  If the key was replaced, the next use \
             follows it. If the workspace was made anew: zopp workspace fingerprint -w {name} --pin {fingerprint}",
            name = visible(name)
        ),
        _ => drop(trust.pin_workspace(name, *fingerprint)),
    }
    Ok(())
}

/// The invite, if it is on the command line, and the e-mail address.
fn split(mut invite_and_email: Vec<String>) -> Result<(Option<String>, String), Failure> {
    let email = invite_and_email.pop().unwrap_or_default();
    let invite = invite_and_email.pop();
    if invite.is_none() && !email.contains('@') {
        return Err(Failure::usage("the e-mail address is missing").next("zopp join <invite> <email>"));
    }
    Ok((invite, email))
}

/// Refuses an address that a server refuses: by the rules of our server, which are the strictest.
fn check_email(email: &str) -> Result<(), Failure> {
    let email = email.trim();
    let is_plausible = email.split_once('@').is_some_and(|(local, domain)| !local.is_empty() && !domain.is_empty());
    let is_odd = |letter: char| letter.is_control() || letter.is_whitespace();
    if is_plausible && email.len() <= MAX_EMAIL && !email.chars().any(is_odd) {
        return Ok(());
    }
    Err(Failure::usage(format!("{email:?} is not an e-mail address"))
        .next("The address is like name@example.com. The invite was not used."))
}

/// Refuses a name of a principal that our server refuses.
fn check_name(name: &str) -> Result<(), Failure> {
    let is_plain = !name.contains([':', '/']) && !name.chars().any(char::is_control);
    if is_plain && !name.is_empty() && name.trim() == name && name.len() <= MAX_NAME {
        return Ok(());
    }
    Err(Failure::usage(format!("{name:?} is not a name for a principal")).next(format!(
        "A name has at most {MAX_NAME} bytes, neither ':', '/' nor control characters, and no space at its ends: --principal laptop. The \
         invite was not used."
    )))
}

/// A client with the identity that this device has for that address.
fn member(context: &Context, config: &ConfigFile, email: &str) -> Option<Client> {
    let same = |principal: &&Principal| principal.email.as_ref().is_some_and(|known| known.eq_ignore_ascii_case(email));
    let principal = config.principals.iter().find(same)?;
    context.client_as(Some(&principal.name)).ok()
}

/// A user who exists is added to only if one of its principals asks for it. A server that does not know that principal
/// is another one, on which the address may be new.
async fn send(
    connection: &Connection,
    member: Option<Client>,
    request: JoinRequest,
    seed: &SigningSeed,
    workspace_id: Option<&str>,
) -> Result<JoinResponse, CallError> {
    if let Some(client) = member {
        match client.join(request.clone(), seed, workspace_id).await {
            Err(error) if error.code() == Code::Unauthenticated => {}
            answer => return answer,
        }
    }
    connection.join(request, seed, workspace_id).await
}

fn text(joined: &Joined) -> String {
    let mut lines = vec![
        "Joined.".to_owned(),
        String::new(),
        format!("User ID:      {}", joined.user_id),
        format!("Principal ID: {}", joined.principal_id),
        format!("Principal:    {}", joined.principal),
    ];
    if !joined.workspaces.is_empty() {
        lines.push("Workspaces:".to_owned());
        lines.extend(
            joined.workspaces.iter().map(|workspace| visible(&format!("  - {} ({})", workspace.name, workspace.id))),
        );
    }
    lines.extend([String::new(), format!("Configuration saved to {}", joined.config_file)]);
    lines.join("\n")
}

/// The secret in the code of an invite to a workspace; `None` for one to a server.
fn workspace_secret(code: &str) -> Result<Option<InviteSecret>, Failure> {
    let is_to_workspace = code.starts_with(CODE_PREFIX);
    let secret = is_to_workspace.then(|| InviteSecret::from_code(code)).transpose();
    secret.map_err(|error| Failure::usage(error.to_string()))
}

/// A server invite is sent as it is; of a workspace invite only the hash of its secret is, and the KEK it carries is
/// wrapped anew for the one who joins.
async fn open_invite(
    connection: &Connection,
    code: &str,
    secret: Option<InviteSecret>,
    recipient: &X25519Public,
) -> Result<(Invited, Option<Vouched>), Failure> {
    let Some(secret) = secret else {
        return Ok((Invited { token: code.to_owned(), key: None }, None));
    };
    let token = secret.token();
    let invite = connection
        .get_invite(GetInviteRequest { token: token.clone() })
        .await
        .map_err(failed("cannot look the invite up", None))?;
    let Some(workspace_id) = invite.workspace_ids.first().filter(|_| !invite.kek_encrypted.is_empty()) else {
        return Err(Failure::new("the server gives no workspace key with this invite")
            .next("Without it the server could give you a key of its own later. Ask for a new invite."));
    };
    let kek = secret
        .decrypt_kek(&invite.kek_nonce, &invite.kek_encrypted, workspace_id)
        .map_err(|source| Failure::new("the workspace key in the invite cannot be opened").because(source))?;
    let wrapped = kek
        .wrap_for(recipient, workspace_id)
        .map_err(|source| Failure::new("the workspace key cannot be wrapped").because(source))?;
    let fingerprint = Fingerprint::of_workspace(workspace_id, &kek);
    let vouched = Vouched { workspace_id: workspace_id.clone(), fingerprint, secret };
    Ok((Invited { token, key: Some(wrapped) }, Some(vouched)))
}

/// `uname -n`: the host's name has no place in the standard library.
fn host_name() -> Result<String, Failure> {
    let failure = || Failure::new("the host's name cannot be found").next("Name the principal with --principal.");
    let output = Command::new("uname").arg("-n").output().map_err(|source| failure().because(source))?;
    let name = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if name.is_empty() { Err(failure()) } else { Ok(name) }
}
