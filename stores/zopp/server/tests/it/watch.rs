//! The stream of changes.

use std::time::Duration;

use konverge_zopp_proto::{
    self as proto, secret_change_event::EventType, watch_secrets_response::Response,
    zopp_service_client::ZoppServiceClient,
};
use tokio::time::timeout;
use tonic::{Code, Status, Streaming, transport::Channel};

use crate::harness::{DEADLINE, World, code};

type Stream = Streaming<proto::WatchSecretsResponse>;

async fn next(stream: &mut Stream) -> Result<Option<Response>, Status> {
    let message = timeout(DEADLINE, stream.message()).await.expect("something comes");
    Ok(message?.and_then(|message| message.response))
}

async fn event(stream: &mut Stream) -> (EventType, String, i64) {
    match next(stream).await.unwrap() {
        Some(Response::Event(event)) => (event.event_type(), event.key, event.version),
        other => panic!("an event was due, not {other:?}"),
    }
}

#[tokio::test]
async fn changes_are_told_in_order() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let mut stream = owner.watch(Some(0)).await.unwrap();
    owner.set("A").await.unwrap();
    owner.set("A").await.unwrap();
    owner.unset("A").await.unwrap();
    assert_eq!(event(&mut stream).await, (EventType::Updated, "A".into(), 1));
    assert_eq!(event(&mut stream).await, (EventType::Updated, "A".into(), 2));
    assert_eq!(event(&mut stream).await, (EventType::Deleted, "A".into(), 3));
}

#[tokio::test]
async fn who_is_not_up_to_date_lists_again() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    owner.set("A").await.unwrap();
    owner.set("B").await.unwrap();
    for since in [0, 1, 7] {
        let mut stream = owner.watch(Some(since)).await.unwrap();
        let first = next(&mut stream).await.unwrap();
        assert_eq!(first, Some(Response::Resync(proto::ResyncRequired { current_version: 2 })));
        assert_eq!(next(&mut stream).await.unwrap(), None, "and the stream ends without an error");
    }
    // Up to date, or without a wish: live.
    for since in [Some(2), None] {
        let mut stream = owner.watch(since).await.unwrap();
        owner.set("C").await.unwrap();
        assert_eq!(event(&mut stream).await.1, "C");
        owner.unset("C").await.unwrap();
        // Back to version 2 for the next one is not possible; start anew.
        owner.delete_environment().await.unwrap();
        owner.create_environment("production").await.unwrap();
    }
}

/// A client that reads nothing for a while, behind a window of a few events.
#[tokio::test]
async fn who_is_too_slow_lists_again_instead_of_missing_a_change() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let narrow = Channel::from_shared(format!("http://{}", world.address)).unwrap().initial_stream_window_size(256);
    let fast = std::mem::replace(&mut owner.client, ZoppServiceClient::new(narrow.connect().await.unwrap()));
    let mut stream = owner.watch(Some(0)).await.unwrap();
    owner.client = fast;
    for key in 0..600 {
        owner.set(&format!("KEY_{key}")).await.unwrap();
    }
    let mut seen = 0;
    loop {
        match next(&mut stream).await.unwrap() {
            Some(Response::Event(event)) => {
                assert_eq!(event.version, seen + 1, "nothing is left out before the resync");
                seen = event.version;
            }
            Some(Response::Resync(resync)) => {
                assert_eq!(resync.current_version, 600);
                break;
            }
            None => panic!("the stream ended at {seen} without a resync"),
        }
    }
    assert_eq!(next(&mut stream).await.unwrap(), None);
}

#[tokio::test]
async fn a_deleted_environment_ends_the_stream() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let mut stream = owner.watch(None).await.unwrap();
    owner.delete_environment().await.unwrap();
    assert_eq!(code(next(&mut stream).await), Code::NotFound);

    owner.create_environment("production").await.unwrap();
    let mut stream = owner.watch(None).await.unwrap();
    let request = proto::DeleteProjectRequest { workspace_name: "acme".into(), project_name: "backend".into() };
    owner.client.delete_project(owner.sign("DeleteProject", request)).await.unwrap();
    assert_eq!(code(next(&mut stream).await), Code::NotFound, "with its project as well");
}

