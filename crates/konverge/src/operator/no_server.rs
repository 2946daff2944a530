//! The replacement for the HTTP server in a build without it. Each function has the signature of the one that it replaces.

use konverge_runtime::{Manager, Metrics, Queue, object::ObjectKey, telemetry::LogFilter};
use kube::Client;

use crate::{options::Options, start_error::StartError};

#[expect(clippy::unused_async, reason = "an address may be taken")]
pub(super) async fn manager(_options: &Options, metrics: Metrics) -> Result<Manager, StartError> {
    Ok(Manager::new(metrics))
}

#[expect(clippy::unused_async, reason = "an address may be taken")]
pub(super) async fn serve_metrics(
    _options: &Options,
    _manager: &mut Manager,
    _client: &Client,
) -> Result<(), StartError> {
    Ok(())
}

pub(super) fn show_filter(_manager: &mut Manager, _filter: LogFilter) {}

#[derive(Default)]
pub(crate) struct Queues {}

impl Queues {
    #[expect(clippy::unused_self, reason = "there is nothing to keep")]
    pub(crate) fn add(&mut self, _queue: &Queue<ObjectKey>) {}

    #[expect(clippy::unused_self, reason = "there is nothing to show")]
    pub(super) fn serve(self, _options: &Options, _manager: &mut Manager) {}
}
