//! A kill at any point of any change, on either database, leaves the state before the change or the state after it.
//!
//! A server keeps everything in its database, so the database decides what a kill leaves. SQLite leaves as much of its write-ahead log as was written:
//! a kill neither undoes a write of the system nor ends it half-way. PostgreSQL leaves what was committed when the connections went. So each
//! change is cut after each write of the log, and after each statement. `crash.rs` kills processes, at some moments.

pub(crate) mod severing;
mod steps;

use std::{collections::BTreeSet, fs, path::Path};

use konverge_zopp_crypto::{Profile, SigningSeed, signature};
use konverge_zopp_proto::identity;
use konverge_zopp_server::{serve::Options, store::Location};
use konverge_zopp_testing::{calls, postgres_database};
use sqlx::{AssertSqlSafe, Connection, PgPool, SqliteConnection};
use tokio::time::timeout;
use tonic::{Request, Status};

use self::{
    severing::Severing,
    steps::{By, Known, Outcome, READS, SAME_STATEMENTS, Step, member_seed, owner_seed, steps},
};
use crate::{
    harness::{DEADLINE, Person, World, attach, join_request, now},
    hostile::send_raw,
    key_rotation,
    replicas::{on, start},
};

/// No change has so many statements.
const MOST: u32 = 200;
/// How far ahead the first attempt at a step is signed. Each further one is signed a second earlier, because equal requests of one second are
/// replays.
const AHEAD: i64 = 25;
/// A frame of the write-ahead log has a header and a page; the log has a header of its own.
const LOG_HEADER: usize = 32;
const FRAME_HEADER: usize = 24;

/// A server, its owner, and what steps refer to.
struct Stage {
    world: World,
    owner: Person,
}

impl Stage {
    /// A user who owns workspace `acme` with project `backend` and environment `production`.
    async fn set(options: Options) -> Self {
        // Each attempt comes from an address of its own, because an outage counts as a guess of a code.
        let options = Options { trusted_proxies: vec!["127.0.0.1".parse().unwrap()], ..options };
        let world = start(options).await;
        let seed = owner_seed();
        let request = join_request(&world.invite().await, "owner@example.com", &seed);
        let joined = world.client().join(request).await.unwrap().into_inner();
        let mut owner = Person::new(joined.user_id, joined.principal_id, seed, world.client());
        crate::command::set_up(&mut owner).await;
        Self { world, owner }
    }

    /// Makes a step for the `attempt`th time since `began`, which is in Unix seconds.
    async fn make(&self, step: &Step, known: &Known, attempt: u32, began: i64) -> Result<(), Status> {
        let body = (step.message)(known);
        let at = began + AHEAD - i64::from(attempt);
        let sign = |seed: &SigningSeed, principal_id: &str, body: &[u8]| {
            let signed = signature::sign(Profile::V2, seed, &step.path, body, at);
            let mut request = Request::new(body.to_vec());
            attach(request.metadata_mut(), principal_id, &signed);
            request
        };
        let mut request = match step.by {
            By::Nobody => Request::new(body),
            By::Owner => sign(&self.owner.seed, &self.owner.principal_id, &body),
            By::Member => sign(&member_seed(), known.id("notebook"), &body),
        };
        let address = format!("192.0.2.{}", attempt % 256);
        request.metadata_mut().insert("x-forwarded-for", address.parse().unwrap());
        let made = send_raw(&self.world, &step.path, request);
        let made = timeout(DEADLINE, made).await.expect("an answer");
        match (step.outcome, made) {
            (Outcome::Refused(code), Err(status)) if status.code() == code => Ok(()),
            (Outcome::Refused(_), Ok(())) => panic!("{} is not refused", step.path),
            (_, made) => made,
        }
    }

    /// The objects that the next step may refer to.
    async fn known(&self, names: Vec<(String, String)>) -> Known {
        let request = identity::GetKeyStateRequest { workspace_name: "acme".into() };
        let keys = self.world.identity().get_key_state(self.owner.sign_own("GetKeyState", request)).await;
        let keys = keys.ok().map(|keys| key_rotation::rotation(&keys.into_inner(), &self.owner.seed));
        Known { names: names.into_iter().collect(), rotation: keys }
    }
}

/// Names of things, with their identifiers.
const NAMES: &str = "SELECT name, id FROM principals UNION ALL SELECT name, id FROM workspaces UNION ALL SELECT name, id FROM environments \
                     UNION ALL SELECT 'export', export_code FROM principal_exports";

