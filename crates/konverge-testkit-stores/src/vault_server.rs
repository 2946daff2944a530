//! A real Vault.
//!
//! It is Vault's own core and HTTP API with the parts that tests here need, built from Go modules. If `VAULT_BIN` or `BAO_BIN`
//! names a program, it is that program; without `BAO_BIN`, [`VaultServer::open_bao`] builds an OpenBao. Either is started with one
//! configuration file and set up over its API, so that no test can tell which it is. Vault is under the Business Source Licence:
//! it serves tests and is never shipped.

mod administration;
mod program;

use std::{ffi::OsString, fs, io, path::PathBuf, time::Duration};

use konverge_testkit::{Process, ProcessError, ProcessSpec, RunDirectory, eventually, free_port};
use rcgen::{CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, KeyPair};
use serde_json::{Value, json};
use tokio::net::TcpStream;

pub use self::administration::VaultServerError;
use self::{administration::Administration, program::Server};
use crate::certificate::{self, Certificate};

/// A server that starts on an idle machine in less than a second.
const READY_WITHIN: Duration = Duration::from_mins(1);

/// Another process may take a free port that was found; this often others are tried.
const ATTEMPTS: u32 = 3;

/// Of so many bytes a request may be: room for the largest Secret of Kubernetes as text, and too little for it in base64, so that
/// what is too large is so for every server. Of itself each takes 32 MiB.
const REQUEST_SIZE: u32 = 1_200_000;

/// The number of names and values that OpenBao takes in a request from 2.5 on; its own default is 1,000. This is enough for a Secret of
/// 10,000 keys. Vault does not know the word and takes 10,000 keys in an object.
const JSON_STRINGS: u32 = 30_000;

const AUTHORITY: &str = "vault-ca.crt";
const CERTIFICATE: &str = "vault.crt";
const KEY: &str = "vault.key";

/// Where the data are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum VaultStorage {
    /// In memory, gone with the process.
    #[default]
    Memory,
    /// In files, there again after [`VaultServer::start_again`].
    File,
}

/// The servers to start.
#[derive(Debug, Clone, Copy, Default)]
pub struct VaultOptions {
    /// Where the data are.
    pub storage: VaultStorage,
    /// Whether [`VaultServer::address`] is one of HTTPS, behind an authority that only this server has.
    pub tls: bool,
}

/// A Vault, initialised and unsealed, without mounts but its own. Dropping it ends it.
pub struct VaultServer {
    process: Process,
    administration: Administration,
    address: String,
    authority: Option<CertifiedIssuer<'static, KeyPair>>,
    root_token: String,
    unseal_key: String,
    /// Removed when the last of its clones goes, so it stays as long as the process.
    run: RunDirectory,
}

impl VaultServer {
    /// The program that is started: the one that a variable names, else ours, which is built if it is not in the cache. Blocks while
    /// it builds.
    pub fn program() -> Result<PathBuf, VaultServerError> {
        Ok(program::find()?.path)
    }

    /// OpenBao's own program, for `BAO_BIN`; built if it is not in the cache. Blocks while it builds.
    pub fn open_bao() -> Result<PathBuf, VaultServerError> {
        program::open_bao()
    }

    /// Builds the server if this machine has not done so before, starts it on free ports, and waits until it is unsealed.
    pub async fn start(options: VaultOptions) -> Result<Self, VaultServerError> {
        // The build blocks for minutes, once per machine.
        let server = tokio::task::spawn_blocking(program::find).await.map_err(io::Error::other)??;
        let mut attempt = 1;
        loop {
            match Self::start_with(&server, options).await {
                Err(VaultServerError::Process(ProcessError::Ended { .. })) if attempt < ATTEMPTS => attempt += 1,
                outcome => return outcome,
            }
        }
    }

