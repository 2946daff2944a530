//! How things stand with a workload, a source or a trigger, in one word: in events, conditions and metrics. Each reason has its cause and its next step for
//! the reference page. Reasons of failed writes to the API server are the framework's.

const WORKLOAD: &str = "workload";
const SOURCE: &str = "Secret, ConfigMap";
const TRIGGER: &str = "`VaultSyncStatus`, `VaultRollout`";
const EITHER: &str = "workload, `VaultSyncStatus`, `VaultRollout`";

const NOTHING: &str = "Nothing: the rollout follows.";

konverge_jobs::reasons! {
    /// The operator changed the pod template. The event names the sources and the request.
    ROLLED = "RolledOut" on WORKLOAD;
    /// A workload was restarted because this source changed.
    ROLLED_USER = "RolloutTriggered" on SOURCE;
    /// An annotation has an invalid value. Nothing restarts because of it.
    INVALID_ANNOTATION = "InvalidAnnotation" on "workload, Secret, ConfigMap",
        next: "Correct the annotation that the event names.";
    /// The operator may not read a Secret or ConfigMap that the workload uses.
    FORBIDDEN = "SourceForbidden" on WORKLOAD,
        next: "Extend the operator's role. The operator retries every 30 seconds.";
    /// The source changes too often. The operator does not follow it until it has been quiet for `--runaway-quiet`.
    RAN_AWAY = "RunawaySource" on "Secret, ConfigMap, `VaultSyncStatus`, `VaultRollout`",
        next: "Find the client that keeps writing it, in its `managedFields` or in Vault's audit log.";
    /// The workload is paused by its annotation, or its Deployment is.
    PAUSED = "RolloutPaused" on WORKLOAD, next: "Remove the annotation, or resume the Deployment.";
    /// A source of the workload changes too often.
    BREAKER = "WaitingForQuiet" on WORKLOAD, next: "As for `RunawaySource`.";
    /// The minimum interval or the debounce period has not passed.
    INTERVAL = "WaitingForInterval" on WORKLOAD, next: NOTHING;
    /// The secret changed in Vault, and the Secret of `waitFor` has not followed yet.
    AWAITED = "WaitingForSecret" on WORKLOAD, next: "Nothing, or look at the tool that syncs the Secret.";
    /// The Secret of `waitFor` has not followed in time, and `onTimeout` is `Hold`.
    NOT_FOLLOWED = "SecretNotFollowed" on EITHER, next: "Look at the tool that syncs the Secret.";
    /// Workloads of an earlier wave are not ready yet.
    WAVE = "WaitingForWave" on WORKLOAD, next: NOTHING;
    /// A workload of an earlier wave does not become ready, or cannot be restarted.
    HALTED = "WaveHalted" on WORKLOAD, next: "Repair the workload that the event names, or restore the content.";
    /// The limit of rollouts per minute is reached.
    RATE = "WaitingForRate" on WORKLOAD, next: NOTHING;
    /// The limit of concurrent rollouts is reached.
    CONCURRENT = "WaitingForOthers" on WORKLOAD, next: NOTHING;
    /// The namespace has its share of the rollouts under way, or of those in a minute: `--concurrent-per-namespace`.
    SHARE = "WaitingForNamespace" on WORKLOAD, next: NOTHING;
    /// A field of the spec is missing or not valid.
    INVALID_SPEC = "InvalidSpec" on TRIGGER, next: "Correct the field that the condition names.";
    /// No `--allow-path` rule lets the namespace name this secret. The operator does not ask Vault for it.
    PATH_NOT_ALLOWED = "PathNotAllowed" on TRIGGER,
        next: "Ask the administrators for the rule that the condition shows.";
    /// `spec.timeStamp` is not a time. Rollouts continue.
    INVALID_TIMESTAMP = "InvalidTimestamp" on "`VaultSyncStatus`", next: "Correct or remove the field.";
    /// The workload does not exist, or the operator does not watch its kind or namespace.
    WORKLOAD_MISSING = "WorkloadMissing" on TRIGGER, next: "Correct the name, or check `--kinds` and `--namespace`.";
    /// The workload is in another namespace and does not allow this one.
    NOT_ALLOWED = "NotAllowed" on TRIGGER,
        next: "Add this namespace to `roll.konverge.dev/allow-from` on the workload.";
    /// An Argo Rollout with `spec.workloadRef` has no pod template.
    TEMPLATE_ELSEWHERE = "TemplateElsewhere" on EITHER, next: "Name the Deployment that it refers to.";
    /// No workload has the requested labels.
    NO_TARGETS = "NoTargets" on "`VaultRollout`", next: "Correct the selector, or label the workloads.";
    /// `spec.suspend` is set. Changes are recorded.
    SUSPENDED = "Suspended" on "`VaultRollout`", next: "Remove `spec.suspend` to continue.";
    /// The workload has opted out.
    OPTED_OUT = "WorkloadOptedOut" on TRIGGER,
        next: "Remove `roll.konverge.dev/on-change: \"false\"` from the workload.";
    /// Vault denies the request or the login.
    PERMISSION_DENIED = "PermissionDenied" on TRIGGER, next: "Add the capability that the message names to the policy.";
    /// Vault answers 404, or the engine is not KV.
    SECRET_NOT_FOUND = "SecretNotFound" on TRIGGER, next: "Correct the mount and the path.";
    /// The newest version is deleted or destroyed. Nothing restarts.
    SECRET_DELETED = "SecretDeleted" on TRIGGER, next: "Write a new version, or undelete it.";
    /// Vault is sealed, away or too slow, or the response did not come from Vault.
    VAULT_UNAVAILABLE = "VaultUnavailable" on TRIGGER, next: "Nothing: the operator continues when Vault does.";
    /// The pods run with the newest version of the secret.
    IN_SYNC = "InSync" on TRIGGER;
    /// The workload was restarted, and its new pods are not all ready.
    ROLLOUT_RUNNING = "RolloutRunning" on TRIGGER;
    /// The workload was restarted, and its new pods do not become ready.
    ROLLOUT_FAILED = "RolloutFailed" on EITHER, next: "Look at the pods of the workload, and at the new content.";
    /// The pods of a failed rollout became available after all.
    RECOVERED = "RolloutRecovered" on WORKLOAD;
    /// Another workload was restarted for the same content, and its new pods do not become ready.
    FAILED_ELSEWHERE = "HeldByFailure" on WORKLOAD, next: "Repair the workload that the event names, or the content.";
    /// A Secret or ConfigMap that new pods need does not exist or lacks a key.
    UNSATISFIED = "ReferenceMissing" on WORKLOAD, next: "Restore what the event names.";
    /// The secret changed, and the workload waits. The message has the cause and the time.
    ROLLOUT_PENDING = "RolloutPending" on TRIGGER, next: NOTHING;
    /// The original handler still writes on the object.
    ORIGINAL_RUNS = "OriginalStillRuns" on "`VaultSyncStatus`", next: "Stop the original handler.";
    /// Vault reports an older version than the one that the pods run with.
    OLDER_VERSION = "OlderVersion" on TRIGGER,
        next: "Nothing, unless Vault was restored from a backup: then write a new version.";
    /// Another client keeps removing the operator's record or setting it back. The operator restores it with exponential backoff.
    RECORD_TAKEN = "RecordTakenAway" on WORKLOAD, next: "Find that client in the `managedFields` of the workload.";
    /// A webhook, a policy or a missing permission refuses the patch.
    WORKLOAD_NOT_WRITABLE = "WorkloadNotWritable" on WORKLOAD, next: "Follow the text of the event. The operator retries.";
    /// The workload changed during the decision, and could not be read again.
    WORKLOAD_UNREADABLE = "WorkloadUnreadable" on WORKLOAD, next: "Check the operator's role. The operator retries.";
    /// The workload changes all the time.
    WORKLOAD_CONTENDED = "WorkloadContended" on WORKLOAD, next: "Find the client that keeps writing it. The operator retries.";
    /// The API server refuses the status. Rollouts continue. Only in the log.
    OBJECT_NOT_WRITABLE = "ObjectNotWritable" on TRIGGER, next: "Check the operator's role, and look for webhooks.";
    /// The custom resource definition is that of the original. Rollouts continue. Only in the log.
    OLD_DEFINITION = "OldDefinition" on TRIGGER, next: "Apply `deploy/crds/vaultsyncstatus.yaml`.";
}
