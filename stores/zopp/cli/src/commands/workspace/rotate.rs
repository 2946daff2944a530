//! `zopp workspace rotate-key`, and the new keys that follow a removal.

use std::collections::BTreeSet;

use clap::Args;
use konverge_zopp_client::{
    Client, EnvironmentName, EnvironmentWriter, Fingerprint,
    key_rotation::{KeyRotation, Recipient, RecipientStatus, Rotated, RotationError},
    writer::WriteError,
};
use serde::Serialize;

use crate::{
    context::Context,
    failure::{Failure, failed},
    output::{Outcome, plain},
    scope::{Place, WorkspaceArguments},
};

pub(super) const EXAMPLES: &str = "\
Examples:
  zopp workspace rotate-key -w acme
  zopp workspace rotate-key -w acme --fingerprint 1c0f-…-77ab --fingerprint 20d3-…-9e01
  zopp workspace rotate-key -w acme --without 0190…57
  zopp workspace rotate-key -w acme --resume        after an interruption

All who hold the workspace's key get the new one, which you sign, and each environment gets a new
key. Other devices follow by themselves from the key that they pinned. Open invites carry the
former key and are revoked. Disabled principals get no key.

A lying server can name a public key of its own for a member. So the command refuses recipients
that this device does not know. Compare their fingerprints (zopp principal fingerprint, on their
device), or accept the server's word with --accept-recipients.

They still know the values that they read before: change those that matter.";

/// How often it is tried while others change the workspace at the same time.
const MOST_ATTEMPTS: usize = 10;

/// `zopp workspace rotate-key`
#[derive(Debug, Args)]
pub struct RotateArguments {
    /// The workspace
    #[command(flatten)]
    workspace: WorkspaceArguments,
    #[command(flatten)]
    recipients: RecipientArguments,
    /// Keep the workspace's key; give new keys only to the environments that an interrupted run left
    #[arg(long, conflicts_with_all = ["accept_recipients", "fingerprint", "without"])]
    resume: bool,
}

/// The principals that get a new key.
#[derive(Debug, Clone, Default, Args)]
struct RecipientArguments {
    /// Give the new key also to principals that this device does not know, on the server's word
    #[arg(long)]
    accept_recipients: bool,
    /// A fingerprint that you compared with a recipient; for several recipients, several times
    #[arg(long, value_name = "FINGERPRINT")]
    fingerprint: Vec<Fingerprint>,
    /// Give no new key to this principal; for several, several times
    #[arg(long, value_name = "UUID")]
    without: Vec<String>,
}

/// A removal that replaces the keys.
#[derive(Debug, Clone, Args)]
pub struct RekeyArguments {
    /// Replace no keys; the removed principals may still know them
    #[arg(long, conflicts_with_all = ["accept_recipients", "fingerprint", "without"])]
    keep_keys: bool,
    #[command(flatten)]
    recipients: RecipientArguments,
}

/// Disabling a principal, which replaces the keys on request.
#[derive(Debug, Clone, Args)]
pub struct DisableKeysArguments {
    /// Then replace the keys of each workspace that the principal is in and that you administer; the flags for recipients imply it
    #[arg(long)]
    rotate_keys: bool,
    #[command(flatten)]
    recipients: RecipientArguments,
}

/// Whether the keys are to be replaced, and what to do instead.
pub(in crate::commands) struct RekeyChoice {
    /// `None`: the keys stay.
    recipients: Option<RecipientArguments>,
    instead: &'static str,
}

impl RekeyArguments {
    /// The choice for a removal.
    pub(in crate::commands) fn after_removal(self) -> RekeyChoice {
        let recipients = (!self.keep_keys).then_some(self.recipients);
        RekeyChoice { recipients, instead: "Or remove without new keys, and replace them later: --keep-keys." }
    }
}

impl DisableKeysArguments {
    /// Whether the keys are to be replaced.
    pub(in crate::commands) fn are_requested(&self) -> bool {
        let RecipientArguments { accept_recipients, fingerprint, without } = &self.recipients;
        self.rotate_keys || *accept_recipients || !fingerprint.is_empty() || !without.is_empty()
    }

