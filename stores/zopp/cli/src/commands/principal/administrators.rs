//! The administrators that the credentials file of a service names: the principals that may replace the key of its workspace.

use std::collections::BTreeSet;

use konverge_zopp_client::{
    Client, Fingerprint,
    key_rotation::{Recipient, RecipientStatus},
};

use crate::{commands::workspace::rotate, escape::visible, failure::Failure};

/// Returns this principal, and the administrators that this device knows. The server alone cannot name one. Returns `None` with a warning if the server
/// names none at all, as an earlier one does.
///
/// # Errors
/// If a server of Konverge claims not to know the call.
pub(super) async fn known(client: &Client, workspace: &str) -> Result<Option<BTreeSet<Fingerprint>>, Failure> {
    let rotation = match client.prepare_key_rotation(workspace).await {
        Ok(rotation) => rotation,
        Err(error) if rotate::is_unknown(&error) && client.connection().trust().has_seen_own_calls() => {
            let what =
                format!("cannot find out the administrators of workspace '{workspace}' for the credentials file");
            return Err(Failure::new(what).because(error).next(
                "Nothing was created. The server knew such calls before, so it may lie. Without the list, the service would follow every new key \
                 that it can verify.",
            ));
        }
        Err(error) => return Ok(without_list(workspace, &error.to_string())),
    };
    if !rotation.has_administrators() {
        return Ok(without_list(workspace, "the server does not tell who they are"));
    }
    let named = rotation.recipients().iter().filter(|recipient| recipient.is_administrator);
    let (known, others): (Vec<_>, Vec<_>) = named.partition(|recipient| recipient.status == RecipientStatus::Known);
    let unknown = others.into_iter().filter(|recipient| recipient.status == RecipientStatus::Unknown);
    for Recipient { principal_id, name, fingerprint, .. } in unknown {
        eprintln!(
            "Note: this device does not know the administrator {} (ID {principal_id}, fingerprint {fingerprint}), so the service refuses a key that \
             this one makes. To change that, compare the fingerprint on its device (zopp principal fingerprint), and sign it: zopp workspace \
             rotate-key -w {} --fingerprint {fingerprint}",
            visible(name),
            visible(workspace)
        );
    }
    let lines: Vec<_> =
        known.iter().map(|one| format!("  {} (fingerprint {})\n", visible(&one.name), one.fingerprint)).collect();
    eprint!(
        "The service follows a new key of workspace '{}' if one of these administrators makes it:\n{}",
        visible(workspace),
        lines.concat()
    );
    let known = known.into_iter().map(|recipient| recipient.fingerprint);
    Ok(Some(known.chain([client.identity().fingerprint()]).collect()))
}

fn without_list(workspace: &str, why: &str) -> Option<BTreeSet<Fingerprint>> {
    eprintln!(
        "Warning: the credentials file names no administrators of workspace '{}', so the service follows every new key that it can verify: {}",
        visible(workspace),
        visible(why)
    );
    None
}
