//! Every reason of an event or a metric of this operator, each with its cause and its next step for the reference page.

/// The objects that carry most reasons.
const SECRET: &str = "Secret";

/// The custom resources.
const OBJECTS: &str = "`SecretPull`, `ZoppSecretSync`";

/// The custom resources that are connections.
const CONNECTIONS: &str = "`SecretSource`, `ClusterSecretSource`";

/// The Secrets and the custom resources.
const ALL: &str = "Secret, `SecretPull`, `ZoppSecretSync`";

konverge_jobs::reasons! {
    /// The Secret holds the keys and values of its source.
    SYNCED = "Synced" on SECRET;
    /// An annotation is missing or empty, is no reference to a source, or names a project that cannot be told from others. The data stays as it is.
    INVALID_ANNOTATION = "InvalidAnnotation" on SECRET,
        next: "Change the annotation that the event names, or remove it.";
    /// No `--allow` rule lets this namespace read the source. The data stays as it is.
    NOT_ALLOWED = "NotAllowed" on SECRET,
        next: "Ask the operator's administrator for the rule that the event shows, or name another source.";
    /// The operator has no connection to the store that the annotation names. The data stays as it is.
    SOURCE_NOT_CONNECTED = "SourceNotConnected" on SECRET,
        next: "Ask the operator's administrator for `--vault-addr` or for credentials of zopp, or correct the scheme.";
    /// The `SecretSource` or `ClusterSecretSource` that a `SecretPull` names does not exist, is not ready, or leads to another store. The data stays as it is.
    SOURCE_NOT_READY = "SourceNotReady" on OBJECTS,
        next: "Look at the conditions of the source, or correct its name.";
    /// The source is connected: the store lets its identity in.
    CONNECTED = "Connected" on CONNECTIONS;
    /// The Secret or the service account that a source logs in with is missing, or the operator may not use it.
    CREDENTIALS_UNAVAILABLE = "CredentialsUnavailable" on CONNECTIONS,
        next: "Create what the condition names, or permit it with the Role that the condition shows.";
    /// The Secret has an annotation with a prefix of this operator that nobody reads, such as a misspelt one.
    UNKNOWN_ANNOTATION = "UnknownAnnotation" on SECRET, next: "Correct the name of the annotation, or remove it.";
    /// The object cannot be used as it is written. The Secret stays as it is.
    INVALID_SPEC = "InvalidSpec" on OBJECTS, next: "Correct the field that the condition names.";
    /// The object is suspended. The Secret stays as it is.
    SUSPENDED = "Suspended" on OBJECTS, next: "Set `spec.suspend` to false.";
    /// `pull.konverge.dev/pause` is `true`. The Secret stays as it is.
    PAUSED = "Paused" on SECRET, next: "Remove `pull.konverge.dev/pause` to go on.";
    /// An older object makes the same Secret.
    TARGET_TAKEN = "TargetTaken" on OBJECTS, next: "Name another Secret, or delete the object that the condition names.";
    /// The Secret was not made by this operator for the object, or belongs to Kubernetes or Helm. It stays as it is.
    TARGET_NOT_OWNED = "TargetNotOwned" on ALL,
        next: "Name another Secret, or set `spec.target.adopt` to true to take it over.";
    /// The Secret has another type than the object wants, and Kubernetes does not change the type of a Secret. It stays as it is.
    TYPE_DIFFERS = "TypeDiffers" on OBJECTS, next: "Delete the Secret, or set its type in the object.";
    /// A source lacks keys that are chosen by name, or no source has keys that the type of the Secret demands. Values that the Secret has stay.
    KEY_NOT_FOUND = "KeyNotFound" on ALL, next: "Set the keys in the source, or correct the choice of keys.";
    /// Two keys of a source would have one name in the Secret. The keys of the source stay as they are in the Secret.
    KEYS_COLLIDE = "KeysCollide" on OBJECTS, next: "Rename one of the two keys that the condition names.";
    /// The template cannot make a key: no source has a key that it uses, or a value does not fit the format. The key keeps its value in the Secret; without
    /// one, the Secret stays as it is.
    TEMPLATE_FAILED = "TemplateFailed" on OBJECTS,
        next: "Set the key that the condition names, or correct `spec.template`.";
    /// The operator's principal sees no such workspace, project or environment. The data stays as it is.
    ENVIRONMENT_NOT_FOUND = "EnvironmentNotFound" on SECRET,
        next: "Check the three annotations, and that the principal has access to the workspace.";
    /// Vault holds no secret at the path, or the pinned version does not exist. The data stays as it is.
    SECRET_NOT_FOUND = "SecretNotFound" on SECRET, next: "Correct the path or the version, or write the secret.";
    /// The newest or the pinned version in Vault is deleted or destroyed. The data stays as it is.
    VERSION_DELETED = "VersionDeleted" on SECRET,
        next: "Undelete the version, write a new one, or delete the Kubernetes Secret if the content is not needed any more.";
    /// The operator's principal lacks the role READ on the environment, or no policy of its token lets it read the path. The data stays as it is.
    PERMISSION_DENIED = "PermissionDenied" on SECRET,
        next: "Run the `zopp permission env-set` command that the event shows, or grant the capability in Vault.";
    /// The server of the source does not answer, is too slow, or shows a certificate that is not trusted. The data stays as it is.
    SERVER_UNREACHABLE = "ServerUnreachable" on SECRET,
        next: "Check the server, its address and its certificate. The operator retries.";
    /// The server refuses the operator's principal or login, or the principal's keys open nothing. The data stays as it is.
    CREDENTIALS_INVALID = "CredentialsInvalid" on SECRET, next: "Check the credentials and the clocks of both sides.";
    /// The server gives another key of the workspace than the pinned one. The data stays as it is.
    WORKSPACE_KEY_CHANGED = "WorkspaceKeyChanged" on SECRET,
        next: "Ask a member of the workspace for its fingerprint. If it is the new one, pass it with `--workspace-fingerprint`. After an intended restore from before the key was replaced, start the operator with `--accept-older`.";
    /// Nothing pins the key of the workspace, and the operator does not trust the server's first key. The data stays as it is.
    WORKSPACE_KEY_UNKNOWN = "WorkspaceKeyUnknown" on SECRET,
        next: "Compare the fingerprint that the event shows with that of a member, and pass it with `--workspace-fingerprint`.";
    /// The address belongs to no zopp server, or the server is broken. The data stays as it is.
    BAD_SERVER_ANSWER = "BadServerAnswer" on SECRET, next: "Check `--server`, and read the log of the zopp server.";
    /// Some values cannot be decrypted. They keep the value that the Secret has; all others are in sync.
    DECRYPTION_FAILED = "DecryptionFailed" on SECRET, next: "Set these values again with `zopp secret set`.";
    /// Kubernetes does not allow the names of some keys. They are left out; all others are in sync.
    INVALID_KEY_NAME = "InvalidKeyName" on SECRET, next: "Rename them with letters, digits, `-`, `_` and `.`.";
    /// The environment is larger than a Secret may be. The data stays as it is.
    TOO_LARGE = "TooLarge" on SECRET, next: "Move keys to another environment.";
    /// The Secret is immutable and differs from the environment.
    IMMUTABLE = "Immutable" on SECRET,
        next: "Delete and create it again without `immutable` if it is to follow the environment.";
    /// The environment has never held a key. The data stays as it is.
    ENVIRONMENT_EMPTY = "EnvironmentEmpty" on SECRET, next: "Set the first key, or name another source.";
    /// The server states another environment under this name than was applied, and no manifest proves that it is a newer one. The data stays as it is.
    ENVIRONMENT_REPLACED = "EnvironmentReplaced" on SECRET,
        next: "If the environment was made anew on purpose, protect it: `zopp environment protect NAME`. Without manifests, or after an intended restore of the server, start the operator with `--accept-older`.";
    /// The server states an older version of the environment than was applied. The data stays as it is.
    SOURCE_WENT_BACK = "SourceWentBack" on SECRET,
        next: "Restore the newer state. After an intended restore of the server, start the operator with `--accept-older`.";
    /// The environment is protected, and the server leaves keys out, gives old values or an old state, or states changes that no manifest shows. The data
    /// stays as it is.
    SOURCE_NOT_CURRENT = "SourceNotCurrent" on SECRET,
        next: "Look at what differs: `zopp environment protect NAME`. Only if it is right: `--accept-changes`. After an intended restore of the server, start the operator with `--accept-older`.";
    /// Another client keeps reverting the operator's writes. The operator writes again after growing pauses.
    CONTESTED = "Contested" on SECRET,
        next: "Let only one of the two write the Secret. The event names the other client by its field manager.";
    /// The API server refused the write, or stored other values. The event has the reason of the refusal.
    SYNC_FAILED = "SyncFailed" on SECRET, next: "Follow the event. The operator retries.";
}

/// Reasons that can end although neither the Secret nor the source changes, because something between them was wrong.
pub const PASSING: [&str; 10] = [
    SOURCE_NOT_READY,
    SERVER_UNREACHABLE,
    CREDENTIALS_INVALID,
    PERMISSION_DENIED,
    ENVIRONMENT_NOT_FOUND,
    BAD_SERVER_ANSWER,
    SOURCE_NOT_CURRENT,
    CONTESTED,
    SYNC_FAILED,
    TARGET_TAKEN,
];
