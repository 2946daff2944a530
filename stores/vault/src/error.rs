//! Errors, by the remedy that helps.

use std::{path::PathBuf, sync::Arc, time::Duration};

use konverge_core::error::{Classify, ErrorClass};
use konverge_endpoint::Unusable;

use crate::path::PathError;

/// How long to leave alone what has been refused: short enough that a policy written meanwhile is soon noticed.
const REFUSED_RETRY: Duration = Duration::from_secs(30);

/// A request without the answer that was asked for. The text names what was asked, the cause and the next step, never a value.
///
/// `what` is the request in words, such as `write secret/data/my-app`.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The path is not one that is used.
    #[error(transparent)]
    Path(#[from] PathError),
    /// No connection, or it broke before the answer was complete. A write may have taken effect.
    #[error("cannot {what}: Vault at {address} cannot be reached: {cause}")]
    Unreachable {
        /// The request.
        what: String,
        /// Vault's address.
        address: Arc<str>,
        /// The innermost cause.
        cause: String,
    },
    /// No answer in time, waiting for our own limits included. A write may have taken effect.
    #[error("cannot {what}: no complete answer of Vault at {address} within {} s", limit.as_secs_f32())]
    Deadline {
        /// The request.
        what: String,
        /// Vault's address.
        address: Arc<str>,
        /// How long it had.
        limit: Duration,
    },
    /// It is sealed or not initialised.
    #[error("cannot {what}: Vault at {address} is sealed or not initialised; unseal it")]
    Sealed {
        /// The request.
        what: String,
        /// Vault's address.
        address: Arc<str>,
    },
    /// It answers, and cannot serve now: a standby without its leader, one that has not caught up, an error of its storage.
    #[error("cannot {what}: Vault at {address} cannot serve now ({status}): {cause}")]
    Unavailable {
        /// The request.
        what: String,
        /// Vault's address.
        address: Arc<str>,
        /// The status.
        status: u16,
        /// Its words.
        cause: String,
        /// When to come back, if it said so.
        retry_after: Option<Duration>,
    },
    /// Not sent, because this process does not lead any more. The leader will write.
    #[error("did not {what}: this process does not hold its lease; the leader will do it")]
    NotLeading {
        /// The request.
        what: String,
    },
    /// A quota is used up.
    #[error("cannot {what}: Vault's rate limit is reached; lower the rate of requests or raise the quota")]
    Limited {
        /// The request.
        what: String,
        /// When to come back, if it said so.
        retry_after: Option<Duration>,
    },
    /// Not sent, because Vault did not serve a moment ago.
    #[error("did not {what}: Vault at {address} does not serve, {cause}; it is asked again in {} s", after.as_secs())]
    Paused {
        /// The request.
        what: String,
        /// Vault's address.
        address: Arc<str>,
        /// The last failure.
        cause: Arc<str>,
        /// When it is asked again.
        after: Duration,
    },
    /// The policies do not allow it.
    #[error(
        "cannot {what}: Vault denies it; does a policy of the role or token allow {capability} on that path? {cause}"
    )]
    Denied {
        /// The request.
        what: String,
        /// The capability that a policy would have to grant.
        capability: &'static str,
        /// Its words.
        cause: String,
    },
    /// There is no token to ask with.
    #[error("cannot log in to Vault by {how}: {source}")]
    Login {
        /// The method, its mount and role.
        how: Arc<str>,
        /// Why, shared by all who waited for it.
        source: Arc<VaultError>,
    },
    /// The login was refused.
    #[error(
        "Vault refuses it ({status}): {cause}; do the method and the role exist, is the role bound to this identity, and may whoever Vault asks \
         the API server as create tokenreviews there?"
    )]
    LoginRefused {
        /// The status.
        status: u16,
        /// Its words.
        cause: String,
    },
    /// Something that logging in or TLS needs is not there or not usable.
    #[error("the {what} {}is not usable: {cause}", shown(path.as_ref()))]
    Credential {
        /// The given value.
        what: &'static str,
        /// Its file, if it is one.
        path: Option<PathBuf>,
        /// The reason.
        cause: String,
    },
    /// Somebody else has written since it was read.
    #[error("did not {what}: its version is not the one that was read; read it again")]
    Conflict {
        /// The request.
        what: String,
    },
    /// The mount demands check-and-set, and the write came without.
    #[error("cannot {what}: the mount or the secret demands check-and-set; write with the version that was read")]
    CheckAndSetRequired {
        /// The request.
        what: String,
    },
    /// Nothing is mounted there.
    #[error("cannot {what}: nothing is mounted there; mount a KV engine or mend the path")]
    NoMount {
        /// The request.
        what: String,
    },
    /// It is not known what is mounted there, and as what it would be taken for it could be somebody else's.
    #[error(
        "cannot {what}: Vault does not say which engine holds it, so nothing is mounted there or the token may do nothing in it, and it is not \
         used as version 1 with a segment that is a route of version 2; mount a KV engine, mend the policy or mend the path"
    )]
    UnknownMount {
        /// The request.
        what: String,
    },
    /// Something else than KV is mounted there.
    #[error("cannot {what}: {mount} is an engine of type {found}, not kv; mend the path")]
    NotKv {
        /// The request.
        what: String,
        /// The mount.
        mount: String,
        /// Its type.
        found: String,
    },
    /// The engine's version has no such thing.
    #[error("cannot {what}: a KV engine of version 1 has neither versions nor metadata")]
    Unversioned {
        /// The request.
        what: String,
    },
    /// It understood and said no.
    #[error("cannot {what}: Vault refuses it ({status}): {cause}")]
    Rejected {
        /// The request.
        what: String,
        /// The status.
        status: u16,
        /// Its words.
        cause: String,
    },
    /// It is larger than the listener or the storage takes.
    #[error(
        "cannot {what}: it is larger than Vault takes ({status}): {cause}; make it smaller, or raise the limit of Vault's listener or storage"
    )]
    TooLarge {
        /// The request.
        what: String,
        /// The status.
        status: u16,
        /// Its words.
        cause: String,
    },
    /// The answer cannot be understood.
    #[error("cannot {what}: {address} gave an answer that is not Vault's: {cause}")]
    Garbage {
        /// The request.
        what: String,
        /// Vault's address.
        address: Arc<str>,
        /// The reason.
        cause: String,
    },
    /// A value is no text, which is all that JSON can carry.
    #[error("cannot {what}: the value of {key:?} is not UTF-8; encode it, for example in base64")]
    NotText {
        /// The request.
        what: String,
        /// The variable or setting with the value.
        key: String,
    },
    /// The mark has what custom metadata cannot carry.
    #[error("cannot {what}: {cause}")]
    Mark {
        /// The request.
        what: String,
        /// The reason.
        cause: String,
    },
}

