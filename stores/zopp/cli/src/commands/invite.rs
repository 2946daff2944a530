//! `zopp invite`.

use std::{
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

use clap::{Args, Subcommand};
use konverge_zopp_client::Client;
use konverge_zopp_crypto::{InviteSecret, invite::CODE_PREFIX};
use konverge_zopp_proto::{
    CreateInviteRequest, Empty, InviteToken, RevokeInviteRequest,
    identity::{self, Invite},
};
use serde::Serialize;
use tonic::Code;
use zeroize::Zeroizing;

use crate::{
    context::Context,
    failure::{Failure, failed},
    invite_code,
    output::{Answer, Document, Outcome, plain, time},
    scope::{Place, WorkspaceArguments},
    wiped::Wiped,
};

/// `zopp invite`
#[derive(Debug, Subcommand)]
pub enum InviteCommand {
    /// Create an invite to a workspace
    #[command(
        after_help = "Example:\n  zopp invite create -w acme --expires-hours 72 --uses 5\n\nWho has the code can read the \
                            workspace's keys; a role is granted separately. Each attempt to join\ncounts as a use, because it reads the keys."
    )]
    Create(CreateArguments),
    /// List your invites
    List,
    /// Revoke an invite
    Revoke {
        /// The code, or the token that "zopp invite list" shows; "-" reads it from standard input; if it is left out, it is asked for
        code: Option<String>,
        /// Read it from a file
        #[arg(long, value_name = "PATH", conflicts_with = "code")]
        invite_file: Option<PathBuf>,
    },
}

/// `zopp invite create`
#[derive(Debug, Args)]
pub struct CreateArguments {
    #[command(flatten)]
    workspace: WorkspaceArguments,
    /// For how many hours the invite can be used
    #[arg(long, value_name = "HOURS", default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..))]
    expires_hours: u32,
    /// Number of people who may join, or "unlimited" [default: 1; unlimited on a server that cannot limit it]
    #[arg(long, value_name = "NUMBER", value_parser = parse_uses)]
    uses: Option<Uses>,
    /// Print the code only
    #[arg(long)]
    plain: bool,
}

/// The number of people who may join by an invite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Uses {
    Limited(u32),
    Unlimited,
}

fn parse_uses(text: &str) -> Result<Uses, &'static str> {
    match text.parse() {
        Ok(number @ 1..) => Ok(Uses::Limited(number)),
        _ if text == "unlimited" => Ok(Uses::Unlimited),
        _ => Err("a number from 1, or \"unlimited\", is expected"),
    }
}

/// `invite create`. Holds the code, hence printed from here and not cloned into an object.
struct Created {
    code: Zeroizing<String>,
    token: String,
    workspace: String,
    expires_at: String,
    code_only: bool,
}

impl Answer for Created {
    fn text(&self, text: &mut Wiped) -> Result<(), Failure> {
        let Self { code, token, workspace, expires_at, code_only } = self;
        if !code_only {
            text.push(format!("Invite to workspace {workspace}\n\n  ").as_bytes());
        }
        text.push(code.as_bytes());
        text.push(b"\n");
        if !code_only {
            text.push(format!("\nToken:   {token}\nExpires: {expires_at}\n").as_bytes());
        }
        Ok(())
    }

    fn object(&self, document: &mut Document<'_>) -> Result<(), Failure> {
        #[derive(Serialize)]
        struct Object<'a> {
            code: &'a str,
            token: &'a str,
            workspace: &'a str,
            expires_at: &'a str,
        }
        let Self { code, token, workspace, expires_at, .. } = self;
        document.put(&Object { code, token, workspace, expires_at })
    }
}

/// An invite as the server knows it, without its code.
#[derive(Serialize)]
struct InviteObject {
    id: String,
    token: String,
    workspace_ids: Vec<String>,
    created_at: String,
    expires_at: String,
    /// How often somebody joined by it; `null` if the server does not tell.
    uses: Option<u32>,
    /// How often somebody may; `null` for as often as somebody likes.
    max_uses: Option<u32>,
}

impl From<Invite> for InviteObject {
    fn from(invite: Invite) -> Self {
        Self {
            id: invite.id,
            token: invite.token,
            workspace_ids: invite.workspace_ids,
            created_at: time(invite.created_at),
            expires_at: time(invite.expires_at),
            uses: Some(invite.uses),
            max_uses: invite.max_uses,
        }
    }
}

impl From<InviteToken> for InviteObject {
    fn from(invite: InviteToken) -> Self {
        Self {
            id: invite.id,
            token: invite.token,
            workspace_ids: invite.workspace_ids,
            created_at: time(invite.created_at),
            expires_at: time(invite.expires_at),
            uses: None,
            max_uses: None,
        }
    }
}

