//! Clearing the paths that an object no longer names.

use std::{collections::BTreeSet, sync::Arc};

use konverge_apply::Statement;
use konverge_vault::Location;

use super::{
    Parts,
    path_claims::PathClaims,
    path_writer::{SyncOutcome, SyncRun},
    secret_reader::{FEWER_FOR, SecretReader},
};
use crate::{
    bindings::{Bindings, ParsedSpec},
    error::{Doing, PushError},
    messages,
    record::Written,
    spec::DeletionPolicy,
    store::{Cleanup, ClearError, Cleared, Store, Unfinished},
};

/// Clears paths that were dropped.
pub(super) struct DroppedPaths {
    store: Store,
    claims: PathClaims,
    bindings: Arc<Bindings>,
    reader: SecretReader,
}

impl DroppedPaths {
    pub(super) fn new(parts: &Parts, claims: PathClaims, reader: SecretReader) -> Self {
        Self { store: parts.store.clone(), claims, bindings: Arc::clone(&parts.bindings), reader }
    }

    /// Clears the locations that the record has and the object no longer names.
    ///
    /// Clears nothing while an error keeps all named paths out of Vault: the dropped paths may hold the only content.
    pub(super) async fn clear(&self, run: &SyncRun<'_>, outcome: &mut SyncOutcome) -> Result<(), PushError> {
        let SyncRun { key, binding, prepared, .. } = run;
        let is_dropped = |location: &Location| !prepared.named.contains(&location.to_string());
        let recorded = outcome.record.locations().map(|(location, written)| (location, written.clone()));
        let dropped: Vec<_> = recorded.filter(|(location, _)| is_dropped(location)).collect();
        if dropped.is_empty() {
            self.bindings.settle(key, binding, |now| now.pending.fewer = None);
            return Ok(());
        }
        if outcome.digests.is_empty() && (!outcome.complete || outcome.statements.iter().any(Statement::is_problem)) {
            return Ok(());
        }
        let by_selector = matches!(&binding.spec, ParsedSpec::Push(push) if push.wanted.selector().is_some());
        if by_selector && !self.reader.fewer_is_confirmed(key, binding) {
            outcome.look_soon(FEWER_FOR);
            return Ok(());
        }
        let (mut cleared, mut unknown) = (Vec::new(), Vec::new());
        for (location, written) in dropped {
            let text = location.to_string();
            match self.clear_one(run, &location, &written, outcome.record.deletion).await {
                Ok(deleted) => {
                    self.claims.warn_sharers(key, &text, &written, deleted);
                    outcome.record.paths.remove(&text);
                    self.claims.release(key, &text, &written);
                    match deleted {
                        Cleared::Deleted => cleared.push(text),
                        Cleared::Unknown => unknown.push(text),
                        Cleared::Nothing => {}
                    }
                }
                Err(ClearError::LeadershipLost) => return Err(PushError::LeadershipLost),
                Err(ClearError::Vault(error)) => outcome.unless_refused(key, &location, Doing::Clear, Err(error))?,
            }
        }
        if !cleared.is_empty() {
            outcome.statements.push(messages::dropped(&cleared));
        }
        if !unknown.is_empty() {
            outcome.statements.push(messages::unknown(&unknown));
        }
        // A recorded path that leads nowhere was not written by this operator.
        let leading: BTreeSet<String> = outcome.record.locations().map(|(location, _)| location.to_string()).collect();
        outcome.record.paths.retain(|text, _| leading.contains(text));
        Ok(())
    }

    /// Clears one location, unless it leads to a named one.
    async fn clear_one(
        &self,
        run: &SyncRun<'_>,
        recorded: &Location,
        written: &Written,
        deletion: DeletionPolicy,
    ) -> Result<Cleared, ClearError> {
        let SyncRun { key, owner, prepared, .. } = run;
        let Some(location) = self.store.recorded(recorded).await? else { return Ok(Cleared::Nothing) };
        if prepared.named.contains(&location.to_string()) {
            return Ok(Cleared::Nothing);
        }
        let claim = self.claims.claim(key, &location, written);
        let unfinished = Unfinished::Unknown;
        let cleanup = Cleanup { location: &location, owner, written, claim, unfinished, gone: false };
        self.store.clear(&cleanup, deletion.in_vault()).await
    }
}
