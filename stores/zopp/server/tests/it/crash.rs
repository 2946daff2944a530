//! Kills in the middle: of a server under load, of a backup, a restore and an import. The files and databases that the
//! kill leaves are whole.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use konverge_zopp_proto as proto;
use konverge_zopp_testing::postgres_database;
use sqlx::{AssertSqlSafe, PgPool, SqlitePool};
use tokio::task::JoinHandle;

use crate::{
    command::{Serving, program, set_up, stdout},
    crash::original::{CONTENT, FIRST, SECOND, SECOND_CONTENT, statements},
    harness::{DEADLINE, Person, upsert, workspace_request},
};

#[path = "../../src/store/tests/import/original.rs"]
mod original;

/// Kills of a server.
const ROUNDS: u64 = 4;
/// Kills of each other command, spread over the time that it takes.
const KILLS: u32 = 8;
/// Of a database that takes some time to copy.
const SECRETS: usize = 400;
const SECRET_BYTES: usize = 20_000;

/// Each counts rows that only half of a change leaves behind.
const HALVES: [&str; 7] = [
    "SELECT count(*) FROM workspaces w WHERE NOT EXISTS (SELECT 1 FROM workspace_members m WHERE m.workspace_id = w.id)",
    "SELECT count(*) FROM workspaces w WHERE NOT EXISTS (SELECT 1 FROM workspace_principals p WHERE p.workspace_id = w.id)",
    "SELECT count(*) FROM workspaces w WHERE NOT EXISTS \
     (SELECT 1 FROM audit_logs a WHERE a.action = 'workspace.create' AND a.workspace_id = w.id)",
    "SELECT count(*) FROM environments e WHERE e.key_count <> (SELECT count(*) FROM secrets s WHERE s.env_id = e.id)",
    "SELECT count(*) FROM environments e \
     WHERE e.byte_count <> (SELECT coalesce(sum(length(s.ciphertext)), 0) FROM secrets s WHERE s.env_id = e.id)",
    "SELECT count(*) FROM environments e WHERE e.version <> (SELECT count(*) FROM audit_logs a \
     WHERE a.environment_id = e.id AND a.result = 'success' AND a.action IN ('secret.create', 'secret.update', 'secret.delete'))",
    "SELECT count(*) FROM environments e \
     WHERE e.history_bytes <> (SELECT coalesce(sum(length(v.ciphertext) + 256), 0) FROM secret_versions v WHERE v.env_id = e.id)",
];

/// A key whose value is replaced all the time.
const REPLACED: &str = "replaced";

/// A database by its address, as the program takes it.
#[derive(Clone)]
struct Database {
    address: String,
}

impl Database {
    fn file(path: &Path) -> Self {
        Self { address: path.to_str().unwrap().to_owned() }
    }

    async fn postgres() -> Self {
        Self { address: postgres_database().await }
    }

    fn command(&self, directory: &Path) -> Command {
        let mut command = program(directory);
        command.args(["--database-url", &self.address]);
        command
    }

    /// The count that a query gives.
    async fn count(&self, sql: &str) -> i64 {
        let sql = AssertSqlSafe(sql.to_owned());
        if self.address.starts_with("postgres:") {
            let pool = PgPool::connect(&self.address).await.unwrap();
            let count = sqlx::query_scalar(sql).fetch_one(&pool).await.unwrap();
            pool.close().await;
            count
        } else {
            let pool = SqlitePool::connect(&format!("sqlite://{}", self.address)).await.unwrap();
            let count = sqlx::query_scalar(sql).fetch_one(&pool).await.unwrap();
            pool.close().await;
            count
        }
    }

    /// How much there is of all that is copied.
    async fn content(&self) -> Vec<i64> {
        let mut content = Vec::new();
        for sql in [
            "SELECT count(*) FROM users",
            "SELECT count(*) FROM principals",
            "SELECT count(*) FROM workspace_principals",
            "SELECT count(*) FROM environments",
            "SELECT count(*) FROM secrets",
            "SELECT CAST(coalesce(sum(length(ciphertext)), 0) AS BIGINT) FROM secrets",
        ] {
            content.push(self.count(sql).await);
        }
        content
    }
}

