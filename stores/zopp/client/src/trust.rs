//! The pins of a server, which a client remembers and enforces.
//!
//! A server is not believed what it could make up. It knows the public key of every principal, so it can wrap a workspace key of its own.
//! It can name other public keys for a principal. It can claim to be of the generation whose signatures authorise everything. For each of
//! these, the client keeps what it saw first, or was told by a person, and refuses anything else.
//!
//! ```
//! use konverge_zopp_client::{Fingerprint, Trust};
//!
//! let trust = Trust::default();
//! let (first, other) = (Fingerprint::of_principal(b"a", b""), Fingerprint::of_principal(b"b", b""));
//! assert!(trust.check_workspace("acme", first).is_ok(), "nothing is pinned: the first key is");
//! assert!(trust.check_workspace("acme", other).is_err());
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use konverge_zopp_crypto::{EnvironmentName, Fingerprint, Profile};

use crate::{
    config_file::{self, FileError},
    identity::Identity,
    revocation::RevocationChange,
    server_record::{AcceptedPrincipal, ClientCertificate, ManifestPin, ServerRecord},
};

/// The server gives another key than the pinned one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the server gives another key of {what} than the pinned one: {offered} instead of {pinned}. The server, or somebody who can write its \
     database, may have replaced it"
)]
pub struct PinMismatch {
    /// The owner of the key: "workspace 'acme'", "principal ID".
    pub what: String,
    /// The pinned fingerprint.
    pub pinned: Fingerprint,
    /// The fingerprint of the given key.
    pub offered: Fingerprint,
}

/// The pins of a server, shared by all of its clients. Clones share it.
#[derive(Debug, Clone, Default)]
pub struct Trust(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    record: ServerRecord,
    learnt: Learnt,
    /// Workspace name to the fingerprint that was pinned first: by a person, by the file, or by first use. The pin follows replacements of the key.
    roots: BTreeMap<String, Fingerprint>,
    /// Workspace name to the newest generation of its key that was seen.
    generations: BTreeMap<String, u32>,
    /// The workspaces whose first key was trusted and has not been confirmed since.
    first_uses: BTreeSet<String>,
    /// Workspace name to the principals that may replace the key that was pinned first.
    root_administrators: BTreeMap<String, BTreeSet<Fingerprint>>,
}

/// The key of a workspace, as a program remembers it beside the configuration file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkspaceMemory {
    /// The fingerprint that was pinned first.
    pub root: Fingerprint,
    /// The fingerprint of the current key, to which the replacements led.
    pub fingerprint: Fingerprint,
    /// The generation of the current key; 0 if the server does not know it.
    pub generation: u32,
    /// Whether the first key was only trusted because it was the first.
    pub is_first_use: bool,
}

/// The pins that were added since the record was read.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Learnt {
    /// The generation.
    pub generation: Option<Profile>,
    /// The certificate to show from now on.
    pub client_certificate: Option<ClientCertificate>,
    /// Fingerprints of workspace keys.
    pub workspaces: BTreeMap<String, Pin>,
    /// Fingerprints of principals.
    pub principals: BTreeMap<String, Pin>,
    /// Manifests of environments.
    pub environments: BTreeMap<String, LearntManifest>,
    /// Principals that may replace the keys of workspaces that were followed.
    pub(crate) administrators: BTreeMap<String, BTreeSet<Fingerprint>>,
    /// Principals that got a key.
    pub(crate) accepted: BTreeMap<String, AcceptedPrincipal>,
    /// Principals that this device revoked or readmitted, in the order of the changes.
    pub(crate) revocations: Vec<RevocationChange>,
}

/// A manifest that is to be remembered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LearntManifest {
    /// Which.
    pub pin: ManifestPin,
    /// A person accepts it, although a newer one may have been seen.
    pub accepted: bool,
}

/// A fingerprint, and why it is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pin {
    /// The fingerprint.
    pub fingerprint: Fingerprint,
    /// Why it is believed.
    pub basis: Basis,
}

/// Why a fingerprint is believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// Nobody vouched for it: it was the first that was seen.
    FirstUse,
    /// This device made the key, or a person vouched for it.
    Vouched,
    /// It replaced the key with this fingerprint, which was the pinned one.
    Followed(Fingerprint),
}

impl Trust {
    /// Holds the server to the record.
    pub fn new(record: ServerRecord) -> Self {
        let (roots, root_administrators) = (record.workspaces.clone(), record.administrators.clone());
        Self(Arc::new(Mutex::new(State { record, roots, root_administrators, ..State::default() })))
    }

