//! The state that all calls share.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::{
    audit::AuditQueue,
    auth::{known::KnownCallers, replay::ReplayCache},
    events::EventBus,
    guesses::GuessLimit,
    limit_hits::LimitHits,
    limits::Limits,
    policy::Policy,
    rechecks::Rechecks,
    revocations::Revocations,
    shares::Shares,
    store::Store,
};

/// The period of the limits of open calls and of reads.
const MINUTE: Duration = Duration::from_mins(1);

/// The state that all calls share.
#[derive(Debug)]
pub(crate) struct State {
    /// The store.
    pub store: Store,
    /// The publication of changes.
    pub events: EventBus,
    /// The signatures that were received before.
    pub replays: ReplayCache,
    /// The last looks at callers of calls about secrets.
    pub known: KnownCallers,
    /// How much callers use of their limits.
    pub usage: Usage,
    /// Rows of reads and refusals.
    pub audit: AuditQueue,
    /// The policy for new identities.
    pub policy: Policy,
    /// Told which principals lost something, so that their streams ask at once whether they may go on.
    pub revocations: Revocations,
    /// Whether watches may go on.
    pub rechecks: Rechecks,
    /// The server is going; streams end.
    pub stopping: CancellationToken,
}

/// How much callers use of their limits.
#[derive(Debug)]
pub(crate) struct Usage {
    /// Guesses of codes by each address.
    pub guesses: GuessLimit,
    /// Calls without a signature by each address.
    pub open_calls: GuessLimit,
    /// Reads of each principal.
    pub reads: GuessLimit<u128>,
    /// Open watches of each principal.
    pub watches: Shares,
    /// Requests of each principal that are under way.
    pub requests: Shares,
    /// The limits that were reached lately, so that each is recorded once.
    pub reached: LimitHits,
}

impl Usage {
    /// Nobody has used anything of these limits.
    pub(crate) fn within(limits: &Limits) -> Self {
        let each_minute = |calls: u32| (calls, MINUTE / calls.max(1));
        let [(open_calls, per_open_call), (reads, per_read)] = [limits.open_calls, limits.reads].map(each_minute);
        Self {
            guesses: GuessLimit::default(),
            open_calls: GuessLimit::new(open_calls, per_open_call),
            reads: GuessLimit::new(reads, per_read),
            watches: Shares::default(),
            requests: Shares::default(),
            reached: LimitHits::default(),
        }
    }
}

impl State {
    /// Tells open streams, on all replicas, that these principals lost something.
    pub(crate) fn announce_losses(&self, principal_ids: Vec<String>) {
        self.events.publish_losses(&principal_ids);
        self.revocations.announce(principal_ids);
    }
}