#[tokio::test]
async fn who_may_no_longer_read_is_told_nothing_more() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let mut service = world.service(&mut owner).await;
    assert_eq!(code(service.watch(None).await), Code::PermissionDenied);
    owner.grant(&service.principal_id, proto::Role::Read).await.unwrap();
    let mut stream = service.watch(None).await.unwrap();
    owner.set("A").await.unwrap();
    assert_eq!(event(&mut stream).await.1, "A");
    owner.revoke(&service.principal_id).await.unwrap();
    owner.set("B").await.unwrap();
    assert_eq!(code(next(&mut stream).await), Code::PermissionDenied);
}

#[tokio::test]
async fn a_quiet_stream_ends_too_when_the_right_is_gone() {
    let world = World::start_in(tempfile::tempdir().unwrap(), Duration::from_millis(50)).await;
    let mut owner = world.owner().await;
    let mut service = world.service(&mut owner).await;
    owner.grant(&service.principal_id, proto::Role::Read).await.unwrap();
    let mut stream = service.watch(None).await.unwrap();
    let request = proto::RemovePrincipalFromWorkspaceRequest {
        workspace_name: "acme".into(),
        principal_id: service.principal_id.clone(),
    };
    let request = owner.sign("RemovePrincipalFromWorkspace", request);
    owner.client.remove_principal_from_workspace(request).await.unwrap();
    assert_eq!(code(next(&mut stream).await), Code::PermissionDenied);
}

#[tokio::test]
async fn a_server_that_stops_ends_the_stream_at_once() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    let mut stream = owner.watch(None).await.unwrap();
    timeout(Duration::from_secs(1), world.end()).await.expect("an open stream holds nothing up");
    assert_eq!(code(next(&mut stream).await), Code::Unavailable);
}

/// Each of these leaves while nothing happens; the next change must find the server well.
#[tokio::test]
async fn clients_that_leave_cost_nothing() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    for _ in 0..50 {
        drop(owner.watch(None).await.unwrap());
    }
    owner.set("A").await.unwrap();
    let mut stream = owner.watch(Some(1)).await.unwrap();
    owner.set("B").await.unwrap();
    assert_eq!(event(&mut stream).await.1, "B");
}

/// The value of a counter without labels.
async fn counter(world: &World, name: &str) -> u32 {
    let text = world.probe("/metrics").await;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix("_total "));
    line.unwrap_or_else(|| panic!("{name} is not in {text}")).trim().parse().unwrap()
}

#[tokio::test]
async fn idle_watches_ask_the_database_once_for_each_principal_and_environment() {
    const RECHECK: Duration = Duration::from_millis(200);
    const WATCHES: u32 = 20;
    let world = World::start_in(tempfile::tempdir().unwrap(), RECHECK).await;
    let mut owner = world.owner().await;
    let mut reader = world.member(&owner, "bob@example.com", Some("read")).await;
    let began = std::time::Instant::now();
    let mut streams = Vec::new();
    for _ in 0..WATCHES {
        streams.push(owner.watch(None).await.unwrap());
        streams.push(reader.watch(None).await.unwrap());
    }
    let asked = async {
        loop {
            let asked = counter(&world, "zopp_server_watch_rechecks").await;
            // Five rounds of both principals.
            if asked >= 10 {
                return asked;
            }
            tokio::time::sleep(RECHECK / 4).await;
        }
    };
    let asked = timeout(DEADLINE, asked).await.expect("idle watches ask");
    let rounds = u32::try_from(began.elapsed().as_millis() / RECHECK.as_millis()).unwrap() + 1;
    assert!(asked <= 2 * rounds, "{asked} questions by two principals in {rounds} rounds");

    // All are told of a change. All watches of a user without a role end, and the others go on.
    owner.set("A").await.unwrap();
    for stream in &mut streams {
        assert_eq!(event(stream).await.1, "A");
    }
    world.saboteur().await.run("DELETE FROM user_workspace_permissions").await;
    for pair in streams.chunks_mut(2) {
        assert_eq!(code(next(&mut pair[1]).await), Code::PermissionDenied);
    }
    owner.set("B").await.unwrap();
    for pair in streams.chunks_mut(2) {
        assert_eq!(event(&mut pair[0]).await.1, "B");
    }
}
