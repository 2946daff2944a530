//! The database fails for a while: nothing that was acknowledged is lost, nothing takes effect twice, and the server goes on by itself.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use konverge_zopp_crypto::SigningSeed;
use konverge_zopp_proto::{self as proto, watch_secrets_response::Response};
use konverge_zopp_testing::{OwnPostgres, postgres_database};
use sqlx::{Connection, Executor, PgConnection};
use tokio::{task::JoinHandle, time::timeout};
use tonic::Code;

use crate::{
    command::{Serving, complaint, program, set_up, stdout},
    harness::{DEADLINE, Person, probe},
    replicas::{at, on, start},
};

const PAUSE: Duration = Duration::from_millis(20);

/// The keys of a writer.
#[derive(Default)]
struct Written {
    acknowledged: BTreeSet<String>,
    attempted: BTreeSet<String>,
}

/// Sets one new key after the other until it is told to stop, whatever fails. A failure is told as an outage.
fn write(mut person: Person, name: &'static str, stop: Arc<AtomicBool>) -> JoinHandle<Written> {
    tokio::spawn(async move {
        let mut written = Written::default();
        while !stop.load(Ordering::Relaxed) {
            let key = format!("{name}{}", written.attempted.len());
            written.attempted.insert(key.clone());
            match person.set(&key).await {
                Ok(()) => drop(written.acknowledged.insert(key)),
                Err(status) => {
                    assert!(matches!(status.code(), Code::Unavailable | Code::ResourceExhausted), "{status}");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        written
    })
}

/// Waits until a follower knows some more keys: the load goes on.
async fn grows(known: &Mutex<BTreeSet<String>>) {
    let before = known.lock().unwrap().len();
    let more = async {
        while known.lock().unwrap().len() < before + 5 {
            tokio::time::sleep(PAUSE).await;
        }
    };
    timeout(DEADLINE, more).await.expect("the load goes on");
}

/// Follows the environment as the operator does: lists, then watches from there, and again whenever the stream ends. Keeps the keys it knows.
fn follow(mut person: Person, known: Arc<Mutex<BTreeSet<String>>>) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            let Ok(list) = person.list().await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            *known.lock().unwrap() = list.secrets.into_iter().map(|secret| secret.key).collect();
            let mut version = list.version;
            let Ok(mut stream) = person.watch(Some(version)).await else { continue };
            while let Ok(Some(message)) = stream.message().await {
                let Some(Response::Event(event)) = message.response else { break };
                assert_eq!(event.version, version + 1, "no change is left out without a word");
                version = event.version;
                known.lock().unwrap().insert(event.key);
            }
        }
    })
}