    /// Holds the server to what the configuration file remembers of it, which by default is `~/.zopp/config.json`: the file from which
    /// [`crate::Identity::load`] takes the principal. `address` is as [`crate::config::canonical_address`] gives it.
    pub fn load(file: Option<&Path>, address: &str) -> Result<Self, FileError> {
        if Identity::is_in_environment() {
            return Ok(Self::default());
        }
        let path = match file {
            Some(file) => file.to_owned(),
            None => config_file::default_path()?,
        };
        Ok(Self::new(config_file::load(&path)?.server(address)))
    }

    /// Returns the generation of the server, if it is remembered.
    pub fn generation(&self) -> Option<Profile> {
        self.state().record.generation
    }

    /// Remembers the generation. [`Profile::V1`] is for callers to whom a person said so.
    pub fn remember_generation(&self, generation: Profile) {
        let mut state = self.state();
        if state.record.generation != Some(generation) {
            state.record.generation = Some(generation);
            state.learnt.generation = Some(generation);
        }
    }

    /// Returns the certificate to show to the server, if one is remembered.
    pub fn client_certificate(&self) -> Option<ClientCertificate> {
        self.state().record.client_certificate.clone()
    }

    /// Remembers the certificate to show to the server. Its paths should be absolute.
    pub fn remember_client_certificate(&self, certificate: ClientCertificate) {
        let mut state = self.state();
        if state.record.client_certificate.as_ref() != Some(&certificate) {
            state.record.client_certificate = Some(certificate.clone());
            state.learnt.client_certificate = Some(certificate);
        }
    }

    /// Returns the pinned fingerprint of a workspace's key.
    pub fn workspace(&self, name: &str) -> Option<Fingerprint> {
        self.state().record.workspaces.get(name).copied()
    }

    /// Returns the pinned fingerprint of a principal's public keys.
    pub fn principal(&self, id: &str) -> Option<Fingerprint> {
        self.state().record.principals.get(id).copied()
    }

    /// Compares the key that the server gives for a workspace with the pinned one, and pins it if there is none.
    pub fn check_workspace(&self, name: &str, offered: Fingerprint) -> Result<(), PinMismatch> {
        let State { record, learnt, roots, first_uses, .. } = &mut *self.state();
        roots.entry(name.to_owned()).or_insert(offered);
        if !record.workspaces.contains_key(name) {
            first_uses.insert(name.to_owned());
        }
        check(&mut record.workspaces, &mut learnt.workspaces, name, offered, || format!("workspace '{name}'"))
    }

    /// Compares the public keys that the server gives for a principal with the pinned ones, and pins them if there are none.
    pub fn check_principal(&self, id: &str, offered: Fingerprint) -> Result<(), PinMismatch> {
        let State { record, learnt, .. } = &mut *self.state();
        check(&mut record.principals, &mut learnt.principals, id, offered, || format!("principal {id}"))
    }

    /// Pins the key of a workspace that this device made, or that a person vouched for. Returns the fingerprint that was pinned before, if
    /// it is another one.
    pub fn pin_workspace(&self, name: &str, fingerprint: Fingerprint) -> Option<Fingerprint> {
        let State { record, learnt, roots, generations, first_uses, .. } = &mut *self.state();
        first_uses.remove(name);
        roots.insert(name.to_owned(), fingerprint);
        generations.remove(name);
        pin(&mut record.workspaces, &mut learnt.workspaces, name, fingerprint)
    }

    /// Pins the public keys of a principal that this device made, or that a person vouched for. Returns the fingerprint that was pinned
    /// before, if it is another one.
    pub fn pin_principal(&self, id: &str, fingerprint: Fingerprint) -> Option<Fingerprint> {
        let State { record, learnt, .. } = &mut *self.state();
        pin(&mut record.principals, &mut learnt.principals, id, fingerprint)
    }

    /// Remembers a principal that gets a key from this device, unless it is remembered already: a server that names another user or key later
    /// may lie.
    pub fn accept_principal(&self, id: &str, email: Option<&str>, exchange_key: &[u8]) {
        let State { record, learnt, .. } = &mut *self.state();
        if !record.accepted.contains_key(id) {
            let accepted =
                AcceptedPrincipal { email: email.map(str::to_owned), exchange_key: hex::encode(exchange_key) };
            record.accepted.insert(id.to_owned(), accepted.clone());
            learnt.accepted.insert(id.to_owned(), accepted);
        }
    }

