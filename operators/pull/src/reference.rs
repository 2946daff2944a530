//! The reasons and annotations of this job, for the reference pages.

use konverge_jobs::reference::{Annotation, Reason};

use crate::{annotations, reasons};

const SECRET: &str = "Secret";

const fn reason(reason: &'static str, cause: &'static str, next: &'static str) -> Reason {
    Reason::on(SECRET, reason, cause, next)
}

/// Every reason of an event of this job.
pub const REASONS: &[Reason] = &[
    reason(reasons::SYNCED, "The Secret holds the keys and values of its environment.", ""),
    reason(
        reasons::INVALID_ANNOTATION,
        "An annotation is missing or empty, or names a project that cannot be told from others. The data stays as it is.",
        "Set the annotation that the event names, or remove `zopp.dev/sync`.",
    ),
    reason(
        reasons::NOT_ALLOWED,
        "No `--allow` rule lets this namespace read the environment. The data stays as it is.",
        "Ask the operator's administrator for the rule that the event shows, or name another environment.",
    ),
    Reason {
        reason: reasons::FEATURE_MISSING,
        on: "Secret, `ZoppSecretSync`",
        cause: "The Secret has `zopp.dev/keys`, which this operator does not follow: it holds all keys of its environment. Or the object is a `ZoppSecretSync`, for which this operator does nothing.",
        next: "Put the keys that the workload needs into an environment of their own, or remove the annotation. Annotate a Secret instead of a `ZoppSecretSync`, or keep the original operator for it.",
    },
    reason(
        reasons::ENVIRONMENT_NOT_FOUND,
        "The operator's principal sees no such workspace, project or environment. The data stays as it is.",
        "Check the three annotations, and that the principal has access to the workspace.",
    ),
    reason(
        reasons::PERMISSION_DENIED,
        "The operator's principal lacks the role READ on the environment. The data stays as it is.",
        "Run the `zopp permission env-set` command that the event shows.",
    ),
    reason(
        reasons::SERVER_UNREACHABLE,
        "The zopp server does not answer, is too slow, or shows a certificate that is not trusted. The data stays as it is.",
        "Check the server, its address and its certificate. The operator retries.",
    ),
    reason(
        reasons::CREDENTIALS_INVALID,
        "The server refuses the operator's principal, or the principal's keys open nothing. The data stays as it is.",
        "Check the credentials and the clocks of both sides.",
    ),
    reason(
        reasons::WORKSPACE_KEY_CHANGED,
        "The server gives another key of the workspace than the pinned one. The data stays as it is.",
        "Ask a member of the workspace for its fingerprint. If it is the new one, pass it with `--workspace-fingerprint`.",
    ),
    reason(
        reasons::BAD_SERVER_ANSWER,
        "The address belongs to no zopp server, or the server is broken. The data stays as it is.",
        "Check `--server`, and read the log of the zopp server.",
    ),
    reason(
        reasons::DECRYPTION_FAILED,
        "Some values cannot be decrypted. They keep the value that the Secret has; all others are in sync.",
        "Set these values again with `zopp secret set`.",
    ),
    reason(
        reasons::INVALID_KEY_NAME,
        "Kubernetes does not allow the names of some keys. They are left out; all others are in sync.",
        "Rename them with letters, digits, `-`, `_` and `.`.",
    ),
    reason(
        reasons::TOO_LARGE,
        "The environment is larger than a Secret may be. The data stays as it is.",
        "Move keys to another environment.",
    ),
    reason(
        reasons::IMMUTABLE,
        "The Secret is immutable and differs from the environment.",
        "Delete and create it again without `immutable` if it is to follow the environment.",
    ),
    reason(
        reasons::ENVIRONMENT_EMPTY,
        "The environment has never held a key, so it may have been created again. The data stays as it is.",
        "Set the first key, or name another environment.",
    ),
    reason(
        reasons::SOURCE_WENT_BACK,
        "The server states an older version of the environment than was applied. The data stays as it is.",
        "Restore the newer state. If the server was restored from a backup on purpose, restart the operator.",
    ),
    reason(
        reasons::SOURCE_NOT_CURRENT,
        "The environment is protected, and the server leaves keys out, gives old values or an old state, or states changes that no manifest \
         shows. The data stays as it is.",
        "Look at what differs: `zopp environment protect NAME`. Only if it is right: `--accept-changes`. After a restore of the server, restart \
         the operator then.",
    ),
    reason(
        reasons::SYNC_FAILED,
        "The API server refused the write, or stored other values. The event has the reason of the refusal.",
        "Follow the event. The operator retries.",
    ),
];

const fn annotation(name: &'static str, meaning: &'static str, otherwise: &'static str) -> Annotation {
    Annotation { name, on: SECRET, meaning, otherwise }
}

/// Every annotation that this job reads.
pub const ANNOTATIONS: &[Annotation] = &[
    annotation(annotations::SYNC, "`true`: the Secret is filled from its environment.", "The Secret is not watched."),
    annotation(annotations::WORKSPACE, "Name of the workspace.", "`InvalidAnnotation`; the data stays as it is"),
    annotation(annotations::PROJECT, "Name of the project.", "`InvalidAnnotation`; the data stays as it is"),
    annotation(annotations::ENVIRONMENT, "Name of the environment.", "`InvalidAnnotation`; the data stays as it is"),
    annotation(
        annotations::KEYS,
        "Announced by the original operator, for a choice of keys. Neither operator follows it: the Secret gets all keys, with an event `FeatureMissing`.",
        "",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_one_entry() {
        let mut listed: Vec<_> = REASONS.iter().map(|entry| entry.reason).collect();
        let mut known = reasons::ALL.to_vec();
        listed.sort_unstable();
        known.sort_unstable();
        assert_eq!(listed, known);
    }

    #[test]
    fn every_annotation_has_one_entry() {
        let source = include_str!("annotations.rs");
        let known = source.lines().filter_map(|line| line.strip_prefix("pub const ")?.split('"').nth(1));
        assert_eq!(ANNOTATIONS.iter().map(|entry| entry.name).collect::<Vec<_>>(), known.collect::<Vec<_>>());
    }
}
