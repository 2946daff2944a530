//! Reverts of this process's writes by another client.

use std::{sync::Arc, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;

use super::{LONGEST_REVERT_PAUSE, are_stated};
use crate::{
    bindings::{Binding, Reverts},
    hub::Hub,
    plan::{Action, Plan},
};

/// Returns the rest of the pause after reverts by another client, or `None` if there is no pause.
pub(super) fn rest_of_pause(binding: &Binding, hubs: &[&Arc<Hub>]) -> Option<Duration> {
    let Reverts { row, last, .. } = binding.reverts.as_ref().filter(|reverts| reverts.row.is_contested())?;
    let is_paused = are_stated(binding.verified.as_ref()?, hubs);
    row.pause().checked_sub(last.elapsed()).filter(|rest| is_paused && !rest.is_zero())
}

/// Returns `true` if another client has reverted the Secret, while the content is unchanged. Each revert counts once.
pub(super) fn is_revert(plan: &Plan<'_>, binding: &Binding) -> bool {
    let (Action::Apply(_), Some(now), Some(before)) = (&plan.action, &plan.verified, &binding.verified) else {
        return false;
    };
    let last = binding.reverts.as_ref().map(|reverts| reverts.last);
    let is_counted = last.is_some_and(|last| binding.written_at.is_none_or(|written| written < last));
    now.digest == before.digest && !is_counted
}

/// Returns the time after which a contested series of reverts ends without a further revert.
pub(super) fn row_ends_after(binding: &Binding) -> Option<Duration> {
    let Reverts { row, last, .. } = binding.reverts.as_ref()?;
    if !(row.is_contested() && row.goes_on(last.elapsed())) {
        return None;
    }
    Some((row.pause() + LONGEST_REVERT_PAUSE).saturating_sub(last.elapsed()) + Duration::from_secs(1))
}

/// Returns the other field manager that wrote last, if it wrote after `manager`. Of several at the same time, prefers one that owns data. A client
/// that only removes fields has no entry.
pub(super) fn last_other_writer(managed_fields: &[ManagedFieldsEntry], manager: &str) -> Option<String> {
    let is_ours = |entry: &&ManagedFieldsEntry| entry.manager.as_deref() == Some(manager);
    let ours = managed_fields.iter().filter(is_ours).filter_map(|entry| entry.time.as_ref()).max();
    let others = managed_fields.iter().filter(|entry| !is_ours(entry) && entry.time.as_ref() >= ours);
    let owns_data =
        |entry: &ManagedFieldsEntry| entry.fields_v1.as_ref().is_some_and(|fields| fields.0.get("f:data").is_some());
    let last = others.max_by_key(|entry| (entry.time.as_ref().map(|time| time.0), owns_data(entry)));
    last.and_then(|entry| entry.manager.clone())
}
