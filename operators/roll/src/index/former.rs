//! What is recorded of a source by another choice of its keys, or by another mode, than the one that counts now. Who changes what counts while
//! a change waits to be rolled has not restarted anything by that: the change still counts.

use konverge_workload::Keys;

use super::{Known, sources::Read};
use crate::{
    digest::Digester,
    object::{SourceKind, SourceName},
    record::{Content, Entry, Record},
};

/// Of so many choices of keys that do not count any more is known for each source what they were.
const REMEMBERED: usize = 4;

impl Known {
    /// By these keys it is rolled for a source no more. They cannot be told from its record.
    pub(super) fn remember(&mut self, name: SourceName, keys: Keys) {
        let is_recorded =
            |name: &SourceName| self.record.as_ref().is_some_and(|record| record.contains(&name.to_string()));
        self.former.retain(|name, _| is_recorded(name));
        if !is_recorded(&name) {
            return;
        }
        let choices = self.former.entry(name).or_default();
        choices.retain(|known| *known != keys);
        if choices.len() == REMEMBERED {
            choices.remove(0);
        }
        choices.push(keys);
    }

    /// Whether a source differs from what is recorded of it by another choice of keys.
    pub(super) fn differs_as_chosen_before(
        &self,
        name: &SourceName,
        before: &Entry,
        read: &Read,
        digester: &Digester,
    ) -> bool {
        let remembered = self.former.get(name).into_iter().flatten();
        // What is chosen most often is known without a memory.
        let used = self.referenced.get(name).map(|usage| &usage.keys);
        let choices = remembered.chain(used).chain([&Keys::All]);
        let mut entries = choices.map(|keys| digester.entry(&self.uid, name, keys, read.content.as_ref()));
        let entry = entries.find(|entry| entry.selection == before.selection);
        entry.is_some_and(|entry| {
            let now = Entry { version: read.in_vault.clone(), ..entry };
            let both = (&before.content, &now.content);
            matches!(both, (Content::Digest(before), Content::Digest(now)) if before != now) && !now.is_before(before)
        })
    }

    /// What is recorded of a secret in Vault by the other mode, if that one counts no more.
    pub(super) fn of_other_mode<'a>(
        &self,
        name: &SourceName,
        record: Option<&'a Record>,
    ) -> Option<(String, &'a Entry)> {
        let kind = match name.kind {
            SourceKind::Vault => SourceKind::VaultContent,
            SourceKind::VaultContent => SourceKind::Vault,
            SourceKind::VaultV1 | SourceKind::Secret | SourceKind::ConfigMap => return None,
        };
        let other = SourceName { kind, name: name.name.clone() };
        if self.uses.get(&other).is_some_and(|used| used.counts) {
            return None;
        }
        let text = other.to_string();
        let entry = record?.content.get(&text)?;
        Some((text, entry))
    }
}

/// Whether what was read in Vault is of another version than the one that is recorded, and none that is older.
pub(super) fn is_other_version(before: &Entry, read: &Read) -> bool {
    let versions = before.version.as_ref().zip(read.in_vault.as_ref());
    versions.is_some_and(|(before, now)| before != now && !now.is_before(before))
}
