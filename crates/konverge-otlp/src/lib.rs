//! Spans to an OpenTelemetry collector, by OTLP over HTTP with protobuf.
//!
//! [`Traces`] makes the layers for [`telemetry::init_with`](konverge_runtime::telemetry::init_with), and sends what is left at the end.
//! It sends spans of level `info` and finer: each run, with controller, object, attempt and result. It also sends the log lines of that level and the
//! requests to the API server within these spans. The log filter does not change it.
//!
//! # Guarantees
//! - A collector that is away, slow or refuses delays nothing and fails nothing. 2048 spans wait for it; what is more is dropped.
//!   It is logged once when it is away, and once when it is back.
//! - The end of the program waits for it no longer than is said.
//! - Nothing is sent that would not be logged. A value that is never logged, such as a secret, is never part of a span.
//!
//! # Settings
//! The standard variables are heeded for all but the endpoint: `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_EXPORTER_OTLP_TIMEOUT`,
//! `OTEL_RESOURCE_ATTRIBUTES`, `OTEL_SERVICE_NAME`, `OTEL_TRACES_SAMPLER`, `OTEL_BSP_…`. There is no gRPC, no compression and no proxy;
//! certificates are checked against the system's roots.

mod client;
mod filter;

use std::time::Duration;

use http::Uri;
use konverge_runtime::telemetry::{AnyLayer, TraceIds};
use opentelemetry::{
    InstrumentationScope, KeyValue,
    trace::{TraceContextExt, TracerProvider},
};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use tokio::runtime::Handle;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::Layer;

use client::Client;

/// Where spans go. One per process.
pub struct Traces {
    provider: SdkTracerProvider,
}

/// Spans cannot be sent, whatever the collector does.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OtlpError {
    /// The endpoint is no address of a collector.
    #[error(
        "the OTLP endpoint is no URL of a collector; give one such as http://collector.observability:4318, without name and password"
    )]
    Endpoint,
    /// There are no roots to check certificates with.
    #[error("cannot read the system's certificates, which {endpoint} is checked against")]
    Roots {
        /// Where spans were to go.
        endpoint: String,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// One of the standard variables is wrong.
    #[error("cannot make an exporter; is one of the OTEL_… variables wrong?")]
    Exporter(#[source] ExporterBuildError),
}

impl Traces {
    /// Sends to the collector at `endpoint`, below which `v1/traces` is, as `program`. To be called within a Tokio runtime, which
    /// does the sending. Nothing is sent before there is a span.
    pub fn new(endpoint: &str, program: &'static str, version: &'static str) -> Result<Self, OtlpError> {
        let target = target(endpoint).ok_or(OtlpError::Endpoint)?;
        let roots = |source| OtlpError::Roots { endpoint: endpoint.to_owned(), source };
        let client = Client::new(&target, Handle::current()).map_err(roots)?;
        let exporter = SpanExporter::builder().with_http().with_http_client(client).with_endpoint(target.to_string());
        let resource = Resource::builder().with_attribute(KeyValue::new("service.version", version));
        let resource = if names_the_service() { resource } else { resource.with_service_name(program) };
        let provider = SdkTracerProvider::builder()
            .with_batch_exporter(exporter.build().map_err(OtlpError::Exporter)?)
            .with_resource(resource.build())
            .build();
        Ok(Self { provider })
    }

    /// The layers for the subscriber.
    pub fn layers(&self) -> Vec<AnyLayer> {
        let tracer = self.provider.tracer_with_scope(InstrumentationScope::builder("konverge").build());
        let spans = tracing_opentelemetry::layer()
            .with_tracer(tracer)
            // Of a run that many threads work on, neither says anything; the target of a line does.
            .with_threads(false)
            .with_location(false)
            .with_tracked_inactivity(false);
        vec![spans.with_filter(filter::exported()).boxed(), TraceIds::layer(trace_id)]
    }

    /// Sends what is left, for as long as `limit`, and ends. Spans that were not sent by then are lost.
    pub async fn finish(self, limit: Duration) {
        // It blocks, and its requests are sent by the runtime that this runs on.
        let finished = tokio::task::spawn_blocking(move || self.provider.shutdown_with_timeout(limit)).await;
        if let Ok(Err(error)) = finished {
            tracing::warn!(error = &error as &dyn std::error::Error, "the last spans could not be sent");
        }
    }
}

/// The standard says that traces go below the endpoint. A password in a URL would be seen where URLs are; there are headers for that.
fn target(endpoint: &str) -> Option<Uri> {
    let uri: Uri = format!("{}/v1/traces", endpoint.trim_end_matches('/')).parse().ok()?;
    let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
    let has_password = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    (is_web && !has_password && uri.host().is_some_and(|host| !host.is_empty()) && uri.query().is_none()).then_some(uri)
}

fn names_the_service() -> bool {
    let names = |variable: &str, part: &str| std::env::var(variable).is_ok_and(|text| text.contains(part));
    std::env::var("OTEL_SERVICE_NAME").is_ok_and(|name| !name.is_empty())
        || names("OTEL_RESOURCE_ATTRIBUTES", "service.name=")
}

fn trace_id(span: &Span) -> Option<String> {
    let context = span.context();
    let context = context.span().span_context().clone();
    (context.is_valid() && context.is_sampled()).then(|| context.trace_id().to_string())
}

#[cfg(test)]
mod tests {
    use opentelemetry_sdk::trace::Sampler;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn a_run_that_is_not_sampled_has_no_trace_to_lead_to() {
        for (sampler, expected) in [(Sampler::AlwaysOn, true), (Sampler::AlwaysOff, false)] {
            let tracer = SdkTracerProvider::builder().with_sampler(sampler).build().tracer("test");
            let subscriber = tracing_subscriber::registry().with(tracing_opentelemetry::layer().with_tracer(tracer));
            let id = tracing::subscriber::with_default(subscriber, || trace_id(&tracing::info_span!("reconcile")));
            assert_eq!(id.is_some(), expected, "{id:?}");
        }
    }

    #[test]
    fn each_run_of_a_job_is_a_trace_of_its_own() {
        let tracer = SdkTracerProvider::builder().build().tracer("test");
        let layer = tracing_opentelemetry::layer().with_tracer(tracer).with_filter(filter::exported());
        let ids = tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
            let job = tracing::info_span!(target: konverge_runtime::telemetry::JOB, "job", name = "pull");
            let _within = job.enter();
            ["one", "two"].map(|object| trace_id(&tracing::info_span!("reconcile", object)).unwrap())
        });
        assert_ne!(ids[0], ids[1]);
    }

    #[test]
    fn traces_go_below_the_endpoint() {
        for (endpoint, expected) in [
            ("http://collector:4318", Some("http://collector:4318/v1/traces")),
            ("https://collector/otlp/", Some("https://collector/otlp/v1/traces")),
            ("collector:4318", None),
            ("grpc://collector:4317", None),
            ("http://me:secret@collector:4318", None),
            ("http://", None),
            ("http://collector?token=a", None),
            ("", None),
        ] {
            assert_eq!(target(endpoint).map(|uri| uri.to_string()).as_deref(), expected, "{endpoint}");
        }
    }
}
