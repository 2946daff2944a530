//! Which engines serve which paths, as far as Vault has told. Pure.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use http::HeaderValue;
use tokio::time::Instant;

use crate::{mount::Mount, path::SecretPath};

/// A guess is made because the token may not ask; a policy may be mended.
const GUESSED_FOR: Duration = Duration::from_mins(1);

/// A namespace, by the bytes of its header, and a path in it.
type Place = (Option<Vec<u8>>, String);

/// Vault's response to the question which engine serves a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum MountLookup {
    /// It is this.
    Mount(Mount),
    /// The token may not ask, or there is none.
    Nothing,
}

/// The known engines.
#[derive(Default)]
pub(crate) struct Mounts(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// The engines, until when that is believed.
    known: BTreeMap<Place, (Mount, Instant)>,
    /// Paths whose engine the token may not ask for, until when it is not tried again. Vault says the same of a path that no engine
    /// holds, so it tells nothing of any other path.
    denied: BTreeMap<Place, Instant>,
    /// When those go that are over.
    swept: Option<Instant>,
}

impl Mounts {
    /// Returns the engine that Vault has named for the path, or `None` if Vault must be asked.
    pub(crate) fn find(&self, namespace: Option<&HeaderValue>, path: &SecretPath, now: Instant) -> Option<MountLookup> {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // No engine is mounted beneath another, so there is one at most.
        let found = inner.known.iter().find(|((place, _), (mount, until))| {
            *until > now && place.as_deref() == namespace.map(HeaderValue::as_bytes) && mount.holds(path)
        });
        let found = found.map(|(_, (mount, _))| MountLookup::Mount(mount.clone()));
        found.or_else(|| {
            let denied = inner.denied.get(&place(namespace, path.as_str()));
            denied.is_some_and(|until| *until > now).then_some(MountLookup::Nothing)
        })
    }

    pub(crate) fn keep(&self, namespace: Option<&HeaderValue>, mount: &Mount, until: Instant) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.known.insert(place(namespace, mount.path()), (mount.clone(), until));
    }

    pub(crate) fn deny(&self, namespace: Option<&HeaderValue>, path: &SecretPath, now: Instant) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let until = now + GUESSED_FOR;
        if inner.swept.is_none_or(|swept| swept <= now) {
            inner.denied.retain(|_, until| *until > now);
            inner.swept = Some(until);
        }
        inner.denied.insert(place(namespace, path.as_str()), until);
    }

    pub(crate) fn forget(&self, namespace: Option<&HeaderValue>, mount: &Mount) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).known.remove(&place(namespace, mount.path()));
    }
}

fn place(namespace: Option<&HeaderValue>, path: &str) -> Place {
    (namespace.map(|namespace| namespace.as_bytes().to_vec()), path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_denied_of_one_path_is_said_of_no_other_and_not_for_long() {
        let mounts = Mounts::default();
        let path = |text: &str| SecretPath::parse(text).unwrap();
        let now = Instant::now();
        mounts.deny(None, &path("clusters/one/secert/data/a"), now);
        assert!(mounts.find(None, &path("clusters/one/secert/data/a"), now).is_some());
        for other in ["clusters/one/secert/data/b", "clusters/one/secret/data/a", "clusters/one/secert"] {
            assert_eq!(mounts.find(None, &path(other), now), None, "{other}");
        }
        let later = now + GUESSED_FOR;
        assert_eq!(mounts.find(None, &path("clusters/one/secert/data/a"), later), None);
        mounts.deny(None, &path("clusters/one/b"), later);
        let kept = mounts.0.lock().unwrap().denied.len();
        assert_eq!(kept, 1, "what is over is not kept");
    }
}
