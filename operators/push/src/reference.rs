//! The reasons and annotations of this job, for the reference pages. Reasons of failed writes to the API server are the framework's.

use konverge_jobs::reference::{Annotation, Reason};

use crate::{annotations, reasons};

const OBJECT: &str = "annotated object, `VaultPush`";
const ANNOTATED: &str = "annotated object";
const PUSH: &str = "`VaultPush`";

const fn reason(reason: &'static str, cause: &'static str, next: &'static str) -> Reason {
    Reason::on(OBJECT, reason, cause, next)
}

const RETRIED: &str = "Nothing: the operator continues when Vault does.";
const FIX_PATH: &str = "Correct the path.";
const READ_EVENT: &str = "Follow the text of the event.";

/// Every reason of an event, a recorded state or a condition of this job.
pub const REASONS: &[Reason] = &[
    reason(reasons::SYNCED, "Vault holds the content that the object requests.", ""),
    reason(reasons::CLEARED, "The operator deleted content in Vault that the object no longer requests.", ""),
    reason(
        reasons::NOT_CLEARED,
        "Content that the object no longer requests is still in Vault, because it may not be the content that the operator wrote.",
        "Look at the path, and delete it by hand if nobody needs it.",
    ),
    reason(
        reasons::ADOPTED,
        "The operator replaced content that had no owner. On engine version 1 the old content is lost.",
        "On version 2, restore the older version if somebody needs it, and set `vault-sync.io/existing: refuse` where this must not happen.",
    ),
    reason(
        reasons::DRIFT_CORRECTED,
        "Another client had changed or deleted the content in Vault, and the operator restored it.",
        "Find the client in Vault's audit log if it happens again.",
    ),
    reason(
        reasons::ENCODED,
        "These values are not valid UTF-8, so Vault holds them base64-encoded.",
        "Let the reader decode them, or set `vault-sync.io/binary: refuse`.",
    ),
    reason(
        reasons::UNMARKED,
        "The token may not write metadata, or Vault refused the mark. The operator works without it, and retries after five minutes.",
        "Give the policy `read`, `update` and `patch` on the metadata of the path.",
    ),
    Reason::on(
        ANNOTATED,
        reasons::ADJUSTED,
        "An annotation that does not decide about data has an invalid value. The operator uses the default.",
        "Correct the annotation.",
    ),
    reason(
        reasons::PAUSED,
        "The object is paused. Vault stays as it is.",
        "Remove `vault-sync.io/pause` or `spec.suspend` to continue.",
    ),
    reason(
        reasons::RECORD_TAKEN,
        "Another client keeps removing the operator's record or setting it back. The operator restores it with exponential backoff.",
        "Find that client in the `managedFields` of the object.",
    ),
    reason(
        reasons::JUST_WRITTEN,
        "Another client wrote the path moments ago and has not marked it.",
        "Nothing: the operator checks again within seconds.",
    ),
    Reason::on(
        PUSH,
        reasons::LEFT_ALONE,
        "`updatePolicy: IfNotExists`, and the path already holds content. That content stays.",
        "",
    ),
    reason("InvalidPath", "The path is not valid, or lies in a part of Vault that is not for secrets.", FIX_PATH),
    reason(
        reasons::NOT_ALLOWED,
        "No `--allow-path` rule lets the namespace write this path.",
        "Choose another path, or ask the administrators for the rule that the event shows.",
    ),
    Reason::on(
        ANNOTATED,
        "InvalidAnnotation",
        "An annotation that decides about data has an invalid value. Vault stays as it is.",
        "Correct the annotation.",
    ),
    Reason::on(
        ANNOTATED,
        "InvalidSecretsAnnotation",
        "`vault-sync.io/secrets` is not a valid list. Vault stays as it is.",
        "Correct the JSON of the annotation.",
    ),
    Reason::on(
        PUSH,
        reasons::INVALID_SPEC,
        "The spec is not valid. Vault stays as it is.",
        "Correct the field that the condition names.",
    ),
    Reason::on(
        PUSH,
        reasons::INVALID_TEMPLATE,
        "A template cannot be rendered. The whole path stays as it is.",
        "Correct the template, or add the key that it uses.",
    ),
    Reason::on(
        PUSH,
        reasons::NEEDS_VERSION_TWO,
        "`updatePolicy: Merge` needs engine version 2.",
        "Choose another update policy or another engine.",
    ),
    reason(
        reasons::OWNED_BY_ANOTHER,
        "Another object or another cluster owns the path or the key.",
        "Choose another path, or remove the other owner's request.",
    ),
    reason(
        reasons::EXISTS_ALREADY,
        "The path holds content without an owner, and `existing` is `refuse`.",
        "Remove the content, choose another path, or set `existing` to `adopt`.",
    ),
    reason(
        reasons::SECRET_NOT_FOUND,
        "A Secret that the object needs does not exist. Its path stays as it is.",
        "Create the Secret, or remove it from the request.",
    ),
    reason(
        reasons::KEY_NOT_FOUND,
        "A Secret lacks a key that the object needs. The path stays as it is.",
        "Add the key, or remove it from the request.",
    ),
    reason(
        reasons::SOURCE_EMPTY,
        "There is no content to write. The path stays as it is.",
        "Add a key to the Secret, or name keys.",
    ),
    reason(
        reasons::BINARY_VALUE,
        "A value is not valid UTF-8, and `binary` is `refuse`.",
        "Remove the value, or set `binary` to `base64`.",
    ),
    reason(
        reasons::CONTENT_TOO_LARGE,
        "A path would hold more than 2 MiB, or is made of Secrets with more than 4 MiB. The path stays as it is; others continue.",
        "Split the content over several paths.",
    ),
    reason(
        reasons::RELEASED,
        "The object was released although content that was written for it is still in Vault. The ConfigMap of orphans lists it.",
        "Let Vault serve again, or delete the content by hand.",
    ),
    reason("VaultSealed", "Vault is sealed.", "Unseal Vault. The operator continues by itself."),
    reason(
        "VaultUnreachable",
        "Vault cannot be reached.",
        "Check `--vault-addr`, the network and TLS. The operator continues by itself.",
    ),
    reason("VaultTimeout", "Vault did not answer within `--vault-timeout`.", RETRIED),
    reason(
        "VaultUnavailable",
        "Vault answers that it does not serve, or the operator has paused its requests to it.",
        RETRIED,
    ),
    reason("VaultRateLimited", "Vault's quota is exhausted.", "Nothing, or raise the quota: the operator slows down."),
    reason(
        "LoginFailed",
        "Vault refuses the login.",
        "Check the role, its bound service account and the login method.",
    ),
    reason(
        "CredentialUnusable",
        "The credential for the login cannot be read or is not valid.",
        "Check the file or the variable that the event names.",
    ),
    reason(
        "PermissionDenied",
        "The token's policy denies the request.",
        "Add the capability that the event names to the policy.",
    ),
    reason(
        "MountMissing",
        "Vault has no KV engine at this path, or does not confirm one.",
        "Mount the engine, correct the path, or set `vault-sync.io/kv` where the token may not ask.",
    ),
    reason(
        "VersionsUnsupported",
        "The engine does not keep versions, and the request needs them.",
        "Choose an engine of version 2, or another deletion policy.",
    ),
    reason(
        "CheckAndSetRequired",
        "The engine requires check-and-set in a form that the write cannot give.",
        "Look at the engine's setting `cas_required`.",
    ),
    reason(
        "VersionConflict",
        "Other clients keep writing the path at the same time.",
        "Find the other writer. The operator retries.",
    ),
    reason(
        "TooLargeForVault",
        "Vault refuses the size or the number of the values.",
        "Split the content, or raise the limits of Vault's listener.",
    ),
    reason(
        "ValueNotText",
        "The path holds a value that is not a string, which a merge would change.",
        "Remove that value, or choose another path.",
    ),
    reason(
        "InvalidMark",
        "The mark of ownership exceeds Vault's limits.",
        "Use a shorter name, or fewer keys of custom metadata.",
    ),
    reason("VaultRejected", "Vault rejects the request.", READ_EVENT),
    reason(
        "InvalidAnswer",
        "The response did not come from Vault, or cannot be read.",
        "Check `--vault-addr` and proxies on the way.",
    ),
    reason(
        "ObjectUnreadable",
        "A Secret or a namespace could not be read.",
        "Check the operator's role. The operator retries.",
    ),
    reason(
        "ObjectNotWritable",
        "The API server refuses the record or the finalizer.",
        "Look for admission webhooks and for the operator's role.",
    ),
    reason(
        "OrphansNotRecorded",
        "The ConfigMap of orphans cannot be written.",
        "Check the role in the operator's namespace.",
    ),
    reason(
        "IntentionNotRecorded",
        "The Secret with planned writes cannot be written.",
        "Check the role in the operator's namespace. The operator retries.",
    ),
    reason(
        "GivenUp",
        "A run took longer than ten minutes, or met a defect of the program.",
        "Report it with the text of the event.",
    ),
    reason("NotLeader", "This replica lost its lease and writes nothing.", "Nothing: another replica continues."),
];

