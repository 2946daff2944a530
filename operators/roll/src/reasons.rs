//! How things stand with a workload or a source, in one word: in events and in metrics.

/// A workload was rolled.
pub const ROLLED: &str = "RolledOut";
/// A workload was rolled for this source.
pub const ROLLED_USER: &str = "RolloutTriggered";
/// An annotation cannot be followed.
pub const INVALID_ANNOTATION: &str = "InvalidAnnotation";
/// A source of its may not be read.
pub const FORBIDDEN: &str = "SourceForbidden";
/// A source changes again and again.
pub const RAN_AWAY: &str = "RunawaySource";
/// It waits until an annotation or a pause goes.
pub const PAUSED: &str = "RolloutPaused";
/// It waits until a source is quiet.
pub const BREAKER: &str = "WaitingForQuiet";
/// It waits for more changes, or for its last rollout to lie back far enough.
pub const INTERVAL: &str = "WaitingForInterval";
/// It waits for a rollout that is under way.
pub const RUNNING: &str = "WaitingForRollout";
/// It waits for others of an earlier wave.
pub const WAVE: &str = "WaitingForWave";
/// Others of an earlier wave do not become ready.
pub const HALTED: &str = "WaveHalted";
/// It waits for the rate over the cluster.
pub const RATE: &str = "WaitingForRate";
/// It waits for others to be done.
pub const AT_ONCE: &str = "WaitingForOthers";
