//! A PostgreSQL of one test process: in a folder of its own, reached through a socket in that folder, gone with the process.
//!
//! PostgreSQL refuses to run as root, so a test run by root starts it as nobody.

#![expect(clippy::expect_used, clippy::panic, reason = "a test kit fails by panicking, and says what to do")]

mod programs;

use std::{
    fs,
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

/// Starts the server and waits for our end, however we end: killing a process closes its pipes. Then ends the server and removes the
/// folder.
const GUARD: &str = r#"
trap '' INT TERM HUP
"$1/postgres" -D "$2/data" -k "$2" -c listen_addresses= -c fsync=off -c max_connections=400 -c shared_buffers=64MB \
  >"$2/log" 2>&1 &
pid=$!
cat >/dev/null
kill -QUIT "$pid"
wait "$pid"
rm -rf -- "$2"
"#;

/// The server of this process. Its guard has the other end of a pipe, which the system closes when the process ends.
struct Server {
    directory: PathBuf,
    _guard: Child,
}

static SERVER: OnceCell<Server> = OnceCell::const_new();
static DATABASES: AtomicU32 = AtomicU32::new(0);

/// Makes an empty database and returns its address. The first call of a process starts the server.
///
/// # Panics
///
/// If this machine has no PostgreSQL, or it does not start; the text says what to do.
pub async fn postgres_database() -> String {
    let server = SERVER.get_or_init(start).await;
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
    Server { directory, _guard: guard }
}

fn as_nobody(command: &mut Command, is_root: bool) -> &mut Command {
    if is_root { command.uid(NOBODY).gid(NOBODY) } else { command }
}
