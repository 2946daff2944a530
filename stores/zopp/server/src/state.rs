//! What all calls share.

use std::time::Duration;

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{audit::AuditQueue, auth::ReplayCache, events::EventBus, store::Store};

/// What all calls share.
#[derive(Debug)]
pub(crate) struct State {
    /// What is kept.
    pub store: Store,
    /// Who is told.
    pub events: EventBus,
    /// Held from before a secret is changed until the change is published: changes are told in the order in which they happened.
    pub publishing: Mutex<()>,
    /// What was received before.
    pub replays: ReplayCache,
    /// Rows of reads and refusals.
    pub audit: AuditQueue,
    /// How often an idle stream asks whether it may still go on.
    pub recheck: Duration,
    /// The server is going; streams end.
    pub stopping: CancellationToken,
}