fn shown(path: Option<&PathBuf>) -> String {
    path.map(|path| format!("{} ", path.display())).unwrap_or_default()
}

impl From<Unusable> for VaultError {
    fn from(unusable: Unusable) -> Self {
        Self::Credential { what: unusable.what, path: unusable.path, cause: unusable.fault.to_string() }
    }
}

impl VaultError {
    /// Whether a write that ended so may have taken effect all the same.
    pub fn is_ambiguous(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::Deadline { .. } | Self::Unavailable { .. } | Self::Garbage { .. }
        )
    }

    /// Returns `true` if the server failed, not the request. A response of another program in its place counts, too.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Unreachable { .. }
            | Self::Deadline { .. }
            | Self::Sealed { .. }
            | Self::Unavailable { .. }
            | Self::Limited { .. }
            | Self::Garbage { .. }
            | Self::Paused { .. } => true,
            Self::Login { source, .. } => source.is_outage(),
            _ => false,
        }
    }

    /// Whether every request fails so, whatever it asks for: the server is away, there is no token, or something else answers in its place. A question
    /// soon after tells whether that is over.
    pub fn concerns_every_request(&self) -> bool {
        self.is_outage() || matches!(self, Self::Login { .. })
    }

    /// Whether it said no to what may be allowed some day: a policy or a mount has to be changed for that, which nothing tells.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Denied { .. } | Self::NoMount { .. } | Self::UnknownMount { .. } | Self::NotKv { .. })
    }

    /// Takes Vault's words away if the check finds something in them that must not be told.
    pub(crate) fn withhold(mut self, is_secret: impl FnOnce(&str) -> bool) -> Self {
        if let Self::Rejected { cause, .. }
        | Self::TooLarge { cause, .. }
        | Self::Unavailable { cause, .. }
        | Self::Denied { cause, .. } = &mut self
            && is_secret(cause)
        {
            "(its words are withheld, because they repeat a value)".clone_into(cause);
        }
        self
    }
}

