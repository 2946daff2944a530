//! Writing a path in which others have keys, too.

use std::collections::BTreeSet;

use konverge_apply::Statement;
use konverge_vault::{KvVersion, VaultError};

use super::{DesiredPath, PathWriter, SyncOutcome, SyncRun, found_version};
use crate::{
    bindings::{Share, key_of},
    merge::{Merge, merge},
    messages,
    plan::Known,
    record::Written,
    store::ATTEMPTS,
};

impl PathWriter {
    /// Writes our keys, and removes those of ours that are no longer desired: all of them or none.
    pub(super) async fn merge(
        &self,
        run: &SyncRun<'_>,
        path: &DesiredPath<'_>,
        outcome: &mut SyncOutcome,
    ) -> Result<(), VaultError> {
        let recorded = outcome.record.paths.get(&path.text).cloned();
        let recorded = recorded.unwrap_or_else(|| Written::intended(path.location));
        if let Some(refusal) = self.merge_refusal(run, path) {
            outcome.statements.push(refusal);
            outcome.complete = false;
            return Ok(());
        }
        let Some((merge, version)) = self.write_merged(run, path, &recorded, outcome).await? else { return Ok(()) };
        if merge.content.is_some() {
            let is_drift = recorded.written && path.known == Known::Same;
            self.report_merge(&path.text, &merge, is_drift, outcome);
            outcome.wrote = true;
            tracing::info!(object = %run.key, path = path.text, keys = path.content.len(), version, "merged");
        }
        let keys: BTreeSet<_> = path.content.keys().map(str::to_owned).collect();
        for dropped in recorded.keys.iter().flatten().chain(&recorded.pending).filter(|name| !keys.contains(*name)) {
            self.claims.release_key(run.key, &path.text, dropped);
        }
        let written = Written { written: true, version, keys: Some(keys), ..Written::intended(path.location) };
        outcome.record.paths.insert(path.text.clone(), written);
        match self.store.annotate(path.location, &merge.marks).await {
            Err(error) if error.is_outage() => return Err(error),
            Err(error) => {
                outcome.statements.push(messages::unmarked(&path.text, &error));
                outcome.marked = false;
            }
            Ok(()) => {}
        }
        outcome.digests.extend(path.digest.map(|digest| (path.text.clone(), digest)));
        Ok(())
    }

    /// Claims our keys. Returns why the path cannot be merged.
    fn merge_refusal(&self, run: &SyncRun<'_>, path: &DesiredPath<'_>) -> Option<Statement> {
        if path.location.mount().version() == KvVersion::One {
            return Some(messages::needs_version_two(&path.text));
        }
        let claim = |name: &str| self.bindings.claim(run.key, &key_of(&path.text, name), Share::Whole);
        let (name, holder) = path.content.keys().find_map(|name| claim(name).err().map(|holder| (name, holder)))?;
        self.metrics.conflicted();
        Some(messages::claimed_key(&path.text, name, &holder.to_string()))
    }

    /// Reads, merges and writes the path, several times if others write it at the same time. Returns the merge and the version that holds it,
    /// or `None` if the merge is refused or the run may not write any more.
    async fn write_merged(
        &self,
        run: &SyncRun<'_>,
        path: &DesiredPath<'_>,
        recorded: &Written,
        outcome: &mut SyncOutcome,
    ) -> Result<Option<(Merge, Option<u64>)>, VaultError> {
        let existing = run.push.spec.existing.unwrap_or(self.existing);
        let mut attempt = 1;
        loop {
            let found = self.store.look(path.location).await?;
            let found_version = found_version(&found);
            let merge = match merge(&path.content, found, &run.owner, recorded, existing) {
                Ok(merge) => merge,
                Err(refusal) => {
                    self.metrics.conflicted();
                    outcome.statements.push(messages::refused(run.key.kind, &path.text, &refusal));
                    outcome.complete = false;
                    return Ok(None);
                }
            };
            let Some(content) = &merge.content else { return Ok(Some((merge, found_version))) };
            if !self.may_write(run) {
                outcome.complete = false;
                return Ok(None);
            }
            match self.store.write(path.location, content, merge.expected).await {
                Err(VaultError::Conflict { .. }) if attempt < ATTEMPTS => attempt += 1,
                written => {
                    let version = written?;
                    return Ok(Some((merge, version)));
                }
            }
        }
    }

    fn report_merge(&self, text: &str, merge: &Merge, is_drift: bool, outcome: &mut SyncOutcome) {
        if !merge.adopted.is_empty() {
            self.metrics.adopted();
            outcome.statements.push(messages::adopted_keys(text, &merge.adopted));
        }
        if is_drift {
            self.metrics.drifted();
            outcome.statements.push(messages::drifted(text));
        }
    }
}
