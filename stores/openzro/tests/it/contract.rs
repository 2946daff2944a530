//! The contract suite. `cargo xtask openzro --record` rewrites the record of it.

use std::{
    collections::BTreeSet,
    fmt::Write,
    fs,
    path::{Path, PathBuf},
};

use konverge_openzro_testing::{
    Session,
    contract::{PROPERTIES, Property},
    record,
};
use konverge_testkit_stores::OpenZroServer;

use crate::target::Target;

/// Names a mode in which the record is written instead of checked.
const RECORD: &str = "KONVERGE_OPENZRO_RECORD";

fn testing() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testing")
}

fn recorded(name: &str) -> PathBuf {
    testing().join("verified").join(format!("{name}.txt"))
}

/// Runs the property in a session of its own, and returns its transcript.
async fn run(target: &Target, property: &Property) -> Result<String, String> {
    let session = Session::new(target.url(), target.account(), target.account());
    let run = property.run;
    let outcome = tokio::spawn(async move {
        run(&session).await;
        session.transcript()
    });
    outcome.await.map_err(|error| format!("{} on the {}: {error}", property.name, target.name()))
}

/// The first line in which a transcript differs from the record.
fn difference(property: &Property, target: &Target, transcript: &str) -> Option<String> {
    let record = fs::read_to_string(recorded(property.name)).unwrap_or_default();
    if record == transcript {
        return None;
    }
    let mut lines = record.lines().zip(transcript.lines());
    let (was, is) = lines.find(|(was, is)| was != is).unwrap_or(("(its end)", "(its end)"));
    let count = (record.lines().count(), transcript.lines().count());
    Some(format!(
        "{} on the {} differs from the record ({} and {} calls):\n  recorded {was}\n  now      {is}",
        property.name,
        target.name(),
        count.0,
        count.1
    ))
}

async fn holds_on(target: &Target) {
    let mut faults = Vec::new();
    for property in PROPERTIES {
        match run(target, property).await {
            Ok(transcript) => faults.extend(difference(property, target, &transcript)),
            Err(fault) => faults.push(fault),
        }
    }
    eprintln!("contract of openZro: {} properties on the {}", PROPERTIES.len(), target.name());
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[tokio::test]
async fn the_double_answers_as_the_real_server_did() {
    if std::env::var_os(RECORD).is_none() {
        holds_on(&Target::double().await).await;
    }
}

#[tokio::test]
async fn the_real_server_answers_as_recorded() {
    match OpenZroServer::shared().await.unwrap() {
        None => eprintln!("contract of openZro: not on the server, because this machine has none"),
        Some(server) if std::env::var_os(RECORD).is_some() => write_record(server).await,
        Some(server) => holds_on(&Target::Server(server)).await,
    }
}

async fn write_record(server: &'static OpenZroServer) {
    let target = Target::Server(server);
    let mut transcripts = Vec::new();
    let mut faults = Vec::new();
    for property in PROPERTIES {
        match run(&target, property).await {
            Ok(transcript) => transcripts.push((property.name, transcript)),
            Err(fault) => faults.push(fault),
        }
    }
    assert!(faults.is_empty(), "nothing is recorded:\n{}", faults.join("\n"));
    let folder = testing().join("verified");
    fs::remove_dir_all(&folder).ok();
    fs::create_dir_all(&folder).unwrap();
    for (name, transcript) in &transcripts {
        fs::write(recorded(name), transcript).unwrap();
    }
    let date = std::env::var(RECORD).unwrap();
    let mut text =
        "# The last run of the contract suite on a real server. Written by `cargo xtask openzro --record`.\n"
            .to_owned();
    writeln!(text, "server = {:?}\nprogram = {:?}\ndate = {date:?}", server.version(), server.program_digest())
        .unwrap();
    writeln!(text, "suite = {:?}\nproperties = [", record::digest()).unwrap();
    for (name, _) in &transcripts {
        writeln!(text, "    {name:?},").unwrap();
    }
    text.push_str("]\n");
    fs::write(testing().join("verified.toml"), text).unwrap();
}

#[test]
fn a_server_has_seen_this_suite() {
    if std::env::var_os(RECORD).is_some() {
        return;
    }
    let record = fs::read_to_string(testing().join("verified.toml")).unwrap();
    let expected = format!("suite = {:?}", record::digest());
    assert!(
        record.contains(&expected),
        "no server has seen this suite: run `cargo xtask openzro --record` on a machine with the openZro server"
    );
    for property in PROPERTIES {
        assert!(
            record.contains(&format!("    {:?},", property.name)) && recorded(property.name).is_file(),
            "{}",
            property.name
        );
    }
}

#[test]
fn the_digest_covers_all_sources_of_the_suite() {
    let src = testing().join("src");
    let contract = fs::read_dir(src.join("contract")).unwrap();
    let mut files: BTreeSet<_> =
        contract.map(|file| format!("contract/{}", file.unwrap().file_name().into_string().unwrap())).collect();
    files.extend(["contract.rs".to_owned(), "target.rs".to_owned()]);
    assert_eq!(record::sources().map(str::to_owned).collect::<BTreeSet<_>>(), files);
}