    async fn start_with(server: &Server, options: VaultOptions) -> Result<Self, VaultServerError> {
        let run = RunDirectory::new()?;
        let (port, secure_port) = (free_port()?, free_port()?);
        let mut listeners = vec![listener(port, json!({ "tls_disable": true }))];
        let plain = format!("http://127.0.0.1:{port}");
        let mut address = plain.clone();
        if options.tls {
            address = format!("https://localhost:{secure_port}");
            let files = json!({ "tls_cert_file": run.path().join(CERTIFICATE), "tls_key_file": run.path().join(KEY) });
            listeners.push(listener(secure_port, files));
        }
        let config = json!({
            "listener": listeners,
            "storage": storage(server, options.storage, &run)?,
            "api_addr": plain,
            "cluster_addr": format!("http://127.0.0.1:{}", free_port()?),
            "disable_mlock": true,
            // OpenBao lets nobody ask for an audit log over its API unless this is said; Vault does not know the word.
            "unsafe_allow_api_audit_creation": true,
        });
        let path = run.path().join("vault.json");
        fs::write(&path, serde_json::to_vec_pretty(&config).map_err(io::Error::from)?)?;
        let mut config_argument = OsString::from("-config=");
        config_argument.push(&path);
        let authority = if options.tls { Some(new_certificates(&run)?) } else { None };
        let mut this = Self {
            process: Process::start(&run, ProcessSpec::new("vault", &server.path).arg("server").arg(config_argument))?,
            administration: Administration::new(port),
            address,
            authority,
            root_token: String::new(),
            unseal_key: String::new(),
            run,
        };
        this.ready().await?;
        let secrets = json!({ "secret_shares": 1, "secret_threshold": 1 });
        let answer = this.administration.call("PUT", "sys/init", "", &secrets).await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        this.root_token = text(&answer["root_token"]);
        this.unseal_key = text(&answer["keys"][0]);
        this.unseal().await?;
        Ok(this)
    }

    async fn ready(&mut self) -> Result<(), ProcessError> {
        let port = self.administration.port();
        let answers = || async move { TcpStream::connect(("127.0.0.1", port)).await.is_ok() };
        self.process.ready("accept connections", READY_WITHIN, answers).await
    }

    /// Where it answers; of HTTPS if that was asked for.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The authority that signed its certificate, in PEM, if it has one.
    pub fn authority(&self) -> Option<String> {
        self.authority.as_ref().map(CertifiedIssuer::pem)
    }

    /// The token of an administrator.
    pub fn root_token(&self) -> &str {
        &self.root_token
    }

    /// The folder of this run, with its log.
    pub fn run_directory(&self) -> &RunDirectory {
        &self.run
    }

    /// Asks as the administrator, always without TLS: `path` follows `/v1/`, [`Value::Null`] is no body. Gives the answer, null
    /// if it has no body. Any status but a 2xx is an error that shows the answer.
    pub async fn request(&self, method: &str, path: &str, body: &Value) -> Result<Value, VaultServerError> {
        self.administration.call(method, path, &self.root_token, body).await
    }

