//! How things stand with a workload or a source, in one word: in events and in metrics.

/// A workload was rolled.
pub const ROLLED: &str = "RolledOut";
/// A workload was rolled for this source.
pub const ROLLED_USER: &str = "RolloutTriggered";
/// An annotation cannot be followed.
pub const INVALID_ANNOTATION: &str = "InvalidAnnotation";
/// A source of its may not be read.
pub const FORBIDDEN: &str = "SourceForbidden";
/// A source changes too often.
pub const RAN_AWAY: &str = "RunawaySource";
/// It waits until an annotation or a pause goes.
pub const PAUSED: &str = "RolloutPaused";
/// It waits until a source is quiet.
pub const BREAKER: &str = "WaitingForQuiet";
/// It waits for more changes, or for its last rollout to lie back far enough.
pub const INTERVAL: &str = "WaitingForInterval";
/// It waits until a Secret has followed a change in Vault.
pub const AWAITED: &str = "WaitingForSecret";
/// That Secret has not followed in time, and nothing is rolled without it.
pub const NOT_FOLLOWED: &str = "SecretNotFollowed";
/// It waits for others of an earlier wave.
pub const WAVE: &str = "WaitingForWave";
/// Others of an earlier wave do not become ready.
pub const HALTED: &str = "WaveHalted";
/// It waits for the rate over the cluster.
pub const RATE: &str = "WaitingForRate";
/// It waits for others to be done.
pub const CONCURRENT: &str = "WaitingForOthers";
/// An object asks for what cannot be understood.
pub const INVALID_SPEC: &str = "InvalidSpec";
/// An object asks for a secret that the platform does not let objects of its namespace name.
pub const PATH_NOT_ALLOWED: &str = "PathNotAllowed";
/// A time in an object's spec is none.
pub const INVALID_TIMESTAMP: &str = "InvalidTimestamp";
/// The workload that an object names is not there.
pub const WORKLOAD_MISSING: &str = "WorkloadMissing";
/// The workload does not allow objects of that namespace to have it rolled.
pub const NOT_ALLOWED: &str = "NotAllowed";
/// The workload runs pods of another's template, and has none that could be changed.
pub const TEMPLATE_ELSEWHERE: &str = "TemplateElsewhere";
/// No workload has the labels that an object asks for.
pub const NO_TARGETS: &str = "NoTargets";
/// An object says that nothing is to be rolled for its sake for the time being.
pub const SUSPENDED: &str = "Suspended";
/// The workload says that it is never to be rolled.
pub const OPTED_OUT: &str = "WorkloadOptedOut";
/// Vault denies access, or there is no login.
pub const PERMISSION_DENIED: &str = "PermissionDenied";
/// There is no such secret in Vault.
pub const SECRET_NOT_FOUND: &str = "SecretNotFound";
/// The newest version of the secret in Vault is deleted or destroyed.
pub const SECRET_DELETED: &str = "SecretDeleted";
/// Vault cannot be asked, or its answer is none.
pub const VAULT_UNAVAILABLE: &str = "VaultUnavailable";
/// The pods run with what is in Vault.
pub const IN_SYNC: &str = "InSync";
/// The workload was rolled, and its new pods are not all there yet.
pub const ROLLOUT_RUNNING: &str = "RolloutRunning";
/// The workload was rolled, and its new pods do not become ready.
pub const ROLLOUT_FAILED: &str = "RolloutFailed";
/// It changed, and its workload is about to be rolled.
pub const ROLLOUT_PENDING: &str = "RolloutPending";
/// The original still works on the object.
pub const ORIGINAL_RUNS: &str = "OriginalStillRuns";
/// Vault tells of an older version than the one that the pods run with.
pub const OLDER_VERSION: &str = "OlderVersion";
/// Somebody takes away what is remembered of a workload.
pub const RECORD_TAKEN: &str = "RecordTakenAway";
