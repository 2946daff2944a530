//! Which trace a span belongs to, for log lines and exemplars. The engine knows no exporter; an exporter adds this layer.

use tracing::{Span, Subscriber, field};
use tracing_subscriber::{Layer, filter::LevelFilter, registry::LookupSpan};

/// Tells the trace of a span, in hexadecimal, if there is one and it is collected.
pub struct TraceIds(fn(&Span) -> Option<String>);

impl TraceIds {
    /// A layer that does nothing but be found.
    pub fn layer<S>(of: fn(&Span) -> Option<String>) -> Box<dyn Layer<S> + Send + Sync>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        Self(of).with_filter(LevelFilter::OFF).boxed()
    }
}

impl<S: Subscriber> Layer<S> for TraceIds {}

/// Writes the trace into the field `trace_id` of a span that has that field, and tells it. Nothing where nobody collects.
pub(crate) fn note_trace(span: &Span) -> Option<String> {
    let of = span.with_subscriber(|(_, dispatch)| dispatch.downcast_ref::<TraceIds>().map(|ids| ids.0))??;
    let id = of(span)?;
    span.record("trace_id", field::display(&id));
    Some(id)
}