impl Classify for VaultError {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Unavailable { retry_after: Some(pause), .. }
            | Self::Limited { retry_after: Some(pause), .. }
            | Self::Paused { after: pause, .. } => ErrorClass::After(*pause),
            Self::Denied { .. } | Self::NoMount { .. } | Self::UnknownMount { .. } | Self::NotKv { .. } => {
                ErrorClass::After(REFUSED_RETRY)
            }
            // A role or a binding may be mended without our hearing of it.
            Self::Login { source, .. } => match source.class() {
                ErrorClass::Permanent => ErrorClass::After(REFUSED_RETRY),
                other => other,
            },
            Self::Path(_)
            | Self::Unversioned { .. }
            | Self::Rejected { .. }
            | Self::TooLarge { .. }
            | Self::LoginRefused { .. }
            | Self::NotText { .. }
            | Self::Mark { .. }
            | Self::CheckAndSetRequired { .. } => ErrorClass::Permanent,
            Self::Unreachable { .. }
            | Self::Deadline { .. }
            | Self::Sealed { .. }
            | Self::Unavailable { .. }
            | Self::Limited { .. }
            | Self::NotLeading { .. }
            | Self::Credential { .. }
            | Self::Conflict { .. }
            | Self::Garbage { .. } => ErrorClass::Transient,
        }
    }

    fn reason(&self) -> &'static str {
        match self {
            Self::Path(_) => "InvalidPath",
            Self::Unreachable { .. } => "VaultUnreachable",
            Self::Deadline { .. } => "VaultTimeout",
            Self::Sealed { .. } => "VaultSealed",
            Self::Unavailable { .. } | Self::Paused { .. } => "VaultUnavailable",
            Self::NotLeading { .. } => "NotLeader",
            Self::Limited { .. } => "VaultRateLimited",
            Self::Denied { .. } => "PermissionDenied",
            Self::Login { .. } | Self::LoginRefused { .. } => "LoginFailed",
            Self::Credential { .. } => "CredentialUnusable",
            Self::Conflict { .. } => "VersionConflict",
            Self::CheckAndSetRequired { .. } => "CheckAndSetRequired",
            Self::NoMount { .. } | Self::UnknownMount { .. } | Self::NotKv { .. } => "MountMissing",
            Self::Unversioned { .. } => "VersionsUnsupported",
            Self::Rejected { .. } => "VaultRejected",
            Self::TooLarge { .. } => "TooLargeForVault",
            Self::Garbage { .. } => "InvalidAnswer",
            Self::NotText { .. } => "ValueNotText",
            Self::Mark { .. } => "InvalidMark",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_allowed_some_day_is_a_refusal_and_nothing_else() {
        let what = || "write secret/data/db".to_owned();
        for (error, expected) in [
            (VaultError::Denied { what: what(), capability: "update", cause: String::new() }, true),
            (VaultError::NoMount { what: what() }, true),
            (VaultError::UnknownMount { what: what() }, true),
            (VaultError::Conflict { what: what() }, false),
            (VaultError::Limited { what: what(), retry_after: None }, false),
        ] {
            assert_eq!(error.is_refusal(), expected, "{error}");
        }
    }

    #[test]
    fn what_every_request_runs_into_is_told_from_what_one_does() {
        let what = || "read secret/data/db".to_owned();
        let denied = || VaultError::Denied { what: what(), capability: "read", cause: String::new() };
        let garbage = VaultError::Garbage { what: what(), address: "x".into(), cause: "404 without words".to_owned() };
        for (error, expected) in [
            (VaultError::Sealed { what: what(), address: "x".into() }, true),
            (VaultError::Login { how: "AppRole".into(), source: Arc::new(denied()) }, true),
            (garbage, true),
            (denied(), false),
            (VaultError::NoMount { what: what() }, false),
            (VaultError::Conflict { what: what() }, false),
        ] {
            assert_eq!(error.concerns_every_request(), expected, "{error}");
        }
    }

    #[test]
    fn a_refused_login_is_tried_again_and_an_outage_is_seen_through_it() {
        let login = |source| VaultError::Login { how: "AppRole".into(), source: Arc::new(source) };
        let what = || "log in".to_owned();
        let refused = login(VaultError::Rejected { what: what(), status: 400, cause: "invalid role".to_owned() });
        assert_eq!(refused.class(), ErrorClass::After(REFUSED_RETRY));
        assert!(!refused.is_outage());
        assert!(login(VaultError::Sealed { what: what(), address: "x".into() }).is_outage());
    }

    #[test]
    fn words_that_repeat_a_value_are_withheld() {
        let error = VaultError::Rejected { what: "write a/b".to_owned(), status: 400, cause: "bad hunter2".to_owned() };
        let text = error.withhold(|cause| cause.contains("hunter2")).to_string();
        assert!(!text.contains("hunter2") && text.contains("write a/b"), "{text}");
    }
}
