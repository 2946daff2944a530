//! `zopp workspace rotate-key`, and the new keys that follow a removal.

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use konverge_zopp_client::{
    Client, EnvironmentName, EnvironmentWriter, Fingerprint, Trust,
    key_rotation::{Recipient, RecipientStatus, Rotated, RotationError},
    server_record::AcceptedPrincipal,
    writer::WriteError,
};
use serde::Serialize;

use crate::{
    confirm,
    context::Context,
    escape::visible,
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
key. You also sign who of them are administrators: services follow the next key only if one of them
makes it. Other devices follow by themselves from the key that they pinned. Open invites carry the
former key and are revoked. Disabled principals get no key.

A lying server can name a public key of its own for a member. So the command shows the recipients,
and asks about each that this device does not know. Without a terminal it refuses them. Compare
their fingerprints (zopp principal fingerprint, on their device) and name them with --fingerprint,
or accept the server's word with --accept-recipients. A principal that this device disabled or
removed gets no key, under any ID, unless its fingerprint is named or it was given access again.

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
    /// Then replace the keys of each workspace that the principal is in and that you administer; the other flags for keys imply it
    #[arg(long)]
    rotate_keys: bool,
    /// Keep the keys of this workspace, because the principal never had them; for several workspaces, several times
    #[arg(long, value_name = "WORKSPACE")]
    keep_keys_of: Vec<String>,
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
        let has_recipients = *accept_recipients || !fingerprint.is_empty() || !without.is_empty();
        self.rotate_keys || has_recipients || !self.keep_keys_of.is_empty()
    }

    /// Returns `true` if the keys of this workspace stay.
    pub(in crate::commands) fn keeps(&self, workspace: &str) -> bool {
        self.keep_keys_of.iter().any(|kept| kept == workspace)
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

/// The principals that a command is about to remove or to disable.
#[derive(Debug, Clone)]
pub(in crate::commands) enum Leaving {
    /// The principal with this ID, from the workspace.
    Principal(String),
    /// The principal with this ID, which is about to be disabled.
    Disabled(String),
    /// The devices of the user with this e-mail address, from the workspace.
    Member(String),
}

impl Leaving {
    fn covers(&self, recipient: &Recipient) -> bool {
        // The server could say that the device is somebody else's.
        [&recipient.email, &recipient.remembered_email]
            .into_iter()
            .any(|email| self.names(&recipient.principal_id, email.as_deref()))
    }

    /// Returns `true` if the principal with this ID, of the user with this e-mail address, leaves.
    fn names(&self, principal_id: &str, email: Option<&str>) -> bool {
        match self {
            Self::Principal(id) | Self::Disabled(id) => principal_id == *id,
            Self::Member(member) => email.is_some_and(|email| email.eq_ignore_ascii_case(member)),
        }
    }
}

/// The leaving principals, as known before the removal.
struct Departure {
    leaving: Leaving,
    /// Those that the server named as holders of the key.
    recipients: Vec<Recipient>,
    /// Those that got the key from this device before, by ID. The server could keep them out of its list.
    remembered: BTreeMap<String, AcceptedPrincipal>,
}

impl Departure {
    fn new(leaving: Leaving, recipients: Vec<Recipient>, trust: &Trust) -> Self {
        let mut remembered = trust.accepted();
        remembered.retain(|id, accepted| leaving.names(id, accepted.email.as_deref()));
        Self { leaving, recipients, remembered }
    }

    /// Returns `true` if the recipient is a leaving principal, or has a key of one.
    fn covers(&self, recipient: &Recipient) -> bool {
        self.leaving.covers(recipient) || self.has_key_of(recipient)
    }

    /// Returns `true` if the recipient has the ID or a public key of a leaving principal.
    fn has_key_of(&self, recipient: &Recipient) -> bool {
        let is_named = self.recipients.iter().any(|gone| {
            gone.principal_id == recipient.principal_id
                || gone.exchange_key == recipient.exchange_key
                || gone.signing_key == recipient.signing_key
        });
        let key = hex::encode(&recipient.exchange_key);
        is_named || self.remembered.iter().any(|(id, gone)| *id == recipient.principal_id || gone.exchange_key == key)
    }
}

/// A check before somebody is removed or disabled whether the keys can be replaced afterwards.
pub(in crate::commands) struct Rekeying<'c> {
    context: &'c Context,
    client: &'c Client,
    workspace: String,
    departure: Departure,
    /// `None`: the keys stay.
    replacement: Option<Replacement>,
}

