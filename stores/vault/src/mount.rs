//! Where a path leads: which mount, which version of KV, which secret in it. Pure; asking for it is
//! [`Vault::locate`](crate::Vault::locate)'s.

use std::fmt;

use crate::path::{PathError, PathFault, SecretPath, escaped, is_forbidden};

/// Routes of a KV engine of version 2. A path that begins with one of these but `data` is no secret.
const ROUTES: [&str; 8] =
    ["metadata", "delete", "undelete", "destroy", "subkeys", "config", "detailed-metadata", "data"];

/// The version of a KV engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KvVersion {
    /// One value, no history, no check-and-set.
    One,
    /// Versions with metadata.
    Two,
}

/// A mounted KV engine.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mount {
    path: String,
    version: KvVersion,
}

/// One secret of one engine. Two spellings of one secret, with and without `data/`, are the same location.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location {
    mount: Mount,
    name: String,
}

impl Mount {
    /// An engine at a path without slashes around.
    pub fn new(path: impl Into<String>, version: KvVersion) -> Self {
        Self { path: path.into().trim_matches('/').to_owned(), version }
    }

    /// Where it is mounted, without slashes around.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Its version.
    pub fn version(&self) -> KvVersion {
        self.version
    }

    /// The mount that the path alone suggests: version 2 at `secret` if the path continues with `data/`, else version 1 at its first segment. For
    /// where Vault does not tell.
    pub fn guess(path: &SecretPath) -> Self {
        let mut segments = path.as_str().split('/');
        let mount = segments.next().unwrap_or_default();
        let version =
            if mount == "secret" && segments.next() == Some("data") { KvVersion::Two } else { KvVersion::One };
        Self::new(mount, version)
    }

    /// The address of a folder's names; the folder has no slashes around, and the top is "".
    pub(crate) fn list_route(&self, folder: &str) -> Result<String, PathError> {
        let listed = match self.version {
            KvVersion::One => self.path.clone(),
            KvVersion::Two => format!("{}/metadata", self.path),
        };
        if folder.is_empty() {
            return Ok(escaped(&format!("{listed}/")));
        }
        Ok(escaped(&format!("{}/", SecretPath::parse(&format!("{listed}/{folder}"))?)))
    }

    /// Whether the path is beneath it.
    pub(crate) fn holds(&self, path: &SecretPath) -> bool {
        self.beneath(path).is_some()
    }

    /// The secret that the path means in this engine.
    pub fn location(&self, path: &SecretPath) -> Result<Location, PathError> {
        let refused = |why| PathError::new(path.as_str(), why);
        let rest = self.beneath(path).ok_or_else(|| refused(PathFault::TooShort))?;
        let name = match (self.version, rest.split_once('/')) {
            (KvVersion::Two, Some(("data", name))) => name,
            (KvVersion::Two, Some((route, _))) if ROUTES.contains(&route) => return Err(refused(PathFault::Route)),
            // `data` alone is the folder of all secrets.
            (KvVersion::Two, None) if rest == "data" => return Err(refused(PathFault::TooShort)),
            _ => rest,
        };
        Ok(Location { mount: self.clone(), name: name.to_owned() })
    }

    /// The same where nobody but a text says that this engine is there. Vault may hold another one beneath it, so of version 1, whose names
    /// are anything, those are refused that would be [`ROUTES`] of version 2; nothing if it is such a one. Any segment may be a namespace, and
    /// what follows it then belongs to Vault itself; but behind the mount of version 2 comes a route.
    pub(crate) fn unverified(&self, path: &SecretPath) -> Result<Option<Location>, PathError> {
        let location = self.location(path)?;
        let reachable = if self.version == KvVersion::One { path.as_str() } else { self.path() };
        if reachable.split('/').any(is_forbidden) {
            return Err(PathError::new(path.as_str(), PathFault::Forbidden));
        }
        let is_route = |segment: &str| ROUTES.contains(&segment);
        let ambiguous = self.version == KvVersion::One && path.as_str().split('/').any(is_route);
        Ok((!ambiguous).then_some(location))
    }

    fn beneath<'a>(&self, path: &'a SecretPath) -> Option<&'a str> {
        path.as_str().strip_prefix(&*self.path)?.strip_prefix('/').filter(|rest| !rest.is_empty())
    }
}

impl Location {
    /// Its engine.
    pub fn mount(&self) -> &Mount {
        &self.mount
    }

    /// Its name in the engine, folders included.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Not after anything in the folder of the engine, in the order of locations.
    pub(crate) fn first_in(mount: &Mount, folder: &str) -> Self {
        Self { mount: mount.clone(), name: folder.to_owned() }
    }

    /// The folder that it is in, in the engine; empty at the top.
    pub fn folder(&self) -> &str {
        self.name.rsplit_once('/').map_or("", |(folder, _)| folder)
    }

    /// Its name without the folder.
    pub fn base_name(&self) -> &str {
        self.name.rsplit_once('/').map_or(&*self.name, |(_, name)| name)
    }

    /// The address, beneath `/v1/`, of its data.
    pub(crate) fn data_route(&self) -> String {
        match self.mount.version {
            KvVersion::One => escaped(&format!("{}/{}", self.mount.path, self.name)),
            KvVersion::Two => self.route("data"),
        }
    }

    /// The address of a route for the folder that it is in, slash included.
    pub(crate) fn folder_route(&self, route: &str) -> String {
        let folder = self.folder();
        let slash = if folder.is_empty() { "" } else { "/" };
        escaped(&format!("{}/{route}/{folder}{slash}", self.mount.path))
    }

