//! The reasons and annotations of this job, for the reference pages. Reasons of failed writes to the API server are the framework's.

use konverge_jobs::reference::{Annotation, Reason};

use crate::{declarations, reasons};

const WORKLOAD: &str = "workload";
const SOURCE: &str = "Secret, ConfigMap";
const TRIGGER: &str = "`VaultSyncStatus`, `VaultRollout`";
const EITHER: &str = "workload, `VaultSyncStatus`, `VaultRollout`";

const NOTHING: &str = "Nothing: the rollout follows.";

/// Every reason of an event or a condition of this job.
pub const REASONS: &[Reason] = &[
    Reason::on(
        WORKLOAD,
        reasons::ROLLED,
        "The operator changed the pod template. The event names the sources and the request.",
        "",
    ),
    Reason::on(SOURCE, reasons::ROLLED_USER, "A workload was restarted because this source changed.", ""),
    Reason::on(
        "workload, Secret, ConfigMap",
        reasons::INVALID_ANNOTATION,
        "An annotation has an invalid value. Nothing restarts because of it.",
        "Correct the annotation that the event names.",
    ),
    Reason::on(
        WORKLOAD,
        reasons::FORBIDDEN,
        "The operator may not read a Secret or ConfigMap that the workload uses.",
        "Extend the operator's role. The operator retries every 30 seconds.",
    ),
    Reason::on(
        "Secret, ConfigMap, `VaultSyncStatus`, `VaultRollout`",
        reasons::RAN_AWAY,
        "The source changes too often. The operator does not follow it until it has been quiet for `--runaway-quiet`.",
        "Find the client that keeps writing it, in its `managedFields` or in Vault's audit log.",
    ),
    Reason::on(
        WORKLOAD,
        reasons::PAUSED,
        "The workload is paused by its annotation, or its Deployment is.",
        "Remove the annotation, or resume the Deployment.",
    ),
    Reason::on(WORKLOAD, reasons::BREAKER, "A source of the workload changes too often.", "As for `RunawaySource`."),
    Reason::on(WORKLOAD, reasons::INTERVAL, "The minimum interval or the debounce period has not passed.", NOTHING),
    Reason::on(
        WORKLOAD,
        reasons::AWAITED,
        "The secret changed in Vault, and the Secret of `waitFor` has not followed yet.",
        "Nothing, or look at the tool that syncs the Secret.",
    ),
    Reason::on(
        EITHER,
        reasons::NOT_FOLLOWED,
        "The Secret of `waitFor` has not followed in time, and `onTimeout` is `Hold`.",
        "Look at the tool that syncs the Secret.",
    ),
    Reason::on(WORKLOAD, reasons::WAVE, "Workloads of an earlier wave are not ready yet.", NOTHING),
    Reason::on(
        WORKLOAD,
        reasons::HALTED,
        "A workload of an earlier wave does not become ready, or cannot be restarted.",
        "Repair the workload that the event names, or restore the content.",
    ),
    Reason::on(WORKLOAD, reasons::RATE, "The limit of rollouts per minute is reached.", NOTHING),
    Reason::on(WORKLOAD, reasons::CONCURRENT, "The limit of concurrent rollouts is reached.", NOTHING),
    Reason::on(
        TRIGGER,
        reasons::INVALID_SPEC,
        "A field of the spec is missing or not valid.",
        "Correct the field that the condition names.",
    ),
    Reason::on(
        TRIGGER,
        reasons::PATH_NOT_ALLOWED,
        "No `--allow-path` rule lets the namespace name this secret. The operator does not ask Vault for it.",
        "Ask the administrators for the rule that the condition shows.",
    ),
    Reason::on(
        "`VaultSyncStatus`",
        reasons::INVALID_TIMESTAMP,
        "`spec.timeStamp` is not a time. Rollouts continue.",
        "Correct or remove the field.",
    ),
    Reason::on(
        TRIGGER,
        reasons::WORKLOAD_MISSING,
        "The workload does not exist, or the operator does not watch its kind or namespace.",
        "Correct the name, or check `--kinds` and `--namespace`.",
    ),
    Reason::on(
        TRIGGER,
        reasons::NOT_ALLOWED,
        "The workload is in another namespace and does not allow this one.",
        "Add this namespace to `roll.konverge.dev/allow-from` on the workload.",
    ),
    Reason::on(
        EITHER,
        reasons::TEMPLATE_ELSEWHERE,
        "An Argo Rollout with `spec.workloadRef` has no pod template.",
        "Name the Deployment that it refers to.",
    ),
    Reason::on(
        "`VaultRollout`",
        reasons::NO_TARGETS,
        "No workload has the requested labels.",
        "Correct the selector, or label the workloads.",
    ),
    Reason::on(
        "`VaultRollout`",
        reasons::SUSPENDED,
        "`spec.suspend` is set. Changes are recorded.",
        "Remove `spec.suspend` to continue.",
    ),
    Reason::on(
        TRIGGER,
        reasons::OPTED_OUT,
        "The workload has opted out.",
        "Remove `roll.konverge.dev/on-change: \"false\"` from the workload.",
    ),
    Reason::on(
        TRIGGER,
        reasons::PERMISSION_DENIED,
        "Vault denies the request or the login.",
        "Add the capability that the message names to the policy.",
    ),
    Reason::on(
        TRIGGER,
        reasons::SECRET_NOT_FOUND,
        "Vault answers 404, or the engine is not KV.",
        "Correct the mount and the path.",
    ),
    Reason::on(
        TRIGGER,
        reasons::SECRET_DELETED,
        "The newest version is deleted or destroyed. Nothing restarts.",
        "Write a new version, or undelete it.",
    ),
    Reason::on(
        TRIGGER,
        reasons::VAULT_UNAVAILABLE,
        "Vault is sealed, away or too slow, or the response did not come from Vault.",
        "Nothing: the operator continues when Vault does.",
    ),
    Reason::on(TRIGGER, reasons::IN_SYNC, "The pods run with the newest version of the secret.", ""),
    Reason::on(
        TRIGGER,
        reasons::ROLLOUT_RUNNING,
        "The workload was restarted, and its new pods are not all ready.",
        "",
    ),
    Reason::on(
        TRIGGER,
        reasons::ROLLOUT_FAILED,
        "The workload was restarted, and its new pods do not become ready.",
        "Look at the pods of the workload.",
    ),
    Reason::on(
        TRIGGER,
        reasons::ROLLOUT_PENDING,
        "The secret changed, and the workload waits. The message has the cause and the time.",
        NOTHING,
    ),
    Reason::on(
        "`VaultSyncStatus`",
        reasons::ORIGINAL_RUNS,
        "The original handler still writes on the object.",
        "Stop the original handler.",
    ),
    Reason::on(
        TRIGGER,
        reasons::OLDER_VERSION,
        "Vault reports an older version than the one that the pods run with.",
        "Nothing, unless Vault was restored from a backup: then write a new version.",
    ),
    Reason::on(
        WORKLOAD,
        reasons::RECORD_TAKEN,
        "Another client keeps removing the operator's record or setting it back. The operator restores it with exponential backoff.",
        "Find that client in the `managedFields` of the workload.",
    ),
    Reason::on(
        WORKLOAD,
        "WorkloadNotWritable",
        "A webhook, a policy or a missing permission refuses the patch.",
        "Follow the text of the event. The operator retries.",
    ),
    Reason::on(
        WORKLOAD,
        "WorkloadUnreadable",
        "The workload changed during the decision, and could not be read again.",
        "Check the operator's role. The operator retries.",
    ),
    Reason::on(
        WORKLOAD,
        "WorkloadContended",
        "The workload changes all the time.",
        "Find the client that keeps writing it. The operator retries.",
    ),
    Reason::on(
        TRIGGER,
        "ObjectNotWritable",
        "The API server refuses the status. Rollouts continue. Only in the log.",
        "Check the operator's role, and look for webhooks.",
    ),
    Reason::on(
        TRIGGER,
        "OldDefinition",
        "The custom resource definition is that of the original. Rollouts continue. Only in the log.",
        "Apply `deploy/crds/vaultsyncstatus.yaml`.",
    ),
];

