//! The state of zopp that the operator remembers across restarts: the newest of the records on all bound Secrets.
//!
//! The operator sends no request to zopp before the first list of Secrets is complete ([`Memory::loaded`]). Otherwise it would trust the
//! server's first answer before it reads a record that contradicts it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use konverge_zopp_client::{EnvironmentName, Snapshot, Trust};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::{
    messages,
    record::{EnvironmentState, Record, RecordKey},
};

/// The memory of the process. Each bound Secret has a record of the state that was accepted when the Secret was written.
pub struct Memory {
    key: RecordKey,
    trust: Trust,
    /// The environments whose older state a person accepts once, each with the word of `--accept-older`.
    accepted: BTreeMap<EnvironmentName, String>,
    states: Mutex<HashMap<EnvironmentName, EnvironmentState>>,
    /// The workspaces whose trusted first key was logged.
    told: Mutex<BTreeSet<String>>,
    loaded: CancellationToken,
}

impl Memory {
    /// Creates an empty memory. Recalled keys and manifests are pinned in `trust`.
    pub fn new(key: RecordKey, trust: Trust, accepted: BTreeMap<EnvironmentName, String>) -> Self {
        Self {
            key,
            trust,
            accepted,
            states: Mutex::default(),
            told: Mutex::default(),
            loaded: CancellationToken::new(),
        }
    }

    /// Recalls the record on a Secret. Ignores a record that this operator did not write.
    pub fn recall(&self, sealed: &str) {
        let Some(Record { environment, state, key }) = self.key.open(sealed) else { return };
        self.trust.recall_workspace(&environment.workspace, key);
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

    /// Marks all records as recalled, so requests to zopp may begin. Forgets the state of each environment with a new `--accept-older`
    /// word.
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
            warn!(%environment, "the next state of the environment is accepted, although a newer one may have been seen (--accept-older)");
            let epoch = known.map_or(0, |known| known.epoch) + 1;
            let (id, accepted) = (String::new(), Some(word.clone()));
            states
                .insert(environment.clone(), EnvironmentState { epoch, accepted, id, version: i64::MIN, serial: None });
            self.trust.forget_manifest(environment);
        }
        drop(states);
        self.loaded.cancel();
    }

    /// Waits until all records are recalled.
    pub async fn loaded(&self) {
        self.loaded.cancelled().await;
    }

    /// Returns the newest version of this environment that any Secret has held. Returns `None` for a new environment with the same name.
    pub fn version(&self, environment: &EnvironmentName, id: &str) -> Option<i64> {
        self.states().get(environment).filter(|known| known.id == id).map(|known| known.version)
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
        let mut states = self.states();
        let known = states.get(environment);
        let state = EnvironmentState {
            epoch: known.map_or(0, |known| known.epoch),
            accepted: known.and_then(|known| known.accepted.clone()),
            id: snapshot.environment_id.clone(),
            version: snapshot.version,
            serial: snapshot.serial,
        };
        // Workers finish in any order, so the state of an older snapshot does not replace a newer one.
        let joined =
            known.filter(|known| known.id == state.id).map_or_else(|| state.clone(), |known| join(known, &state));
        states.insert(environment.clone(), joined);
        drop(states);
        Some(self.key.seal(&Record { environment: environment.clone(), state, key }))
    }

    fn states(&self) -> MutexGuard<'_, HashMap<EnvironmentName, EnvironmentState>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the newer of two states. Servers create IDs that sort by time.
fn join(known: &EnvironmentState, other: &EnvironmentState) -> EnvironmentState {
    let rank = |state: &EnvironmentState| (state.epoch, state.id.clone(), state.serial, state.version);
    if rank(other) > rank(known) { other.clone() } else { known.clone() }
}

#[cfg(test)]
mod tests {
    use konverge_zopp_client::server_record::ManifestPin;

    use super::*;
    use crate::record::tests::{key, record};

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
            assert_eq!((memory.version(&name(), "e2"), memory.version(&name(), "e1")), (Some(4), None));
        }
    }

    #[test]
    fn a_foreign_record_tells_nothing() {
        let (memory, trust) = memory(&[]);
        memory.recall(&key(2).seal(&record("production", "e1", 4, Some(3))));
        memory.recall("anything");
        assert_eq!((trust.manifest(&name()), trust.workspace("acme")), (None, None));
        assert_eq!(memory.version(&name(), "e1"), None);
    }

    #[test]
    fn an_older_state_is_accepted_once_for_each_word_and_earlier_records_do_not_bring_the_newer_one_back() {
        let newer = key(1).seal(&record("production", "e1", 9, Some(8)));
        let (first, trust) = memory(&["monday"]);
        first.recall(&newer);
        assert_eq!(trust.manifest(&name()), Some(pin("e1", 8)));
        first.load();
        assert_eq!((trust.manifest(&name()), first.version(&name(), "e1")), (None, None));
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
}