/// The new keys after a removal.
struct Replacement {
    arguments: RecipientArguments,
    /// The recipients that were shown and accepted before the removal.
    expected: Accepted,
}

/// Recipients by ID and fingerprint.
type Accepted = BTreeSet<(String, Fingerprint)>;

pub(super) async fn execute(context: &Context, client: &Client, arguments: RotateArguments) -> Outcome {
    let RotateArguments { workspace, recipients, resume } = arguments;
    let workspace = workspace.resolve()?;
    let replaced = if resume {
        let what = format!("cannot give new keys to the environments of workspace '{workspace}'");
        let left = client.environments_to_rekey(&workspace).await.map_err(failed(what, None))?;
        Replaced { key: None, environments: rekey(client, &workspace, &left).await? }
    } else {
        replace(context, client, &workspace, &recipients, None).await?
    };
    let text = replaced.text(&workspace);
    Ok(plain(RotatedWorkspace { workspace, replaced }, text))
}

impl<'c> Rekeying<'c> {
    /// Checks before the removal that the keys can be replaced. Shows the recipients of the new key.
    pub(in crate::commands) async fn check(
        context: &'c Context,
        client: &'c Client,
        workspace: &str,
        choice: RekeyChoice,
        leaving: Leaving,
    ) -> Result<Self, Failure> {
        let rekeying =
            |departure, replacement| Self { context, client, workspace: workspace.to_owned(), departure, replacement };
        let RekeyChoice { recipients, instead } = choice;
        let what =
            format!("nothing was changed, because the keys of workspace '{workspace}' could not be replaced after it");
        let trust = context.trust()?;
        let rotation = match client.prepare_key_rotation(workspace).await {
            Err(_) if recipients.is_none() => {
                return Ok(rekeying(Departure::new(leaving, Vec::new(), trust), None));
            }
            // A lying server can claim this, and the removed principal would keep the key.
            Err(error) if is_unknown(&error) => {
                return Err(Failure::new(what).because("the server does not know how keys are replaced").next(
                    format!("Servers other than Konverge's do not, and a server that did before may lie. {instead}"),
                ));
            }
            rotation => rotation.map_err(failed(what.clone(), None))?,
        };
        let gone: Vec<_> = rotation.recipients().iter().filter(|one| leaving.covers(one)).cloned().collect();
        let ids = gone.iter().map(|recipient| recipient.principal_id.clone()).collect();
        let departure = Departure::new(leaving, gone, trust);
        let Some(arguments) = recipients else { return Ok(rekeying(departure, None)) };
        let staying = rotation.recipients_without(&ids);
        if let Some(twin) = staying.iter().find(|one| !is_left_out(one, &arguments) && departure.has_key_of(one)) {
            return Err(Failure::new(what)
                .because(format!("{} has a key of a leaving principal", describe(twin)))
                .next(format!("The server may lie. Leave the principal out: --without {}", twin.principal_id)));
        }
        let expected = accept(workspace, &staying, &arguments, &what, instead)?;
        Ok(rekeying(departure, Some(Replacement { arguments, expected })))
    }

    /// The workspace.
    pub(in crate::commands) fn workspace(&self) -> &str {
        &self.workspace
    }

    /// Returns `true` if this device knows principals of those who leave, and their workspace gets a new key.
    pub(in crate::commands) fn excludes_known_principals(&self) -> bool {
        let Departure { recipients, remembered, .. } = &self.departure;
        self.replacement.is_some() && !(recipients.is_empty() && remembered.is_empty())
    }

