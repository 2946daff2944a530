//! The state of zopp that the operator remembers across restarts: the newest of the records on all bound Secrets.
//!
//! The operator sends no request to zopp before the first list of Secrets is complete ([`Memory::loaded`]). Otherwise it would trust the
//! server's first answer before it reads a record that contradicts it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use konverge_zopp_client::{EnvironmentName, Trust, trust::WorkspaceMemory};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{
    messages,
    record::{EnvironmentState, Record, RecordKey},
};
use crate::source::{Snapshot, Succession};

/// The environments whose older state a person accepts once, each with the word of `--accept-older`.
pub type Accepted = BTreeMap<EnvironmentName, String>;

/// The memory of the process. Each bound Secret has a record of the state that was accepted when the Secret was written.
pub struct Memory {
    key: RecordKey,
    trust: Trust,
    accepted: Accepted,
    states: Mutex<HashMap<EnvironmentName, EnvironmentState>>,
    /// Workspace name to the number of times that a person accepted an older key.
    key_epochs: Mutex<HashMap<String, u64>>,
    /// The workspaces whose trusted first key was logged.
    told: Mutex<BTreeSet<String>>,
    loaded: CancellationToken,
}

impl Memory {
    /// Creates an empty memory. Recalled keys and manifests are pinned in `trust`.
    pub fn new(key: RecordKey, trust: Trust, accepted: Accepted) -> Self {
        Self {
            key,
            trust,
            accepted,
            states: Mutex::default(),
            key_epochs: Mutex::default(),
            told: Mutex::default(),
            loaded: CancellationToken::new(),
        }
    }

    /// Recalls the record on a Secret. Ignores a record that this operator did not write.
    pub fn recall(&self, sealed: &str) {
        let Some(Record { environment, state, key, key_epoch }) = self.key.open(sealed) else { return };
        self.recall_key(&environment.workspace, key, key_epoch);
        let mut states = self.states();
        let known = states.get(&environment);
        if known.is_some_and(|known| known.epoch > state.epoch) {
            return;
        }
        if known.is_none_or(|known| known.epoch < state.epoch) {
            self.trust.forget_manifest(&environment);
        }
        if let Some(manifest) = state.manifest() {
            self.trust.saw_manifest(&environment, manifest);
        }
        let joined = match known {
            Some(known) => join(known, &state),
            None => state,
        };
        states.insert(environment, joined);
    }

    fn recall_key(&self, workspace: &str, key: WorkspaceMemory, epoch: u64) {
        let mut epochs = self.key_epochs();
        let known = epochs.get(workspace).copied().unwrap_or_default();
        if epoch < known {
            return;
        }
        if epoch > known {
            epochs.insert(workspace.to_owned(), epoch);
            self.trust.forget_replacements(workspace);
        }
        self.trust.recall_workspace(workspace, key);
    }

    /// Marks all records as recalled, so requests to zopp may begin. Forgets the state of each environment with a new `--accept-older`
    /// word, and the replacements of its workspace's key: a backup from before a replacement brings the former key back. The pin with which the
    /// replacements began stays.
    pub fn load(&self) {
        if self.loaded.is_cancelled() {
            return;
        }
        let mut states = self.states();
        for (environment, word) in &self.accepted {
            let known = states.get(environment);
            if known.is_some_and(|known| known.accepted.as_ref() == Some(word)) {
                continue;
            }
            warn!(%environment, "the next state of the environment, and a former key of its workspace, are accepted, although newer ones may have been seen \
                 (--accept-older)");
            let epoch = known.map_or(0, |known| known.epoch) + 1;
            let (id, accepted) = (String::new(), Some(word.clone()));
            states
                .insert(environment.clone(), EnvironmentState { epoch, accepted, id, version: i64::MIN, serial: None });
            self.trust.forget_manifest(environment);
            *self.key_epochs().entry(environment.workspace.clone()).or_default() += 1;
            self.trust.forget_replacements(&environment.workspace);
        }
        drop(states);
        self.loaded.cancel();
    }