    /// Returns the e-mail address of the user of a principal, if it is remembered.
    pub fn owner(&self, id: &str) -> Option<String> {
        self.state().record.accepted.get(id)?.email.clone()
    }

    /// Returns the remembered principals that got a key from this device, by ID.
    pub fn accepted(&self) -> BTreeMap<String, AcceptedPrincipal> {
        self.state().record.accepted.clone()
    }

    /// Remembers that this device disabled a principal (`workspace` is `None`), or removed it from a workspace. Its public keys are as the
    /// server gave them; a missing one is empty. The remembered one is added.
    pub fn revoke(&self, id: &str, workspace: Option<&str>, public_keys: &[&[u8]]) {
        let given = public_keys.iter().filter(|key| !key.is_empty()).map(hex::encode);
        let remembered = self.state().record.accepted.get(id).map(|accepted| accepted.exchange_key.clone());
        let public_keys = given.chain(remembered).collect();
        let workspace = workspace.map(str::to_owned);
        self.change_revocation(RevocationChange::Revoked { id: id.to_owned(), workspace, public_keys });
    }

    /// Remembers that a person enabled a principal (`workspace` is `None`), or gave it access to a workspace again.
    pub fn readmit(&self, id: &str, workspace: Option<&str>) {
        if self.state().record.revoked.contains_key(id) {
            let workspace = workspace.map(str::to_owned);
            self.change_revocation(RevocationChange::Readmitted { id: id.to_owned(), workspace });
        }
    }

    fn change_revocation(&self, change: RevocationChange) {
        let mut state = self.state();
        change.clone().apply(&mut state.record.revoked);
        state.learnt.revocations.push(change);
    }

    /// Returns `true` if this device revoked the principal in this workspace, or a principal with one of these public keys.
    pub fn is_revoked(&self, workspace: &str, id: &str, public_keys: &[&[u8]]) -> bool {
        let state = self.state();
        let mut revoked = state.record.revoked.iter().filter(|(_, revocation)| revocation.covers(workspace));
        revoked.any(|(revoked, revocation)| revoked == id || revocation.has_key(public_keys))
    }

    /// Returns `true` if the server has answered calls of Konverge's own: it showed a manifest, or named the recipients of a new key. A server that claims
    /// afterwards not to know such calls may lie.
    pub fn has_seen_own_calls(&self) -> bool {
        let state = self.state();
        let ServerRecord { environments, accepted, administrators, .. } = &state.record;
        !(environments.is_empty() && accepted.is_empty() && administrators.is_empty())
    }

    /// Pins the key that replaced the pinned one, with its administrators where they are known.
    pub(crate) fn follow_workspace(
        &self,
        name: &str,
        former: Fingerprint,
        new: Fingerprint,
        administrators: Option<BTreeSet<Fingerprint>>,
    ) {
        let State { record, learnt, .. } = &mut *self.state();
        // A pin that was not saved yet keeps its reason.
        let basis = match learnt.workspaces.get(name) {
            Some(Pin { basis: Basis::Followed(first), .. }) => Basis::Followed(*first),
            Some(pin) => pin.basis,
            None => Basis::Followed(former),
        };
        learnt.workspaces.insert(name.to_owned(), Pin { fingerprint: new, basis });
        record.workspaces.insert(name.to_owned(), new);
        if let Some(administrators) = administrators {
            learnt.administrators.insert(name.to_owned(), administrators.clone());
            record.administrators.insert(name.to_owned(), administrators);
        }
    }

    /// Returns the key of a workspace that was pinned first, and the principals that may replace it. Returns `None` if the record does not name them.
    pub(crate) fn first_administrators(&self, name: &str) -> Option<(Fingerprint, BTreeSet<Fingerprint>)> {
        let state = self.state();
        Some((*state.roots.get(name)?, state.root_administrators.get(name)?.clone()))
    }

    /// Records that a key of this generation was accepted.
    pub(crate) fn saw_generation(&self, workspace: &str, generation: u32) {
        let mut state = self.state();
        let seen = state.generations.entry(workspace.to_owned()).or_default();
        *seen = generation.max(*seen);
    }

    /// Returns the memory of a workspace's key, for a program that stores it elsewhere.
    pub fn workspace_memory(&self, name: &str) -> Option<WorkspaceMemory> {
        let state = self.state();
        let fingerprint = *state.record.workspaces.get(name)?;
        let root = state.roots.get(name).copied().unwrap_or(fingerprint);
        let generation = state.generations.get(name).copied().unwrap_or_default();
        Some(WorkspaceMemory { root, fingerprint, generation, is_first_use: state.first_uses.contains(name) })
    }

