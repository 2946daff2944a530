//! `zopp principal disable` and `enable`.

use std::collections::BTreeSet;

use konverge_zopp_client::{CallError, Client};
use konverge_zopp_proto::{
    Empty,
    identity::{DisablePrincipalRequest, EnablePrincipalRequest, GetKeyStateRequest},
};
use serde::Serialize;
use tonic::Code;

use crate::{
    commands::workspace::rotate::{DisableKeysArguments, Leaving, Rekeying, RotatedWorkspace},
    context::Context,
    failure::{Failure, failed},
    output::{Outcome, partial, plain},
};

/// `principal disable`, `principal enable`
#[derive(Serialize)]
struct Switched {
    principal_id: String,
    principal: String,
    disabled: bool,
    /// Workspaces whose keys were replaced.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    new_keys: Vec<RotatedWorkspace>,
    /// Workspaces whose keys the principal may know, and which stay.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    former_keys: Vec<String>,
    /// Workspaces whose keys stay because the server does not name the principal as a holder.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_named: Vec<String>,
    /// Workspaces whose keys this device has pinned, and which the server leaves out of its list.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_listed: Vec<String>,
}

/// The workspaces whose keys a principal may know.
#[derive(Default)]
struct KnownKeys {
    /// Their keys are for the caller to replace.
    administered: Vec<String>,
    /// The workspaces that the caller administers and for whose keys the server does not name the principal as a
    /// holder.
    not_named: Vec<String>,
    /// The workspaces whose keys this device has pinned, and which the server does not list.
    not_listed: Vec<String>,
    /// Their keys are for an admin to replace; whether the principal has them is for an admin to see, too.
    of_others: Vec<String>,
    /// The public keys of the principal, as the server gives them.
    public_keys: Vec<Vec<u8>>,
}

pub(super) async fn disable(
    context: &Context,
    principal_id: String,
    even_if_last_key: bool,
    keys: DisableKeysArguments,
) -> Outcome {
    let client = context.client()?;
    if keys.are_requested() && principal_id == client.identity().principal_id() {
        return Err(Failure::new("a principal that disables itself cannot replace keys afterwards")
            .next("Disable it from another device, or leave --rotate-keys out."));
    }
    let what = format!("cannot disable principal {principal_id}");
    let pinned: BTreeSet<String> = context.trust()?.record().workspaces.into_keys().collect();
    let known = match known_keys(&client, &principal_id, &pinned).await {
        // To cut it off does not wait for what the keys need.
        Err(_) if !keys.are_requested() => None,
        known => Some(known.map_err(failed(what.clone(), None))?),
    };
    let KnownKeys { administered, not_named, not_listed, of_others, public_keys } = known.unwrap_or_default();
    let mut rekeyings = Vec::new();
    if keys.are_requested() {
        for workspace in administered.iter().filter(|workspace| !keys.keeps(workspace)) {
            let (choice, leaving) = (keys.after_disabling(), Leaving::Disabled(principal_id.clone()));
            rekeyings.push(Rekeying::check(context, &client, workspace, choice, leaving).await?);
        }
    }
    let request = DisablePrincipalRequest { principal_id: principal_id.clone(), even_if_last_key };
    let principal = client.disable_principal(request).await.map_err(own(what))?.name;
    let public_keys: Vec<&[u8]> = public_keys.iter().map(Vec::as_slice).collect();
    context.trust()?.revoke(&principal_id, None, &public_keys);
    let doubted = |workspaces: &[String]| -> Vec<String> {
        let doubted = workspaces.iter().filter(|workspace| pinned.contains(*workspace) && !keys.keeps(workspace));
        doubted.cloned().collect()
    };
    let doubts = Doubts {
        none_replaced: rekeyings.is_empty(),
        not_named: doubted(&not_named),
        not_listed: doubted(&not_listed),
        of_others: doubted(&of_others),
    };

    let mut text = format!("Principal '{principal}' disabled: the server accepts nothing from it any more");
    let mut new_keys = Vec::new();
    let is_replaced = |workspace: &&String| rekeyings.iter().any(|rekeying| rekeying.workspace() == **workspace);
    let mut former_keys: Vec<String> = administered.iter().filter(|one| !is_replaced(one)).cloned().collect();
    former_keys.extend(of_others.iter().cloned());
    for rekeying in rekeyings {
        let workspace = rekeying.workspace().to_owned();
        let replaced = rekeying.replace().await;
        let replaced =
            replaced.map_err(|failure| failure.after(&format!("principal '{principal}' was disabled, but ")))?;
        if let Some(replaced) = replaced {
            text = format!("{text}\n{}", replaced.text(&workspace));
            new_keys.push(RotatedWorkspace { workspace, replaced });
        }
    }
    if keys.are_requested() && !not_named.is_empty() {
        let not_named = not_named.join(", ");
        text = format!(
            "{text}\nThe server does not name it as a holder of the keys of these workspaces, which stay: {not_named}"
        );
    }
    if !not_listed.is_empty() {
        let not_listed = not_listed.join(", ");
        text = format!(
            "{text}\nThe server does not list these workspaces, whose keys this device has pinned: {not_listed}"
        );
    }
    text = format!("{text}\n{}", advice(&former_keys, &of_others, new_keys.is_empty()));
    let failure = if keys.are_requested() { doubts.failure(&principal) } else { None };
    let switched = Switched { principal_id, principal, disabled: true, new_keys, former_keys, not_named, not_listed };
    Ok(match failure {
        Some(failure) => partial(switched, text.trim_end(), failure),
        None => plain(switched, text.trim_end()),
    })
}

