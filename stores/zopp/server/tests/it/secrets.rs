//! Secrets: versions, listings, what is kept.

use konverge_zopp_proto as proto;
use tonic::Code;

use crate::harness::{World, code, upsert};

#[tokio::test]
async fn what_was_set_is_there_after_a_restart() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    owner.set("A").await.unwrap();
    owner.set("B").await.unwrap();
    owner.unset("A").await.unwrap();
    assert_eq!(code(owner.unset("A").await), Code::NotFound);

    let world = world.restart().await;
    owner.client = world.client();
    let listed = owner.list().await.unwrap();
    assert_eq!(listed.version, 3);
    assert_eq!(listed.secrets.iter().map(|secret| secret.key.as_str()).collect::<Vec<_>>(), ["B"]);
    assert_eq!(listed.secrets[0].ciphertext, vec![7; 20]);
    assert_eq!(owner.get("B").await.unwrap().nonce, vec![6; 24]);
    assert_eq!(code(owner.get("A").await), Code::NotFound);
}

/// A listing by more than one query would now and then see a version without its key, or a key without its version.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_keys_are_listed_as_of_one_moment_while_they_change() {
    const KEYS: i64 = 2000;
    let world = World::start().await;
    let mut owner = world.owner().await;
    let mut reader = world.service(&mut owner).await;
    owner.grant(&reader.principal_id, konverge_zopp_proto::Role::Read).await.unwrap();
    for first in (0..KEYS).step_by(100) {
        let writing = async {
            for key in first..first + 100 {
                owner.set(&format!("KEY_{key:04}")).await.unwrap();
            }
        };
        let reading = async {
            for _ in 0..3 {
                let listed = reader.list().await.unwrap();
                assert_eq!(i64::try_from(listed.secrets.len()).unwrap(), listed.version);
                assert!(listed.secrets.is_sorted_by(|a, b| a.key < b.key));
            }
        };
        tokio::join!(writing, reading);
    }
    assert_eq!(reader.list().await.unwrap().version, KEYS);
}

#[tokio::test]
async fn an_environment_made_anew_starts_empty() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    owner.set("A").await.unwrap();
    owner.delete_environment().await.unwrap();
    assert_eq!(code(owner.list().await), Code::NotFound);
    owner.create_environment("production").await.unwrap();
    let listed = owner.list().await.unwrap();
    assert_eq!((listed.version, listed.secrets.len()), (0, 0));
}

#[tokio::test]
async fn an_environment_above_4_mib_is_listed_whole() {
    let world = World::start().await;
    let mut owner = world.owner().await;
    for key in ["A", "B", "C", "D", "E"] {
        let large = proto::UpsertSecretRequest { ciphertext: vec![7; 1 << 20], ..upsert(key) };
        owner.client.upsert_secret(owner.sign("UpsertSecret", large)).await.unwrap();
    }
    assert_eq!(code(owner.list().await), Code::OutOfRange, "stock clients stop at 4 MiB");
    owner.client = owner.client.max_decoding_message_size(8 << 20);
    assert_eq!(owner.list().await.unwrap().secrets.len(), 5);
}