    /// The choice for each workspace of a principal that is about to be disabled.
    pub(in crate::commands) fn after_disabling(&self) -> RekeyChoice {
        let recipients = self.are_requested().then(|| self.recipients.clone());
        RekeyChoice {
            recipients,
            instead: "Or disable it at once, and replace the keys later: leave --rotate-keys out.",
        }
    }
}

/// The keys that were replaced.
#[derive(Debug, Serialize)]
pub(in crate::commands) struct Replaced {
    /// Missing: only environments got new keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<NewKey>,
    environments: Vec<String>,
}

#[derive(Debug, Serialize)]
struct NewKey {
    generation: u32,
    fingerprint: String,
    holders: usize,
    left_out: usize,
    invites_revoked: u32,
}

/// `workspace rotate-key`, and a part of `principal disable --rotate-keys`
#[derive(Serialize)]
pub(in crate::commands) struct RotatedWorkspace {
    pub(in crate::commands) workspace: String,
    #[serde(flatten)]
    pub(in crate::commands) replaced: Replaced,
}

/// A check before somebody is removed or disabled whether the keys can be replaced afterwards.
pub(in crate::commands) struct Rekeying<'c> {
    context: &'c Context,
    client: &'c Client,
    workspace: String,
    /// `None`: the keys stay.
    recipients: Option<RecipientArguments>,
}

pub(super) async fn execute(context: &Context, client: &Client, arguments: RotateArguments) -> Outcome {
    let RotateArguments { workspace, recipients, resume } = arguments;
    let workspace = workspace.resolve()?;
    let key = if resume { None } else { Some(rotate(context, client, &workspace, &recipients).await?) };
    let environments = rekey(client, &workspace).await?;
    let replaced = Replaced { key, environments };
    let text = replaced.text(&workspace);
    Ok(plain(RotatedWorkspace { workspace, replaced }, text))
}

impl<'c> Rekeying<'c> {
    /// Fails if the keys could not be replaced, before anything is removed. `is_leaving` tells who is about to be removed.
    pub(in crate::commands) async fn check(
        context: &'c Context,
        client: &'c Client,
        workspace: &str,
        choice: RekeyChoice,
        is_leaving: impl Fn(&Recipient) -> bool,
    ) -> Result<Self, Failure> {
        let rekeying = |recipients| Self { context, client, workspace: workspace.to_owned(), recipients };
        let RekeyChoice { recipients: Some(recipients), instead } = choice else { return Ok(rekeying(None)) };
        let rotation = match client.prepare_key_rotation(workspace).await {
            Err(error) if is_unknown(&error) => return Ok(rekeying(None)),
            rotation => rotation,
        };
        let what =
            format!("nothing was changed, because the keys of workspace '{workspace}' could not be replaced after it");
        let rotation = rotation.map_err(failed(what.clone(), None))?;
        let staying = rotation.recipients().iter().filter(|recipient| !is_leaving(recipient));
        let unknown = unknown(staying, &recipients);
        if unknown.is_empty() {
            return Ok(rekeying(Some(recipients)));
        }
        Err(refusal(what, &unknown, instead))
    }

    /// The workspace.
    pub(in crate::commands) fn workspace(&self) -> &str {
        &self.workspace
    }

    /// Replaces the keys after the removal. `None` if they stay.
    pub(in crate::commands) async fn replace(self) -> Result<Option<Replaced>, Failure> {
        let Self { context, client, workspace, recipients } = self;
        let Some(recipients) = recipients else { return Ok(None) };
        let key = rotate(context, client, &workspace, &recipients).await?;
        let environments = rekey(client, &workspace).await?;
        Ok(Some(Replaced { key: Some(key), environments }))
    }
}

/// The sentences about the keys after a removal.
pub(in crate::commands) fn text_after_removal(replaced: Option<&Replaced>, workspace: &str) -> String {
    match replaced {
        Some(replaced) => replaced.text(workspace),
        None => format!(
            "The keys are the former ones, which may still be known: replace them with zopp workspace rotate-key -w {workspace}, and \
             change the values that matter"
        ),
    }
}

