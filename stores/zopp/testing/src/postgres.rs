//! A PostgreSQL of one test process: in a folder of its own, reached through a socket in that folder, gone with the process.
//!
//! PostgreSQL refuses to run as root, so a test run by root starts it as nobody.

#![expect(clippy::expect_used, clippy::panic, reason = "a test kit fails by panicking, and says what to do")]

mod programs;

use std::{
    fs,
    io::Write,
    os::unix::{fs::MetadataExt, fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::sync::OnceCell;

/// The user that owns nothing.
const NOBODY: u32 = 65_534;
/// Longer than a start takes on a busy machine.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// Starts the server, and starts it anew at each line from us. It waits for our end, however we end: killing a process closes its pipes. Then it
/// ends the server and removes the folder.
const GUARD: &str = r#"
trap '' INT TERM HUP
start() {
  "$1/postgres" -D "$2/data" -k "$2" -c listen_addresses= -c fsync=off -c max_connections=400 -c shared_buffers=64MB \
    >>"$2/log" 2>&1 &
  pid=$!
}
start "$1" "$2"
while read -r line; do
  kill -"$line" "$pid"
  wait "$pid"
  start "$1" "$2"
done
kill -QUIT "$pid"
wait "$pid"
rm -rf -- "$2"
"#;

/// The server of this process. Its guard has the other end of a pipe, which the system closes when the process ends.
struct Server {
    directory: PathBuf,
    guard: Child,
}

/// A PostgreSQL for one test, which can be stopped in the middle. It goes with this value.
pub struct OwnPostgres(Server);

static SERVER: OnceCell<Server> = OnceCell::const_new();
static DATABASES: AtomicU32 = AtomicU32::new(0);

/// Makes an empty database and returns its address. The first call of a process starts the server.
///
/// # Panics
///
/// If this machine has no PostgreSQL, or it does not start; the text says what to do.
pub async fn postgres_database() -> String {
    new_database(SERVER.get_or_init(start).await).await
}

impl OwnPostgres {
    /// Starts it.
    ///
    /// # Panics
    ///
    /// As [`postgres_database`].
    pub async fn start() -> Self {
        Self(start().await)
    }

    /// Makes an empty database and returns its address.
    ///
    /// # Panics
    ///
    /// If the server does not make it.
    pub async fn database(&self) -> String {
        new_database(&self.0).await
    }

    /// Ends it by a signal, which cuts all connections, and starts it anew on the same data: `INT` as an administrator does it, `QUIT` as a crash.
    ///
    /// # Panics
    ///
    /// If it does not answer again.
    pub async fn restart(&mut self, signal: &str) {
        let Server { directory, guard } = &mut self.0;
        let pipe = guard.stdin.as_mut().expect("a pipe to the guard");
        writeln!(pipe, "{signal}").expect("the guard reads");
        // Until then, the former process may still answer.
        let started = |directory: &Path| fs::read_to_string(directory.join("data/postmaster.pid")).unwrap_or_default();
        let before = started(directory);
        let began = Instant::now();
        while started(directory) == before || connect(directory).await.is_err() {
            assert!(began.elapsed() < START_TIMEOUT, "PostgreSQL does not come back");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for OwnPostgres {
    fn drop(&mut self) {
        // The end of the pipe tells the guard, which is then waited for.
        drop(self.0.guard.stdin.take());
        let _ = self.0.guard.wait();
    }
}

async fn new_database(server: &Server) -> String {
    let name = format!("test_{}", DATABASES.fetch_add(1, Ordering::Relaxed));
    let mut connection = connect(&server.directory).await.expect("the server that was started answers");
    // Safe: a word and a number.
    let create = AssertSqlSafe(format!("CREATE DATABASE {name}"));
    sqlx::raw_sql(create).execute(&mut connection).await.expect("a new database");
    address(&server.directory, &name)
}

fn address(directory: &Path, database: &str) -> String {
    format!("postgres://zopp@localhost/{database}?host={}", directory.display())
}

async fn connect(directory: &Path) -> Result<PgConnection, sqlx::Error> {
    PgConnection::connect(&address(directory, "postgres")).await
}

async fn start() -> Server {
    let programs = programs::find().unwrap_or_else(|missing| panic!("{missing}"));
    let directory = tempfile::Builder::new().prefix("zopp-postgres-").tempdir().expect("a folder").keep();
    let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if is_root {
        std::os::unix::fs::chown(&directory, Some(NOBODY), Some(NOBODY)).expect("root gives a folder away");
    }
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).expect("our own folder");
    let mut initdb = Command::new(programs.join("initdb"));
    initdb.args(["--username=zopp", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "-D"]);
    let initdb = as_nobody(initdb.arg(directory.join("data")), is_root).current_dir(&directory).output();
    let initdb = initdb.expect("initdb starts");
    assert!(initdb.status.success(), "initdb failed: {}", String::from_utf8_lossy(&initdb.stderr));

    let mut guard = Command::new("sh");
    guard.args(["-c", GUARD, "guard"]).arg(&programs).arg(&directory).current_dir(&directory);
    guard.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let guard = as_nobody(&mut guard, is_root).spawn().expect("a shell starts");
    let began = Instant::now();
    while let Err(error) = connect(&directory).await {
        let log = || fs::read_to_string(directory.join("log")).unwrap_or_default();
        assert!(began.elapsed() < START_TIMEOUT, "PostgreSQL does not answer: {error}\n{}", log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Server { directory, guard }
}

fn as_nobody(command: &mut Command, is_root: bool) -> &mut Command {
    if is_root { command.uid(NOBODY).gid(NOBODY) } else { command }
}
