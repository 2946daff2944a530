//! Several servers on one PostgreSQL, and what they tell each other.

use std::time::Duration;

use konverge_zopp_crypto::SigningSeed;
use konverge_zopp_proto::{self as proto, watch_secrets_response::Response, zopp_service_client::ZoppServiceClient};
use konverge_zopp_server::{
    serve::Options,
    store::{Location, PostgresAddress},
};
use konverge_zopp_testing::postgres_database;
use sqlx::{AssertSqlSafe, PgPool};
use tokio::time::timeout;
use tonic::{Code, Status, Streaming};

use crate::harness::{DEADLINE, Person, World, code, upsert};

type Stream = Streaming<proto::WatchSecretsResponse>;

/// Options for a server on this database, which tells others of changes by the same.
pub(crate) fn on(address: &str) -> Options {
    let events = PostgresAddress::parse(address).unwrap().unwrap();
    Options { events: Some(events), ..Options::local(Location::parse(address).unwrap()) }
}

pub(crate) async fn start(options: Options) -> World {
    World::start_as(tempfile::tempdir().unwrap(), options).await
}

/// Two servers on one new database.
async fn pair() -> (World, World, String) {
    let address = postgres_database().await;
    (start(on(&address)).await, start(on(&address)).await, address)
}

/// The same person as a client of another server.
pub(crate) fn at(world: &World, person: &Person) -> Person {
    Person::new(
        person.user_id.clone(),
        person.principal_id.clone(),
        SigningSeed::from_slice(person.seed.expose()).unwrap(),
        world.client(),
    )
}

async fn next(stream: &mut Stream) -> Result<Option<Response>, Status> {
    let message = timeout(DEADLINE, stream.message()).await.expect("something comes");
    Ok(message?.and_then(|message| message.response))
}

async fn event(stream: &mut Stream) -> (String, i64) {
    match next(stream).await.unwrap() {
        Some(Response::Event(event)) => (event.key, event.version),
        other => panic!("an event was due, not {other:?}"),
    }
}

async fn resynced(stream: &mut Stream) -> i64 {
    match next(stream).await.unwrap() {
        Some(Response::Resync(resync)) => resync.current_version,
        other => panic!("a resync was due, not {other:?}"),
    }
}

#[tokio::test]
async fn changes_by_all_replicas_are_told_by_each_in_order() {
    let (one, other, _) = pair().await;
    let mut owner = one.owner().await;
    let mut there = at(&other, &owner);
    let (mut here_stream, mut there_stream) =
        (owner.watch(Some(0)).await.unwrap(), there.watch(Some(0)).await.unwrap());
    for version in 1..=20 {
        let key = format!("K{version}");
        if version % 2 == 0 { owner.set(&key).await.unwrap() } else { there.set(&key).await.unwrap() }
    }
    for version in 1..=20 {
        for stream in [&mut here_stream, &mut there_stream] {
            assert_eq!(event(stream).await, (format!("K{version}"), version));
        }
    }
}

#[tokio::test]
async fn a_deleted_environment_and_a_lost_workspace_end_streams_on_other_replicas() {
    let (one, other, _) = pair().await;
    let mut owner = one.owner().await;
    let mut service = one.service(&mut owner).await;
    owner.grant(&service.principal_id, proto::Role::Read).await.unwrap();
    service.client = other.client();
    let mut of_service = service.watch(None).await.unwrap();
    owner.remove_from_workspace(&service.principal_id).await.unwrap();
    assert_eq!(code(next(&mut of_service).await), Code::PermissionDenied);

    let mut there = at(&other, &owner);
    let mut stream = there.watch(None).await.unwrap();
    owner.delete_environment().await.unwrap();
    assert_eq!(code(next(&mut stream).await), Code::NotFound);
    owner.create_environment("production").await.unwrap();
    let mut stream = there.watch(None).await.unwrap();
    let request = proto::DeleteProjectRequest { workspace_name: "acme".into(), project_name: "backend".into() };
    owner.client.delete_project(owner.sign("DeleteProject", request)).await.unwrap();
    assert_eq!(code(next(&mut stream).await), Code::NotFound, "with its project as well");
}

#[tokio::test]
async fn a_captured_change_takes_effect_on_one_replica_only() {
    let (one, other, _) = pair().await;
    let mut owner = one.owner().await;
    let request = owner.sign("UpsertSecret", upsert("A"));
    let copy =
        tonic::Request::from_parts(request.metadata().clone(), tonic::Extensions::default(), request.get_ref().clone());
    owner.client.upsert_secret(request).await.unwrap();
    let replayed = ZoppServiceClient::new(other.channel.clone()).upsert_secret(copy).await;
    let status = replayed.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated);
    assert!(status.message().contains("received before"), "{status}");
    assert_eq!(owner.list().await.unwrap().version, 1);
}

/// PostgreSQL ends the listening connection; what was changed meanwhile must not be missed.
#[tokio::test]
async fn watchers_list_again_after_the_listener_was_away() {
    let (one, other, address) = pair().await;
    let mut owner = one.owner().await;
    let mut there = at(&other, &owner);
    let mut stream = there.watch(Some(0)).await.unwrap();
    owner.set("A").await.unwrap();
    assert_eq!(event(&mut stream).await, ("A".into(), 1));

    let saboteur = PgPool::connect(&address).await.unwrap();
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE datname = current_database() AND application_name = 'zopp-server listener'";
    let (cut,): (i64,) = sqlx::query_as(cut).fetch_one(&saboteur).await.unwrap();
    assert!(cut >= 1, "a listener was cut off");
    assert_eq!(resynced(&mut stream).await, 1);
    assert_eq!(next(&mut stream).await.unwrap(), None, "and the stream ends without an error");

    // The next watch waits until PostgreSQL is listened to again, and hears everything.
    let mut stream = there.watch(Some(1)).await.unwrap();
    owner.set("B").await.unwrap();
    assert_eq!(event(&mut stream).await, ("B".into(), 2));
}