const fn of_workload(name: &'static str, meaning: &'static str, otherwise: &'static str) -> Annotation {
    Annotation { name, on: WORKLOAD, meaning, otherwise }
}

const fn of_source(name: &'static str, meaning: &'static str, otherwise: &'static str) -> Annotation {
    Annotation { name, on: SOURCE, meaning, otherwise }
}

const REFUSED: &str = "`InvalidAnnotation`; nothing restarts because of it";

/// Every annotation of ours that this job reads or writes. Those of Reloader and wave are on their migration pages.
pub const ANNOTATIONS: &[Annotation] = &[
    of_workload(
        declarations::ON_CHANGE,
        "`true`: restart for every source that the pods use. `false`: never restart, whatever requests it. Or a list of `secret/NAME`, `configmap/NAME` and, for single keys, `secret/NAME:KEY`.",
        REFUSED,
    ),
    of_workload(
        declarations::MIN_INTERVAL,
        "The minimum time between two rollouts, such as `10m`. Default: `--min-interval`.",
        REFUSED,
    ),
    of_workload(declarations::WAVE, "A whole number. Smaller waves go first. Default: 0.", REFUSED),
    of_workload(
        declarations::PAUSE,
        "`true`: changes are recorded, and cause one rollout after the annotation is removed.",
        REFUSED,
    ),
    of_workload(
        declarations::ALLOW_FROM,
        "The other namespaces whose `VaultSyncStatus` and `VaultRollout` objects may restart the workload: a list, or `*`.",
        REFUSED,
    ),
    of_source(declarations::ROLL_USERS, "`true`: restart every workload that uses this object.", REFUSED),
    of_source(
        declarations::ROLL_SELECTOR,
        "Restart the workloads of this namespace with these labels, such as `app=web,tier=front`.",
        REFUSED,
    ),
    of_source(declarations::IGNORE, "`true`: restart no workload, whatever requests it.", REFUSED),
    of_workload(
        declarations::RECORD,
        "Written by the operator: a digest of each source, the last rollout and its cause.",
        "is replaced",
    ),
    Annotation {
        name: declarations::STAMP,
        on: "pod template",
        meaning: "Written by the operator. Each rollout changes it.",
        otherwise: "",
    },
    of_workload(
        declarations::ZOPP_RELOAD,
        "Of zopp: `true` restarts the workload for all Secrets that its pods use.",
        "The workload has not opted in.",
    ),
    Annotation {
        name: declarations::ZOPP_RESTARTED_AT,
        on: "pod template",
        meaning: "Written by the operator for workloads with `zopp.dev/reload`: the time of the rollout.",
        otherwise: "",
    },
    Annotation {
        name: declarations::RESTARTED_AT,
        on: "pod template",
        meaning: "Written by the operator at a rollout for a secret in Vault: the time of the rollout.",
        otherwise: "",
    },
];
