//! Every reason an event or a metric of this operator can carry.

/// The Secret holds the environment.
pub const SYNCED: &str = "Synced";
/// An annotation is missing or empty.
pub const INVALID_ANNOTATION: &str = "InvalidAnnotation";
/// The platform's `--allow` rules do not cover it.
pub const NOT_ALLOWED: &str = "NotAllowed";
/// The object requests a feature that this operator does not have.
pub const FEATURE_MISSING: &str = "FeatureMissing";
/// Workspace, project or environment does not exist for the operator's principal.
pub const ENVIRONMENT_NOT_FOUND: &str = "EnvironmentNotFound";
/// The operator's principal lacks the READ role.
pub const PERMISSION_DENIED: &str = "PermissionDenied";
/// The server is away, slow, or not trusted.
pub const SERVER_UNREACHABLE: &str = "ServerUnreachable";
/// The server does not accept the operator's principal, or its keys open nothing.
pub const CREDENTIALS_INVALID: &str = "CredentialsInvalid";
/// The server gives another workspace key than the pinned one.
pub const WORKSPACE_KEY_CHANGED: &str = "WorkspaceKeyChanged";
/// The server is not a zopp server, or is broken.
pub const BAD_SERVER_ANSWER: &str = "BadServerAnswer";
/// Some values could not be decrypted.
pub const DECRYPTION_FAILED: &str = "DecryptionFailed";
/// Some keys have names that Kubernetes does not allow.
pub const INVALID_KEY_NAME: &str = "InvalidKeyName";
/// The environment does not fit into a Secret.
pub const TOO_LARGE: &str = "TooLarge";
/// The Secret is immutable.
pub const IMMUTABLE: &str = "Immutable";
/// The environment never held a key.
pub const ENVIRONMENT_EMPTY: &str = "EnvironmentEmpty";
/// The server states an older version than was applied.
pub const SOURCE_WENT_BACK: &str = "SourceWentBack";
/// The environment is not in the state that its manifest shows.
pub const SOURCE_NOT_CURRENT: &str = "SourceNotCurrent";
/// The API server did not take the write.
pub const SYNC_FAILED: &str = "SyncFailed";

/// Reasons that can end although neither the Secret nor the environment changes, because something between them was wrong.
pub const PASSING: [&str; 7] = [
    SERVER_UNREACHABLE,
    CREDENTIALS_INVALID,
    PERMISSION_DENIED,
    ENVIRONMENT_NOT_FOUND,
    BAD_SERVER_ANSWER,
    SOURCE_NOT_CURRENT,
    SYNC_FAILED,
];

/// All of them, for the reference and the tests.
pub const ALL: [&str; 18] = [
    SYNCED,
    INVALID_ANNOTATION,
    NOT_ALLOWED,
    FEATURE_MISSING,
    ENVIRONMENT_NOT_FOUND,
    PERMISSION_DENIED,
    SERVER_UNREACHABLE,
    CREDENTIALS_INVALID,
    WORKSPACE_KEY_CHANGED,
    BAD_SERVER_ANSWER,
    DECRYPTION_FAILED,
    INVALID_KEY_NAME,
    TOO_LARGE,
    IMMUTABLE,
    ENVIRONMENT_EMPTY,
    SOURCE_WENT_BACK,
    SOURCE_NOT_CURRENT,
    SYNC_FAILED,
];
