//! The flags that say where the server is.

use std::path::PathBuf;

use clap::Args;
use konverge_zopp_client::{ClientCertificate, Profile, config::DEFAULT_SERVER};

use crate::failure::Failure;

/// Where the server is.
#[derive(Debug, Args)]
pub struct ServerArguments {
    /// Address of the server; https:// for TLS
    #[arg(long, global = true, value_name = "URL", env = "ZOPP_SERVER", default_value = DEFAULT_SERVER)]
    pub server: String,
    /// PEM file of the certificate authority to trust in place of the system's
    #[arg(long, global = true, value_name = "PATH", env = "ZOPP_TLS_CA_CERT")]
    pub tls_ca_cert: Option<PathBuf>,
    /// PEM file of the certificate to show to a server that requires one [default: as remembered by "zopp join"]
    #[arg(long, global = true, value_name = "PATH", env = "ZOPP_TLS_CLIENT_CERT")]
    pub tls_client_cert: Option<PathBuf>,
    /// PEM file of that certificate's private key
    #[arg(long, global = true, value_name = "PATH", env = "ZOPP_TLS_CLIENT_KEY")]
    pub tls_client_key: Option<PathBuf>,
    /// Generation of the server: v2, or v1 for zopp 0.1.1. Anybody who sees a signature of v1 can make any call for a minute, so v1 is
    /// used only on request [default: as remembered, else v2]
    #[arg(long, global = true, value_name = "v1|v2", env = "ZOPP_GENERATION", value_parser = generation)]
    pub generation: Option<Profile>,
    /// Refuse a workspace key that is not pinned unless a principal that this device knows signed it, and a replaced one unless an administrator made it
    /// [default: true where the configuration names the administrators of the workspace]
    #[arg(long, global = true, env = "ZOPP_REQUIRE_SIGNED_KEYS", num_args = 0..=1, default_missing_value = "true", require_equals = true,
          value_name = "BOOL", value_parser = clap::builder::FalseyValueParser::new())]
    pub require_signed_keys: Option<bool>,
    /// Refuse a configuration file that other users of this machine can read, write or replace, instead of a warning
    #[arg(long, global = true, env = "ZOPP_STRICT", value_parser = clap::builder::FalseyValueParser::new())]
    pub strict: bool,
    /// How long the server may take to answer
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: u64,
}

impl ServerArguments {
    /// The certificate to show, if it is given. Either half alone is an error.
    pub fn client_certificate(&self) -> Result<Option<ClientCertificate>, Failure> {
        // Not by clap's `requires`, which does not see a flag before the subcommand.
        match (self.tls_client_cert.clone(), self.tls_client_key.clone()) {
            (Some(certificate), Some(key)) => Ok(Some(ClientCertificate { certificate, key })),
            (None, None) => Ok(None),
            (Some(_), None) => Err(half("--tls-client-cert", "--tls-client-key", "ZOPP_TLS_CLIENT_KEY")),
            (None, Some(_)) => Err(half("--tls-client-key", "--tls-client-cert", "ZOPP_TLS_CLIENT_CERT")),
        }
    }
}

fn half(given: &str, missing: &str, variable: &str) -> Failure {
    Failure::usage(format!("{given} is given without {missing}")).next(format!("Use {missing}, or set {variable}."))
}

fn generation(text: &str) -> Result<Profile, &'static str> {
    match text {
        "v1" => Ok(Profile::V1),
        "v2" => Ok(Profile::V2),
        _ => Err("v1 or v2 is expected"),
    }
}
