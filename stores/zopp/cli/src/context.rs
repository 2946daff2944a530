//! What every command works with: the server's address and the principals of this device.

use std::{path::PathBuf, time::Duration};

use konverge_zopp_client::{
    Client, ClientConfig, ConfigFile, Connection, Identity,
    config_file::{self, FileError},
};

use crate::{arguments::ServerArguments, failure::Failure};

/// Where to call and in whose name.
pub struct Context {
    server: ServerArguments,
}

impl Context {
    /// Reads and dials nothing yet.
    pub fn new(server: ServerArguments) -> Self {
        Self { server }
    }

    /// A connection for calls that nobody signs.
    pub fn connection(&self) -> Result<Connection, Failure> {
        let mut config = ClientConfig::new(self.server.server.as_str());
        config.ca_certificate.clone_from(&self.server.tls_ca_cert);
        config.call_timeout = Duration::from_secs(self.server.timeout);
        Ok(Connection::new(&config)?)
    }

    /// A client in the name of the current principal.
    pub fn client(&self) -> Result<Client, Failure> {
        self.client_as(None)
    }

    /// A client in the name of a principal of this device.
    pub fn client_as(&self, principal: Option<&str>) -> Result<Client, Failure> {
        let identity = Identity::from_file(&Self::config_path()?, principal)?;
        Ok(Client::new(self.connection()?, identity))
    }

    /// Where the principals of this device are kept.
    pub fn config_path() -> Result<PathBuf, Failure> {
        Ok(config_file::default_path()?)
    }

    /// The principals of this device.
    pub fn config() -> Result<ConfigFile, Failure> {
        Ok(config_file::load(&Self::config_path()?)?)
    }

    /// The principals of this device, none if there is no file yet.
    pub fn config_or_empty() -> Result<ConfigFile, Failure> {
        match config_file::load(&Self::config_path()?) {
            Err(FileError::Missing { .. }) => Ok(ConfigFile::default()),
            loaded => Ok(loaded?),
        }
    }

    /// Replaces the principals of this device.
    pub fn save(config: &ConfigFile) -> Result<(), Failure> {
        Ok(config_file::save(&Self::config_path()?, config)?)
    }
}