    /// Waits until all records are recalled.
    pub async fn loaded(&self) {
        self.loaded.cancelled().await;
    }

    /// Returns the newest state of the environment that any Secret has held.
    pub fn state(&self, environment: &EnvironmentName) -> Option<EnvironmentState> {
        self.states().get(environment).cloned()
    }

    /// Records that the state of a snapshot was accepted. Workers finish in any order, so an older state does not replace a newer one.
    pub fn accept(&self, environment: &EnvironmentName, snapshot: &Snapshot) {
        let mut states = self.states();
        let known = states.get(environment);
        let state = state_of(snapshot, known);
        let joined = known.map_or_else(|| state.clone(), |known| join(known, &state));
        states.insert(environment.clone(), joined);
    }

    /// Returns the record for a Secret that holds this snapshot. Returns `None` if the workspace's key is unknown, which cannot happen
    /// after a snapshot.
    pub fn record(&self, environment: &EnvironmentName, snapshot: &Snapshot) -> Option<String> {
        let key = self.trust.workspace_memory(&environment.workspace)?;
        if key.is_first_use
            && self.told.lock().unwrap_or_else(PoisonError::into_inner).insert(environment.workspace.clone())
        {
            warn!("{}", messages::first_key(&environment.workspace, key.fingerprint));
        }
        let state = state_of(snapshot, self.states().get(environment));
        let key_epoch = self.key_epochs().get(&environment.workspace).copied().unwrap_or_default();
        Some(self.key.seal(&Record { environment: environment.clone(), state, key, key_epoch }))
    }

    fn key_epochs(&self) -> MutexGuard<'_, HashMap<String, u64>> {
        self.key_epochs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn states(&self) -> MutexGuard<'_, HashMap<EnvironmentName, EnvironmentState>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the state of a snapshot, with what persons have accepted so far.
fn state_of(snapshot: &Snapshot, known: Option<&EnvironmentState>) -> EnvironmentState {
    EnvironmentState {
        epoch: known.map_or(0, |known| known.epoch),
        accepted: known.and_then(|known| known.accepted.clone()),
        id: snapshot.revision.identity.clone(),
        version: snapshot.revision.number,
        serial: match snapshot.succession {
            Succession::Proven(serial) => Some(serial),
            Succession::Unproven | Succession::NotEarlier => None,
        },
    }
}

/// Returns the newer of two states. Servers create IDs that sort by time.
fn join(known: &EnvironmentState, other: &EnvironmentState) -> EnvironmentState {
    let rank = |state: &EnvironmentState| (state.epoch, state.id.clone(), state.serial, state.version);
    if rank(other) > rank(known) { other.clone() } else { known.clone() }
}

#[cfg(test)]
mod tests {
    use konverge_zopp_client::{Fingerprint, server_record::ManifestPin};

    use super::*;
    use crate::zopp::record::tests::{key, record};

    fn memory(accepted: &[&str]) -> (Memory, Trust) {
        let trust = Trust::default();
        let accepted = accepted.iter().map(|word| (name(), (*word).to_owned())).collect();
        (Memory::new(key(1), trust.clone(), accepted), trust)
    }

    fn name() -> EnvironmentName {
        record("production", "", 0, None).environment
    }

    fn pin(id: &str, serial: u64) -> ManifestPin {
        ManifestPin { environment_id: id.into(), serial }
    }

    #[test]
    fn the_newest_of_the_records_counts_in_whichever_order_they_come() {
        let records = [("e1", 9, Some(9)), ("e2", 3, Some(2)), ("e2", 4, Some(3)), ("e2", 2, None)];
        let mut texts: Vec<_> = records
            .iter()
            .map(|(id, version, serial)| key(1).seal(&record("production", id, *version, *serial)))
            .collect();
        for _ in 0..texts.len() {
            texts.rotate_left(1);
            let (memory, trust) = memory(&[]);
            for text in &texts {
                memory.recall(text);
            }
            assert_eq!(trust.manifest(&name()), Some(pin("e2", 3)));
            assert_eq!(memory.state(&name()).map(|state| (state.id, state.version)), Some(("e2".to_owned(), 4)));
        }
    }

