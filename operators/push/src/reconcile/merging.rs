//! One path that others have keys in, too.

use konverge_core::digest::ContentDigest;
use konverge_vault::{Content, KvVersion, Location, VaultError};

use super::{
    Pusher,
    paths::{Done, Run},
};
use crate::{
    bindings::{Share, key_of},
    merge::{Merge, merge},
    messages::Message,
    plan::Known,
    record::Written,
    store::ATTEMPTS,
};

impl Pusher {
    /// Brings our keys in step, and takes out those of ours that are not wanted any more. All of them or none.
    pub(super) async fn merge_one(
        &self,
        run: &Run<'_>,
        location: &Location,
        own: &Content,
        known: Known,
        digest: Option<ContentDigest>,
        done: &mut Done,
    ) -> Result<(), VaultError> {
        let Run { key, binding, push, owner, .. } = run;
        let text = location.to_string();
        let recorded = done.record.paths.get(&text).cloned().unwrap_or_else(|| Written::intended(location));
        let refuse = |done: &mut Done, message| {
            done.messages.push(message);
            done.complete = false;
        };
        if location.mount().version() == KvVersion::One {
            refuse(done, Message::needs_version_two(&text));
            return Ok(());
        }
        for name in own.keys() {
            if let Err(holder) = self.bindings.claim(key, &key_of(&text, name), Share::Whole) {
                self.metrics.conflicted();
                refuse(done, Message::claimed_key(&text, name, &holder.to_string()));
                return Ok(());
            }
        }
        let existing = push.asked.existing.unwrap_or(self.policy.existing);
        let mut attempt = 1;
        let (merge, version) = loop {
            let found = self.store.look(location).await?;
            let there = super::paths::found_version(&found);
            let merge = match merge(own, found, owner, &recorded, existing) {
                Ok(merge) => merge,
                Err(refusal) => {
                    self.metrics.conflicted();
                    refuse(done, Message::refused(key.kind, &text, &refusal));
                    return Ok(());
                }
            };
            let Some(content) = &merge.content else { break (merge, there) };
            if !self.may_write(key, binding) {
                done.complete = false;
                return Ok(());
            }
            match self.store.write(location, content, merge.expected).await {
                Err(VaultError::Conflict { .. }) if attempt < ATTEMPTS => attempt += 1,
                written => break (merge, written?),
            }
        };
        self.tell(&text, &merge, recorded.written && known == Known::Same, done);
        if merge.content.is_some() {
            done.wrote = true;
            tracing::info!(object = %key, path = text, keys = own.len(), version, "merged");
        }
        let keys: std::collections::BTreeSet<_> = own.keys().map(str::to_owned).collect();
        for dropped in recorded.keys.iter().flatten().chain(&recorded.pending).filter(|name| !keys.contains(*name)) {
            self.wake(self.bindings.release(key, &key_of(&text, dropped)));
        }
        let written = Written { written: true, version, keys: Some(keys), ..Written::intended(location) };
        done.record.paths.insert(text.clone(), written);
        match self.store.annotate(location, &merge.marks).await {
            Err(error) if error.is_outage() => return Err(error),
            Err(error) => {
                done.messages.push(Message::unmarked(&text, &error));
                done.marked = false;
            }
            Ok(()) => {}
        }
        done.digests.extend(digest.map(|digest| (text, digest)));
        Ok(())
    }

    fn tell(&self, text: &str, merge: &Merge, is_drift: bool, done: &mut Done) {
        let Merge { content: Some(_), adopted, .. } = merge else { return };
        if !adopted.is_empty() {
            self.metrics.adopted();
            done.messages.push(Message::adopted_keys(text, adopted));
        }
        if is_drift {
            self.metrics.drifted();
            done.messages.push(Message::drifted(text));
        }
    }
}
