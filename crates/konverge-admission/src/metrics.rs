//! The metrics of webhooks, under the names of controller-runtime.

use std::time::Duration;

use http::StatusCode;
use jiff::Timestamp;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::Registry,
};

use crate::endpoint::Question;

/// The label `webhook` is the path, of which there are as many as were registered.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    webhook: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    webhook: String,
    code: u16,
}

/// The series of the webhooks of a process. Clones are handles to the same ones.
///
/// Begin with [`AdmissionMetrics::register`]; those of [`Default`] are counted and seen by nobody.
#[derive(Clone, Debug)]
pub struct AdmissionMetrics {
    requests: Family<CodeLabels, Counter>,
    latency: Family<Labels, Histogram, fn() -> Histogram>,
    in_flight: Family<Labels, Gauge>,
    panics: Counter,
    conversion_panics: Counter,
    handshake_failures: Counter,
    certificate_reads: Counter,
    certificate_read_errors: Counter,
    certificate_expiry: Gauge,
    injection_errors: Counter,
}

impl Default for AdmissionMetrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            // From one millisecond to half a minute, the longest that an API server waits.
            latency: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 16))),
            in_flight: Family::default(),
            panics: Counter::default(),
            conversion_panics: Counter::default(),
            handshake_failures: Counter::default(),
            certificate_reads: Counter::default(),
            certificate_read_errors: Counter::default(),
            certificate_expiry: Gauge::default(),
            injection_errors: Counter::default(),
        }
    }
}

impl AdmissionMetrics {
    /// Adds the series to a registry, once.
    pub fn register(registry: &mut Registry) -> Self {
        let this = Self::default();
        registry.register(
            "controller_runtime_webhook_requests",
            "Calls of webhooks by path and HTTP status",
            this.requests.clone(),
        );
        registry.register(
            "controller_runtime_webhook_latency_seconds",
            "From the head of a call to its answer, with the time to read the body",
            this.latency.clone(),
        );
        registry.register(
            "controller_runtime_webhook_requests_in_flight",
            "Calls of webhooks that are not answered yet",
            this.in_flight.clone(),
        );
        registry.register("controller_runtime_webhook_panics", "Panics of admission handlers", this.panics.clone());
        registry.register(
            "controller_runtime_conversion_webhook_panics",
            "Panics of conversions",
            this.conversion_panics.clone(),
        );
        registry.register(
            "certwatcher_read_certificate",
            "Attempts to read the serving certificate from its files or its Secret",
            this.certificate_reads.clone(),
        );
        registry.register(
            "certwatcher_read_certificate_errors",
            "Attempts to read the serving certificate that gave none",
            this.certificate_read_errors.clone(),
        );
        registry.register(
            "konverge_webhook_certificate_expiry_timestamp_seconds",
            "When the serving certificate ends, in seconds since 1970; 0 while there is none",
            this.certificate_expiry.clone(),
        );
        registry.register(
            "konverge_webhook_tls_handshake_errors",
            "Connections to the webhooks that ended before they were secure",
            this.handshake_failures.clone(),
        );
        registry.register(
            "konverge_webhook_injection_errors",
            "Failed attempts to bring the certificate authority into a webhook configuration or a definition",
            this.injection_errors.clone(),
        );
        this
    }

    /// Shows a path before its first call, so that a rate of it is right from the first.
    pub(crate) fn path(&self, path: &str) {
        for code in [StatusCode::OK, StatusCode::INTERNAL_SERVER_ERROR] {
            drop(self.requests.get_or_create(&CodeLabels { webhook: path.to_owned(), code: code.as_u16() }));
        }
        drop(self.in_flight.get_or_create(&Labels { webhook: path.to_owned() }));
    }

    /// Counts a call as in flight until the guard is gone, also when the caller hangs up.
    pub(crate) fn begin(&self, path: &str) -> InFlight {
        let labels = Labels { webhook: path.to_owned() };
        let gauge = self.in_flight.get_or_create(&labels).clone();
        gauge.inc();
        InFlight(gauge)
    }

    pub(crate) fn answered(&self, path: &str, status: StatusCode, took: Duration) {
        let webhook = path.to_owned();
        self.requests.get_or_create(&CodeLabels { webhook: webhook.clone(), code: status.as_u16() }).inc();
        self.latency.get_or_create(&Labels { webhook }).observe(took.as_secs_f64());
    }

    pub(crate) fn panicked(&self, question: Question) {
        match question {
            Question::Admission => self.panics.inc(),
            Question::Conversion => self.conversion_panics.inc(),
        };
    }

    pub(crate) fn handshake_failed(&self) {
        self.handshake_failures.inc();
    }

    pub(crate) fn certificate_read(&self, succeeded: bool) {
        self.certificate_reads.inc();
        if !succeeded {
            self.certificate_read_errors.inc();
        }
    }

    pub(crate) fn certificate_ends(&self, at: Timestamp) {
        self.certificate_expiry.set(at.as_second());
    }

    pub(crate) fn injection_failed(&self) {
        self.injection_errors.inc();
    }
}

/// A call that is not answered yet.
pub(crate) struct InFlight(Gauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text;

    use super::*;

    #[test]
    fn row_31_the_text_has_the_known_names() {
        let mut registry = Registry::default();
        let metrics = AdmissionMetrics::register(&mut registry);
        metrics.path("/p");
        let guard = metrics.begin("/p");
        metrics.answered("/p", StatusCode::OK, Duration::from_millis(3));
        metrics.panicked(Question::Admission);
        metrics.panicked(Question::Conversion);
        metrics.certificate_read(false);
        let mut encoded = String::new();
        text::encode(&mut encoded, &registry).unwrap();
        for line in [
            r#"controller_runtime_webhook_requests_total{webhook="/p",code="200"} 1"#,
            r#"controller_runtime_webhook_requests_total{webhook="/p",code="500"} 0"#,
            r#"controller_runtime_webhook_latency_seconds_count{webhook="/p"} 1"#,
            r#"controller_runtime_webhook_requests_in_flight{webhook="/p"} 1"#,
            "controller_runtime_webhook_panics_total 1",
            "controller_runtime_conversion_webhook_panics_total 1",
            "certwatcher_read_certificate_total 1",
            "certwatcher_read_certificate_errors_total 1",
        ] {
            assert!(encoded.contains(line), "{line} is not in:\n{encoded}");
        }
        drop(guard);
        encoded.clear();
        text::encode(&mut encoded, &registry).unwrap();
        assert!(encoded.contains(r#"controller_runtime_webhook_requests_in_flight{webhook="/p"} 0"#));
    }
}