    /// Sends a request with this token; see [`VaultServer::request`].
    pub async fn request_as(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Result<Value, VaultServerError> {
        self.administration.call(method, path, token, body).await
    }

    /// Mounts a KV engine.
    pub async fn mount_kv(&self, path: &str, version: u32) -> Result<(), VaultServerError> {
        let settings = json!({ "type": "kv", "options": { "version": version.to_string() } });
        self.request("POST", &format!("sys/mounts/{path}"), &settings).await?;
        if version == 2 {
            self.upgraded(path).await?;
        }
        Ok(())
    }

    /// A new mount of version 2 refuses requests until it has written its own settings.
    async fn upgraded(&self, path: &str) -> Result<(), VaultServerError> {
        let config = format!("{path}/config");
        let answers = eventually(READY_WITHIN, || async {
            let answer = self.request("GET", &config, &Value::Null).await;
            answer.is_ok().then_some(())
        });
        if answers.await.is_err() {
            self.request("GET", &config, &Value::Null).await?;
        }
        Ok(())
    }

    /// Writes a policy in Vault's own language.
    pub async fn policy(&self, name: &str, rules: &str) -> Result<(), VaultServerError> {
        self.request("PUT", &format!("sys/policies/acl/{name}"), &json!({ "policy": rules })).await?;
        Ok(())
    }

    /// A new token with these policies, with the settings of `auth/token/create` that are given beside them.
    pub async fn token(&self, policies: &[&str], settings: Value) -> Result<String, VaultServerError> {
        let mut body = json!({ "policies": policies });
        if let (Some(body), Value::Object(settings)) = (body.as_object_mut(), settings) {
            body.extend(settings);
        }
        let answer = self.request("POST", "auth/token/create", &body).await?;
        Ok(answer["auth"]["client_token"].as_str().unwrap_or_default().to_owned())
    }

    /// Seals it: it answers and refuses.
    pub async fn seal(&self) -> Result<(), VaultServerError> {
        self.request("PUT", "sys/seal", &Value::Null).await.map(drop)
    }

    /// Unseals it, and waits until it serves.
    pub async fn unseal(&self) -> Result<(), VaultServerError> {
        self.administration.call("PUT", "sys/unseal", "", &json!({ "key": self.unseal_key })).await?;
        let serves = eventually(READY_WITHIN, || async {
            self.administration.call("GET", "sys/health", "", &Value::Null).await.ok()
        });
        if serves.await.is_err() {
            self.administration.call("GET", "sys/health", "", &Value::Null).await?;
        }
        Ok(())
    }

    /// Its process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Kills it. Data in files stay.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again, on the same ports, and waits until it accepts connections. It is sealed.
    pub async fn start_again(&mut self) -> Result<(), VaultServerError> {
        self.process.start_again()?;
        Ok(self.ready().await?)
    }

    /// Another authority and a certificate of it; they count from the next start.
    pub fn rotate_authority(&mut self) -> Result<(), VaultServerError> {
        self.authority = Some(new_certificates(&self.run)?);
        Ok(())
    }

    /// Another certificate of the same authority, which says this; it counts from the next start.
    pub fn certify(&mut self, says: Certificate) -> Result<(), VaultServerError> {
        let authority = self.authority.as_ref().ok_or(VaultServerError::NoTls)?;
        write_certificate(&self.run, authority, says)
    }

    /// Certificate and key, in PEM, of a client whose common name this is, signed by [`VaultServer::authority`].
    pub fn client_certificate(&self, name: &str) -> Result<(String, String), VaultServerError> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, name);
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let authority = self.authority.as_ref().ok_or(VaultServerError::NoTls)?;
        Ok((parameters.signed_by(&key, authority)?.pem(), key.serialize_pem()))
    }
}

/// A listener in the configuration of the server.
fn listener(port: u16, tls: Value) -> Value {
    let mut listener = json!({
        "address": format!("127.0.0.1:{port}"),
        "max_request_size": REQUEST_SIZE,
        "max_request_json_strings": JSON_STRINGS,
    });
    if let (Some(listener), Value::Object(tls)) = (listener.as_object_mut(), tls) {
        listener.extend(tls);
    }
    json!({ "tcp": listener })
}

/// The storage in the configuration of the server, with a folder for it if it needs one.
fn storage(server: &Server, storage: VaultStorage, run: &RunDirectory) -> io::Result<Value> {
    Ok(match storage {
        VaultStorage::Memory => json!({ "inmem": {} }),
        VaultStorage::File => {
            let folder = run.path().join("vault-data");
            fs::create_dir(&folder)?;
            json!({ server.persistent: { "path": folder } })
        }
    })
}

fn new_certificates(run: &RunDirectory) -> Result<CertifiedIssuer<'static, KeyPair>, VaultServerError> {
    let authority = certificate::authority("konverge-vault")?;
    fs::write(run.path().join(AUTHORITY), authority.pem())?;
    write_certificate(run, &authority, Certificate::Good)?;
    Ok(authority)
}

fn write_certificate(
    run: &RunDirectory,
    authority: &CertifiedIssuer<'static, KeyPair>,
    says: Certificate,
) -> Result<(), VaultServerError> {
    let (certificate, key) = certificate::server(authority, says)?;
    for (name, content) in [(CERTIFICATE, certificate), (KEY, key)] {
        fs::write(run.path().join(name), content)?;
    }
    Ok(())
}