    #[test]
    fn a_foreign_record_tells_nothing() {
        let (memory, trust) = memory(&[]);
        memory.recall(&key(2).seal(&record("production", "e1", 4, Some(3))));
        memory.recall("anything");
        assert_eq!((trust.manifest(&name()), trust.workspace("acme")), (None, None));
        assert_eq!(memory.state(&name()), None);
    }

    #[test]
    fn an_older_state_is_accepted_once_for_each_word_and_earlier_records_do_not_bring_the_newer_one_back() {
        let newer = key(1).seal(&record("production", "e1", 9, Some(8)));
        let (first, trust) = memory(&["monday"]);
        first.recall(&newer);
        assert_eq!(trust.manifest(&name()), Some(pin("e1", 8)));
        first.load();
        assert_eq!((trust.manifest(&name()), first.state(&name()).unwrap().id), (None, String::new()));
        first.recall(&newer);
        assert_eq!(trust.manifest(&name()), None, "the record of a Secret that is not written yet");

        let mut accepted = record("production", "e1", 5, Some(4));
        accepted.state.epoch = 1;
        accepted.state.accepted = Some("monday".to_owned());
        let accepted = key(1).seal(&accepted);
        for (word, expected) in [("monday", Some(pin("e1", 4))), ("tuesday", None)] {
            for texts in [[&newer, &accepted], [&accepted, &newer]] {
                let (next, trust) = memory(&[word]);
                for text in texts {
                    next.recall(text);
                }
                next.load();
                assert_eq!(trust.manifest(&name()), expected, "{word}");
            }
        }
    }

    #[test]
    fn a_new_word_forgets_the_replacements_of_the_key_and_no_earlier_record_brings_them_back() {
        let [first, second] = [1, 2].map(|byte| Fingerprint::from_slice(&[byte; Fingerprint::LENGTH]).unwrap());
        let of = |environment: &str, fingerprint, generation, key_epoch, accepted: Option<&str>| {
            let mut record = record(environment, "e1", 9, Some(8));
            record.key = WorkspaceMemory { root: first, fingerprint, generation, is_first_use: false };
            record.key_epoch = key_epoch;
            record.state.epoch = accepted.map_or(0, |_| 1);
            record.state.accepted = accepted.map(str::to_owned);
            key(1).seal(&record)
        };
        let replaced = [of("production", second, 2, 0, None), of("staging", second, 2, 0, None)];
        let (restored, trust) = memory(&["monday"]);
        for text in &replaced {
            restored.recall(text);
        }
        assert_eq!(trust.workspace("acme"), Some(second));
        restored.load();
        assert_eq!(trust.workspace("acme"), Some(first), "back to the key that was pinned first, and no other");
        assert!(trust.check_workspace("acme", second).is_err());
        restored.recall(&replaced[1]);
        assert_eq!(trust.workspace("acme"), Some(first), "the record of a Secret that is not written yet");

        let accepted = of("production", first, 1, 1, Some("monday"));
        for texts in [[&accepted, &replaced[1]], [&replaced[1], &accepted]] {
            let (next, trust) = memory(&["monday"]);
            for text in texts {
                next.recall(text);
            }
            next.load();
            assert_eq!(trust.workspace_memory("acme").map(|key| (key.fingerprint, key.generation)), Some((first, 1)));
        }
        // The key was replaced again, and the word is used up.
        let again = of("production", second, 2, 1, Some("monday"));
        let (next, trust) = memory(&["monday"]);
        for text in [&accepted, &again] {
            next.recall(text);
        }
        next.load();
        assert_eq!(trust.workspace("acme"), Some(second));
    }
}