/// `invite list`
#[derive(Serialize)]
struct Invites {
    invites: Vec<InviteObject>,
}

/// `invite revoke`
#[derive(Serialize)]
struct Revoked {
    token: String,
}

pub(super) async fn execute(context: &Context, command: InviteCommand) -> Outcome {
    let client = context.client()?;
    match command {
        InviteCommand::Create(CreateArguments { workspace, expires_hours, uses, plain }) => {
            create(&client, workspace.resolve()?, expires_hours, uses, plain).await
        }
        InviteCommand::List => list(&client).await,
        InviteCommand::Revoke { code, invite_file } => {
            revoke(&client, &invite_code::obtain(code, invite_file.as_deref())?).await
        }
    }
}

async fn create(
    client: &Client,
    workspace: String,
    expires_hours: u32,
    uses: Option<Uses>,
    code_only: bool,
) -> Outcome {
    let what = format!("cannot create an invite to workspace '{workspace}'");
    let need = Place::Workspace { workspace: workspace.clone() }.need("admin", client);
    let key = client.workspace_key(&workspace).await.map_err(failed(what.clone(), need.clone()))?;
    let secret = InviteSecret::for_workspace(&key.id, &workspace)
        .map_err(|source| Failure::new(what.clone()).because(source))?;
    let sealed = secret.encrypt_kek(&key.kek, &key.id).map_err(|source| Failure::new(what.clone()).because(source))?;
    let expires_at = now().saturating_add(i64::from(expires_hours) * 3600);
    let (kek_encrypted, kek_nonce) = (sealed.ciphertext, sealed.nonce.to_vec());
    let token = secret.token();
    let mut is_unlimited = uses == Some(Uses::Unlimited);
    if !is_unlimited {
        let max_uses = match uses {
            Some(Uses::Limited(number)) => number,
            _ => 1,
        };
        let (workspace_id, token) = (key.id.clone(), token.clone());
        let (kek_encrypted, kek_nonce) = (kek_encrypted.clone(), kek_nonce.clone());
        let request =
            identity::CreateInviteRequest { workspace_id, expires_at, token, kek_encrypted, kek_nonce, max_uses };
        match client.create_limited_invite(request, &key).await {
            // A stock server. If the user requested a number, the refusal is an error.
            Err(error) if uses.is_none() && error.is_unknown_call() => {
                eprintln!("Warning: this server cannot limit the uses of an invite; revoke it after use");
                is_unlimited = true;
            }
            made => drop(made.map_err(failed(what.clone(), need.clone()))?),
        }
    }
    if is_unlimited {
        let (workspace_ids, token) = (vec![key.id.clone()], token.clone());
        let request = CreateInviteRequest { workspace_ids, expires_at, token, kek_encrypted, kek_nonce };
        client.create_invite(request, &key).await.map_err(failed(what, need))?;
    }
    Ok(Box::new(Created { code: secret.to_code(), token, workspace, expires_at: time(expires_at), code_only }))
}

async fn list(client: &Client) -> Outcome {
    let invites: Vec<_> = match client.list_counted_invites(identity::ListInvitesRequest {}).await {
        // A stock server, which lists without counts.
        Err(error) if error.code() == Code::Unimplemented => {
            let answer = client.list_invites(Empty {}).await.map_err(failed("cannot list invites", None))?;
            answer.invites.into_iter().map(InviteObject::from).collect()
        }
        answer => {
            let answer = answer.map_err(failed("cannot list invites", None))?;
            answer.invites.into_iter().map(InviteObject::from).collect()
        }
    };
    let block = |InviteObject { id, token, expires_at, uses, max_uses, .. }: &InviteObject| {
        let uses = match (uses, max_uses) {
            (None, _) => String::new(),
            (Some(uses), None) => format!("\nUses:    {uses}"),
            (Some(uses), Some(max)) => format!("\nUses:    {uses} of {max}"),
        };
        format!("ID:      {id}\nToken:   {token}\nExpires: {expires_at}{uses}")
    };
    let text = if invites.is_empty() {
        "No invites found".to_owned()
    } else {
        invites.iter().map(block).collect::<Vec<_>>().join("\n\n")
    };
    Ok(plain(Invites { invites }, text))
}

async fn revoke(client: &Client, code: &str) -> Outcome {
    let token = if code.starts_with(CODE_PREFIX) {
        InviteSecret::from_code(code).map_err(|error| Failure::usage(error.to_string()))?.token()
    } else {
        code.to_owned()
    };
    let request = RevokeInviteRequest { token: token.clone() };
    client.revoke_invite(request).await.map_err(failed("cannot revoke the invite", None))?;
    Ok(plain(Revoked { token }, "Invite revoked"))
}

/// Unix seconds.
fn now() -> i64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX)
}
