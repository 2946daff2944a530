//! How often a server asks PostgreSQL for one call, and for how long it keeps others waiting.
//!
//! A change holds the row of its environment. If that took as long as several round trips, whoever writes to the same environment would wait for all of them.

use konverge_zopp_testing::postgres_database;

use crate::{
    kills::severing::{Severing, Trip},
    replicas::{on, start},
};

/// Calls before those that count: each connection prepares its statements, and the first change makes its procedure.
const PREPARING: usize = 20;
const CALLS: usize = 10;

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

#[tokio::test]
async fn a_value_is_read_by_two_statements() {
    let address = postgres_database().await;
    let severing = Severing::before(&address);
    let world = start(on(severing.address())).await;
    let mut owner = world.owner().await;
    owner.set("A").await.unwrap();
    for _ in 0..PREPARING {
        owner.get("A").await.unwrap();
    }
    severing.trips();
    owner.get("A").await.unwrap();
    // The row of the audit log follows some time later, in a transaction of its own.
    let trips = severing.trips();
    let looks =
        trips.iter().filter(|trip| trip.statements.iter().any(|tag| tag.starts_with("SELECT")) && !trip.is_open);
    assert_eq!(looks.count(), 2, "{trips:?}");
}
