//! The states of an object, as reasons in its record, in events and in the metric of bindings, with the cause and the next step for the
//! reference page.
//!
//! The reasons of this crate's statements are declared here, once. An error such as [`VaultError`](konverge_vault::VaultError) names its reason
//! itself (`reason()`); here is only the row for the page. The framework declares its own reasons.

const OBJECT: &str = "annotated object, `VaultPush`";
const ANNOTATED: &str = "annotated object";
const PUSH: &str = "`VaultPush`";

const RETRIED: &str = "Nothing: the operator continues when Vault does.";

konverge_jobs::reasons! {
    /// Vault holds the content that the object requests.
    SYNCED = "Synced" on OBJECT;
    /// The operator deleted content in Vault that the object no longer requests.
    CLEARED = "Cleared" on OBJECT;
    /// The object no longer requests content that the operator wrote. The operator deletes it at the time that the event names.
    DELETION_PENDING = "DeletionPending" on OBJECT,
        next: "Restore the request if its removal was a mistake. To have the content deleted now, set `vault-sync.io/deletion-grace: 0s`.";
    /// Too much content is no longer requested, so its deletion needs approval. Until then, the operator deletes nothing of the namespace.
    DELETIONS_STOPPED = "DeletionsStopped" on OBJECT,
        next: "Restore the requests if their removal was a mistake, or run `kubectl konverge approve`.";
    /// Content that the object no longer requests is still in Vault, because it may not be the content that the operator wrote.
    NOT_CLEARED = "NotCleared" on OBJECT, next: "Look at the path, and delete it by hand if nobody needs it.";
    /// The operator replaced content that had no owner. On engine version 1 the old content is lost.
    ADOPTED = "Adopted" on OBJECT,
        next: "On version 2, restore the older version if somebody needs it, and set `vault-sync.io/existing: refuse` where this must not happen.";
    /// Another client had changed or deleted the content in Vault, and the operator restored it.
    DRIFT_CORRECTED = "DriftCorrected" on OBJECT, next: "Find the client in Vault's audit log if it happens again.";
    /// These values are not valid UTF-8, so Vault holds them base64-encoded.
    ENCODED = "ValuesEncoded" on OBJECT, next: "Let the reader decode them, or set `vault-sync.io/binary: refuse`.";
    /// The token may not write metadata, or Vault refused the mark. The operator works without it, and retries after five minutes.
    UNMARKED = "OwnerNotMarked" on OBJECT,
        next: "Give the policy `read`, `update` and `patch` on the metadata of the path.";
    /// An annotation that does not decide about data has an invalid value. The operator uses the default.
    ADJUSTED = "AnnotationAdjusted" on ANNOTATED, next: "Correct the annotation.";
    /// The object is paused. Vault stays as it is.
    PAUSED = "Paused" on OBJECT, next: "Remove `vault-sync.io/pause` or `spec.suspend` to continue.";
    /// Another client keeps removing the operator's record or setting it back. The operator restores it with exponential backoff.
    RECORD_TAKEN = "RecordTakenAway" on OBJECT, next: "Find that client in the `managedFields` of the object.";
    /// Another client wrote the path moments ago and has not marked it.
    JUST_WRITTEN = "JustWritten" on OBJECT, next: "Nothing: the operator checks again within seconds.";
    /// `updatePolicy: IfNotExists`, and the path already holds content. That content stays.
    LEFT_ALONE = "LeftAlone" on PUSH;
    /// The path is not valid, or lies in a part of Vault that is not for secrets.
    INVALID_PATH = "InvalidPath" on OBJECT, next: "Correct the path.";
    /// No `--allow-path` rule lets the namespace write this path.
    NOT_ALLOWED = "PathNotAllowed" on OBJECT,
        next: "Choose another path, or ask the administrators for the rule that the event shows.";
    /// An annotation that decides about data has an invalid value. Vault stays as it is.
    "InvalidAnnotation" on ANNOTATED, next: "Correct the annotation.";
    /// `vault-sync.io/secrets` is not a valid list. Vault stays as it is.
    "InvalidSecretsAnnotation" on ANNOTATED, next: "Correct the JSON of the annotation.";
    /// The spec is not valid. Vault stays as it is.
    INVALID_SPEC = "InvalidSpec" on PUSH, next: "Correct the field that the condition names.";
    /// A template cannot be rendered. The whole path stays as it is.
    INVALID_TEMPLATE = "InvalidTemplate" on PUSH, next: "Correct the template, or add the key that it uses.";
    /// `updatePolicy: Merge` needs engine version 2.
    NEEDS_VERSION_TWO = "NeedsVersionTwo" on PUSH, next: "Choose another update policy or another engine.";
    /// Another object or another cluster owns the path or the key.
    OWNED_BY_ANOTHER = "OwnedByAnother" on OBJECT, next: "Choose another path, or remove the other owner's request.";
    /// The path holds content without an owner, and `existing` is `refuse`.
    EXISTS_ALREADY = "ExistsAlready" on OBJECT,
        next: "Remove the content, choose another path, or set `existing` to `adopt`.";
    /// A Secret that the object needs does not exist. Its path stays as it is.
    SECRET_NOT_FOUND = "SecretNotFound" on OBJECT, next: "Create the Secret, or remove it from the request.";
    /// A Secret lacks a key that the object needs. The path stays as it is.
    KEY_NOT_FOUND = "KeyNotFound" on OBJECT, next: "Add the key, or remove it from the request.";
    /// There is no content to write. The path stays as it is.
    SOURCE_EMPTY = "SourceEmpty" on OBJECT, next: "Add a key to the Secret, or name keys.";
    /// A value is not valid UTF-8, and `binary` is `refuse`.
    BINARY_VALUE = "BinaryValue" on OBJECT, next: "Remove the value, or set `binary` to `base64`.";
    /// A path would hold more than 2 MiB, or is made of Secrets with more than 4 MiB. The path stays as it is; others continue.
    CONTENT_TOO_LARGE = "ContentTooLarge" on OBJECT, next: "Split the content over several paths.";
    /// The object was released although content that was written for it is still in Vault. The ConfigMap of orphans lists it.
    RELEASED = "ReleasedWithOrphans" on OBJECT, next: "Let Vault serve again, or delete the content by hand.";
    /// Vault is sealed.
    "VaultSealed" on OBJECT, next: "Unseal Vault. The operator continues by itself.";
    /// Vault cannot be reached.
    "VaultUnreachable" on OBJECT, next: "Check `--vault-addr`, the network and TLS. The operator continues by itself.";
    /// Vault did not answer within `--vault-timeout`.
    "VaultTimeout" on OBJECT, next: RETRIED;
    /// Vault answers that it does not serve, or the operator has paused its requests to it.
    "VaultUnavailable" on OBJECT, next: RETRIED;
    /// Vault's quota is exhausted.
    "VaultRateLimited" on OBJECT, next: "Nothing, or raise the quota: the operator slows down.";
    /// Vault refuses the login.
    "LoginFailed" on OBJECT, next: "Check the role, its bound service account and the login method.";
    /// The credential for the login cannot be read or is not valid.
    "CredentialUnusable" on OBJECT, next: "Check the file or the variable that the event names.";
    /// The token's policy denies the request.
    "PermissionDenied" on OBJECT, next: "Add the capability that the event names to the policy.";
    /// Vault has no KV engine at this path, or does not confirm one.
    "MountMissing" on OBJECT,
        next: "Mount the engine, correct the path, or set `vault-sync.io/kv` where the token may not ask.";
    /// The engine does not keep versions, and the request needs them.
    "VersionsUnsupported" on OBJECT, next: "Choose an engine of version 2, or another deletion policy.";
    /// The engine requires check-and-set in a form that the write cannot give.
    "CheckAndSetRequired" on OBJECT, next: "Look at the engine's setting `cas_required`.";
    /// Other clients keep writing the path at the same time.
    "VersionConflict" on OBJECT, next: "Find the other writer. The operator retries.";
    /// Vault refuses the size or the number of the values.
    "TooLargeForVault" on OBJECT, next: "Split the content, or raise the limits of Vault's listener.";
    /// The path holds a value that is not a string, which a merge would change.
    "ValueNotText" on OBJECT, next: "Remove that value, or choose another path.";
    /// The mark of ownership exceeds Vault's limits.
    "InvalidMark" on OBJECT, next: "Use a shorter name, or fewer keys of custom metadata.";
    /// Vault rejects the request.
    "VaultRejected" on OBJECT, next: "Follow the text of the event.";
    /// The response did not come from Vault, or cannot be read.
    "InvalidAnswer" on OBJECT, next: "Check `--vault-addr` and proxies on the way.";
    /// A Secret or a namespace could not be read.
    "ObjectUnreadable" on OBJECT, next: "Check the operator's role. The operator retries.";
    /// The API server refuses the record or the finalizer.
    "ObjectNotWritable" on OBJECT, next: "Look for admission webhooks and for the operator's role.";
    /// The ConfigMap of orphans cannot be written.
    "OrphansNotRecorded" on OBJECT, next: "Check the role in the operator's namespace.";
    /// The Secret with planned writes cannot be written.
    "IntentionNotRecorded" on OBJECT, next: "Check the role in the operator's namespace. The operator retries.";
    /// A run took longer than ten minutes, or met a defect of the program.
    "GivenUp" on OBJECT, next: "Report it with the text of the event.";
    /// This replica lost its lease and writes nothing.
    "NotLeader" on OBJECT, next: "Nothing: another replica continues.";
}
