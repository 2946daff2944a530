//! A memory of the last look at a principal and a place, for the next call of the same principal about a secret in the same place.
//!
//! It saves such a call its look at the database. It is safe because the statement that reads or writes depends on all that was remembered ([`Authority`]):
//! if any of it is different by then, nothing is shown or written, and the call looks again. The key of a principal and the names of places never change.
//!
//! [`Authority`]: crate::store::Authority

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use konverge_zopp_proto::method_path;

use crate::{rbac::Role, store::KnownCaller};

/// The calls that remember, and the role that each needs. Their handlers look again if something is different.
const CALLS: [(&str, Role); 3] =
    [("UpsertSecret", Role::Write), ("DeleteSecret", Role::Write), ("GetSecret", Role::Read)];
/// The number of cached places of principals. For one more, any other entry is evicted.
const CAPACITY: usize = 1024;

/// Principals in environments, by the names of these.
#[derive(Debug, Default)]
pub(crate) struct KnownCallers(Mutex<HashMap<Key, KnownCaller>>);

type Key = (String, [String; 3]);

impl KnownCallers {
    /// Returns the last look at a principal in an environment, if it had the role there. A refusal is looked up each time.
    pub(crate) fn get(&self, principal_id: &str, names: [&str; 3], role: Role) -> Option<KnownCaller> {
        self.lock().get(&key(principal_id, names)).filter(|known| may(known, role)).cloned()
    }

    /// Remembers a principal that may read an environment.
    pub(crate) fn remember(&self, names: [&str; 3], known: &KnownCaller) {
        if !may(known, Role::Read) {
            return;
        }
        let key = key(&known.principal.id, names);
        let mut all = self.lock();
        if all.len() >= CAPACITY && !all.contains_key(&key) {
            let any = all.keys().next().cloned();
            any.and_then(|any| all.remove(&any));
        }
        all.insert(key, known.clone());
    }

    /// Forgets a principal in an environment.
    pub(crate) fn forget(&self, principal_id: &str, names: [&str; 3]) {
        self.lock().remove(&key(principal_id, names));
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, KnownCaller>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The role that the call of this full path needs, if it remembers.
pub(crate) fn role_for(method: &str) -> Option<Role> {
    CALLS.iter().find(|(call, _)| method_path(call) == method).map(|(_, role)| *role)
}

fn may(known: &KnownCaller, role: Role) -> bool {
    let place = known.located.as_ref();
    known.principal.disabled_at.is_none()
        && place.is_some_and(|place| place.environment.is_some() && place.grants.allow(role))
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

    /// A principal with a role.
    fn known(id: &str, role: Option<Role>) -> KnownCaller {
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
                grants: Grants { human: true, user: role, ..Grants::default() },
            }),
        }
    }

    #[test]
    fn a_principal_is_remembered_where_it_has_the_role() {
        let callers = KnownCallers::default();
        let (writer, reader) = (known("a", Some(Role::Write)), known("b", Some(Role::Read)));
        callers.remember(NAMES, &writer);
        callers.remember(NAMES, &reader);
        assert_eq!(callers.get("a", NAMES, Role::Write), Some(writer.clone()));
        assert_eq!(callers.get("a", NAMES, Role::Read), Some(writer));
        assert_eq!(callers.get("b", NAMES, Role::Read), Some(reader));
        assert_eq!(callers.get("b", NAMES, Role::Write), None, "perhaps it may by now");
        assert_eq!(callers.get("a", ["acme", "backend", "staging"], Role::Read), None);
        assert_eq!(callers.get("c", NAMES, Role::Read), None);
        callers.forget("a", NAMES);
        assert_eq!(callers.get("a", NAMES, Role::Read), None);
    }

    #[test]
    fn a_refusal_is_not_remembered() {
        let callers = KnownCallers::default();
        callers.remember(NAMES, &known("a", None));
        callers.remember(NAMES, &KnownCaller { located: None, ..known("b", Some(Role::Admin)) });
        let mut disabled = known("c", Some(Role::Admin));
        disabled.principal.disabled_at = Some(1);
        callers.remember(NAMES, &disabled);
        assert!(callers.lock().is_empty());
    }

    #[test]
    fn what_is_remembered_has_a_bound_and_only_one_more_makes_room() {
        let callers = KnownCallers::default();
        for number in 0..CAPACITY {
            callers.remember(NAMES, &known(&number.to_string(), Some(Role::Read)));
        }
        callers.remember(NAMES, &known("0", Some(Role::Write)));
        for number in 0..CAPACITY {
            assert!(callers.get(&number.to_string(), NAMES, Role::Read).is_some(), "{number}");
        }
        callers.remember(NAMES, &known("more", Some(Role::Read)));
        assert!(callers.get("more", NAMES, Role::Read).is_some());
        assert_eq!(callers.lock().len(), CAPACITY);
    }

    #[test]
    fn each_call_that_remembers_names_its_role() {
        assert_eq!(role_for(&method_path("DeleteSecret")), Some(Role::Write));
        assert_eq!(role_for(&method_path("GetSecret")), Some(Role::Read));
        assert_eq!(role_for(&method_path("GetEnvironment")), None);
    }
}
