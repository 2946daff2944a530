//! A memory of the last look at a principal and a place, for the next change of a secret by the same principal in the same place.
//!
//! It saves such a change its look at the database. It is safe because the change itself depends on all that was remembered ([`Authority`]): if any of
//! it is different in the transaction that writes, nothing is written, and the call looks again. The key of a principal and the names of places never change.
//!
//! [`Authority`]: crate::store::Authority

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{rbac::Role, store::KnownCaller};

/// The calls that remember. Their handlers look again if something is different.
pub(crate) const CALLS: [&str; 2] = ["UpsertSecret", "DeleteSecret"];
/// Places of principals. When there are more, all are forgotten.
const CAPACITY: usize = 512;

/// Principals in environments, by the names of these.
#[derive(Debug, Default)]
pub(crate) struct KnownCallers(Mutex<HashMap<Key, KnownCaller>>);

type Key = (String, [String; 3]);

impl KnownCallers {
    /// Returns the last look at a principal in an environment.
    pub(crate) fn get(&self, principal_id: &str, names: [&str; 3]) -> Option<KnownCaller> {
        self.lock().get(&key(principal_id, names)).cloned()
    }

    /// Remembers a principal that may write to an environment. A refusal is looked up each time.
    pub(crate) fn remember(&self, names: [&str; 3], known: &KnownCaller) {
        let may_write = known.principal.disabled_at.is_none()
            && known
                .located
                .as_ref()
                .is_some_and(|place| place.environment.is_some() && place.grants.allow(Role::Write));
        if !may_write {
            return;
        }
        let mut all = self.lock();
        if all.len() >= CAPACITY {
            all.clear();
        }
        all.insert(key(&known.principal.id, names), known.clone());
    }

    /// Forgets a principal in an environment.
    pub(crate) fn forget(&self, principal_id: &str, names: [&str; 3]) {
        self.lock().remove(&key(principal_id, names));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, KnownCaller>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(principal_id: &str, names: [&str; 3]) -> Key {
    (principal_id.to_owned(), names.map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        rbac::Grants,
        store::{ContentSize, EnvironmentRow, Located, PrincipalRow, WorkspaceRow},
    };

    const NAMES: [&str; 3] = ["acme", "backend", "production"];

    fn known(id: &str, owner: bool) -> KnownCaller {
        KnownCaller {
            principal: PrincipalRow {
                id: id.to_owned(),
                user_id: Some("u".to_owned()),
                name: "laptop".to_owned(),
                public_key: Vec::new(),
                x25519_public_key: None,
                disabled_at: None,
            },
            restored_at: None,
            located: Some(Located {
                workspace: WorkspaceRow { id: "w".to_owned(), name: NAMES[0].to_owned() },
                project_id: Some("p".to_owned()),
                environment: Some(EnvironmentRow {
                    id: "e".to_owned(),
                    project_id: "p".to_owned(),
                    name: NAMES[2].to_owned(),
                    dek_wrapped: Vec::new(),
                    dek_nonce: Vec::new(),
                    version: 1,
                    created_at: 0,
                    updated_at: 0,
                }),
                content: ContentSize::default(),
                grants: Grants { human: true, owner, ..Grants::default() },
            }),
        }
    }

    #[test]
    fn a_principal_that_may_write_is_remembered_where_it_may() {
        let callers = KnownCallers::default();
        callers.remember(NAMES, &known("a", true));
        assert_eq!(callers.get("a", NAMES), Some(known("a", true)));
        assert_eq!(callers.get("a", ["acme", "backend", "staging"]), None);
        assert_eq!(callers.get("b", NAMES), None);
        callers.forget("a", NAMES);
        assert_eq!(callers.get("a", NAMES), None);
    }

    #[test]
    fn a_refusal_is_not_remembered() {
        let callers = KnownCallers::default();
        callers.remember(NAMES, &known("a", false));
        callers.remember(NAMES, &KnownCaller { located: None, ..known("b", true) });
        let mut disabled = known("c", true);
        disabled.principal.disabled_at = Some(1);
        callers.remember(NAMES, &disabled);
        assert!(callers.lock().is_empty());
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let callers = KnownCallers::default();
        for number in 0..=CAPACITY {
            callers.remember(NAMES, &known(&number.to_string(), true));
        }
        assert_eq!(callers.lock().len(), 1);
    }
}