/// Changes things, each in several statements, until the server is gone. Counts the secrets that were acknowledged.
fn load(owner: &Person, round: u64, acknowledged: &Arc<AtomicUsize>) -> JoinHandle<()> {
    let person = |owner: &Person| {
        let seed = konverge_zopp_crypto::SigningSeed::from_slice(owner.seed.expose()).unwrap();
        Person::new(owner.user_id.clone(), owner.principal_id.clone(), seed, owner.client.clone())
    };
    let (mut secrets, mut workspaces, mut environments) = (person(owner), person(owner), person(owner));
    let mut replacing = person(owner);
    let acknowledged = Arc::clone(acknowledged);
    tokio::spawn(async move {
        let setting = async {
            for number in 0_u32.. {
                if secrets.set(&format!("K{round}-{number}")).await.is_err() {
                    return;
                }
                acknowledged.fetch_add(1, Ordering::SeqCst);
            }
        };
        let creating = async {
            for number in 0..10 {
                let request = workspace_request(&format!("w{round}-{number}"));
                let request = workspaces.sign("CreateWorkspace", request);
                if workspaces.client.create_workspace(request).await.is_err() {
                    return;
                }
            }
        };
        let coming_and_going = async {
            for number in 0_u32.. {
                let name = format!("e{round}-{number}");
                if environments.create_environment(&name).await.is_err() {
                    return;
                }
                let request = proto::DeleteEnvironmentRequest {
                    workspace_name: "acme".into(),
                    project_name: "backend".into(),
                    environment_name: name,
                };
                let request = environments.sign("DeleteEnvironment", request);
                if environments.client.delete_environment(request).await.is_err() {
                    return;
                }
            }
        };
        let replacing = async {
            for number in 0_u32.. {
                let request =
                    proto::UpsertSecretRequest { ciphertext: number.to_le_bytes().repeat(10), ..upsert(REPLACED) };
                if replacing.client.upsert_secret(replacing.sign("UpsertSecret", request)).await.is_err() {
                    return;
                }
            }
        };
        tokio::join!(setting, creating, coming_and_going, replacing);
    })
}