    /// Returns the workspaces whose first key was trusted and has not been confirmed since, with the fingerprint of their key.
    pub fn first_uses(&self) -> Vec<(String, Fingerprint)> {
        let state = self.state();
        let pinned = |name: &String| Some((name.clone(), *state.record.workspaces.get(name)?));
        state.first_uses.iter().filter_map(pinned).collect()
    }

    /// Pins the remembered key of a workspace, if nothing is pinned, or if it leads from the same first pin to a later key. A different pin from
    /// the configuration file or from a person is newer, and stays.
    pub fn recall_workspace(&self, name: &str, memory: WorkspaceMemory) {
        let State { record, roots, generations, first_uses, .. } = &mut *self.state();
        let pinned = record.workspaces.get(name);
        if pinned.is_none() && memory.is_first_use {
            first_uses.insert(name.to_owned());
        }
        let known = generations.get(name).copied().unwrap_or_default();
        let is_later = roots.get(name) == Some(&memory.root) && memory.generation > known;
        if pinned.is_none() || is_later || (pinned == Some(&memory.fingerprint) && memory.generation > known) {
            // The root of the configuration stays: the next start begins with it.
            roots.entry(name.to_owned()).or_insert(memory.root);
            record.workspaces.insert(name.to_owned(), memory.fingerprint);
            generations.insert(name.to_owned(), memory.generation);
        }
    }

    /// Goes back to the key of a workspace that was pinned first, as if it had not been replaced since. A key to which the replacements lead is accepted
    /// again, and no other.
    pub fn forget_replacements(&self, name: &str) {
        let State { record, learnt, roots, generations, root_administrators, .. } = &mut *self.state();
        generations.remove(name);
        learnt.workspaces.remove(name);
        learnt.administrators.remove(name);
        if let Some(root) = roots.get(name) {
            record.workspaces.insert(name.to_owned(), *root);
        }
        match root_administrators.get(name) {
            Some(administrators) => drop(record.administrators.insert(name.to_owned(), administrators.clone())),
            None => drop(record.administrators.remove(name)),
        }
    }

    /// Forgets the manifest of an environment, so that the next one is accepted.
    pub fn forget_manifest(&self, name: &EnvironmentName) {
        self.state().record.environments.remove(&name.to_string());
    }

    /// Returns the newest manifest that was seen of an environment.
    pub fn manifest(&self, name: &EnvironmentName) -> Option<ManifestPin> {
        self.state().record.environments.get(&name.to_string()).cloned()
    }

    /// Remembers that this manifest of an environment was seen, unless a newer one was.
    pub fn saw_manifest(&self, name: &EnvironmentName, pin: ManifestPin) {
        self.remember_manifest(name, LearntManifest { pin, accepted: false });
    }

    /// Remembers a manifest that a person accepted, although a newer one may have been seen.
    pub fn accept_manifest(&self, name: &EnvironmentName, pin: ManifestPin) {
        self.remember_manifest(name, LearntManifest { pin, accepted: true });
    }

    fn remember_manifest(&self, name: &EnvironmentName, learnt: LearntManifest) {
        let mut state = self.state();
        if remember(&mut state.record.environments, name.to_string(), learnt.clone()) {
            state.learnt.environments.insert(name.to_string(), learnt);
        }
    }

    /// Returns the record, with what was learnt.
    pub fn record(&self) -> ServerRecord {
        self.state().record.clone()
    }