impl Replaced {
    /// The sentences about the keys.
    pub(in crate::commands) fn text(&self, workspace: &str) -> String {
        let Self { key, environments } = self;
        let mut text = String::new();
        if let Some(NewKey { generation, fingerprint, holders, left_out, invites_revoked }) = key {
            text = format!(
                "Workspace '{workspace}' has a new key (generation {generation}):\n  {fingerprint}\nHolders:         {holders}\nLeft \
                 out:        {left_out}\nInvites revoked: {invites_revoked}\n"
            );
        }
        let count = environments.len();
        format!(
            "{text}New keys of environments: {count}\nWhat somebody read with the former keys, they know: change the values that matter"
        )
    }
}

async fn rotate(
    context: &Context,
    client: &Client,
    workspace: &str,
    arguments: &RecipientArguments,
) -> Result<NewKey, Failure> {
    let what = format!("cannot replace the key of workspace '{workspace}'");
    let need = || Place::Workspace { workspace: workspace.to_owned() }.need("admin", client);
    for _ in 0..MOST_ATTEMPTS {
        let rotation = match client.prepare_key_rotation(workspace).await {
            Err(RotationError::Contended) => continue,
            rotation => rotation.map_err(failed(what.clone(), need()))?,
        };
        let left_out = vet(context, &rotation, arguments, &what)?;
        let Rotated { generation, fingerprint, invites_revoked } = match rotation.commit(&left_out).await {
            Err(RotationError::Contended) => continue,
            rotated => rotated.map_err(failed(what.clone(), need()))?,
        };
        let left_out = rotation.recipients().iter().filter(|recipient| is_left_out(recipient, &left_out)).count();
        let holders = rotation.recipients().len() - left_out;
        let fingerprint = fingerprint.to_string();
        return Ok(NewKey { generation, fingerprint, holders, left_out, invites_revoked });
    }
    Err(Failure::new(what).because(RotationError::Contended))
}

fn is_left_out(recipient: &Recipient, left_out: &BTreeSet<String>) -> bool {
    recipient.status == RecipientStatus::Disabled || left_out.contains(&recipient.principal_id)
}

/// Refuses recipients that are not known, pins those that are accepted, and returns those that are left out.
fn vet(
    context: &Context,
    rotation: &KeyRotation,
    arguments: &RecipientArguments,
    what: &str,
) -> Result<BTreeSet<String>, Failure> {
    let left_out: BTreeSet<String> = arguments.without.iter().cloned().collect();
    let is_holder = |id: &&String| rotation.recipients().iter().any(|recipient| recipient.principal_id == **id);
    if let Some(stranger) = arguments.without.iter().find(|id| !is_holder(id)) {
        return Err(Failure::new(what).because(format!("principal {stranger} does not hold the key")));
    }
    let unknown = unknown(rotation.recipients().iter(), arguments);
    if !unknown.is_empty() {
        return Err(refusal(what.to_owned(), &unknown, "Nothing was changed."));
    }
    let trust = context.trust()?;
    for recipient in rotation.recipients().iter().filter(|recipient| !is_left_out(recipient, &left_out)) {
        if recipient.status != RecipientStatus::Known {
            trust.pin_principal(&recipient.principal_id, recipient.fingerprint);
        }
    }
    Ok(left_out)
}

/// The recipients for whose keys nobody vouches. A key that differs from the pinned one takes the fingerprint.
fn unknown<'r>(recipients: impl Iterator<Item = &'r Recipient>, arguments: &RecipientArguments) -> Vec<&'r Recipient> {
    let is_refused = |recipient: &&Recipient| {
        let is_compared = arguments.fingerprint.contains(&recipient.fingerprint);
        !arguments.without.contains(&recipient.principal_id)
            && match recipient.status {
                RecipientStatus::Known | RecipientStatus::Disabled => false,
                RecipientStatus::Unknown => !(arguments.accept_recipients || is_compared),
                RecipientStatus::Changed => !is_compared,
            }
    };
    recipients.filter(is_refused).collect()
}

