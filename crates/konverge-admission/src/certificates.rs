//! The server's certificate, and its renewal.

mod api_failure;
mod changes;
mod inject;
mod material;
mod plan;
mod self_made;
mod store;

use std::{path::Path, sync::Arc, time::Duration};

use jiff::Timestamp;
use konverge_runtime::tls::{Certificate, Reading, Slot};
pub use konverge_runtime::tls::{FilesError, PairError};
use kube::Client;
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::{CertificateDer, pem::PemObject};
use tokio_util::sync::CancellationToken;

pub use inject::Target;
pub use plan::Lifetimes;
pub use self_made::{Permissions, SelfMade};

use crate::metrics::AdmissionMetrics;

/// The server's certificate, in a form that keeps itself valid while the server runs.
#[derive(Debug)]
#[must_use = "certificates are for a server"]
pub struct Certificates {
    slot: Slot,
    keeper: Keeper,
    callers: Option<Arc<RootCertStore>>,
}

#[derive(Debug)]
enum Keeper {
    Given(Certificate),
    SelfMade(Box<self_made::Keeper>),
}

impl Certificates {
    /// A chain, leaf first, and the leaf's key, both PEM, which are served until the end and never renewed.
    pub fn from_pem(certificate: &[u8], key: &[u8]) -> Result<Self, PairError> {
        Certificate::from_pem(certificate, key).map(Self::given)
    }

    /// From files of a chain, leaf first, and the leaf's key, both PEM. They are read now, and every 10 seconds while the server runs: what
    /// is new is served from the next handshake on, and what is broken is reported and leaves the old pair in service.
    pub fn from_files(certificate: impl AsRef<Path>, key: impl AsRef<Path>) -> Result<Self, FilesError> {
        Certificate::from_files(certificate, key).map(Self::given)
    }

    fn given(certificate: Certificate) -> Self {
        Self { slot: certificate.slot(), keeper: Keeper::Given(certificate), callers: None }
    }

    /// Of the program's own, which needs neither cert-manager nor anybody's care. Nothing happens before the server runs. Then the certificate is
    /// read or created, and the authority is published to all declared objects, with retries until it succeeds.
    /// Until there is a certificate, handshakes fail, and readiness says why.
    pub fn self_made(client: Client, options: SelfMade) -> Self {
        Self { slot: Slot::default(), keeper: Keeper::SelfMade(Box::new(options.keeper(client))), callers: None }
    }

    /// How often files are looked at, instead of every 10 seconds. Means nothing for certificates of the program's own, whose
    /// [`Lifetimes`] say it.
    pub fn look_every(self, pause: Duration) -> Self {
        let keeper = match self.keeper {
            Keeper::Given(certificate) => Keeper::Given(certificate.look_every(pause)),
            own @ Keeper::SelfMade(_) => own,
        };
        Self { keeper, ..self }
    }

    /// Answers only callers with a certificate of one of these authorities, given as PEM.
    ///
    /// An API server has one only if its administrator gave it one, with `--admission-control-config-file`; without, every caller
    /// that reaches the port is answered.
    pub fn only_for(self, authorities: &[u8]) -> Result<Self, PairError> {
        let mut callers = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(authorities) {
            let authority = authority.map_err(PairError::CertificatePem)?;
            callers.add(authority).map_err(|error| PairError::Certificate(error.to_string()))?;
        }
        if callers.is_empty() {
            return Err(PairError::NoCertificate);
        }
        Ok(Self { callers: Some(Arc::new(callers)), ..self })
    }

    /// A check that fails before the certificate does: when a new one cannot be read, renewed or made known, or is overdue.
    ///
    /// For alerts and `?verbose`, not for readiness. Readiness tells whether this replica answers the calls that reach it. All replicas share
    /// one authority, and the API server knows it or does not: if this check made replicas unready, all would leave the Service at once. A
    /// permission that is taken away, or a configuration that somebody deletes to get around a rule, would then stop calls that work, and
    /// rollouts with them. While the API server does not know the authority, its calls fail and the failure policy of each webhook decides;
    /// `konverge_webhook_injection_errors_total` counts the attempts.
    pub fn in_order(&self) -> impl Fn() -> Result<(), String> + Send + Sync + 'static {
        let slot = self.slot.clone();
        move || slot.in_order(Timestamp::now())
    }

    pub(crate) fn slot(&self) -> Slot {
        self.slot.clone()
    }

    /// How connections are secured.
    pub(crate) fn server_config(&self) -> Result<ServerConfig, rustls::Error> {
        self.slot.server_config(self.callers.as_ref(), &["h2", "http/1.1"])
    }

    /// Keeps the certificate valid until told to stop.
    pub(crate) async fn keep(self, metrics: AdmissionMetrics, stop: CancellationToken) {
        if let Some(ends) = self.slot.ends() {
            metrics.certificate_ends(ends);
        }
        match self.keeper {
            Keeper::Given(certificate) => {
                let told = move |reading| {
                    metrics.certificate_read(matches!(reading, Reading::New(_)));
                    if let Reading::New(ends) = reading {
                        metrics.certificate_ends(ends);
                    }
                };
                certificate.keep(told, stop).await;
            }
            Keeper::SelfMade(keeper) => keeper.keep(self.slot, metrics, stop).await,
        }
    }
}
