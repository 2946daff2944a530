//! The state that all calls share.

use tokio_util::sync::CancellationToken;

use crate::{
    audit::AuditQueue,
    auth::{known::KnownCallers, replay::ReplayCache},
    events::EventBus,
    guesses::GuessLimit,
    limit_hits::LimitHits,
    policy::Policy,
    rechecks::Rechecks,
    revocations::Revocations,
    shares::Shares,
    store::Store,
};

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
    /// How often an address may guess a code.
    pub guesses: GuessLimit,
    /// Open watches of each principal.
    pub watches: Shares,
    /// Requests of each principal that are under way.
    pub requests: Shares,
    /// Which limits were reached lately, so that they are recorded once.
    pub limit_hits: LimitHits,
    /// How often an address may call without a signature.
    pub open_calls: GuessLimit,
    /// How often a principal may read.
    pub reads: GuessLimit<u128>,
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

impl State {
    /// Tells open streams, on all replicas, that these principals lost something.
    pub(crate) fn announce_losses(&self, principal_ids: Vec<String>) {
        self.events.publish_losses(&principal_ids);
        self.revocations.announce(principal_ids);
    }
}