async fn a_killed_server_leaves_whole_changes(database: Database) {
    let directory = tempfile::tempdir().unwrap();
    let invite = database.command(directory.path()).args(["invite", "create", "--plain"]).output().unwrap();
    let mut serving = Serving::start_as(database.command(directory.path())).await;
    let mut owner = serving.join(stdout(&invite).trim()).await;
    set_up(&mut owner).await;
    let acknowledged = Arc::new(AtomicUsize::new(0));
    for round in 0..ROUNDS {
        let before = acknowledged.load(Ordering::SeqCst);
        let load = load(&owner, round, &acknowledged);
        let begins = async {
            while acknowledged.load(Ordering::SeqCst) == before {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(DEADLINE, begins).await.expect("a secret is acknowledged");
        // In the middle of something, each time at another moment.
        tokio::time::sleep(Duration::from_millis(150 + 67 * round)).await;
        serving.signal("KILL");
        serving.child.wait().await.unwrap();
        tokio::time::timeout(DEADLINE, load).await.expect("the load ends with the server").unwrap();

        serving = Serving::start_as(database.command(directory.path())).await;
        owner.client = serving.client.clone();
        for half in HALVES {
            assert_eq!(database.count(half).await, 0, "after kill {round}: {half}");
        }
        let listed = owner.list().await.unwrap();
        // Besides the acknowledged ones, the one per kill whose answer was lost.
        let set = listed.secrets.iter().filter(|secret| secret.key != REPLACED).count();
        let lost = set.checked_sub(acknowledged.load(Ordering::SeqCst)).expect("what was acknowledged is there");
        assert!(lost <= usize::try_from(round).unwrap() + 1, "{lost}");
    }
}

#[tokio::test]
async fn a_killed_server_leaves_whole_changes_in_sqlite() {
    let directory = tempfile::tempdir().unwrap();
    a_killed_server_leaves_whole_changes(Database::file(&directory.path().join("zopp.db"))).await;
}

#[tokio::test]
async fn a_killed_server_leaves_whole_changes_in_postgres() {
    a_killed_server_leaves_whole_changes(Database::postgres().await).await;
}

/// A database that takes some time to copy.
async fn filled(directory: &Path) -> Database {
    let database = Database::file(&directory.join("full.db"));
    let invite = database.command(directory).args(["invite", "create", "--plain"]).output().unwrap();
    let mut serving = Serving::start_as(database.command(directory)).await;
    let mut owner = serving.join(stdout(&invite).trim()).await;
    set_up(&mut owner).await;
    for number in 0..SECRETS {
        let request = proto::UpsertSecretRequest {
            ciphertext: number.to_le_bytes().repeat(SECRET_BYTES / 8),
            ..upsert(&format!("K{number}"))
        };
        owner.client.upsert_secret(owner.sign("UpsertSecret", request)).await.unwrap();
    }
    serving.signal("TERM");
    serving.child.wait().await.unwrap();
    database
}

/// Runs a command to its end, then kills it so many times at moments spread over that time. `command` gets a number, and makes a command whose effect
/// is in a place of that number; `check` sees the place of each that was killed.
async fn kill_repeatedly(command: impl Fn(u32) -> Command, mut check: impl AsyncFnMut(u32)) {
    let began = Instant::now();
    let whole = command(0).output().unwrap();
    assert!(whole.status.success(), "{whole:?}");
    let step = began.elapsed() / KILLS;
    let mut interrupted = 0;
    for number in 1..=KILLS {
        let mut child = command(number).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        tokio::time::sleep(step / 2 + step * (number - 1)).await;
        interrupted += u32::from(child.try_wait().unwrap().is_none());
        // Kills it: SIGKILL.
        child.kill().unwrap();
        child.wait().unwrap();
        check(number).await;
    }
    assert!(interrupted > 0, "each ended before it was killed");
}

/// The names in a folder that are neither expected nor those of a file on its way.
fn unexpected(directory: &Path, expected: &[&str]) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    entries.filter(|name| !expected.contains(&name.as_str()) && !name.contains(".partial")).collect()
}

/// The names in a folder of files on their way.
fn partial(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    entries.filter(|name| name.contains(".partial")).collect()
}

/// A folder for the effect of each command.
fn place(directory: &Path, number: u32) -> PathBuf {
    let place = directory.join(format!("place-{number}"));
    std::fs::create_dir_all(&place).unwrap();
    place
}

#[tokio::test]
async fn a_killed_backup_is_whole_or_not_there() {
    let directory = tempfile::tempdir().unwrap();
    let database = filled(directory.path()).await;
    let content = database.content().await;
    let file = |number| place(directory.path(), number).join("copy.db");
    let back_up = |number| {
        let mut command = database.command(directory.path());
        command.arg("backup").arg(file(number));
        command
    };
    kill_repeatedly(back_up, async |number| {
        let place = place(directory.path(), number);
        assert_eq!(unexpected(&place, &["copy.db"]), [""; 0]);
        // The rest of a killed run does not hinder the next one.
        if !file(number).exists() {
            stdout(&back_up(number).output().unwrap());
        }
        assert_eq!(Database::file(&file(number)).content().await, content, "{number}");
        assert_eq!(database.content().await, content, "the database itself is untouched");
        // Nor does it stay: the next command with this name removes it, also one that is refused.
        assert!(!back_up(number).output().unwrap().status.success(), "the file exists");
        assert_eq!(partial(&place), [""; 0], "{number}");
    })
    .await;
}

#[tokio::test]
async fn a_killed_restore_to_sqlite_is_whole_or_not_there() {
    let directory = tempfile::tempdir().unwrap();
    let database = filled(directory.path()).await;
    let content = database.content().await;
    let backup = directory.path().join("copy.db");
    stdout(&database.command(directory.path()).arg("backup").arg(&backup).output().unwrap());
    let before = std::fs::read(&backup).unwrap();
    let target = |number| Database::file(&place(directory.path(), number).join("zopp.db"));
    let restore = |number| {
        let mut command = target(number).command(directory.path());
        command.arg("restore").arg(&backup);
        command
    };
    kill_repeatedly(restore, async |number| {
        let place = place(directory.path(), number);
        assert_eq!(unexpected(&place, &["zopp.db"]), [""; 0]);
        if !place.join("zopp.db").exists() {
            stdout(&restore(number).output().unwrap());
        }
        assert_eq!(target(number).content().await, content, "{number}");
        assert_eq!(target(number).count("SELECT count(*) FROM environments WHERE version <= 1000000").await, 0);
        assert!(!restore(number).output().unwrap().status.success(), "the database exists");
        assert_eq!(partial(&place), [""; 0], "{number}");
    })
    .await;
    assert!(std::fs::read(&backup).unwrap() == before, "the backup is untouched");
}

#[tokio::test]
async fn a_killed_restore_to_postgres_is_whole_or_not_there() {
    let directory = tempfile::tempdir().unwrap();
    let database = filled(directory.path()).await;
    let content = database.content().await;
    let backup = directory.path().join("copy.db");
    stdout(&database.command(directory.path()).arg("backup").arg(&backup).output().unwrap());
    let mut targets = Vec::new();
    for _ in 0..=KILLS {
        targets.push(Database::postgres().await);
    }
    let target = |number: u32| &targets[usize::try_from(number).unwrap()];
    let temporary = place(directory.path(), 0);
    let restore = |number| {
        let mut command = target(number).command(directory.path());
        command.arg("restore").arg(&backup).env("TMPDIR", &temporary);
        command
    };
    kill_repeatedly(restore, async |number| {
        let again = restore(number).output().unwrap();
        if !again.status.success() {
            // The kill came too late for this one.
            let said = String::from_utf8(again.stderr).unwrap();
            assert!(said.contains("is not empty"), "{said}");
        }
        assert_eq!(partial(&temporary), [""; 0], "{number}");
        assert_eq!(target(number).content().await, content, "{number}");
        assert_eq!(target(number).count("SELECT count(*) FROM environments WHERE version <= 1000000").await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_restore_in_place_that_is_killed_moved_all_versions_or_none() {
    let directory = tempfile::tempdir().unwrap();
    for database in [Database::file(&directory.path().join("zopp.db")), Database::postgres().await] {
        let invite = database.command(directory.path()).args(["invite", "create", "--plain"]).output().unwrap();
        let mut serving = Serving::start_as(database.command(directory.path())).await;
        let mut owner = serving.join(stdout(&invite).trim()).await;
        set_up(&mut owner).await;
        for number in 0..50 {
            owner.create_environment(&format!("e{number}")).await.unwrap();
        }
        serving.signal("TERM");
        serving.child.wait().await.unwrap();
        let in_place = |_| {
            let mut command = database.command(directory.path());
            command.args(["restore", "--in-place"]);
            command
        };
        kill_repeatedly(in_place, async |number| {
            let versions = database.count("SELECT count(DISTINCT version) FROM environments").await;
            assert_eq!(versions, 1, "{number}");
        })
        .await;
    }
}

/// As many secrets as [`SECRETS`], in the spelling of the original's statements.
const MANY: &str = "
    WITH RECURSIVE numbers (number) AS (VALUES (1) UNION ALL SELECT number + 1 FROM numbers WHERE number < 400)
    INSERT INTO secrets SELECT printf('01890a5d-ac96-774b-bcce-%012x', number), 'WORKSPACE', 'ENVIRONMENT', 'K' || number,
        randomblob(24), randomblob(20000), 'MADE', 'MADE' FROM numbers";

#[tokio::test]
async fn a_killed_import_is_whole_or_not_there() {
    let directory = tempfile::tempdir().unwrap();
    let original = directory.path().join("original.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&original).create_if_missing(true);
    let pool = SqlitePool::connect_with(options).await.unwrap();
    for statement in statements(&[FIRST, SECOND, CONTENT, SECOND_CONTENT, MANY], true) {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&pool).await.unwrap();
    }
    pool.close().await;
    let before = std::fs::read(&original).unwrap();
    let from = format!("sqlite://{}", original.display());
    let mut postgres = Vec::new();
    for _ in 0..=KILLS {
        postgres.push(Database::postgres().await);
    }
    for is_file in [true, false] {
        let target = |number: u32| {
            if is_file {
                Database::file(&place(directory.path(), number).join("zopp.db"))
            } else {
                postgres[usize::try_from(number).unwrap()].clone()
            }
        };
        let import = |number| {
            let mut command = target(number).command(directory.path());
            command.args(["import", "--from", &from]);
            command
        };
        kill_repeatedly(import, async |number| {
            let place = place(directory.path(), number);
            assert_eq!(unexpected(&place, &["zopp.db"]), [""; 0]);
            let again = import(number).output().unwrap();
            if !again.status.success() {
                // The kill came too late for this one.
                let said = String::from_utf8(again.stderr).unwrap();
                assert!(said.contains("exists already") || said.contains("is not empty"), "{said}");
            }
            assert_eq!(target(number).count("SELECT count(*) FROM secrets").await, 402, "{number}");
            assert_eq!(target(number).count("SELECT key_count FROM environments").await, 402, "{number}");
            assert_eq!(target(number).count("SELECT count(*) FROM principal_exports").await, 1, "{number}");
            for half in &HALVES[3..5] {
                assert_eq!(target(number).count(half).await, 0, "{number}: {half}");
            }
        })
        .await;
    }
    assert!(std::fs::read(&original).unwrap() == before, "the original's database is untouched");
}
