//! Where a program serves its metrics, and to whom: the same flags in each job.

use std::{fmt, path::PathBuf};

use konverge_runtime::{
    Manager,
    http_server::{Authentication, Listen, MetricsServer},
    tls::Certificate,
};
use kube::Client;

use crate::ProgramError;

/// Where a program serves its metrics, and to whom.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MetricsOptions {
    /// Where `/metrics` is served. `None` is beside health.
    pub address: Option<Listen>,
    /// Whether the API server authenticates readers and decides whether they may `get` the path.
    pub authentication: bool,
    /// Whether metrics are served over HTTPS at a separate address, with [`certificate`](Self::certificate) or with one made in memory.
    pub tls: bool,
    /// The PEM files of a certificate and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

impl MetricsOptions {
    /// Whether the program asks the API server about readers.
    pub fn authenticates(&self) -> bool {
        self.authentication && self.address != Some(Listen::Nowhere)
    }

    /// Serves the metrics of a program that is being put together. The client asks about readers.
    pub(crate) async fn serve(self, manager: &mut Manager, client: &Client) -> Result<(), ProgramError> {
        let Self { address, authentication, tls, certificate } = self;
        let authentication = authentication.then(|| Authentication::new(client.clone()));
        let Some(address) = address else {
            if let Some(authentication) = authentication {
                manager.metrics_authentication(authentication);
            }
            return Ok(());
        };
        let tls = match certificate {
            Some((certificate, key)) => Some(Certificate::from_files(certificate, key)?),
            None if tls => Some(Certificate::self_signed(["localhost"])?),
            None => None,
        };
        let server = MetricsServer::from(address).with(|server| {
            server.tls = tls;
            server.authentication = authentication;
        });
        manager.metrics_server(server).await?;
        Ok(())
    }
}

impl fmt::Display for MetricsOptions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, authentication, tls, certificate } = self;
        let address = address.map_or_else(|| "default".to_owned(), |address| address.to_string());
        let certificate = certificate.as_ref().map(|(certificate, _key)| certificate.display().to_string());
        write!(formatter, "metrics-bind-address={address} enable-metrics-auth={authentication} metrics-tls={tls} ")?;
        write!(formatter, "metrics-cert-file={}", certificate.as_deref().unwrap_or("default"))
    }
}

/// Defines the type `MetricsFlags` for a program whose variables have this prefix. It becomes [`MetricsOptions`]. Metrics are beside health, unless the
/// program has another default.
#[macro_export]
macro_rules! metrics_flags {
    ($prefix:literal) => {
        $crate::metrics_flags!($prefix, "Where /metrics is served; 0 is nowhere [default: where /healthz is]",);
    };
    ($prefix:literal, default $default:literal) => {
        $crate::metrics_flags!($prefix, "Where /metrics is served; 0 is nowhere", $default);
    };
    ($prefix:literal, $where:literal, $($default:literal)?) => {
        /// Where metrics are served, and to whom.
        #[derive(Debug, Clone, ::clap::Args)]
        #[command(about = None, long_about = None)]
        pub struct MetricsFlags {
            /// Where metrics are served.
            #[arg(
                long,
                help = $where,
                env = concat!($prefix, "_METRICS_BIND_ADDRESS"),
                $(default_value = $default,)?
                value_name = "ADDRESS"
            )]
            pub metrics_bind_address: Option<$crate::Listen>,
            /// Show metrics only to clients that may get them by the roles of the cluster
            #[arg(
                long,
                env = concat!($prefix, "_ENABLE_METRICS_AUTH"),
                default_value = "false",
                num_args = 0..=1,
                require_equals = true,
                default_missing_value = "true",
                action = ::clap::ArgAction::Set,
                value_name = "BOOL"
            )]
            pub enable_metrics_auth: bool,
            /// Serve metrics over TLS, with a certificate made in memory unless one is named
            #[arg(long, env = concat!($prefix, "_METRICS_TLS"), requires = "metrics_bind_address")]
            pub metrics_tls: bool,
            /// Certificate with which metrics are served over TLS, in PEM
            #[arg(
                long,
                env = concat!($prefix, "_METRICS_CERT_FILE"),
                requires_all = ["metrics_bind_address", "metrics_key_file"],
                value_name = "FILE"
            )]
            pub metrics_cert_file: Option<::std::path::PathBuf>,
            /// Its key, in PEM
            #[arg(
                long,
                env = concat!($prefix, "_METRICS_KEY_FILE"),
                requires = "metrics_cert_file",
                value_name = "FILE"
            )]
            pub metrics_key_file: Option<::std::path::PathBuf>,
        }

        impl MetricsFlags {
            /// Where the program serves its metrics, and to whom.
            pub fn options(&self) -> $crate::MetricsOptions {
                $crate::MetricsOptions {
                    address: self.metrics_bind_address,
                    authentication: self.enable_metrics_auth,
                    tls: self.metrics_tls,
                    certificate: self.metrics_cert_file.clone().zip(self.metrics_key_file.clone()),
                }
            }

            /// Whether the program asks the API server about readers.
            pub fn authenticates(&self) -> bool {
                self.options().authenticates()
            }
        }
    };
}