fn refusal(what: String, unknown: &[&Recipient], last: &str) -> Failure {
    let line = |recipient: &&Recipient| {
        let Recipient { principal_id, name, email, fingerprint, status } = recipient;
        let whose = email.as_deref().unwrap_or("service");
        let changed = if *status == RecipientStatus::Changed { ", another one than pinned" } else { "" };
        format!("{name} ({whose}, ID {principal_id}, fingerprint {fingerprint}{changed})")
    };
    let lines: Vec<_> = unknown.iter().map(line).collect();
    Failure::new(what).because(format!("this device does not know the keys of {}", lines.join("; "))).next(format!(
        "The server may lie. Compare each fingerprint with the one on the other device (zopp principal fingerprint) and add --fingerprint, \
         leave a principal out with --without, or accept the server's word with --accept-recipients. {last}"
    ))
}

/// Gives a new key to each environment whose key may be known to holders of the former one. Returns which got one.
async fn rekey(client: &Client, workspace: &str) -> Result<Vec<String>, Failure> {
    let resume = format!("Go on with: zopp workspace rotate-key -w {workspace} --resume");
    let what = format!("cannot give new keys to the environments of workspace '{workspace}'");
    let old = client.environments_to_rekey(workspace).await.map_err(failed(what, None))?;
    let (mut done, mut left) = (Vec::new(), Vec::new());
    for name in old {
        match rekey_one(client, &name).await {
            Ok(()) => done.push(name.to_string()),
            Err(error) => left.push(format!("{name}: {error}")),
        }
    }
    if left.is_empty() {
        return Ok(done);
    }
    let (count, all) = (left.len(), left.len() + done.len());
    Err(Failure::new(format!("{count} of {all} environments of workspace '{workspace}' keep their former keys"))
        .because(left.join("; "))
        .next(resume))
}

async fn rekey_one(client: &Client, name: &EnvironmentName) -> Result<(), WriteError> {
    let writer = EnvironmentWriter::new(client.clone(), name.clone());
    for _ in 1..MOST_ATTEMPTS {
        match writer.rotate_key().await {
            Err(WriteError::Contended) => {}
            rotated => return rotated.map(drop),
        }
    }
    writer.rotate_key().await.map(drop)
}

fn is_unknown(error: &RotationError) -> bool {
    use konverge_zopp_client::keys::KeyAccessError;
    matches!(error, RotationError::Access(KeyAccessError::Call(call)) if call.is_unknown_call())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_somebody_vouched_for_gets_a_key() {
        let print = |byte| Fingerprint::of_principal(&[byte], &[]);
        let recipient = |byte, status| Recipient {
            principal_id: format!("p{byte}"),
            name: "phone".into(),
            email: None,
            fingerprint: print(byte),
            status,
        };
        let all = [
            recipient(1, RecipientStatus::Known),
            recipient(2, RecipientStatus::Unknown),
            recipient(3, RecipientStatus::Changed),
            recipient(4, RecipientStatus::Disabled),
        ];
        let nobody = RecipientArguments::default();
        let accepting = RecipientArguments { accept_recipients: true, ..nobody.clone() };
        let comparing = |bytes: &[u8]| RecipientArguments {
            fingerprint: bytes.iter().map(|byte| print(*byte)).collect(),
            ..nobody.clone()
        };
        let without = |ids: &[&str]| RecipientArguments {
            without: ids.iter().map(|id| (*id).to_owned()).collect(),
            ..nobody.clone()
        };
        for (arguments, refused) in [
            (&nobody, vec!["p2", "p3"]),
            (&accepting, vec!["p3"]),
            (&comparing(&[2]), vec!["p3"]),
            (&comparing(&[2, 3]), vec![]),
            (&comparing(&[1, 4]), vec!["p2", "p3"]),
            (&without(&["p2"]), vec!["p3"]),
            (&without(&["p2", "p3"]), vec![]),
        ] {
            let unknown = unknown(all.iter(), arguments);
            assert_eq!(unknown.iter().map(|one| &*one.principal_id).collect::<Vec<_>>(), refused, "{arguments:?}");
        }
    }
}
