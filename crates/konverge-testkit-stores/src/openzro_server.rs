//! The real management server of openZro.
//!
//! No package registry has it, so it is not built here: `OPENZRO_MANAGEMENT_BIN` names it, else it is `shared/bin/openzro-management` in a folder
//! above the workspace. A machine without it has [`OpenZroServer::shared`] answer `None`, and its tests run on the verified double.

mod seed;
mod token;

use std::{
    collections::BTreeMap,
    env, fs, io,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use konverge_testkit::{Process, ProcessError, ProcessSpec, RunDirectory, free_port};
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::{net::TcpStream, sync::OnceCell};

pub use self::token::personal_access_token;

/// Names the server program to use.
const VARIABLE: &str = "OPENZRO_MANAGEMENT_BIN";

/// The program beneath a folder above the workspace.
const SHARED: &str = "shared/bin/openzro-management";

/// The only port on which it opens one listener alone, so there is one server per machine.
const PORT: u16 = 33073;

/// On an idle machine it starts in a second; the first start may unpack it.
const READY_WITHIN: Duration = Duration::from_mins(1);

/// Accounts for the tests of one process.
const ACCOUNTS: usize = 256;

/// A running management server with many accounts, shared by all tests of this process. It ends with the process.
pub struct OpenZroServer {
    process: Mutex<Process>,
    version: String,
    program_digest: String,
    accounts: Vec<OpenZroAccount>,
    next: AtomicUsize,
    run: RunDirectory,
    /// Held while the server runs, because there is one port per machine.
    _lock: fs::File,
}

/// An account of its own for one test.
#[derive(Clone)]
pub struct OpenZroAccount {
    /// Its id.
    pub id: String,
    /// Personal access tokens by role: `owner`, `admin`, `network_admin`, `user`, `blocked`, and `expired`, one of an admin.
    pub tokens: BTreeMap<&'static str, String>,
}

/// The server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum OpenZroServerError {
    /// The variable names something else than a file.
    #[error("{VARIABLE} names {}, which is no file; correct it, or unset it to use {SHARED} above the workspace", .0.display())]
    Missing(PathBuf),
    /// It did not come up.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A file could not be read or written.
    #[error("cannot prepare the openZro server's files: {0}")]
    File(#[from] io::Error),
    /// Its database could not be filled.
    #[error("cannot put accounts into the openZro server's database: {0}; has its schema changed?")]
    Seed(#[from] sqlx::Error),
}

impl OpenZroServer {
    /// Where the server answers.
    pub const URL: &'static str = "http://127.0.0.1:33073";

    /// The program, or `None` if this machine has none.
    pub fn program() -> Result<Option<PathBuf>, OpenZroServerError> {
        if let Some(path) = env::var_os(VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from) {
            return if path.is_file() { Ok(Some(path)) } else { Err(OpenZroServerError::Missing(path)) };
        }
        let above = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
        Ok(above.map(|folder| folder.join(SHARED)).find(|path| path.is_file()))
    }

    /// The server of this process, started by the first call; `None` if this machine has no program. Waits for other processes that use it.
    pub async fn shared() -> Result<Option<&'static Self>, OpenZroServerError> {
        static SERVER: OnceCell<Option<OpenZroServer>> = OnceCell::const_new();
        let server = SERVER.get_or_try_init(|| async {
            match Self::program()? {
                Some(program) => Ok::<_, OpenZroServerError>(Some(Self::start(program).await?)),
                None => Ok(None),
            }
        });
        Ok(server.await?.as_ref())
    }

    async fn start(program: PathBuf) -> Result<Self, OpenZroServerError> {
        let lock = fs::File::create(env::temp_dir().join(format!("konverge-openzro-{PORT}.lock")))?;
        let lock =
            tokio::task::spawn_blocking(move || lock.lock().map(|()| lock)).await.map_err(io::Error::other)??;
        let version = Command::new(&program).arg("--version").output()?;
        let version = String::from_utf8_lossy(&version.stdout).trim().to_owned();
        let program_digest = hex::encode(Sha256::digest(fs::read(&program)?));
        let run = RunDirectory::new()?;
        let data = run.path().join("openzro");
        fs::create_dir(&data)?;
        let config = json!({
            "HttpConfig": { "AuthIssuer": "", "AuthAudience": "", "AuthKeysLocation": "" },
            "DataStoreEncryptionKey": "",
            "StoreConfig": { "Engine": "sqlite" },
        });
        fs::write(data.join("management.json"), config.to_string())?;
        let mut process = Process::start(&run, spec(&program, &data)?)?;
        // The first start makes the schema.
        ready(&mut process).await?;
        process.kill();
        let accounts = seed::accounts(&data.join("store.db"), ACCOUNTS).await?;
        process.start_again()?;
        ready(&mut process).await?;
        let next = AtomicUsize::new(0);
        Ok(Self { process: Mutex::new(process), version, program_digest, accounts, next, run, _lock: lock })
    }

    /// The version that the program reports.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The SHA-256 of the program's file, because its version may say little.
    pub fn program_digest(&self) -> &str {
        &self.program_digest
    }

    /// An account that no other test of this process uses.
    ///
    /// # Panics
    /// If all accounts are taken.
    #[expect(clippy::panic, reason = "a test without an account has failed")]
    pub fn account(&self) -> OpenZroAccount {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        self.accounts
            .get(number)
            .cloned()
            .unwrap_or_else(|| panic!("all {ACCOUNTS} accounts are taken; raise the number"))
    }

    /// Kills it as nothing else does, starts it again over the same database, and waits until it answers. Other tests of the process lose it for a
    /// moment, so only those of a test program of their own do this.
    pub async fn restart(&self) -> Result<(), OpenZroServerError> {
        {
            let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
            process.kill();
            process.start_again()?;
        }
        let answers = async || TcpStream::connect(("127.0.0.1", PORT)).await.ok();
        match konverge_testkit::eventually(READY_WITHIN, answers).await {
            Ok(_) => Ok(()),
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
        }
    }

    /// The folder of this run, with the server's log.
    pub fn run_directory(&self) -> &RunDirectory {
        &self.run
    }

    /// All that it has logged.
    pub fn logged(&self) -> String {
        self.process.lock().unwrap_or_else(PoisonError::into_inner).logged()
    }
}

/// Starts it in an environment that has nothing of ours but what the program needs to unpack itself.
fn spec(program: &Path, data: &Path) -> Result<ProcessSpec, OpenZroServerError> {
    let variable = |name: &str, value: &std::ffi::OsStr| {
        let mut text = std::ffi::OsString::from(name);
        text.push("=");
        text.push(value);
        text
    };
    let path = env::var_os("PATH").unwrap_or_default();
    let cache = env::var_os("XDG_CACHE_HOME").filter(|cache| !cache.is_empty()).map(PathBuf::from);
    let cache =
        cache.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache"))).unwrap_or_else(|| data.into());
    let environment =
        [variable("HOME", data.as_os_str()), variable("PATH", &path), variable("XDG_CACHE_HOME", cache.as_os_str())];
    Ok(ProcessSpec::new("openzro-management", "/usr/bin/env")
        .arg("-i")
        .args(environment)
        .arg(program)
        .args(["management", "--config"])
        .arg(data.join("management.json"))
        .arg("--datadir")
        .arg(data)
        .args(["--port", &PORT.to_string(), "--metrics-port", &free_port()?.to_string()])
        .args(["--log-file", "console", "--disable-anonymous-metrics", "--disable-geolite-update"])
        .arg("--disable-single-account-mode"))
}

async fn ready(process: &mut Process) -> Result<(), ProcessError> {
    let answers = || async { TcpStream::connect(("127.0.0.1", PORT)).await.is_ok() };
    process.ready("accept connections", READY_WITHIN, answers).await
}