/// The tables that are not compared: they are not about changes.
const LEFT_OUT: [&str; 3] = ["_sqlx_migrations", "readiness", "settings"];
/// The rows of the audit log that changes write, without what differs each time.
const OF_CHANGES: &str = " WHERE result = 'success' AND action NOT LIKE '%read%' AND action NOT LIKE '%list%'";
const OF_EACH_TIME: [&str; 3] = ["id", "timestamp", "client_ip"];

/// A query for all rows of all tables, each as one text. `columns` are names of tables and columns, `text` makes a column text.
fn all_rows(columns: &[(String, String)], text: fn(&str) -> String) -> AssertSqlSafe<String> {
    let tables: BTreeSet<&str> = columns.iter().map(|(table, _)| table.as_str()).collect();
    let selects = tables.into_iter().filter(|table| !LEFT_OUT.contains(table)).map(|table| {
        let is_audit = table == "audit_logs";
        let of_table =
            columns.iter().filter(|(of, column)| of == table && !(is_audit && OF_EACH_TIME.contains(&&**column)));
        let row: Vec<String> = of_table.map(|(_, column)| text(column)).collect();
        let only = if is_audit { OF_CHANGES } else { "" };
        format!("SELECT '{table}: ' || {} FROM {table}{only}", row.join(" || ',' || "))
    });
    AssertSqlSafe(selects.collect::<Vec<_>>().join(" UNION ALL "))
}

/// All rows of a SQLite file.
async fn rows_of_file(path: &Path, query: &AssertSqlSafe<String>) -> Vec<String> {
    let mut file = SqliteConnection::connect(&format!("sqlite://{}", path.display())).await.unwrap();
    let mut rows: Vec<String> = sqlx::query_scalar(AssertSqlSafe(query.0.clone())).fetch_all(&mut file).await.unwrap();
    file.close().await.unwrap();
    rows.sort();
    rows
}

/// The lengths of a write-ahead log between two writes of the system, and in the middle of some.
fn cuts(log: &[u8]) -> Vec<usize> {
    let page = u32::from_be_bytes(log[8..12].try_into().unwrap()) as usize;
    let frame = FRAME_HEADER + page;
    assert_eq!((log.len() - LOG_HEADER) % frame, 0, "whole frames");
    let of_frame = |at| [at + FRAME_HEADER, at + FRAME_HEADER + page / 2, at + frame];
    let frames = (LOG_HEADER..log.len()).step_by(frame).flat_map(of_frame);
    [0, LOG_HEADER].into_iter().chain(frames).collect()
}

#[tokio::test]
async fn a_kill_after_any_write_leaves_no_half_of_a_change_in_sqlite() {
    let (directory, copies) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = directory.path().join("zopp.db");
    let stage = Stage::set(Options::local(Location::file(&path))).await;
    let mut file = SqliteConnection::connect(&format!("sqlite://{}", path.display())).await.unwrap();
    let columns = "SELECT t.name, c.name FROM sqlite_master t JOIN pragma_table_info(t.name) c WHERE t.type = 'table' ORDER BY t.name, c.cid";
    let columns: Vec<(String, String)> = sqlx::query_as(columns).fetch_all(&mut file).await.unwrap();
    let query = all_rows(&columns, |column| format!("quote(\"{column}\")"));
    let log = directory.path().join("zopp.db-wal");
    let (copy, copied_log) = (copies.path().join("zopp.db"), copies.path().join("zopp.db-wal"));
    let mut cut = 0;
    for step in steps() {
        let names = sqlx::query_as(NAMES).fetch_all(&mut file).await.unwrap();
        let known = stage.known(names).await;
        // From an empty log on. While somebody reads, nothing gets from the log into the file.
        sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(&mut file).await.unwrap();
        assert_eq!(fs::metadata(&log).unwrap().len(), 0, "{}: the log is empty", step.path);
        let mut reader = file.begin().await.unwrap();
        sqlx::query("SELECT count(*) FROM users").execute(&mut *reader).await.unwrap();
        let before = fs::read(&path).unwrap();
        stage.make(&step, &known, 0, now()).await.unwrap_or_else(|status| panic!("{}: {status}", step.path));
        let written = fs::read(&log).unwrap();
        assert_eq!(fs::read(&path).unwrap(), before, "{}: the file is as it was", step.path);
        reader.rollback().await.unwrap();
        let rows = |length: usize| {
            // The remains of the last copy.
            let _ = fs::remove_file(copies.path().join("zopp.db-shm"));
            fs::write(&copy, &before).unwrap();
            fs::write(&copied_log, &written[..length]).unwrap();
            rows_of_file(&copy, &query)
        };
        let (was, is) = (rows(0).await, rows(written.len()).await);
        assert_ne!(was, is, "{} changes something", step.path);
        let mut happened = false;
        for length in cuts(&written) {
            let left = rows(length).await;
            happened |= left == is;
            let expected = if happened { &is } else { &was };
            assert_eq!(&left, expected, "{}, killed after {length} of {} bytes", step.path, written.len());
            cut += 1;
        }
    }
    assert!(cut > 500, "{cut}");
}

