//! Which spans and log lines are sent.

use konverge_runtime::telemetry::{JOB, REQUESTS};
use tracing::{Level, Metadata, Subscriber, level_filters::LevelFilter, subscriber::Interest};
use tracing_subscriber::{
    layer::{Context, Filter},
    registry::LookupSpan,
};

/// Where kube opens the span of a request. Our clients have its connections only if they go through a proxy.
const REQUESTS_OF_KUBE: &str = "kube_client::client::builder";

/// Everything of level `info` and above, and the requests to the API server that belong to such a span. Those of watches and leases
/// belong to none: each would be a trace of its own that says nothing.
pub(crate) fn exported() -> Exported {
    Exported
}

pub(crate) struct Exported;

fn is_request(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && [REQUESTS, REQUESTS_OF_KUBE].contains(&metadata.target())
}

/// The exporter's own words about itself would be exported, which makes more of them.
fn is_own(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with("opentelemetry")
}

/// It lasts as long as the process, and each run beneath it is a trace of its own.
fn is_of_job(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && metadata.target() == JOB
}

fn is_coarse(metadata: &Metadata<'_>) -> bool {
    *metadata.level() <= Level::INFO && !is_own(metadata) && !is_of_job(metadata)
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Filter<S> for Exported {
    fn enabled(&self, metadata: &Metadata<'_>, context: &Context<'_, S>) -> bool {
        is_coarse(metadata) || is_request(metadata) && context.lookup_current().is_some()
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if is_coarse(metadata) {
            Interest::always()
        } else if is_request(metadata) {
            Interest::sometimes()
        } else {
            Interest::never()
        }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::DEBUG)
    }
}