/// The whole database is away for a moment: all connections are cut at once.
#[tokio::test]
async fn servers_recover_by_themselves_when_all_connections_are_cut() {
    let (one, other, address) = pair().await;
    let mut owner = one.owner().await;
    owner.set("A").await.unwrap();
    let saboteur = PgPool::connect(&address).await.unwrap();
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
               WHERE datname = current_database() AND pid <> pg_backend_pid()";
    sqlx::query(cut).execute(&saboteur).await.unwrap();
    let mut there = at(&other, &owner);
    let recovered = timeout(DEADLINE, async {
        while there.set("B").await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        there.watch(None).await.unwrap()
    });
    let mut stream = recovered.await.expect("it recovers");
    // A connection that was in use a moment ago is not asked whether it is still there.
    let listed = timeout(DEADLINE, async {
        loop {
            if let Ok(list) = owner.list().await {
                break list;
            }
        }
    });
    assert!(listed.await.expect("it recovers").version >= 2, "what was acknowledged is there");
    owner.set("C").await.unwrap();
    assert_eq!(event(&mut stream).await.0, "C");
}

/// A notice that never came: the next one shows that a version is left out, and without a next one the recheck does.
#[tokio::test]
async fn a_notice_that_never_came_is_noticed() {
    let address = postgres_database().await;
    let one = start(on(&address)).await;
    let silent = Options { events: None, ..on(&address) };
    let mute = start(silent).await;
    let mut owner = one.owner().await;
    let mut unheard = at(&mute, &owner);
    let mut stream = owner.watch(Some(0)).await.unwrap();
    unheard.set("A").await.unwrap();
    owner.set("B").await.unwrap();
    assert_eq!(resynced(&mut stream).await, 2);

    let quick = start(Options { recheck: Duration::from_millis(50), ..on(&address) }).await;
    let mut stream = at(&quick, &owner).watch(Some(2)).await.unwrap();
    unheard.set("C").await.unwrap();
    assert_eq!(resynced(&mut stream).await, 3);
}

/// Changes are kept in one database and told by another.
#[tokio::test]
async fn changes_are_told_by_another_database() {
    let events = PostgresAddress::parse(&postgres_database().await).unwrap().unwrap();
    let database = postgres_database().await;
    let options = Options { events: Some(events), ..on(&database) };
    let (one, other) = (start(options.clone()).await, start(options).await);
    let mut owner = one.owner().await;
    let mut stream = at(&other, &owner).watch(Some(0)).await.unwrap();
    for version in 1..=5 {
        owner.set("A").await.unwrap();
        assert_eq!(event(&mut stream).await, ("A".into(), version));
    }
    owner.delete_environment().await.unwrap();
    assert_eq!(code(next(&mut stream).await), Code::NotFound);
}

/// Any listener that knows the original's channels hears the changes.
#[tokio::test]
async fn the_original_hears_changes_on_its_own_channels() {
    let address = postgres_database().await;
    let world = start(on(&address)).await;
    let mut owner = world.owner().await;
    let pool = PgPool::connect(&address).await.unwrap();
    let (id,): (String,) = sqlx::query_as("SELECT id FROM environments").fetch_one(&pool).await.unwrap();
    let mut original = sqlx::postgres::PgListener::connect_with(&pool).await.unwrap();
    original.listen(&format!("zopp_env_{}", id.replace('-', "_"))).await.unwrap();
    owner.set("A").await.unwrap();
    let told = timeout(DEADLINE, original.recv()).await.expect("it is told").unwrap();
    assert!(
        told.payload().starts_with(r#"{"event_type":"Updated","key":"A","version":1,"timestamp":"#),
        "{}",
        told.payload()
    );

    // And the other way round.
    let mut stream = owner.watch(Some(1)).await.unwrap();
    let payload = r#"{"event_type":"Created","key":"B","version":2,"timestamp":7}"#;
    let notify = AssertSqlSafe(format!("NOTIFY {}, '{payload}'", told.channel()));
    sqlx::raw_sql(notify).execute(&pool).await.unwrap();
    assert_eq!(event(&mut stream).await, ("B".into(), 2));
}

/// Watchers share the one connection that listens, so they keep nobody from writing.
#[tokio::test]
async fn idle_watchers_hold_no_connection() {
    let address = postgres_database().await;
    let world = start(on(&address)).await;
    let mut owner = world.owner().await;
    let mut streams = Vec::new();
    for _ in 0..50 {
        streams.push(owner.watch(Some(0)).await.unwrap());
    }
    owner.set("A").await.unwrap();
    for stream in &mut streams {
        assert_eq!(event(stream).await, ("A".into(), 1));
    }
    let pool = PgPool::connect(&address).await.unwrap();
    let open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'zopp-server%'";
    let (open,): (i64,) = sqlx::query_as(open).fetch_one(&pool).await.unwrap();
    assert!(open <= 18, "{open} connections");
}
