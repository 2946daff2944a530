//! Answers that nobody takes: how much memory they hold, and for how long.

use std::time::Duration;

use konverge_zopp_proto::{self as proto, zopp_service_client::ZoppServiceClient};
use konverge_zopp_server::limits::Limits;
use tokio::{
    task::{JoinSet, yield_now},
    time::timeout,
};
use tonic::{Code, Status, transport::Channel};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use crate::harness::{DEADLINE, Person, World, list_request, upsert};

const KIB: u32 = 1024;
/// The server ends the connections of clients that take longer than half of it.
const LONG: Duration = Duration::from_mins(1);

/// A connection of a client that lets no byte of an answer come.
async fn deaf(url: String) -> Channel {
    Channel::from_shared(url).unwrap().initial_stream_window_size(0).connect().await.unwrap()
}

impl World {
    async fn deaf(&self) -> Channel {
        deaf(format!("http://{}", self.address)).await
    }
}

fn exhausted(refused: &Status, flag: &str) {
    assert_eq!(refused.code(), Code::ResourceExhausted, "{refused}");
    assert!(refused.message().contains(flag), "{flag} is not in: {}", refused.message());
}

async fn check(channel: Channel) -> Result<(), Status> {
    HealthClient::new(channel).check(HealthCheckRequest::default()).await.map(drop)
}

#[tokio::test]
async fn a_stranger_that_takes_no_answer_holds_a_share_of_the_memory_and_loses_its_connection() {
    // Twenty of them, with a few bytes each.
    let limits = Limits { request_bytes_per_address: 20 * 8 * KIB + KIB, ..Limits::default() };
    let world = World::start_limited(limits).await;
    let mut owner = world.owner().await;
    let channel = world.deaf().await;
    let mut stranger = JoinSet::new();
    for _ in 0..30 {
        stranger.spawn(check(channel.clone()));
    }
    for _ in 0..10 {
        let refused = timeout(DEADLINE, stranger.join_next()).await.expect("there is no room for it").unwrap().unwrap();
        exhausted(&refused.unwrap_err(), "--max-request-bytes-per-address");
    }
    exhausted(&owner.set("A").await.unwrap_err(), "--max-request-bytes-per-address");
    // The rest waits for answers that were sent long ago, until the server has had enough.
    while let Some(ended) = timeout(LONG, stranger.join_next()).await.expect("the connection ends") {
        let lost = ended.unwrap().unwrap_err();
        assert_ne!(lost.code(), Code::ResourceExhausted, "{lost}");
    }
    let given_back = async {
        while owner.set("A").await.is_err() {
            yield_now().await;
        }
    };
    timeout(DEADLINE, given_back).await.expect("there is room again");
    let text = world.probe("/metrics").await;
    assert!(text.contains("zopp_server_answers_not_taken_total 1\n"), "{text}");
}

#[tokio::test]
async fn watches_of_the_health_are_bounded_and_given_back() {
    let world = World::start().await;
    let watch = async || HealthClient::new(world.channel.clone()).watch(HealthCheckRequest::default()).await;
    let mut open = Vec::new();
    for _ in 0..16 {
        open.push(watch().await.unwrap());
    }
    exhausted(&watch().await.unwrap_err(), "watches of the health by an address");
    open.pop();
    let given_back = async {
        while watch().await.is_err() {
            yield_now().await;
        }
    };
    timeout(DEADLINE, given_back).await.expect("a watch that ended makes room");
}

/// Sets a value of that many bytes.
async fn set(person: &mut Person, key: &str, bytes: u32) {
    let mut request = upsert(key);
    request.ciphertext = vec![7; bytes as usize];
    person.client.upsert_secret(person.sign("UpsertSecret", request)).await.unwrap();
}

/// How many lists the server has answered.
async fn lists(world: &World) -> usize {
    let text = world.probe("/metrics").await;
    let line = "zopp_server_requests_total{method=\"zopp.ZoppService/ListSecrets\",code=\"Ok\"} ";
    let count = text.lines().find_map(|found| found.strip_prefix(line));
    count.map_or(0, |count| count.parse().unwrap())
}

#[tokio::test]
async fn a_list_waits_for_the_memory_of_one_that_is_not_taken() {
    let limits = Limits { answer_bytes: 8 * KIB * KIB, ..Limits::default() };
    let world = World::start_limited(limits).await;
    let mut owner = world.owner().await;
    for key in ["A", "B", "C"] {
        set(&mut owner, key, 600 * KIB).await;
    }
    let mut reader = world.member(&owner, "reader@example.com", Some("read")).await;
    reader.client = ZoppServiceClient::new(world.deaf().await);
    let hostile = tokio::spawn(async move { reader.list().await });
    let answered = async {
        while lists(&world).await == 0 {
            yield_now().await;
        }
    };
    timeout(DEADLINE, answered).await.expect("the list is on its way");

    // Each takes the memory of its values and of one more: both 4.7 MiB, and their address may have half of the 8 MiB.
    let (request, mut client) = (owner.sign("ListSecrets", list_request()), world.client());
    let waiting = tokio::spawn(async move { client.list_secrets(request).await });
    owner.set("D").await.expect("small requests go on");
    assert!(!waiting.is_finished() && lists(&world).await == 1, "it waits");
    hostile.abort();
    let listed = timeout(DEADLINE, waiting).await.expect("there is room now").unwrap().unwrap();
    assert_eq!(listed.into_inner().secrets.len(), 4);
}

#[tokio::test]
async fn a_principal_reads_so_often_and_no_more() {
    let world = World::start_limited(Limits { reads: 5, ..Limits::default() }).await;
    let mut owner = world.owner().await;
    let mut service = world.service(&mut owner).await;
    owner.grant(&service.principal_id, proto::Role::Read).await.unwrap();
    for _ in 0..5 {
        service.list().await.unwrap();
    }
    for _ in 0..3 {
        let refused = service.list().await.unwrap_err();
        exhausted(&refused, "--max-reads");
        let wait: u32 = refused.metadata().get("retry-after").unwrap().to_str().unwrap().parse().unwrap();
        assert!((1..=13).contains(&wait), "{wait}");
    }
    // Others are not concerned, and changes have a limit of their own.
    owner.set("A").await.unwrap();
    owner.list().await.unwrap();
    let service = service.principal_id;
    let rows = world.into_audit_trail().await;
    let refused =
        rows.iter().filter(|(action, result, of, _)| (&**action, &**result, of) == ("secret.list", "error", &service));
    assert_eq!(refused.count(), 1, "{rows:?}");
}
