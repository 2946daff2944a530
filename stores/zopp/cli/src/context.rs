//! The context of every command: the server's address, the pins of the server, and the principals of this device.

use std::{cell::OnceCell, path::PathBuf, time::Duration};

use konverge_zopp_client::{
    Client, ClientCertificate, ClientConfig, ConfigFile, Connection, Fingerprint, Identity, Trust,
    config::{canonical_address, is_unprotected},
    config_file::{self, Exposure, FileError, Lock},
    trust::{Basis, Learnt},
};

use crate::{escape::visible, failure::Failure, file_key, server::ServerArguments};

/// Where to call and in whose name.
pub struct Context {
    server: ServerArguments,
    trust: OnceCell<Trust>,
}

impl Context {
    /// Reads and dials nothing yet.
    pub fn new(server: ServerArguments) -> Self {
        Self { server, trust: OnceCell::new() }
    }

    /// A connection for calls that nobody signs.
    pub fn connection(&self) -> Result<Connection, Failure> {
        let mut config = ClientConfig::new(self.server.server.as_str());
        config.ca_certificate.clone_from(&self.server.tls_ca_cert);
        config.client_certificate = self.server.client_certificate()?;
        config.call_timeout = self.timeout();
        config.profile = self.server.generation;
        config.require_signed_keys = self.server.require_signed_keys;
        config.trust = self.trust()?.clone();
        Ok(Connection::new(&config)?)
    }