    /// Remembers the accepted removal, and replaces the keys. Returns `None` if they stay.
    pub(in crate::commands) async fn replace(self) -> Result<Option<Replaced>, Failure> {
        let Self { context, client, workspace, departure, replacement } = self;
        let trust = context.trust()?;
        let from = match &departure.leaving {
            Leaving::Disabled(_) => None,
            Leaving::Principal(_) | Leaving::Member(_) => Some(workspace.as_str()),
        };
        if let Leaving::Principal(id) | Leaving::Disabled(id) = &departure.leaving {
            trust.revoke(id, from, &[]);
        }
        for id in departure.remembered.keys() {
            trust.revoke(id, from, &[]);
        }
        for Recipient { principal_id, signing_key, exchange_key, .. } in &departure.recipients {
            trust.revoke(principal_id, from, &[signing_key, exchange_key]);
        }
        let Some(Replacement { arguments, expected }) = replacement else { return Ok(None) };
        replace(context, client, &workspace, &arguments, Some((&departure, &expected))).await.map(Some)
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

/// Replaces the key of the workspace, and then the keys of all environments that it opens. The parameters are those of [`rotate`].
async fn replace(
    context: &Context,
    client: &Client,
    workspace: &str,
    arguments: &RecipientArguments,
    removal: Option<(&Departure, &Accepted)>,
) -> Result<Replaced, Failure> {
    let (key, environments) = rotate(context, client, workspace, arguments, removal).await?;
    // The server is not asked which environments need a new key: it could leave one out, whose key a removed principal would keep.
    let environments = rekey(client, workspace, &environments).await?;
    Ok(Replaced { key: Some(key), environments })
}

/// Replaces the key. Returns it, with the environments that it opens. After a removal, `removal` has the principals that left, and the recipients that were accepted before.
async fn rotate(
    context: &Context,
    client: &Client,
    workspace: &str,
    arguments: &RecipientArguments,
    removal: Option<(&Departure, &Accepted)>,
) -> Result<(NewKey, Vec<EnvironmentName>), Failure> {
    let what = format!("cannot replace the key of workspace '{workspace}'");
    let need = || Place::Workspace { workspace: workspace.to_owned() }.need("admin", client);
    for _ in 0..MOST_ATTEMPTS {
        let rotation = match client.prepare_key_rotation(workspace).await {
            Err(RotationError::Contended) => continue,
            rotation => rotation.map_err(failed(what.clone(), need()))?,
        };
        let recipients = rotation.recipients();
        if let Some((departure, expected)) = removal {
            refuse_unexpected(recipients, arguments, departure, expected, workspace)?;
        } else {
            refuse_strangers(recipients, arguments, &what)?;
            accept(workspace, recipients, arguments, &what, "Nothing was changed.")?;
        }
        pin(context, workspace, recipients, arguments)?;
        let left_out = recipients.iter().filter(|recipient| is_left_out(recipient, arguments));
        let left_out: BTreeSet<String> = left_out.map(|recipient| recipient.principal_id.clone()).collect();
        let Rotated { generation, fingerprint, invites_revoked } = match rotation.commit(&left_out).await {
            Err(RotationError::Contended) => continue,
            rotated => rotated.map_err(failed(what.clone(), need()))?,
        };
        if !rotation.has_administrators() {
            eprintln!(
                "Warning: the server does not tell which recipients are administrators, so the new key comes without them. Services whose credentials \
                 files name administrators refuse it"
            );
        }
        let left_out = left_out.len();
        let holders = recipients.len() - left_out;
        let fingerprint = fingerprint.to_string();
        let key = NewKey { generation, fingerprint, holders, left_out, invites_revoked };
        return Ok((key, rotation.environments()));
    }
    Err(Failure::new(what).because(RotationError::Contended))
}

/// Returns `true` if the recipient gets no key: it is disabled, the user leaves it out, or this device removed it.
fn is_left_out(recipient: &Recipient, arguments: &RecipientArguments) -> bool {
    let is_withheld = match recipient.status {
        RecipientStatus::Disabled => true,
        RecipientStatus::Revoked => !arguments.fingerprint.contains(&recipient.fingerprint),
        RecipientStatus::Known | RecipientStatus::Unknown | RecipientStatus::Changed => false,
    };
    is_withheld || arguments.without.contains(&recipient.principal_id)
}

/// Refuses to leave out a principal that does not hold the key.
fn refuse_strangers(recipients: &[Recipient], arguments: &RecipientArguments, what: &str) -> Result<(), Failure> {
    let is_holder = |id: &&String| recipients.iter().any(|recipient| recipient.principal_id == **id);
    match arguments.without.iter().find(|id| !is_holder(id)) {
        Some(stranger) => Err(Failure::new(what).because(format!("principal {stranger} does not hold the key"))),
        None => Ok(()),
    }
}

/// Refuses recipients that were not accepted before a removal. A server that still names a removed principal lies, so leaving the principal out
/// is not enough.
fn refuse_unexpected(
    recipients: &[Recipient],
    arguments: &RecipientArguments,
    departure: &Departure,
    expected: &Accepted,
    workspace: &str,
) -> Result<(), Failure> {
    let is_unexpected = |recipient: &&Recipient| {
        let key = (recipient.principal_id.clone(), recipient.fingerprint);
        let is_withheld =
            recipient.status == RecipientStatus::Disabled || arguments.without.contains(&recipient.principal_id);
        !is_withheld && (departure.covers(recipient) || !(is_left_out(recipient, arguments) || expected.contains(&key)))
    };
    let unexpected: Vec<_> = recipients.iter().filter(is_unexpected).map(describe).collect();
    if unexpected.is_empty() {
        return Ok(());
    }
    let what = format!("the key of workspace '{workspace}' was not replaced");
    Err(Failure::new(what)
        .because(format!("the server still names, or has begun to name, as holders of the key: {}", unexpected.join("; ")))
        .next(format!(
            "The server may lie, or somebody gave access at the same moment. The former key may still be known. Find out, and then replace \
             it: zopp workspace rotate-key -w {workspace}, with --without for each principal that shall not have the key."
        )))
}

/// Shows the recipients of the new key. Asks about unknown ones, and refuses them without a terminal. Returns the recipients that get the key.
fn accept(
    workspace: &str,
    recipients: &[Recipient],
    arguments: &RecipientArguments,
    what: &str,
    instead: &str,
) -> Result<Accepted, Failure> {
    let staying: Vec<_> = recipients.iter().filter(|recipient| !is_left_out(recipient, arguments)).collect();
    let lines: Vec<_> = staying.iter().map(|recipient| format!("  {}\n", visible(&describe(recipient)))).collect();
    let unknown = unknown(recipients, arguments);
    let is_for_a_person = |one: &&Recipient| one.status == RecipientStatus::Unknown;
    if !unknown.iter().all(is_for_a_person) || (!unknown.is_empty() && !confirm::is_possible()) {
        return Err(refusal(what.to_owned(), &unknown, instead));
    }
    for recipient in recipients.iter().filter(|one| one.status == RecipientStatus::Revoked) {
        if is_left_out(recipient, arguments) {
            let one = visible(&describe(recipient));
            eprintln!("Warning: the server names {one}. It gets no key. To give it the key: --fingerprint");
        }
    }
    eprint!("The new key of workspace '{}' is for:\n{}", visible(workspace), lines.concat());
    for recipient in unknown {
        eprintln!("Compare the fingerprint with the one on the other device: zopp principal fingerprint");
        if !confirm::ask(&format!("This device does not know {}. Give it the new key?", describe(recipient)))? {
            return Err(Failure::new(what).because(format!("you refused {}", describe(recipient))).next(instead));
        }
    }
    Ok(staying.iter().map(|recipient| (recipient.principal_id.clone(), recipient.fingerprint)).collect())
}

/// Remembers the accepted recipients.
fn pin(
    context: &Context,
    workspace: &str,
    recipients: &[Recipient],
    arguments: &RecipientArguments,
) -> Result<(), Failure> {
    let trust = context.trust()?;
    for recipient in recipients.iter().filter(|recipient| !is_left_out(recipient, arguments)) {
        trust.accept_principal(&recipient.principal_id, recipient.email.as_deref(), &recipient.exchange_key);
        if recipient.status != RecipientStatus::Known {
            trust.readmit(&recipient.principal_id, Some(workspace));
            trust.pin_principal(&recipient.principal_id, recipient.fingerprint);
        }
    }
    Ok(())
}

/// The recipients for whose keys nobody vouches. A key that differs from the pinned one takes the fingerprint.
fn unknown<'r>(
    recipients: impl IntoIterator<Item = &'r Recipient>,
    arguments: &RecipientArguments,
) -> Vec<&'r Recipient> {
    let is_refused = |recipient: &&Recipient| {
        let is_compared = arguments.fingerprint.contains(&recipient.fingerprint);
        !is_left_out(recipient, arguments)
            && match recipient.status {
                RecipientStatus::Known | RecipientStatus::Disabled | RecipientStatus::Revoked => false,
                RecipientStatus::Unknown => !(arguments.accept_recipients || is_compared),
                RecipientStatus::Changed => !is_compared,
            }
    };
    recipients.into_iter().filter(is_refused).collect()
}

