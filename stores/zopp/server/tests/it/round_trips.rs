//! How often a server asks PostgreSQL for one call, and for how long it keeps others waiting.
//!
//! A change holds the row of its environment. If that took as long as several round trips, other writers to the same environment would wait for all of them.

use std::time::Duration;

use konverge_zopp_proto::{self as proto, Role, secrets};
use konverge_zopp_testing::postgres_database;
use tokio::time::timeout;

use crate::{
    harness::{DEADLINE, names},
    kills::severing::{Severing, Trip},
    replicas::{on, start},
};

/// Calls before those that count: each connection prepares its statements, and the first change makes its procedure.
const PREPARING: usize = 20;
const CALLS: usize = 10;
/// Reads at once, fewer than a principal may have.
const READS: usize = 60;

/// The statements of so many trips, which are all over when they come back.
fn statements(trips: &[Trip]) -> Vec<&str> {
    assert!(trips.iter().all(|trip| !trip.is_open), "nothing stays locked: {trips:?}");
    trips.iter().flat_map(|trip| &trip.statements).filter_map(|tag| tag.split(' ').next()).collect()
}

#[tokio::test]
async fn a_change_of_one_secret_is_one_statement_that_locks_nothing_longer() {
    let address = postgres_database().await;
    let severing = Severing::before(&address);
    let world = start(on(severing.address())).await;
    let mut owner = world.owner().await;
    for number in 0..PREPARING {
        owner.set(&format!("P{number}")).await.unwrap();
    }
    severing.trips();
    for number in 0..CALLS {
        // Half of them are new.
        owner.set(&format!("P{}", number + PREPARING - CALLS / 2)).await.unwrap();
    }
    assert_eq!(statements(&severing.trips()), ["CALL"; CALLS], "the first call looked");

    owner.unset("P0").await.unwrap();
    severing.trips();
    owner.unset("P1").await.unwrap();
    assert_eq!(statements(&severing.trips()), ["CALL"]);
}

/// How often something was looked up, outside of transactions.
fn looks(trips: &[Trip]) -> usize {
    let selects = |trip: &&Trip| !trip.is_open && trip.statements.iter().any(|tag| tag.starts_with("SELECT"));
    trips.iter().filter(selects).count()
}

#[tokio::test]
async fn a_value_is_read_by_one_statement() {
    let address = postgres_database().await;
    let severing = Severing::before(&address);
    let world = start(on(severing.address())).await;
    let mut owner = world.owner().await;
    let mut service = world.service(&mut owner).await;
    owner.grant(&service.principal_id, Role::Read).await.unwrap();
    owner.set("A").await.unwrap();
    for reader in [&mut owner, &mut service] {
        for _ in 0..PREPARING {
            reader.get("A").await.unwrap();
        }
        severing.trips();
        for _ in 0..CALLS {
            reader.get("A").await.unwrap();
        }
        // The row of the audit log follows some time later, in a transaction of its own.
        let trips = severing.trips();
        assert_eq!(looks(&trips), CALLS, "{trips:?}");
        reader.get("missing").await.unwrap_err();
        let trips = severing.trips();
        assert_eq!(looks(&trips), 1, "{trips:?}");
    }
}

#[tokio::test]
async fn a_poll_that_finds_nothing_new_is_one_statement() {
    let address = postgres_database().await;
    let severing = Severing::before(&address);
    let world = start(on(severing.address())).await;
    let mut owner = world.owner().await;
    owner.set("A").await.unwrap();
    let poll = async |known_tag: Option<String>| {
        let [workspace_name, project_name, environment_name] = names();
        let request = secrets::ReadEnvironmentRequest {
            workspace_name,
            project_name,
            environment_name,
            known_tag,
            without_ciphertexts: false,
        };
        let answer = world.secrets().read_environment(owner.sign_secrets("ReadEnvironment", request)).await;
        answer.unwrap().into_inner()
    };
    let first = poll(None).await;
    for _ in 0..PREPARING {
        poll(Some(first.tag.clone())).await;
    }
    severing.trips();
    let same = poll(Some(first.tag.clone())).await;
    let trips = severing.trips();
    assert!(same.unchanged && same.secrets.is_empty(), "{same:?}");
    assert_eq!((same.environment_id, same.version, same.tag), (first.environment_id, first.version, first.tag));
    let selects = trips.iter().flat_map(|trip| &trip.statements).filter(|tag| tag.starts_with("SELECT"));
    assert_eq!(selects.count(), 1, "{trips:?}");
}

#[tokio::test]
async fn a_refused_or_changed_right_is_looked_up_once() {
    let address = postgres_database().await;
    let severing = Severing::before(&address);
    let world = start(on(severing.address())).await;
    let mut owner = world.owner().await;
    let mut service = world.service(&mut owner).await;
    owner.grant(&service.principal_id, Role::Write).await.unwrap();
    for number in 0..PREPARING {
        service.set(&format!("P{number}")).await.unwrap();
    }
    severing.trips();
    service.unset("missing").await.unwrap_err();
    let trips = severing.trips();
    assert_eq!(looks(&trips), 0, "a key that is missing says nothing about rights: {trips:?}");

    owner.grant(&service.principal_id, Role::Admin).await.unwrap();
    severing.trips();
    service.set("A").await.unwrap();
    let trips = severing.trips();
    assert_eq!(looks(&trips), 1, "its rights are others: {trips:?}");
    service.set("B").await.unwrap();
    let trips = severing.trips();
    let calls = trips.iter().flat_map(|trip| &trip.statements).filter(|tag| tag.starts_with("CALL"));
    assert_eq!((calls.count(), looks(&trips)), (1, 0), "these are remembered: {trips:?}");
    service.get("B").await.unwrap();
    let trips = severing.trips();
    assert_eq!(looks(&trips), 1, "for reading as well: {trips:?}");
}

#[tokio::test]
async fn the_records_of_reads_share_statements() {
    let address = postgres_database().await;
    let severing = Severing::before(&address);
    let world = start(on(severing.address())).await;
    let mut owner = world.owner().await;
    owner.set("A").await.unwrap();
    severing.trips();
    let reads = (0..READS).map(|_| {
        let [workspace_name, project_name, environment_name] = names();
        let request = proto::GetSecretRequest { workspace_name, project_name, environment_name, key: "A".to_owned() };
        let (mut client, request) = (owner.client.clone(), owner.sign("GetSecret", request));
        async move { client.get_secret(request).await }
    });
    futures::future::try_join_all(reads).await.unwrap();
    let (mut rows, mut insertions) = (0, 0);
    let written = async {
        while rows < READS {
            for tag in severing.trips().iter().flat_map(|trip| &trip.statements) {
                if let Some(number) = tag.strip_prefix("INSERT 0 ") {
                    rows += number.parse::<usize>().unwrap();
                    insertions += 1;
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(DEADLINE, written).await.expect("each read is on record");
    assert!(insertions * 4 <= rows * 3, "{rows} rows by {insertions} statements");
}
