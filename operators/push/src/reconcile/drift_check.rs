//! The drift check: whether Vault still holds the content that the last run left there. It costs one read per location, however many
//! objects have keys there, and reads no Secret.

use std::collections::BTreeMap;

use konverge_core::digest::ContentDigest;
use konverge_vault::{Found, Location, Owner, Secret, Standing};
use tokio::time::Instant;

use super::{Parts, owner};
use crate::{
    bindings::{Binding, Push},
    content::digest,
    error::{Doing, PushError},
    merge::own,
    object::ObjectRef,
    record::Written,
    spec::UpdatePolicy,
};

/// Reads each location that no object has read within the object's interval. Returns whether all of them are unchanged.
///
/// Skips a location that another object reads at this moment: its result is known by the next run of this one.
pub(super) async fn passes_drift_check(
    parts: &Parts,
    key: &ObjectRef,
    binding: &Binding,
    push: &Push,
) -> Result<bool, PushError> {
    let Parts { store, bindings, .. } = parts;
    let owner = owner(store, key, &binding.uid).await?;
    let Some(record) = &binding.record else { return Ok(false) };
    let begun = Instant::now();
    let mut seen = BTreeMap::new();
    for (location, written) in record.locations() {
        let text = location.to_string();
        // The last run had no content for this location, and this one has none either: the operator leaves it as it is.
        let Some(&known) = binding.held.get(&text) else { continue };
        // In this order: an object that reads tells the others before it is done.
        let looking = bindings.look(&text);
        let before = bindings.seen(key, &text);
        let is_young = |before: Instant| push.spec.every.is_some_and(|every| before.elapsed() < every);
        if looking.is_none() || !push.spec.always && before.is_some_and(is_young) {
            seen.extend(before.map(|before| (text.clone(), before)));
            continue;
        }
        let found = store.look(&location).await;
        let found = found.map_err(|source| PushError::Vault { doing: Doing::Look, source })?;
        let Found::Live(secret) = found else { return Ok(false) };
        if written.keys.is_some() {
            tell_sharers(parts, key, &location, &secret, begun).await?;
        }
        if push.spec.update != UpdatePolicy::IfNotExists && !is_same(parts, &secret, &owner, written, known) {
            return Ok(false);
        }
        seen.insert(text.clone(), begun);
    }
    bindings.settle(key, binding, |now| {
        if let Some(verified) = &mut now.verified {
            verified.see(seen, begun);
        }
    });
    Ok(true)
}

/// Compares the same response with the content of the other objects there. An object whose content differs reads for itself when its
/// interval is over.
async fn tell_sharers(
    parts: &Parts,
    key: &ObjectRef,
    location: &Location,
    secret: &Secret,
    begun: Instant,
) -> Result<(), PushError> {
    let text = location.to_string();
    for sharer in parts.bindings.sharers(key, &text) {
        let owner = owner(&parts.store, &sharer.key, &sharer.uid).await?;
        if is_same(parts, secret, &owner, &sharer.written, sharer.held) {
            parts.bindings.saw(&sharer, &text, begun);
        }
    }
    Ok(())
}

/// Whether the content is unchanged and nobody else owns it.
fn is_same(parts: &Parts, secret: &Secret, owner: &Owner, written: &Written, known: ContentDigest) -> bool {
    let metadata = secret.version.as_ref().map(|version| &version.custom_metadata);
    let is_ours = metadata.is_none_or(|metadata| !matches!(owner.standing(metadata), Standing::Foreign(_)));
    is_ours && digest(&parts.digest_key, own(&secret.content, written)) == Some(known)
}