    /// How long the server may take to answer.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.server.timeout)
    }

    /// The pins of the server. [`Context::remember`] saves the pins that a command adds.
    pub fn trust(&self) -> Result<&Trust, Failure> {
        if let Some(trust) = self.trust.get() {
            return Ok(trust);
        }
        let address = self.address()?;
        if is_unprotected(&address) {
            eprintln!(
                "Warning: {address} is another machine and does not use TLS: everybody on the way can read and change what is sent; use \
                 https://"
            );
        }
        let trust = Trust::new(Self::config_or_empty()?.server(&address));
        Ok(self.trust.get_or_init(|| trust))
    }

    /// The server's address, as it is remembered.
    pub fn address(&self) -> Result<String, Failure> {
        Ok(canonical_address(&self.server.server)?)
    }

    /// Remembers the generation and the client certificate of the command line: for `zopp join`, which decides them for the commands to
    /// come.
    pub fn remember_requested(&self) -> Result<(), Failure> {
        if let Some(generation) = self.server.generation {
            self.trust()?.remember_generation(generation);
        }
        if let Some(ClientCertificate { certificate, key }) = self.server.client_certificate()? {
            let absolute = |file: PathBuf| {
                std::path::absolute(&file).map_err(|source| {
                    Failure::new(format!("the path of {} cannot be found", file.display())).because(source)
                })
            };
            let certificate = ClientCertificate { certificate: absolute(certificate)?, key: absolute(key)? };
            self.trust()?.remember_client_certificate(certificate);
        }
        Ok(())
    }

    /// Saves what the command learnt of the server, whether it succeeded or not, and tells what was believed at first sight. Must not be
    /// called under [`Context::lock`].
    pub fn remember(&self) -> Result<(), Failure> {
        Ok(self.save_pins()??)
    }

    /// Like [`Context::remember`], but only warns about a file that cannot be written. For commands that are not there to change it: they
    /// have checked the pins in the file, and the next command learns new pins again.
    pub fn remember_if_writable(&self) -> Result<(), Failure> {
        if let Err(error) = self.save_pins()? {
            let error = Failure::from(error).text();
            eprintln!(
                "Warning: new pins of {} are not saved, and the next command checks them again: {error}",
                self.address()?
            );
        }
        Ok(())
    }

    fn save_pins(&self) -> Result<Result<(), FileError>, Failure> {
        let Some(learnt) = self.trust.get().and_then(Trust::take_learnt) else {
            return Ok(Ok(()));
        };
        let address = self.address()?;
        report_first_uses(&address, &learnt);
        let is_more_than_a_call = learnt.is_irreplaceable();
        match Self::save_learnt(&address, learnt) {
            // The generation is only a call saved, and manifests change with each write; a read-only file is no reason to complain at each
            // command.
            Ok(Err(_)) | Err(_) if !is_more_than_a_call => Ok(Ok(())),
            saved => saved,
        }
    }

    /// Saves the pins of a server. The inner error means that the file cannot be written.
    fn save_learnt(address: &str, learnt: Learnt) -> Result<Result<(), FileError>, Failure> {
        let path = Self::config_path()?;
        if !path.exists() {
            return Ok(Ok(()));
        }
        let _lock = match config_file::lock(&path) {
            Err(error @ FileError::Unwritable { .. }) => return Ok(Err(error)),
            locked => locked?,
        };
        let mut config = Self::config()?;
        let merged = learnt.merge_into(config.servers.entry(address.to_owned()).or_default());
        let written = Self::write(&config)?;
        merged?;
        Ok(written)
    }

    /// A client in the name of the current principal.
    pub fn client(&self) -> Result<Client, Failure> {
        self.client_as(None)
    }

    /// A client in the name of a principal of this device.
    pub fn client_as(&self, principal: Option<&str>) -> Result<Client, Failure> {
        let identity = Identity::from_config(&Self::config_with_keys()?, &Self::config_path()?, principal)?;
        Ok(Client::new(self.connection()?, identity))
    }

    /// Warns about a configuration file that other users of this machine can read, write or replace, or refuses it on request.
    pub fn check_file_mode(&self) -> Result<(), Failure> {
        // Without a home directory there is no file, and commands that need none work.
        let Ok(path) = Self::config_path() else { return Ok(()) };
        let Some(Exposure { reason, remedy }) = config_file::exposure(&path) else { return Ok(()) };
        if self.server.strict {
            return Err(Failure::new(format!("{reason}, which --strict refuses")).next(format!(
                "Run {remedy}. If other users may have read or replaced {}, replace its keys.",
                path.display()
            )));
        }
        eprintln!("Warning: {reason}. The configuration file holds private keys and pins: {remedy}");
        Ok(())
    }

    /// Returns the principals of this device, with their private keys decrypted if the file is protected.
    pub fn config_with_keys() -> Result<ConfigFile, Failure> {
        let mut config = Self::config()?;
        Self::open_keys(&mut config)?;
        Ok(config)
    }

    /// Decrypts the private keys of a protected file. [`Context::save`] encrypts them again.
    pub fn open_keys(config: &mut ConfigFile) -> Result<(), Failure> {
        match file_key::of(config)? {
            Some(key) => Ok(config.open_keys(key, &Self::config_path()?)?),
            None => Ok(()),
        }
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

    /// Waits until no other command changes the principals of this device, and keeps others from it until the lock is dropped. Held from
    /// reading to saving: two commands at once lose nothing of each other's.
    pub fn lock() -> Result<Lock, Failure> {
        Ok(config_file::lock(&Self::config_path()?)?)
    }

    /// Replaces the principals of this device; under [`Context::lock`].
    pub fn save(config: &ConfigFile) -> Result<(), Failure> {
        Ok(Self::write(config)??)
    }

    /// Writes the file, with its private keys encrypted if it is protected. The inner error means that the file cannot be written.
    fn write(config: &ConfigFile) -> Result<Result<(), FileError>, Failure> {
        let path = Self::config_path()?;
        let key = if config.has_open_keys() { file_key::of(config)? } else { None };
        match key {
            Some(key) => {
                let sealed = config.with_sealed_keys(key).map_err(|source| {
                    Failure::new("the private keys of this device cannot be encrypted").because(source)
                })?;
                Ok(config_file::save(&path, &sealed))
            }
            None => Ok(config_file::save(&path, config)),
        }
    }
}

/// On standard error: pins of first use are the moment in which a lying server is believed.
fn report_first_uses(address: &str, learnt: &Learnt) {
    for (name, pin) in learnt.workspaces.iter().filter(|(_, pin)| matches!(pin.basis, Basis::Followed(_))) {
        eprintln!("Note: the key of workspace '{}' was replaced, and is now:\n  {}", visible(name), pin.fingerprint);
    }
    for (name, pin) in learnt.workspaces.iter().filter(|(_, pin)| pin.basis == Basis::FirstUse) {
        let name = visible(name);
        eprintln!(
            "Note: this device sees the key of workspace '{name}' on {address} for the first time, and pins it:\n  {}\n  Compare it with \
             another member's: zopp workspace fingerprint -w {name}",
            pin.fingerprint
        );
    }
}

/// Tells that a pin was replaced by one for which somebody vouched.
pub fn report_replaced(what: &str, before: Option<Fingerprint>) {
    if let Some(before) = before {
        eprintln!("Note: the pinned key of {} was another one until now:\n  {before}", visible(what));
    }
}
