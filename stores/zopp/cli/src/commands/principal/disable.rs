//! `zopp principal disable` and `enable`.

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
    output::{Outcome, plain},
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
}

/// The workspaces whose keys a principal may know.
#[derive(Default)]
struct KnownKeys {
    /// Their keys are for the caller to replace.
    administered: Vec<String>,
    /// The workspaces that the caller administers and for whose keys the server does not name the principal as a
    /// holder.
    not_named: Vec<String>,
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
    let known = match known_keys(&client, &principal_id).await {
        // To cut it off does not wait for what the keys need.
        Err(_) if !keys.are_requested() => None,
        known => Some(known.map_err(failed(what.clone(), None))?),
    };
    let KnownKeys { administered, not_named, of_others, public_keys } = known.unwrap_or_default();
    let mut rekeyings = Vec::new();
    if keys.are_requested() {
        for workspace in &administered {
            let (choice, leaving) = (keys.after_disabling(), Leaving::Disabled(principal_id.clone()));
            rekeyings.push(Rekeying::check(context, &client, workspace, choice, leaving).await?);
        }
    }
    let request = DisablePrincipalRequest { principal_id: principal_id.clone(), even_if_last_key };
    let principal = client.disable_principal(request).await.map_err(own(what))?.name;
    let public_keys: Vec<&[u8]> = public_keys.iter().map(Vec::as_slice).collect();
    context.trust()?.revoke(&principal_id, None, &public_keys);
    // A lying server could hide the principal from the lists of holders, so that no key is replaced.
    if keys.are_requested() && rekeyings.is_empty() {
        return Err(Failure::new(format!("principal '{principal}' was disabled, but no key was replaced"))
            .because("the server names the principal as a holder of none of the keys that you administer")
            .next("If it had the key of a workspace, replace that key: zopp workspace rotate-key -w <workspace>"));
    }

    let mut text = format!("Principal '{principal}' disabled: the server accepts nothing from it any more");
    let mut new_keys = Vec::new();
    let former_keys = if rekeyings.is_empty() { [administered, of_others.clone()].concat() } else { of_others.clone() };
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
    text = format!("{text}\n{}", advice(&former_keys, &of_others, new_keys.is_empty()));
    Ok(plain(Switched { principal_id, principal, disabled: true, new_keys, former_keys }, text.trim_end()))
}

pub(super) async fn enable(context: &Context, principal_id: String) -> Outcome {
    let client = context.client()?;
    let request = EnablePrincipalRequest { principal_id: principal_id.clone() };
    let what = format!("cannot enable principal {principal_id}");
    let principal = client.enable_principal(request).await.map_err(own(what))?.name;
    context.trust()?.readmit(&principal_id, None);
    let text = format!("Principal '{principal}' enabled");
    let (new_keys, former_keys) = (Vec::new(), Vec::new());
    Ok(plain(Switched { principal_id, principal, disabled: false, new_keys, former_keys }, text))
}

/// The workspaces of the caller whose keys a principal may know.
async fn known_keys(client: &Client, principal_id: &str) -> Result<KnownKeys, CallError> {
    let mut known = KnownKeys::default();
    for workspace in client.list_workspaces(Empty {}).await?.workspaces {
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
