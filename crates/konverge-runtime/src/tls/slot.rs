//! Where the pair is that the next handshake is served with.

use std::sync::{Arc, PoisonError, RwLock};

use jiff::Timestamp;
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier},
    sign::CertifiedKey,
};

use super::pair::Pair;

/// The current pair, and what went wrong when the last one was sought. Clones are handles to the same one.
#[derive(Debug, Clone, Default)]
pub struct Slot(Arc<RwLock<State>>);

#[derive(Debug, Default)]
struct State {
    pair: Option<Pair>,
    trouble: Option<String>,
}

impl Slot {
    /// A slot that has a pair already.
    pub fn of(pair: Pair) -> Self {
        let slot = Self::default();
        slot.put(pair);
        slot
    }

    /// Serves the pair from the next handshake on.
    pub fn put(&self, pair: Pair) {
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *state = State { pair: Some(pair), trouble: None };
    }

    /// Keeps the pair, and says what is wrong with getting another.
    pub fn trouble(&self, why: Option<String>) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).trouble = why;
    }

    /// When the pair ends, if there is one.
    pub fn ends(&self) -> Option<Timestamp> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).pair.as_ref().map(|pair| pair.validity.ends)
    }

    /// Whether two thirds of the pair's time are over, or there is none.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        state.pair.as_ref().is_none_or(|pair| pair.validity.is_due(now))
    }

    /// Whether a peer would accept the pair now.
    pub fn holds(&self, now: Timestamp) -> Result<(), String> {
        let state = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match (&state.pair, &state.trouble) {
            (Some(pair), None) => pair.validity.holds(now),
            (Some(pair), Some(trouble)) => pair.validity.holds(now).map_err(|why| format!("{why}: {trouble}")),
            (None, Some(trouble)) => Err(format!("there is no certificate yet: {trouble}")),
            (None, None) => Err("there is no certificate yet".to_owned()),
        }
    }

    /// Whether a peer would accept the pair now, and its renewal is in order.
    pub fn in_order(&self, now: Timestamp) -> Result<(), String> {
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

    /// The configuration of a server that serves what is here, to everybody or to `callers` only: those with a certificate of one of
    /// these authorities. `protocols` are what follows the handshake, the best first: `h2`, `http/1.1`.
    pub fn server_config(
        &self,
        callers: Option<&Arc<RootCertStore>>,
        protocols: &[&str],
    ) -> Result<ServerConfig, rustls::Error> {
        let provider = Arc::new(ring::default_provider());
        let builder =
            ServerConfig::builder_with_provider(Arc::clone(&provider)).with_safe_default_protocol_versions()?;
        let builder = match callers {
            None => builder.with_no_client_auth(),
            Some(callers) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(callers), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| rustls::Error::General(error.to_string()))?)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(self.clone()));
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        Ok(config)
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