    /// Returns what was learnt since the last call; `None` if it is nothing.
    pub fn take_learnt(&self) -> Option<Learnt> {
        let learnt = std::mem::take(&mut self.state().learnt);
        (learnt != Learnt::default()).then_some(learnt)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Learnt {
    /// Returns `true` if there are new pins besides the generation and manifests, which the next call learns again.
    pub fn is_irreplaceable(&self) -> bool {
        let Self { workspaces, principals, client_certificate, accepted, revocations, .. } = self;
        let has_pins = !workspaces.is_empty() || !principals.is_empty() || !accepted.is_empty();
        has_pins || client_certificate.is_some() || !revocations.is_empty()
    }

    /// Adds it to a record that others may have changed meanwhile. A pin of first use that differs from theirs is an error, and the others
    /// are added.
    pub fn merge_into(self, record: &mut ServerRecord) -> Result<(), PinMismatch> {
        record.generation = self.generation.or(record.generation);
        record.client_certificate = self.client_certificate.or(record.client_certificate.take());
        let followed: BTreeMap<_, _> =
            self.workspaces.iter().map(|(name, pin)| (name.clone(), pin.fingerprint)).collect();
        let workspaces = merge(&mut record.workspaces, self.workspaces, |name| format!("workspace '{name}'"));
        let principals = merge(&mut record.principals, self.principals, |id| format!("principal {id}"));
        for (name, learnt) in self.environments {
            remember(&mut record.environments, name, learnt);
        }
        for (name, administrators) in self.administrators {
            // The list belongs to the key that was followed, and not to another one that was kept.
            if record.workspaces.get(&name) == followed.get(&name) {
                record.administrators.insert(name, administrators);
            }
        }
        for (id, accepted) in self.accepted {
            record.accepted.entry(id).or_insert(accepted);
        }
        for change in self.revocations {
            change.apply(&mut record.revoked);
        }
        workspaces.and(principals)
    }
}

/// Keeps the newer one of two manifests, or the one that a person accepted. Returns whether that is news.
fn remember(known: &mut BTreeMap<String, ManifestPin>, name: String, learnt: LearntManifest) -> bool {
    let LearntManifest { pin, accepted } = learnt;
    let is_news =
        known.get(&name).is_none_or(|before| if accepted { *before != pin } else { pin.is_newer_than(before) });
    if is_news {
        known.insert(name, pin);
    }
    is_news
}

fn check(
    known: &mut BTreeMap<String, Fingerprint>,
    learnt: &mut BTreeMap<String, Pin>,
    name: &str,
    offered: Fingerprint,
    what: impl Fn() -> String,
) -> Result<(), PinMismatch> {
    match known.get(name) {
        Some(pinned) if *pinned == offered => Ok(()),
        Some(pinned) => Err(PinMismatch { what: what(), pinned: *pinned, offered }),
        None => {
            known.insert(name.to_owned(), offered);
            learnt.insert(name.to_owned(), Pin { fingerprint: offered, basis: Basis::FirstUse });
            Ok(())
        }
    }
}

fn pin(
    known: &mut BTreeMap<String, Fingerprint>,
    learnt: &mut BTreeMap<String, Pin>,
    name: &str,
    fingerprint: Fingerprint,
) -> Option<Fingerprint> {
    learnt.insert(name.to_owned(), Pin { fingerprint, basis: Basis::Vouched });
    known.insert(name.to_owned(), fingerprint).filter(|before| *before != fingerprint)
}

fn merge(
    record: &mut BTreeMap<String, Fingerprint>,
    learnt: BTreeMap<String, Pin>,
    what: impl Fn(&str) -> String,
) -> Result<(), PinMismatch> {
    let mut result = Ok(());
    for (name, Pin { fingerprint, basis }) in learnt {
        match (record.get(&name), basis) {
            (Some(pinned), Basis::FirstUse) if *pinned != fingerprint => {
                result = Err(PinMismatch { what: what(&name), pinned: *pinned, offered: fingerprint });
            }
            // Another program followed further, or a person decided otherwise. From that pin, this one is followed again.
            (Some(pinned), Basis::Followed(former)) if *pinned != former => {}
            _ => drop(record.insert(name, fingerprint)),
        }
    }
    result
}

#[cfg(test)]
mod recall_tests;

#[cfg(test)]
mod tests {
    use super::*;

    fn fingerprint(byte: u8) -> Fingerprint {
        Fingerprint::of_principal(&[byte], &[])
    }

    #[test]
    fn the_first_key_is_pinned_and_no_other_accepted() {
        let trust = Trust::default();
        trust.check_workspace("acme", fingerprint(1)).unwrap();
        trust.check_workspace("acme", fingerprint(1)).unwrap();
        let error = trust.check_workspace("acme", fingerprint(2)).unwrap_err();
        assert_eq!((error.pinned, error.offered), (fingerprint(1), fingerprint(2)));
        trust.check_workspace("other", fingerprint(2)).unwrap();
        let learnt = trust.take_learnt().unwrap();
        assert_eq!(learnt.workspaces["acme"], Pin { fingerprint: fingerprint(1), basis: Basis::FirstUse });
        assert_eq!(trust.take_learnt(), None);
    }

    #[test]
    fn only_a_person_replaces_a_pin() {
        let mut record = ServerRecord::default();
        record.workspaces.insert("acme".to_owned(), fingerprint(1));
        let trust = Trust::new(record.clone());
        assert_eq!(trust.pin_workspace("acme", fingerprint(1)), None);
        assert_eq!(trust.pin_workspace("acme", fingerprint(2)), Some(fingerprint(1)));
        trust.check_workspace("acme", fingerprint(2)).unwrap();
        trust.take_learnt().unwrap().merge_into(&mut record).unwrap();
        assert_eq!(record.workspaces["acme"], fingerprint(2));

        // Two programs saw the workspace for the first time, and the server gave them different keys.
        let late = Trust::default();
        late.check_workspace("acme", fingerprint(3)).unwrap();
        late.check_principal("p", fingerprint(4)).unwrap();
        assert!(late.take_learnt().unwrap().merge_into(&mut record).is_err());
        assert_eq!(record.workspaces["acme"], fingerprint(2));
        assert_eq!(record.principals["p"], fingerprint(4), "what does not differ is kept");
    }

    #[test]
    fn a_replaced_key_is_followed_and_a_later_pin_is_not_undone() {
        let mut record = ServerRecord::default();
        record.workspaces.insert("acme".to_owned(), fingerprint(1));
        let (slow, quick) = (Trust::new(record.clone()), Trust::new(record.clone()));
        slow.follow_workspace("acme", fingerprint(1), fingerprint(2), Some([fingerprint(7)].into()));
        for (former, new) in [(1, 2), (2, 3)] {
            quick.follow_workspace("acme", fingerprint(former), fingerprint(new), Some([fingerprint(8)].into()));
        }
        assert_eq!(quick.workspace("acme"), Some(fingerprint(3)));
        quick.take_learnt().unwrap().merge_into(&mut record).unwrap();
        assert_eq!(record.workspaces["acme"], fingerprint(3), "several steps at once");
        slow.take_learnt().unwrap().merge_into(&mut record).unwrap();
        assert_eq!(record.workspaces["acme"], fingerprint(3), "not back to generation 2");
        assert_eq!(record.administrators["acme"], [fingerprint(8)].into(), "those of the kept key");
    }

    #[test]
    fn a_client_certificate_is_remembered_with_what_is_known() {
        let certificate = ClientCertificate { certificate: "/c.pem".into(), key: "/k.pem".into() };
        let trust = Trust::default();
        trust.remember_client_certificate(certificate.clone());
        let mut record = ServerRecord::default();
        record.generation = Some(Profile::V2);
        trust.take_learnt().unwrap().merge_into(&mut record).unwrap();
        let text = r#"{"generation":"v2","client_certificate":{"certificate":"/c.pem","key":"/k.pem"}}"#;
        assert_eq!(serde_json::to_string(&record).unwrap(), text);
        assert_eq!(Trust::new(record).client_certificate(), Some(certificate));
        assert!(serde_json::from_str::<ServerRecord>(r#"{"client_certificate":{"certificate":"/c.pem"}}"#).is_err());
    }

    #[test]
    fn the_newest_manifest_is_remembered_and_only_a_person_goes_back() {
        let name = EnvironmentName::new("acme", "backend", "dev");
        let pin = |id: &str, serial| ManifestPin { environment_id: id.into(), serial };
        let trust = Trust::default();
        let mut record = ServerRecord::default();
        for (seen, newest) in [
            (pin("e1", 2), pin("e1", 2)),
            (pin("e1", 1), pin("e1", 2)),
            (pin("e1", 3), pin("e1", 3)),
            (pin("e2", 1), pin("e2", 1)),
            (pin("e1", 9), pin("e2", 1)),
        ] {
            trust.saw_manifest(&name, seen);
            assert_eq!(trust.manifest(&name), Some(newest.clone()));
            if let Some(learnt) = trust.take_learnt() {
                learnt.merge_into(&mut record).unwrap();
            }
            assert_eq!(record.environments[&name.to_string()], newest);
        }
        // Another program saw an older one meanwhile.
        let late = Trust::default();
        late.saw_manifest(&name, pin("e1", 4));
        late.take_learnt().unwrap().merge_into(&mut record).unwrap();
        assert_eq!(record.environments[&name.to_string()], pin("e2", 1));
        trust.accept_manifest(&name, pin("e1", 10));
        trust.take_learnt().unwrap().merge_into(&mut record).unwrap();
        assert_eq!(record.environments[&name.to_string()], pin("e1", 10));
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(text, r#"{"environments":{"acme/backend/dev":{"environment_id":"e1","serial":10}}}"#);
    }
}