/// Describes a recipient so that a person can compare it.
fn describe(recipient: &Recipient) -> String {
    let Recipient { principal_id, name, email, fingerprint, status, is_administrator, .. } = recipient;
    let whose = email.as_deref().unwrap_or("service");
    let role = if *is_administrator { ", administrator" } else { "" };
    let remark = match status {
        RecipientStatus::Changed => ", not the pinned one",
        RecipientStatus::Revoked => ", which this device disabled or removed",
        RecipientStatus::Known | RecipientStatus::Unknown | RecipientStatus::Disabled => "",
    };
    format!("{name} ({whose}, ID {principal_id}, fingerprint {fingerprint}{role}{remark})")
}

fn refusal(what: String, unknown: &[&Recipient], last: &str) -> Failure {
    let lines: Vec<_> = unknown.iter().map(|recipient| describe(recipient)).collect();
    Failure::new(what).because(format!("this device does not vouch for the keys of {}", lines.join("; "))).next(format!(
        "The server may lie. Compare each fingerprint with the one on the other device (zopp principal fingerprint) and add --fingerprint, \
         leave a principal out with --without, or accept the server's word with --accept-recipients. {last}"
    ))
}

/// Gives a new key to each of these environments of the workspace. Returns their names.
async fn rekey(client: &Client, workspace: &str, environments: &[EnvironmentName]) -> Result<Vec<String>, Failure> {
    let resume = format!(
        "Go on with: zopp workspace rotate-key -w {workspace} --resume. It asks the server which environments are left. Or name each one: zopp \
         environment rotate-key"
    );
    let (mut done, mut left) = (Vec::new(), Vec::new());
    for name in environments {
        match rekey_one(client, name).await {
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

/// Returns `true` if the server does not know how keys are replaced.
pub(in crate::commands) fn is_unknown(error: &RotationError) -> bool {
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
            is_administrator: false,
            principal_id: format!("p{byte}"),
            name: "phone".into(),
            email: None,
            remembered_email: None,
            fingerprint: print(byte),
            signing_key: vec![byte],
            exchange_key: Vec::new(),
            status,
        };
        let all = [
            recipient(1, RecipientStatus::Known),
            recipient(2, RecipientStatus::Unknown),
            recipient(3, RecipientStatus::Changed),
            recipient(4, RecipientStatus::Disabled),
            recipient(5, RecipientStatus::Revoked),
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
            let unknown = unknown(&all, arguments);
            assert_eq!(unknown.iter().map(|one| &*one.principal_id).collect::<Vec<_>>(), refused, "{arguments:?}");
        }
        // This device removed p5: neither the server's word nor silence brings it back.
        let is_left_out = |arguments: &RecipientArguments| is_left_out(&all[4], arguments);
        assert!(is_left_out(&nobody) && is_left_out(&accepting) && is_left_out(&comparing(&[2])));
        assert!(!is_left_out(&comparing(&[5])));
    }

    #[test]
    fn only_what_was_accepted_before_a_removal_gets_a_key_after_it() {
        let recipient = |id: &str, byte: u8, status| Recipient {
            is_administrator: false,
            principal_id: id.into(),
            name: "phone".into(),
            email: None,
            remembered_email: None,
            fingerprint: Fingerprint::of_principal(&[byte], &[byte]),
            signing_key: vec![byte],
            exchange_key: vec![byte],
            status,
        };
        let known = |id, byte| recipient(id, byte, RecipientStatus::Known);
        let expected: Accepted =
            [known("a", 1), known("b", 2)].into_iter().map(|one| (one.principal_id, one.fingerprint)).collect();
        let trust = Trust::default();
        trust.accept_principal("silent", Some("Bob@example.com"), &[8]);
        trust.accept_principal("a", Some("alice@example.com"), &[1]);
        let departure = Departure::new(Leaving::Member("bob@example.com".into()), vec![known("gone", 9)], &trust);
        let check = |all: &[Recipient], arguments: &RecipientArguments| {
            refuse_unexpected(all, arguments, &departure, &expected, "acme").is_ok()
        };
        let nobody = RecipientArguments::default();
        assert!(check(&[known("a", 1), known("b", 2)], &nobody));
        assert!(check(&[known("a", 1)], &nobody), "one fewer");
        assert!(check(&[known("a", 1), recipient("gone", 9, RecipientStatus::Disabled)], &nobody));
        assert!(check(&[known("a", 1), recipient("earlier", 5, RecipientStatus::Revoked)], &nobody), "left out");
        let of_bob = Recipient { email: Some("Bob@example.com".into()), ..known("b", 2) };
        for named in [
            known("c", 3),
            known("b", 3),
            known("c", 2),
            of_bob,
            recipient("gone", 9, RecipientStatus::Revoked),
            recipient("gone", 8, RecipientStatus::Revoked),
            recipient("twin", 9, RecipientStatus::Revoked),
            known("silent", 7),
            known("twin", 8),
        ] {
            let all = [known("a", 1), named.clone()];
            assert!(!check(&all, &nobody), "{named:?}");
            let accepting = RecipientArguments {
                accept_recipients: true,
                fingerprint: vec![named.fingerprint],
                without: Vec::new(),
            };
            assert!(!check(&all, &accepting), "{named:?}");
            let without = RecipientArguments { without: vec![named.principal_id.clone()], ..nobody.clone() };
            assert!(check(&all, &without), "{named:?}");
        }
    }
}
