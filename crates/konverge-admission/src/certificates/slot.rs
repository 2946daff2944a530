//! Where the pair is that the next handshake is served with.

use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use super::pair::Pair;
use crate::metrics::AdmissionMetrics;

/// The current pair, and what went wrong when the last one was sought. Clones are handles to the same one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slot(Arc<RwLock<State>>);

#[derive(Debug, Default)]
struct State {
    pair: Option<Pair>,
    trouble: Option<String>,
}

impl Slot {
    /// Serves the pair from the next handshake on.
    pub(crate) fn put(&self, pair: Pair, metrics: &AdmissionMetrics) {
        metrics.certificate_ends(pair.validity.ends);
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *state = State { pair: Some(pair), trouble: None };
    }

    /// Keeps the pair, and says what is wrong with getting another.
    pub(crate) fn trouble(&self, why: Option<String>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).trouble = why;
    }

    /// Shows the pair's end to metrics that did not see how it came.
    pub(crate) fn show(&self, metrics: &AdmissionMetrics) {
        if let Some(pair) = &self.0.read().unwrap_or_else(PoisonError::into_inner).pair {
            metrics.certificate_ends(pair.validity.ends);
        }
    }

    /// Whether a peer would accept the pair now.
    pub(crate) fn holds(&self, now: Timestamp) -> Result<(), String> {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match (&state.pair, &state.trouble) {
            (Some(pair), None) => pair.validity.holds(now),
            (Some(pair), Some(trouble)) => pair.validity.holds(now).map_err(|why| format!("{why}: {trouble}")),
            (None, Some(trouble)) => Err(format!("there is no certificate yet: {trouble}")),
            (None, None) => Err("there is no certificate yet".to_owned()),
        }
    }

    /// Whether a peer would accept the pair now, and its renewal is in order.
    pub(crate) fn in_order(&self, now: Timestamp) -> Result<(), String> {
        self.holds(now)?;
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match (&state.pair, &state.trouble) {
            (_, Some(trouble)) => Err(trouble.clone()),
            (Some(pair), None) if is_overdue(pair, now) => {
                Err(format!("the certificate ends at {} and was not renewed", pair.validity.ends))
            }
            _ => Ok(()),
        }
    }
}

/// Everybody renews at two thirds, so one with a tenth of its time left was forgotten.
fn is_overdue(pair: &Pair, now: Timestamp) -> bool {
    let whole = pair.validity.ends.as_second() - pair.validity.begins.as_second();
    pair.validity.ends.as_second() - now.as_second() <= whole / 10
}

impl ResolvesServerCert for Slot {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        state.pair.as_ref().map(|pair| Arc::clone(&pair.key))
    }
}
