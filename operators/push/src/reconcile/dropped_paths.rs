//! Clearing the paths that an object no longer names.

use std::collections::BTreeSet;

use konverge_apply::Statement;
use konverge_vault::Location;

use super::{Pusher, SyncRun, path_claims::ClearedPaths, path_writer::SyncOutcome, secret_reader::FEWER_FOR};
use crate::{
    bindings::ParsedSpec,
    error::{Doing, PushError},
    messages,
    record::Written,
    spec::DeletionPolicy,
    store::{Cleanup, ClearError, Cleared, Unfinished},
};

/// Clears the locations that the record has and the object no longer names.
///
/// Clears nothing while an error keeps all named paths out of Vault: the dropped paths may hold the only content.
pub(super) async fn clear_dropped(
    pusher: &Pusher,
    run: &SyncRun<'_>,
    outcome: &mut SyncOutcome,
) -> Result<(), PushError> {
    let SyncRun { key, binding, prepared, .. } = run;
    let is_dropped = |location: &Location| !prepared.named.contains(&location.to_string());
    let recorded = outcome.record.locations().map(|(location, written)| (location, written.clone()));
    let dropped: Vec<_> = recorded.filter(|(location, _)| is_dropped(location)).collect();
    if dropped.is_empty() {
        pusher.parts.bindings.settle(key, binding, |now| now.pending.fewer = None);
        return Ok(());
    }
    if outcome.digests.is_empty() && (!outcome.complete || outcome.statements.iter().any(Statement::is_problem)) {
        return Ok(());
    }
    let by_selector = matches!(&binding.spec, ParsedSpec::Push(push) if push.wanted.selector().is_some());
    if by_selector && !pusher.reader.fewer_is_confirmed(key, binding) {
        outcome.look_soon(FEWER_FOR);
        return Ok(());
    }
    let mut paths = ClearedPaths::default();
    for (location, written) in dropped {
        let text = location.to_string();
        match clear_one(pusher, run, &location, &written, outcome.record.deletion).await {
            Ok(cleared) => {
                pusher.claims.warn_sharers(key, &text, &written, cleared);
                outcome.record.paths.remove(&text);
                pusher.claims.release(key, &text, &written);
                paths.note(text, cleared);
            }
            Err(ClearError::LeadershipLost) => return Err(PushError::LeadershipLost),
            Err(ClearError::Vault(error)) => outcome.unless_refused(key, &location, Doing::Clear, Err(error))?,
        }
    }
    outcome.statements.extend(paths.statements(messages::dropped));
    // A recorded path that leads nowhere was not written by this operator.
    let leading: BTreeSet<String> = outcome.record.locations().map(|(location, _)| location.to_string()).collect();
    outcome.record.paths.retain(|text, _| leading.contains(text));
    Ok(())
}

/// Clears one location, unless it leads to a named one.
async fn clear_one(
    pusher: &Pusher,
    run: &SyncRun<'_>,
    recorded: &Location,
    written: &Written,
    deletion: DeletionPolicy,
) -> Result<Cleared, ClearError> {
    let SyncRun { key, owner, prepared, .. } = run;
    let store = &pusher.parts.store;
    let Some(location) = store.recorded(recorded).await? else { return Ok(Cleared::Nothing) };
    if prepared.named.contains(&location.to_string()) {
        return Ok(Cleared::Nothing);
    }
    let claim = pusher.claims.claim(key, &location, written);
    let unfinished = Unfinished::Unknown;
    let cleanup = Cleanup { location: &location, owner, written, claim, unfinished, gone: false };
    store.clear(&cleanup, deletion.in_vault()).await
}