/// All rows of a PostgreSQL database.
struct Rows {
    pool: PgPool,
    query: AssertSqlSafe<String>,
}

impl Rows {
    async fn of(address: &str) -> Self {
        let pool = PgPool::connect(address).await.unwrap();
        let columns = "SELECT table_name::text, column_name::text FROM information_schema.columns WHERE table_schema = 'public' \
                       ORDER BY table_name, ordinal_position";
        let mut columns: Vec<(String, String)> = sqlx::query_as(columns).fetch_all(&pool).await.unwrap();
        // A refusal uses a signature up as well, some time later.
        columns.retain(|(table, _)| table != "used_signatures");
        let query = all_rows(&columns, |column| format!("coalesce(\"{column}\"::text, 'NULL')"));
        Self { pool, query }
    }

    async fn all(&self) -> Vec<String> {
        let query = AssertSqlSafe(self.query.0.clone());
        let mut rows: Vec<String> = sqlx::query_scalar(query).fetch_all(&self.pool).await.unwrap();
        rows.sort();
        rows
    }

    async fn names(&self) -> Vec<(String, String)> {
        sqlx::query_as(NAMES).fetch_all(&self.pool).await.unwrap()
    }
}

/// The rows without identifiers, times, keys and codes, which are others in each run.
fn alike(rows: &[String]) -> Vec<String> {
    let alike = |row: &String| {
        let of_word = |character: char| character.is_alphanumeric() || "-_".contains(character);
        let mut words = String::new();
        for part in row.split_inclusive(|character| !of_word(character)) {
            let word = part.trim_end_matches(|character| !of_word(character));
            let is_time = word.len() >= 10 && word.bytes().all(|byte| byte.is_ascii_digit());
            let is_other = word.len() >= 32 || is_time || word.starts_with("exp_");
            words.push_str(if is_other { "#" } else { word });
            words.push_str(&part[word.len()..]);
        }
        words
    };
    let mut rows: Vec<String> = rows.iter().map(alike).collect();
    rows.sort();
    rows
}

#[tokio::test]
async fn a_kill_after_any_statement_leaves_no_half_of_a_change_in_postgres() {
    // The result of each step if nothing happens to it.
    let (undisturbed, address) = (postgres_database().await, postgres_database().await);
    let (stage, rows) = (Stage::set(on(&undisturbed)).await, Rows::of(&undisturbed).await);
    let mut expected = Vec::new();
    for step in steps() {
        let known = stage.known(rows.names().await).await;
        stage.make(&step, &known, 0, now()).await.unwrap_or_else(|status| panic!("{}: {status}", step.path));
        expected.push(alike(&rows.all().await));
    }

    let severing = Severing::before(&address);
    let (stage, rows) = (Stage::set(on(severing.address())).await, Rows::of(&address).await);
    let mut cut = 0;
    for (step, expected) in steps().into_iter().zip(expected) {
        let known = stage.known(rows.names().await).await;
        let (before, began) = (rows.all().await, now());
        for attempt in 1.. {
            assert!(attempt < MOST, "{} has no end", step.path);
            severing.after(attempt);
            let made = stage.make(&step, &known, attempt, began).await;
            let was_cut = severing.was_cut();
            cut += u32::from(was_cut);
            let left = rows.all().await;
            if was_cut && left == before {
                continue;
            }
            assert_eq!(alike(&left), expected, "{}, killed after statement {attempt}", step.path);
            let is_one_statement = ["/UpsertSecret", "/DeleteSecret"].iter().any(|call| step.path.ends_with(call));
            assert!(
                attempt > 4 || is_one_statement,
                "{} is done by {attempt} statements: too few were counted",
                step.path
            );
            if !was_cut {
                made.unwrap_or_else(|status| panic!("{}: {status}", step.path));
            }
            break;
        }
    }
    assert!(cut > 300, "{cut}");
}

/// Each call of the schema is a step, or the same statements as one, or changes nothing.
#[test]
fn no_change_is_left_out() {
    let steps: Vec<String> = steps().into_iter().map(|step| step.path).collect();
    for call in calls() {
        let name = call.path.rsplit('/').next().unwrap();
        let is_step = steps.contains(&call.path);
        let is_named = READS.contains(&name) || SAME_STATEMENTS.contains(&name);
        assert!(is_step != is_named, "{}", call.path);
    }
}
