//! Secrets in Vault as sources: their names, versions and states. Pure.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use konverge_core::error::in_one_line;
use konverge_vault::{KvVersion, Location, Mount, SecretPath, StateKey, VaultError};

use crate::{
    object::{SourceKind, SourceName},
    reasons,
};

/// Stands between engine and path in the name of a source, since neither can tell where the other ends.
const BETWEEN: char = ':';

/// The version of a secret that its pods are to have read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Version {
    /// Its number; 0 in an engine without versions.
    pub number: u64,
    /// When it was written, in Vault's own words; empty in such an engine.
    pub created: String,
}

impl Version {
    /// Returns whether it certainly is older than the other one; see [`konverge_vault::is_before`].
    pub fn is_before(&self, other: &Self) -> bool {
        konverge_vault::is_before((self.number, &self.created), (other.number, &other.created))
    }

    /// Returns how many changes in a time `within` this one counts for if it comes after the other one: at least one, and more if the versions between the two
    /// were written that fast.
    pub fn times_since(&self, before: &Self, within: SignedDuration) -> usize {
        let time = |version: &Self| version.created.parse::<Timestamp>().ok();
        let passed = time(before).zip(time(self)).map(|(before, now)| now.duration_since(before));
        let passed = passed.map_or(i128::MAX, |passed| passed.max(within).as_nanos());
        let written = self.number.saturating_sub(before.number);
        let times = i128::from(written).saturating_mul(within.as_nanos()) / passed.max(1);
        usize::try_from(times).unwrap_or(usize::MAX).max(1)
    }

    /// Whether there are versions at all.
    pub fn is_known(&self) -> bool {
        !self.created.is_empty()
    }
}

/// The state of a secret in Vault.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SecretState {
    /// Vault has not answered yet.
    #[default]
    Unknown,
    /// It can be read in this version.
    Live(Version),
    /// There is none, or there is nothing but metadata.
    Missing,
    /// Its newest version is deleted or destroyed.
    Deleted,
    /// Its state cannot be read. The last known one still counts.
    Failing {
        /// One of [`reasons`].
        reason: &'static str,
        /// Why, and what to do about it.
        text: Arc<str>,
    },
}

impl SecretState {
    /// Returns the state of a secret with versions.
    pub fn of(state: &StateKey) -> Self {
        match state {
            StateKey { deleted: true, .. } | StateKey { destroyed: true, .. } => Self::Deleted,
            StateKey { version: 0, .. } => Self::Missing,
            StateKey { version, version_created, .. } => {
                Self::Live(Version { number: *version, created: version_created.clone() })
            }
        }
    }

    /// Returns the state that an error tells.
    pub fn failing(error: &VaultError) -> Self {
        Self::Failing { reason: reason(error), text: in_one_line(error).into() }
    }
}

fn reason(error: &VaultError) -> &'static str {
    match error {
        VaultError::Denied { .. } | VaultError::LoginRefused { .. } | VaultError::Credential { .. } => {
            reasons::PERMISSION_DENIED
        }
        VaultError::Login { source, .. } if !source.is_outage() => reasons::PERMISSION_DENIED,
        // Where nothing is mounted Vault says 404, as for a secret that is not there.
        VaultError::NoMount { .. } | VaultError::UnknownMount { .. } | VaultError::NotKv { .. } => {
            reasons::SECRET_NOT_FOUND
        }
        _ => reasons::VAULT_UNAVAILABLE,
    }
}

/// Names a secret. Slashes around engine and path do not count. The error says what is wrong with them.
pub fn source(kind: SourceKind, engine: &str, path: &str) -> Result<SourceName, String> {
    let (engine, path) = (engine.trim_matches('/'), path.trim_matches('/'));
    if engine.contains(BETWEEN) {
        return Err(format!("the engine {engine:?} has a colon in its name, which is not understood"));
    }
    let name = SourceName { kind, name: format!("{engine}{BETWEEN}{path}") };
    // A path that could lead elsewhere than it reads is refused here.
    SecretPath::parse(&api_path(kind, engine, path)).map_err(|error| error.to_string())?;
    location(&name).map(|_| name).ok_or_else(|| format!("{engine}/{path} is no path of a secret"))
}

/// Where the source is in Vault; nothing if it is not there, or is nothing that [`source`] has named.
pub fn location(source: &SourceName) -> Option<Location> {
    let (engine, path) = source.name.split_once(BETWEEN)?;
    let version = match source.kind {
        SourceKind::Vault | SourceKind::VaultContent => KvVersion::Two,
        SourceKind::VaultV1 => KvVersion::One,
        SourceKind::Secret | SourceKind::ConfigMap => return None,
    };
    let whole = SecretPath::parse(&api_path(source.kind, engine, path)).ok()?;
    Mount::new(engine, version).location(&whole).ok()
}

/// The path by which Vault is asked what is mounted there.
pub(crate) fn whole(location: &Location) -> Option<SecretPath> {
    SecretPath::parse(&location.to_string()).ok()
}