/// The workspaces whose keys stay after `--rotate-keys` because of the server's word. A lying server could spare the keys that the principal knows.
struct Doubts {
    /// Whether no key was replaced.
    none_replaced: bool,
    /// The pinned workspaces for whose keys the server does not name the principal as a holder.
    not_named: Vec<String>,
    /// The pinned workspaces that the server does not list.
    not_listed: Vec<String>,
    /// The pinned workspaces that the caller does not administer, as the server says.
    of_others: Vec<String>,
}

impl Doubts {
    /// Returns the failure for keys that the principal may know. Returns `None` if there are none.
    fn failure(self, principal: &str) -> Option<Failure> {
        let Self { none_replaced, not_named, not_listed, of_others } = self;
        let reasons = [
            ("does not name the principal as a holder of the keys of", &not_named),
            ("does not list", &not_listed),
            ("does not let you replace the keys of", &of_others),
        ];
        let reasons = reasons.into_iter().filter(|(_, workspaces)| !workspaces.is_empty());
        let reasons: Vec<_> = reasons.map(|(verb, workspaces)| format!("{verb} {}", workspaces.join(", "))).collect();
        if reasons.is_empty() && !none_replaced {
            return None;
        }
        let what = if none_replaced { "no key was replaced" } else { "some keys that it may know were not replaced" };
        let why = if reasons.is_empty() {
            "the server names the principal as a holder of none of the keys that you administer".to_owned()
        } else {
            format!("the server {}", reasons.join(", and "))
        };
        Some(Failure::new(format!("principal '{principal}' was disabled, but {what}")).because(why).next(
            "The server may lie. If the principal had the key of a workspace, replace that key, or have an admin replace it: zopp workspace \
             rotate-key -w <workspace>. If it never had the key, say so with --keep-keys-of <workspace>.",
        ))
    }
}

pub(super) async fn enable(context: &Context, principal_id: String) -> Outcome {
    let client = context.client()?;
    let request = EnablePrincipalRequest { principal_id: principal_id.clone() };
    let what = format!("cannot enable principal {principal_id}");
    let principal = client.enable_principal(request).await.map_err(own(what))?.name;
    context.trust()?.readmit(&principal_id, None);
    let text = format!("Principal '{principal}' enabled");
    let switched = Switched {
        principal_id,
        principal,
        disabled: false,
        new_keys: Vec::new(),
        former_keys: Vec::new(),
        not_named: Vec::new(),
        not_listed: Vec::new(),
    };
    Ok(plain(switched, text))
}

/// The workspaces of the caller whose keys a principal may know. `pinned` are the workspaces whose keys this device has pinned.
async fn known_keys(client: &Client, principal_id: &str, pinned: &BTreeSet<String>) -> Result<KnownKeys, CallError> {
    let mut known = KnownKeys::default();
    let listed = client.list_workspaces(Empty {}).await?.workspaces;
    let is_listed = |name: &&String| listed.iter().any(|workspace| workspace.name == **name);
    known.not_listed = pinned.iter().filter(|name| !is_listed(name)).cloned().collect();
    for workspace in listed {
        let request = GetKeyStateRequest { workspace_name: workspace.name.clone() };
        match client.get_key_state(request).await {
            Ok(state) => {
                if let Some(holder) = state.holders.into_iter().find(|holder| holder.principal_id == principal_id) {
                    known.administered.push(workspace.name);
                    known.public_keys.extend([holder.public_key, holder.x25519_public_key]);
                } else {
                    known.not_named.push(workspace.name);
                }
            }
            Err(error) if error.code() == Code::PermissionDenied => known.of_others.push(workspace.name),
            Err(error) => return Err(error),
        }
    }
    Ok(known)
}

/// The sentences about the keys that stay.
fn advice(former_keys: &[String], of_others: &[String], none_replaced: bool) -> String {
    let mut lines = Vec::new();
    let own = former_keys.iter().filter(|workspace| !of_others.contains(workspace));
    let commands: Vec<String> = own.map(|workspace| format!("\n  zopp workspace rotate-key -w {workspace}")).collect();
    if !commands.is_empty() {
        lines.push(format!(
            "Whoever has the principal may know the keys of these workspaces. Replace them:{}",
            commands.concat()
        ));
    } else if none_replaced && of_others.is_empty() {
        lines.push(
            "Whoever has the principal may know the keys of its workspaces. Replace them: zopp workspace rotate-key, in each".to_owned(),
        );
    }
    if !of_others.is_empty() {
        lines.push(format!(
            "Have an admin replace the keys of these workspaces if the principal has them: {}",
            of_others.join(", ")
        ));
    }
    if none_replaced {
        lines.push("And change the values that it could read".to_owned());
    }
    lines.join("\n")
}

/// For the calls of our own. A stock server does not have them.
fn own(what: String) -> impl FnOnce(CallError) -> Failure {
    move |error| {
        let is_last_key = error.code() == Code::FailedPrecondition;
        let failure = failed(what, None)(error);
        if is_last_key { failure.next("Add --even-if-last-key to disable it all the same.") } else { failure }
    }
}