#[tokio::test]
async fn a_restarted_postgres_costs_no_acknowledged_write_and_no_event() {
    let mut postgres = OwnPostgres::start().await;
    let address = postgres.database().await;
    let (one, other) = (start(on(&address)).await, start(on(&address)).await);
    let owner = one.owner().await;
    let stop = Arc::new(AtomicBool::new(false));
    let writers = [write(at(&one, &owner), "a", Arc::clone(&stop)), write(at(&other, &owner), "b", Arc::clone(&stop))];
    let known = [Arc::default(), Arc::default()];
    let followers =
        [follow(at(&one, &owner), Arc::clone(&known[0])), follow(at(&other, &owner), Arc::clone(&known[1]))];
    for signal in ["INT", "QUIT"] {
        grows(&known[1]).await;
        postgres.restart(signal).await;
    }
    grows(&known[1]).await;
    stop.store(true, Ordering::Relaxed);
    let mut all = Written::default();
    for writer in writers {
        let written = timeout(DEADLINE, writer).await.expect("the writers end").unwrap();
        all.acknowledged.extend(written.acknowledged);
        all.attempted.extend(written.attempted);
    }
    assert!(all.acknowledged.len() > 10, "there was a load: {}", all.acknowledged.len());

    let mut owner = at(&other, &owner);
    let list = timeout(DEADLINE, async {
        loop {
            match owner.list().await {
                Ok(list) => return list,
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    });
    let list = list.await.expect("it recovers");
    let count = list.secrets.len();
    let there: BTreeSet<String> = list.secrets.into_iter().map(|secret| secret.key).collect();
    let missing: Vec<_> = all.acknowledged.difference(&there).collect();
    assert!(missing.is_empty() && there.is_subset(&all.attempted), "{missing:?}");
    assert_eq!(list.version, i64::try_from(count).unwrap(), "each took effect once");
    let caught_up = async {
        while known.iter().any(|known| *known.lock().unwrap() != there) {
            tokio::time::sleep(PAUSE).await;
        }
    };
    timeout(DEADLINE, caught_up).await.expect("both followers know all keys");
    for follower in followers {
        assert!(!follower.is_finished(), "it never saw a gap");
        follower.abort();
    }
}

#[tokio::test]
async fn a_frozen_replica_holds_nobody_up_and_catches_up() {
    let address = postgres_database().await;
    let one = start(on(&address)).await;
    let mut owner = one.owner().await;
    let directory = tempfile::tempdir().unwrap();
    let mut command = program(directory.path());
    command.args(["--database-url", &address]);
    let frozen = Serving::start_as(command).await;
    let there = || {
        let seed = SigningSeed::from_slice(owner.seed.expose()).unwrap();
        Person::new(owner.user_id.clone(), owner.principal_id.clone(), seed, frozen.client.clone())
    };
    let known: Arc<Mutex<BTreeSet<String>>> = Arc::default();
    let (follower, mut writer) = (follow(there(), Arc::clone(&known)), there());
    writer.set("before").await.unwrap();
    // Frozen under load, perhaps in the middle of a change.
    let stop = Arc::new(AtomicBool::new(false));
    let load = write(there(), "a", Arc::clone(&stop));
    tokio::time::sleep(Duration::from_millis(200)).await;
    frozen.signal("STOP");
    for number in 0..5 {
        let key = format!("meanwhile{number}");
        let written = async {
            // A change of the frozen one that was under way is given up by the database.
            while owner.set(&key).await.is_err() {
                tokio::time::sleep(PAUSE).await;
            }
        };
        timeout(DEADLINE, written).await.expect("the other replica goes on");
    }
    frozen.signal("CONT");
    stop.store(true, Ordering::Relaxed);
    let written = timeout(DEADLINE, load).await.expect("the load ends").unwrap();
    let list = owner.list().await.unwrap();
    let there: BTreeSet<String> = list.secrets.into_iter().map(|secret| secret.key).collect();
    assert!(written.acknowledged.is_subset(&there) && there.contains("before") && there.contains("meanwhile4"));
    assert_eq!(list.version, i64::try_from(there.len()).unwrap(), "each took effect once");
    let caught_up = async {
        while *known.lock().unwrap() != there {
            tokio::time::sleep(PAUSE).await;
        }
    };
    timeout(DEADLINE, caught_up).await.expect("the follower knows all keys");
    assert!(!follower.is_finished(), "it never saw a gap");
}

/// Lets the files of a process grow to this size and no further, as on a full disk.
fn bound_files(serving: &Serving, bytes: &str) {
    let (pid, limit) = (serving.child.id().unwrap().to_string(), format!("--fsize={bytes}:unlimited"));
    assert!(Command::new("prlimit").args(["--pid", &pid, &limit]).status().unwrap().success());
}

/// The program under which file modes count. Root writes to files that it may not write, unless it gives that right up.
fn obeying_modes(program: &Command) -> Command {
    let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    let mut command = Command::new(if is_root { "setpriv" } else { "env" });
    if is_root {
        command.args(["--bounding-set=-dac_override", "--inh-caps=-dac_override"]);
    }
    command
        .arg(program.get_program())
        .args(program.get_args())
        .current_dir(program.get_current_dir().unwrap())
        .env_clear();
    command
}

/// The program, which goes on after a write beyond the bound of [`bound_files`]: it fails, as one on a full disk does.
fn surviving_bounds(program: &Command) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"]);
    command.arg(program.get_program()).args(program.get_args()).current_dir(program.get_current_dir().unwrap());
    command
}

/// Sets the mode of a database and of the files beside it.
fn set_mode(directory: &Path, mode: u32) {
    for entry in fs::read_dir(directory).unwrap() {
        fs::set_permissions(entry.unwrap().path(), fs::Permissions::from_mode(mode)).unwrap();
    }
}

/// Waits until the readiness of the server is this.
async fn is_ready(serving: &Serving, expected: bool) {
    let changed = async {
        loop {
            let answer = probe(&serving.health_address, "/readyz").await;
            if answer.starts_with("200") == expected {
                return answer;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    let answer = timeout(DEADLINE, changed).await.expect("the readiness changes");
    assert_eq!(answer.contains("the database cannot be written"), !expected, "{answer}");
}

#[tokio::test]
async fn a_full_disk_is_told_and_costs_nothing_that_was_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let mut invite = program(directory.path());
    let token = stdout(&invite.args(["--db", "zopp.db", "invite", "create", "--plain"]).output().unwrap());
    let mut server = program(directory.path());
    server.args(["--db", "zopp.db"]);
    let mut serving = Serving::start_as(surviving_bounds(&server)).await;
    let mut owner = serving.join(token.trim()).await;
    set_up(&mut owner).await;
    owner.set("A").await.unwrap();
    is_ready(&serving, true).await;

    bound_files(&serving, "4096");
    for _ in 0..3 {
        let refused = owner.set("B").await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable, "{refused}");
        assert!(refused.message().contains("cannot be reached or written"), "{refused}");
    }
    is_ready(&serving, false).await;
    assert_eq!(owner.list().await.unwrap().secrets.len(), 1, "it is still read");

    bound_files(&serving, "unlimited");
    is_ready(&serving, true).await;
    owner.set("B").await.unwrap();
    let list = owner.list().await.unwrap();
    assert_eq!((list.secrets.len(), list.version), (2, 2), "what was refused took no effect");
    lists_are_on_record(&mut owner, 2).await;
}

/// Waits until so many lists are on record.
async fn lists_are_on_record(owner: &mut Person, expected: u64) {
    let recorded = async {
        loop {
            let request = proto::CountAuditLogsRequest {
                workspace_name: "acme".into(),
                action: Some("secret.list".into()),
                result: Some("success".into()),
                ..Default::default()
            };
            let count = owner.client.count_audit_logs(owner.sign("CountAuditLogs", request)).await.unwrap();
            if count.into_inner().count == expected {
                return;
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    timeout(DEADLINE, recorded).await.expect("reads of the time without changes are on record");
}

/// The server refuses changes as an outage, says so to probes, and goes on reading what is there.
async fn takes_no_changes(serving: &Serving, owner: &mut Person, keys: usize) {
    is_ready(serving, false).await;
    let refused = owner.set("REFUSED").await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(refused.message().contains("cannot be reached or written"), "{refused}");
    assert_eq!(owner.list().await.unwrap().secrets.len(), keys, "it is still read");
}

/// The error of a start on this database.
fn start_fails(command: &Command, expected: &[&str]) {
    // A server that starts all the same ends soon, without a complaint.
    let mut serve = Command::new("timeout");
    serve.arg("20").arg(command.get_program()).args(command.get_args()).current_dir(command.get_current_dir().unwrap());
    serve.args(["serve", "--addr", "127.0.0.1:0", "--health-addr", "127.0.0.1:0"]);
    let said = complaint(&serve.output().unwrap());
    for part in expected {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
}

#[tokio::test]
async fn a_read_only_file_is_told_and_costs_nothing_that_was_acknowledged() {
    let directory = tempfile::tempdir().unwrap();
    let mut invite = program(directory.path());
    let token = stdout(&invite.args(["--db", "zopp.db", "invite", "create", "--plain"]).output().unwrap());
    let mut server = program(directory.path());
    server.args(["--db", "zopp.db"]);
    let server = obeying_modes(&server);
    let mut serving = Serving::start_as(surviving_bounds(&server)).await;
    let mut owner = serving.join(token.trim()).await;
    set_up(&mut owner).await;
    owner.set("A").await.unwrap();
    is_ready(&serving, true).await;

    // An open connection goes on writing. A failed commit ends it, and the next one finds a read-only file.
    set_mode(directory.path(), 0o400);
    bound_files(&serving, "4096");
    owner.set("B").await.unwrap_err();
    bound_files(&serving, "unlimited");
    takes_no_changes(&serving, &mut owner, 1).await;
    set_mode(directory.path(), 0o600);
    is_ready(&serving, true).await;
    owner.set("B").await.unwrap();
    lists_are_on_record(&mut owner, 1).await;

    serving.signal("TERM");
    timeout(DEADLINE, serving.child.wait()).await.expect("it ends").unwrap();
    set_mode(directory.path(), 0o400);
    start_fails(&server, &["zopp.db takes no changes", "let this user write to the file"]);
    set_mode(directory.path(), 0o600);
    let again = Serving::start_as(server).await;
    owner.client = again.client.clone();
    let list = owner.list().await.unwrap();
    assert_eq!((list.secrets.len(), list.version), (2, 2), "what was refused took no effect");
}

#[tokio::test]
async fn a_read_only_postgres_is_told_and_costs_nothing_that_was_acknowledged() {
    let postgres = OwnPostgres::start().await;
    let address = postgres.database().await;
    let directory = tempfile::tempdir().unwrap();
    let server = || {
        let mut command = program(directory.path());
        command.args(["--database-url", &address]);
        command
    };
    let token = stdout(&server().args(["invite", "create", "--plain"]).output().unwrap());
    let mut serving = Serving::start_as(server()).await;
    let mut owner = serving.join(token.trim()).await;
    set_up(&mut owner).await;
    owner.set("A").await.unwrap();
    is_ready(&serving, true).await;

    let mut administrator = PgConnection::connect(&address).await.unwrap();
    administrator.execute("ALTER SYSTEM SET default_transaction_read_only = on").await.unwrap();
    administrator.execute("SELECT pg_reload_conf()").await.unwrap();
    takes_no_changes(&serving, &mut owner, 1).await;
    start_fails(&server(), &["takes no changes", "the address of the primary"]);
    administrator.execute("ALTER SYSTEM RESET default_transaction_read_only").await.unwrap();
    administrator.execute("SELECT pg_reload_conf()").await.unwrap();
    is_ready(&serving, true).await;
    owner.set("B").await.unwrap();
    let list = owner.list().await.unwrap();
    assert_eq!((list.secrets.len(), list.version), (2, 2), "what was refused took no effect");
    lists_are_on_record(&mut owner, 2).await;
}