fn api_path(kind: SourceKind, engine: &str, path: &str) -> String {
    let data = if kind == SourceKind::VaultV1 { "" } else { "data/" };
    format!("{engine}/{data}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_mounted_is_missing_however_vault_says_it() {
        let what = || "read secret/data/db".to_owned();
        for error in [VaultError::NoMount { what: what() }, VaultError::UnknownMount { what: what() }] {
            let SecretState::Failing { reason, .. } = SecretState::failing(&error) else { panic!("{error}") };
            assert_eq!(reason, reasons::SECRET_NOT_FOUND, "{error}");
        }
    }

    #[test]
    fn names_lead_to_one_place_and_never_elsewhere() {
        use SourceKind::{Vault, VaultContent, VaultV1};
        for (kind, engine, path, expected) in [
            (Vault, "secret", "app/db", Some("secret/data/app/db")),
            (Vault, "/secret/", "/app/", Some("secret/data/app")),
            (Vault, "team/kv", "data/app", Some("team/kv/data/data/app")),
            (VaultContent, "secret", "app", Some("secret/data/app")),
            (VaultV1, "old", "app", Some("old/app")),
            (Vault, "secret", "../../sys/raw", None),
            (Vault, "secret/..", "app", None),
            (Vault, "..", "app", None),
            (Vault, "sys", "app", None),
            (VaultV1, "auth", "token", None),
            (Vault, "secret", "a//b", None),
            (Vault, "secret", "", None),
            (Vault, "", "app", None),
            (Vault, "a:b", "app", None),
            (Vault, "secret", "a\nb", None),
        ] {
            let named = source(kind, engine, path);
            let leads = named.as_ref().ok().and_then(location).map(|location| location.to_string());
            assert_eq!(leads.as_deref(), expected, "{engine} {path}: {named:?}");
        }
    }

    #[test]
    fn two_spellings_of_one_address_are_two_names() {
        let one = source(SourceKind::Vault, "a", "b/c").unwrap();
        assert_ne!(one, source(SourceKind::Vault, "a/b", "c").unwrap());
        assert_eq!(one.to_string(), "Vault/a:b/c");
        assert!(SourceName::is_in_vault(&one.to_string()) && !SourceName::is_in_vault("Secret/a:b"));
    }

    #[test]
    fn only_a_smaller_number_of_an_earlier_time_is_older() {
        let version = |number, created: &str| Version { number, created: created.to_owned() };
        let known = version(3, "2026-01-03T00:00:00.5Z");
        for (other, is_before) in [
            (version(2, "2026-01-02T00:00:00Z"), true),
            (version(2, "2026-01-03T00:00:00.25Z"), true),
            (version(1, "2026-01-04T00:00:00Z"), false),
            (version(4, "2026-01-02T00:00:00Z"), false),
            (known.clone(), false),
            (version(2, "soon"), false),
            (Version::default(), false),
        ] {
            assert_eq!(other.is_before(&known), is_before, "{other:?}");
        }
    }

    #[test]
    fn versions_tell_how_often_it_was_written_since() {
        let version = |number, second| {
            let created = Timestamp::from_second(second).map(|time| time.to_string()).unwrap_or_default();
            Version { number, created }
        };
        let minute = SignedDuration::from_mins(1);
        for (what, before, now, expected) in [
            ("the next one", version(3, 0), version(4, 60), 1),
            ("ten within the time", version(3, 0), version(13, 30), 10),
            ("two hundred in an hour, while Vault was away", version(0, 0), version(200, 3600), 3),
            ("ten in an hour", version(0, 0), version(10, 3600), 1),
            ("made again", version(9, 0), version(1, 30), 1),
            ("of a server whose clock is behind", version(1, 60), version(8, 0), 7),
            ("without versions", Version::default(), Version::default(), 1),
        ] {
            assert_eq!(now.times_since(&before, minute), expected, "{what}");
        }
    }

    #[test]
    fn what_vault_says_becomes_a_word() {
        let state = |version, deleted, destroyed| StateKey {
            entry_created: None,
            version,
            version_created: "t".to_owned(),
            deleted,
            destroyed,
        };
        let live = Version { number: 2, created: "t".to_owned() };
        for (state, expected) in [
            (state(2, false, false), SecretState::Live(live)),
            (state(2, true, false), SecretState::Deleted),
            (state(2, false, true), SecretState::Deleted),
            (state(0, false, false), SecretState::Missing),
        ] {
            assert_eq!(SecretState::of(&state), expected);
        }
        let what = || "read it".to_owned();
        let address = || "v".into();
        let denied = || VaultError::Denied { what: what(), capability: "read", cause: String::new() };
        let login = |source| VaultError::Login { how: "a token".into(), source: Arc::new(source) };
        let sealed = || VaultError::Sealed { what: what(), address: address() };
        for (error, expected) in [
            (denied(), reasons::PERMISSION_DENIED),
            (login(denied()), reasons::PERMISSION_DENIED),
            (login(sealed()), reasons::VAULT_UNAVAILABLE),
            (sealed(), reasons::VAULT_UNAVAILABLE),
            (VaultError::NoMount { what: what() }, reasons::SECRET_NOT_FOUND),
            (
                VaultError::Garbage { what: what(), address: address(), cause: String::new() },
                reasons::VAULT_UNAVAILABLE,
            ),
        ] {
            let SecretState::Failing { reason, .. } = SecretState::failing(&error) else { panic!("{error}") };
            assert_eq!(reason, expected, "{error}");
        }
    }
}
