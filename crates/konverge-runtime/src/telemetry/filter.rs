//! Which log lines are written, changeable while the program runs.

use tracing_subscriber::{EnvFilter, Registry, reload};

/// The filter where `RUST_LOG` has none. The crate kube logs each failed attempt of its own as an error, before anybody knows
/// whether another attempt succeeds. The exporter of spans logs a collector that is away by itself.
const DEFAULT: &str = "info,tower_http=off,kube_client::client::builder=off,opentelemetry=off,opentelemetry_sdk=off,\
                       opentelemetry_otlp=off,opentelemetry_http=off";

/// The log filter of the process. Clones are handles to the same one.
#[derive(Clone)]
pub struct LogFilter {
    handle: reload::Handle<EnvFilter, Registry>,
    at_start: String,
}

/// A text that is no filter.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// It cannot be read.
    #[error(
        "{text:?} is no filter; give a level such as \"info\", or levels by module such as \"warn,konverge_runtime=debug\""
    )]
    Text {
        /// The given value.
        text: String,
        /// The reason.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The process does not log any more.
    #[error("there is no log to filter")]
    NoLog(#[source] reload::Error),
}

impl LogFilter {
    /// That of `RUST_LOG`, or the default, and what to give to the layer.
    pub(super) fn from_environment() -> Result<(Self, reload::Layer<EnvFilter, Registry>), FilterError> {
        let text = std::env::var_os(EnvFilter::DEFAULT_ENV).map(|text| text.to_string_lossy().into_owned());
        let at_start = text.filter(|text| !text.is_empty()).unwrap_or_else(|| DEFAULT.to_owned());
        let (layer, handle) = reload::Layer::new(parse(&at_start)?);
        Ok((Self { handle, at_start }, layer))
    }

    /// The filter in force.
    pub fn get(&self) -> Result<String, FilterError> {
        self.handle.with_current(ToString::to_string).map_err(FilterError::NoLog)
    }

    /// Puts another one in force, at once and until the process ends: a level, or levels by module, as in `RUST_LOG`.
    pub fn set(&self, text: &str) -> Result<(), FilterError> {
        self.handle.reload(parse(text)?).map_err(FilterError::NoLog)
    }

    /// Goes back to that of the start.
    pub fn reset(&self) -> Result<(), FilterError> {
        self.set(&self.at_start)
    }
}

fn parse(text: &str) -> Result<EnvFilter, FilterError> {
    let error = |source: Box<dyn std::error::Error + Send + Sync>| FilterError::Text { text: text.to_owned(), source };
    // An empty filter would be the level `error`, which nobody means who writes nothing.
    if text.trim().is_empty() {
        return Err(error("it is empty".into()));
    }
    EnvFilter::builder().parse(text.trim()).map_err(|source| error(Box::new(source)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_filter_is_told() {
        for text in ["", "  ", "info,konverge=loud", "[", "a=b=c"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        for text in ["info", " debug\n", "warn,konverge_runtime=trace,kube=off", DEFAULT] {
            assert!(parse(text).is_ok(), "{text:?}");
        }
    }

    #[test]
    fn it_is_changed_and_goes_back() {
        let (layer, handle) = reload::Layer::<_, Registry>::new(parse("warn").unwrap());
        let filter = LogFilter { handle, at_start: "warn".to_owned() };
        filter.set("debug").unwrap();
        assert_eq!(filter.get().unwrap(), "debug");
        filter.set("nonsense=loud").unwrap_err();
        assert_eq!(filter.get().unwrap(), "debug");
        filter.reset().unwrap();
        assert_eq!(filter.get().unwrap(), "warn");
        drop(layer);
        assert!(matches!(filter.get(), Err(FilterError::NoLog(_))));
    }
}
