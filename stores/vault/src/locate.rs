//! Finding out which engine holds a path.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use http::{HeaderValue, Method};
use serde::Deserialize;
use tokio::time::Instant;

use crate::{
    client::Vault,
    error::VaultError,
    mount::{KvVersion, Location, Mount},
    path::{SecretPath, escaped},
    transport::Call,
};

/// Engines are moved by hand and rarely.
const KNOWN_FOR: Duration = Duration::from_mins(10);

/// A guess is made because the token may not ask; a policy may be mended.
const GUESSED_FOR: Duration = Duration::from_mins(1);

/// A namespace, by the bytes of its header, and a path in it.
type Place = (Option<Vec<u8>>, String);

/// Vault's response to the question which engine serves a path.
#[derive(Debug, PartialEq, Eq)]
enum Told {
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
    fn find(&self, namespace: Option<&HeaderValue>, path: &SecretPath, now: Instant) -> Option<Told> {
        let inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // No engine is mounted beneath another, so there is one at most.
        let found = inner.known.iter().find(|((place, _), (mount, until))| {
            *until > now && place.as_deref() == namespace.map(HeaderValue::as_bytes) && mount.holds(path)
        });
        let found = found.map(|(_, (mount, _))| Told::Mount(mount.clone()));
        found.or_else(|| {
            let denied = inner.denied.get(&place(namespace, path.as_str()));
            denied.is_some_and(|until| *until > now).then_some(Told::Nothing)
        })
    }

    fn keep(&self, namespace: Option<&HeaderValue>, mount: &Mount, until: Instant) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        inner.known.insert(place(namespace, mount.path()), (mount.clone(), until));
    }

    fn deny(&self, namespace: Option<&HeaderValue>, path: &SecretPath, now: Instant) {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let until = now + GUESSED_FOR;
        if inner.swept.is_none_or(|swept| swept <= now) {
            inner.denied.retain(|_, until| *until > now);
            inner.swept = Some(until);
        }
        inner.denied.insert(place(namespace, path.as_str()), until);
    }

    fn forget(&self, namespace: Option<&HeaderValue>, mount: &Mount) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).known.remove(&place(namespace, mount.path()));
    }
}

fn place(namespace: Option<&HeaderValue>, path: &str) -> Place {
    (namespace.map(|namespace| namespace.as_bytes().to_vec()), path.to_owned())
}

#[derive(Deserialize)]
struct Answered {
    data: Described,
}

#[derive(Deserialize)]
struct Described {
    path: String,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    options: Option<BTreeMap<String, String>>,
}

impl Vault {
    /// Where the path leads: which engine, of which version. Vault's response is cached for ten minutes, or until a request finds nothing mounted
    /// there.
    ///
    /// Where the token may not ask, [`Mount::guess`] decides, which is right for version 2 at `secret` and version 1 elsewhere.
    pub async fn locate(&self, path: &SecretPath) -> Result<Location, VaultError> {
        self.locate_in(path, None).await
    }

    /// The same where somebody says which engine it is. That counts only where the token may not ask: what is a secret of one engine is in
    /// another the route by which somebody else's goes.
    pub async fn locate_in(&self, path: &SecretPath, claimed: Option<&Mount>) -> Result<Location, VaultError> {
        let told = match self.mounts().find(self.namespace(), path, Instant::now()) {
            Some(told) => told,
            None => self.ask_for_mount(path).await?,
        };
        match told {
            Told::Mount(mount) => Ok(mount.location(path)?),
            Told::Nothing => {
                let location = claimed.map_or_else(|| Mount::guess(path), Mount::clone).unverified(path)?;
                location.ok_or_else(|| VaultError::UnknownMount { what: format!("use {path}") })
            }
        }
    }

    pub(crate) fn forget_mount(&self, mount: &Mount) {
        self.mounts().forget(self.namespace(), mount);
    }

    async fn ask_for_mount(&self, path: &SecretPath) -> Result<Told, VaultError> {
        // A route that the official command line uses as well; it needs no more than access to anything in the mount.
        let route = format!("sys/internal/ui/mounts/{}", escaped(path.as_str()));
        let call = Call::new(Method::GET, route, format!("find the mount of {path}"), "anything");
        let answer = self.ask(&call).await?;
        if answer.is_denied() {
            self.mounts().deny(self.namespace(), path, Instant::now());
            return Ok(Told::Nothing);
        }
        let answer = self.succeeded(&call, answer)?;
        let Described { path: mount, kind, options } = self.parse::<Answered>(&call, &answer)?.data;
        if !matches!(kind.as_str(), "kv" | "generic") {
            return Err(VaultError::NotKv { what: format!("use {path}"), mount, found: kind });
        }
        let version = options.as_ref().and_then(|options| options.get("version")).map(String::as_str);
        let version = if version == Some("2") { KvVersion::Two } else { KvVersion::One };
        let mount = Mount::new(mount, version);
        self.mounts().keep(self.namespace(), &mount, Instant::now() + KNOWN_FOR);
        Ok(Told::Mount(mount))
    }
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
