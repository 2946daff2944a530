//! Logs and spans of a program, from its first word to its last.

use konverge_runtime::telemetry::{self, LogFilter};

use super::Operator;
use crate::{options::Options, start_error::StartError};

/// How long the end of a program waits for a collector to take the last spans.
#[cfg(feature = "otlp")]
const LAST_SPANS: std::time::Duration = std::time::Duration::from_secs(3);

pub(super) struct Telemetry {
    pub(super) filter: LogFilter,
    #[cfg(feature = "otlp")]
    traces: Option<konverge_otlp::Traces>,
}

impl Telemetry {
    /// Begins to log, and to collect spans if there is anybody to send them to.
    #[cfg_attr(not(feature = "otlp"), expect(unused_variables, reason = "who spans are of, where there are spans"))]
    pub(super) fn start(options: &Options, operator: &Operator) -> Result<Self, StartError> {
        #[cfg(feature = "otlp")]
        {
            // An empty variable is one that is not set, says the standard.
            let endpoint = options.otlp_endpoint.as_deref().filter(|text| operator.sends_traces && !text.is_empty());
            let traces =
                endpoint.map(|endpoint| konverge_otlp::Traces::new(endpoint, operator.program, operator.version));
            let traces = traces.transpose()?;
            let layers = traces.as_ref().map(konverge_otlp::Traces::layers).unwrap_or_default();
            Ok(Self { filter: telemetry::init_with(options.log_format, layers)?, traces })
        }
        #[cfg(not(feature = "otlp"))]
        Ok(Self { filter: telemetry::init(options.log_format)? })
    }

    /// Sends what is left. A collector that is away costs a few seconds and nothing else.
    #[cfg(feature = "otlp")]
    pub(super) async fn finish(self) {
        if let Some(traces) = self.traces {
            traces.finish(LAST_SPANS).await;
        }
    }
}