const fn annotation(name: &'static str, meaning: &'static str, otherwise: &'static str) -> Annotation {
    Annotation { name, on: "workload, Secret", meaning, otherwise }
}

const STOPS: &str = "`InvalidAnnotation`; Vault stays as it is";

/// Every annotation that this job reads or writes.
pub const ANNOTATIONS: &[Annotation] = &[
    annotation(
        annotations::PATH,
        "The path in Vault's API, such as `secret/data/my-app`. Without it the object has not opted in.",
        "`InvalidPath`, `PathNotAllowed`; Vault stays as it is",
    ),
    annotation(
        annotations::SECRETS,
        "The chosen keys, such as `[{\"name\":\"db\",\"keys\":[\"password\"],\"prefix\":\"db_\"}]`, parsed as Go parses it. Default: all.",
        "`InvalidSecretsAnnotation`; Vault stays as it is",
    ),
    annotation(
        annotations::PRESERVE,
        "Of the original: exactly `true` is the same as `deletion-policy: keep`.",
        "no effect; `AnnotationAdjusted`",
    ),
    annotation(
        annotations::RECONCILE,
        "The interval of drift checks as Go writes it, such as `5m` or `1h30m`, or `off`. Default: `off`. At least `30s`.",
        "counts as `off`, and below `30s` as `30s`; `AnnotationAdjusted`",
    ),
    annotation(
        annotations::ROTATION_CHECK,
        "`disabled`: each run compares with Vault. Default: `enabled`.",
        "no effect; `AnnotationAdjusted`",
    ),
    annotation(annotations::SECRET_VERSIONS, "Of the original. This operator neither reads nor writes it.", ""),
    Annotation {
        name: annotations::FINALIZER,
        on: "workload, Secret, `VaultPush`",
        meaning: "The finalizer. The operator sets it before the first write to Vault, and only on objects that it writes for.",
        otherwise: "",
    },
    annotation(
        annotations::DELETION_POLICY,
        "The treatment of content that the object no longer requests: `soft`, `destroy`, `metadata` or `keep`. Default: `--default-deletion-policy`.",
        STOPS,
    ),
    annotation(
        annotations::EXISTING,
        "The treatment of content without an owner: `adopt` or `refuse`. Default: `--existing`.",
        STOPS,
    ),
    annotation(
        annotations::BINARY,
        "How values that are not valid UTF-8 are written: `base64` or `refuse`. Default: `--binary`.",
        STOPS,
    ),
    annotation(
        annotations::KV,
        "The engine as `MOUNT:1` or `MOUNT:2`, such as `secret:2`, for a token that may not ask Vault.",
        "`InvalidAnnotation`; Vault stays as it is. A value that contradicts Vault has no effect",
    ),
    annotation(
        annotations::PAUSE,
        "`true`: Vault stays as it is. The content of a deleted object is cleared all the same.",
        "no effect; `AnnotationAdjusted`",
    ),
    annotation(annotations::SYNC_NOW, "Each new value starts a comparison with Vault.", ""),
    annotation(
        annotations::IMAGE_PULL_SECRETS,
        "`true`: Secrets for pulling images count among those that the pods use. Default: `false`.",
        "no effect; `AnnotationAdjusted`",
    ),
    annotation(
        annotations::STATUS,
        "Written by the operator: the state, and each path with its version.",
        "is replaced",
    ),
];