    /// The address of one of the routes of version 2.
    pub(crate) fn route(&self, route: &str) -> String {
        escaped(&format!("{}/{route}/{}", self.mount.path, self.name))
    }
}

/// The path of the secret's data in the API, by which policies name it.
impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let data = if self.mount.version == KvVersion::Two { "data/" } else { "" };
        write!(formatter, "{}/{data}{}", self.mount.path, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> SecretPath {
        SecretPath::parse(text).unwrap()
    }

    #[test]
    fn secrets_of_a_mount() {
        use KvVersion::{One, Two};
        for (mount, version, text, expected) in [
            ("secret", Two, "secret/data/my-app", Some("my-app")),
            ("secret", Two, "secret/my-app", Some("my-app")),
            ("secret", Two, "secret/data/data/my-app", Some("data/my-app")),
            ("secret", Two, "secret/metadata", Some("metadata")),
            ("secret", Two, "secret/data", None),
            ("secret", Two, "secret/metadata/my-app", None),
            ("secret", Two, "secret/destroy/my-app", None),
            ("team/kv", Two, "team/kv/data/a/b", Some("a/b")),
            ("kv", One, "kv/data/a", Some("data/a")),
            ("kv", One, "kv/metadata/a", Some("metadata/a")),
            ("kv", One, "kvx/a", None),
        ] {
            let location = Mount::new(mount, version).location(&path(text));
            assert_eq!(location.as_ref().ok().map(Location::name), expected, "{text} in {mount}: {location:?}");
        }
    }

    #[test]
    fn the_refusal_of_a_route_names_a_spelling_that_works() {
        let engine = Mount::new("secret", KvVersion::Two);
        for route in ROUTES.into_iter().filter(|route| *route != "data") {
            let refused = engine.location(&SecretPath::parse(&format!("secret/{route}/db")).unwrap()).unwrap_err();
            let working = format!("secret/data/{route}/db");
            assert_eq!(refused.fault(), PathFault::Route);
            assert!(refused.to_string().contains("write data/ before it"), "{refused}");
            let location = engine.location(&SecretPath::parse(&working).unwrap()).unwrap();
            assert_eq!(location.to_string(), working);
        }
    }

    #[test]
    fn an_engine_that_nobody_confirms_reaches_nothing_but_secrets() {
        use KvVersion::{One, Two};
        for (mount, version, text, expected) in [
            ("ns1/kv", Two, "ns1/kv/data/sys/a", Ok(true)),
            ("ns1/old", One, "ns1/old/system/a", Ok(true)),
            ("ns1/kv", One, "ns1/kv/data/a", Ok(false)),
            ("ns1", One, "ns1/kv/metadata/a", Ok(false)),
            ("ns1/kv/data", One, "ns1/kv/data/a", Ok(false)),
            ("ns1", One, "ns1/sys/policies/acl/x", Err(PathFault::Forbidden)),
            ("ns1", One, "ns1/ns2/Auth/token/create", Err(PathFault::Forbidden)),
            ("ns1/sys", One, "ns1/sys/policies/acl/x", Err(PathFault::Forbidden)),
            ("ns1/auth", Two, "ns1/auth/data/users/x", Err(PathFault::Forbidden)),
        ] {
            let found = Mount::new(mount, version).unverified(&path(text));
            let found = found.map(|location| location.is_some()).map_err(|error| error.fault());
            assert_eq!(found, expected, "{text} in {mount}");
        }
    }

    #[test]
    fn folders_are_listed_beneath_their_mount() {
        for (version, folder, expected) in [
            (KvVersion::Two, "", Some("team/kv/metadata/")),
            (KvVersion::Two, "a b/c", Some("team/kv/metadata/a%20b/c/")),
            (KvVersion::One, "", Some("team/kv/")),
            (KvVersion::One, "a", Some("team/kv/a/")),
            (KvVersion::One, "../a", None),
            (KvVersion::Two, "a/", None),
        ] {
            let route = Mount::new("team/kv", version).list_route(folder);
            assert_eq!(route.ok().as_deref(), expected, "{folder}");
        }
    }

    #[test]
    fn guesses_follow_the_text() {
        for (text, mount, version) in [
            ("secret/data/a", "secret", KvVersion::Two),
            ("secret/a", "secret", KvVersion::One),
            ("kv/data/a", "kv", KvVersion::One),
            ("clusters/c/secret/data/a", "clusters", KvVersion::One),
        ] {
            assert_eq!(Mount::guess(&path(text)), Mount::new(mount, version), "{text}");
        }
    }

    #[test]
    fn routes_and_folders() {
        let location = Mount::new("kv", KvVersion::Two).location(&path("kv/a b/c?d")).unwrap();
        assert_eq!(location.to_string(), "kv/data/a b/c?d");
        assert_eq!(location.data_route(), "kv/data/a%20b/c%3Fd");
        assert_eq!(location.route("metadata"), "kv/metadata/a%20b/c%3Fd");
        assert_eq!((location.folder(), location.base_name()), ("a b", "c?d"));
        assert_eq!(location.folder_route("detailed-metadata"), "kv/detailed-metadata/a%20b/");
        let top = Mount::new("old", KvVersion::One).location(&path("old/x")).unwrap();
        assert_eq!((top.data_route().as_str(), top.folder(), top.base_name()), ("old/x", "", "x"));
    }
}
