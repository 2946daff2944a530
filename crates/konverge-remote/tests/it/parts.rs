//! Several items of one object, and items that are asked for by their id.

use konverge_remote::{
    Adoption, Binding, DeletionPolicy, Entry, Finalized, Interest, Ledger, Mark, ObjectEvent, Origin, Record, Remotes,
};
use tokio::time::sleep;

use crate::{
    sharing::{Marked, costs, object, reason, want},
    world::{CLUSTER, Fault, INTERVAL, Object, Server, Shared, World, process},
};

/// The binding of one part. The part is also the name of its item.
fn part(name: &str) -> Binding {
    Binding::new(name).with(|binding| name.clone_into(&mut binding.part))
}

/// Makes the item of a part and returns its id.
async fn made(remotes: &Marked, object: &Object, name: &str) -> String {
    remotes.apply(object, &part(name), &want(name, 1)).await.unwrap().item.id.clone()
}

/// The names of all items on the server.
fn names(server: &Shared) -> Vec<String> {
    server.lock().items.values().map(|item| item.name.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_part_leaves_the_server_and_the_record_and_the_others_stay() {
    let server = Shared::default();
    let remotes: Marked = process(&server);
    let one = object("one", "u-1");
    assert_eq!(remotes.parts(&one), [""; 0], "an object without a record has no parts");
    remotes.apply(&one, &Binding::new("main"), &want("main", 1)).await.unwrap();
    for name in ["tcp", "udp"] {
        made(&remotes, &one, name).await;
    }
    assert_eq!(remotes.parts(&one), ["", "tcp", "udp"]);
    assert_eq!(server.lock().items["i-2"].mark, Some(Mark::new(CLUSTER, "u-1", "tcp")));

    assert_eq!(remotes.withdraw(&one, &part("tcp")).await, Ok(Finalized::Done));
    assert_eq!(names(&server), ["main", "udp"]);
    assert_eq!(remotes.parts(&one), ["", "udp"]);
    assert!(one.world.lock().is_held, "the object still has items");

    // A part that is gone costs no call and no write.
    let before = (costs(&server), one.world.lock().writes);
    assert_eq!(remotes.withdraw(&one, &part("tcp")).await, Ok(Finalized::Done));
    assert_eq!(costs(&server).1, before.0.1);
    assert_eq!(one.world.lock().writes, before.1);

    // A part that is wanted again gets an item of its own again.
    assert_eq!(made(&remotes, &one, "tcp").await, "i-4");
    assert_eq!(remotes.parts(&one), ["", "tcp", "udp"]);
}

#[tokio::test(start_paused = true)]
async fn a_withdrawal_survives_every_fault() {
    for fault in (0..4).flat_map(|at| Fault::ALL.map(|fault| (at, fault))) {
        // The record and the items are in one world, so that each write of either can fail.
        let server = Shared::default();
        let foreign = server.make_foreign("theirs", None);
        let mut remotes: Marked = process(&server);
        let one = Object::new(&server);
        for name in ["tcp", "udp"] {
            made(&remotes, &one, name).await;
        }
        // The first call is the list of a new process.
        remotes = process(&server);
        let calls = server.lock().calls;
        server.lock().faults = vec![(calls + fault.0, fault.1)];
        let mut is_done = false;
        for _ in 0..4 {
            is_done = remotes.withdraw(&one, &part("tcp")).await == Ok(Finalized::Done);
            if server.lock().is_dead {
                remotes = process(&server);
                is_done = false;
            }
            assert!(names(&server).contains(&"udp".to_owned()), "{fault:?}");
            if is_done {
                break;
            }
            sleep(2 * INTERVAL).await;
        }
        assert!(is_done, "{fault:?}");
        assert_eq!(names(&server), ["theirs", "udp"], "{fault:?}");
        assert_eq!(remotes.parts(&one), ["udp"], "{fault:?}");
        let world = server.lock();
        assert_eq!(world.items[&foreign], world.foreign[&foreign], "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_part_that_is_in_use_or_was_adopted_is_not_deleted() {
    let server = Shared::default();
    let remotes: Marked = process(&server);
    let (one, user) = (object("one", "u-1"), object("user", "u-2"));
    made(&remotes, &one, "tcp").await;
    user.declare(&remotes, 1, Interest::default().refers_to("", "tcp"));
    let pending = remotes.withdraw(&one, &part("tcp")).await.unwrap();
    assert!(matches!(pending, Finalized::Pending(_, "InUse", _)), "{pending:?}");
    assert_eq!(remotes.parts(&one), ["tcp"], "the record keeps what is still on the server");
    remotes.interest(&user.subject(), None);
    assert_eq!(remotes.withdraw(&one, &part("tcp")).await, Ok(Finalized::Done));
    assert!(names(&server).is_empty());

    let theirs = server.make_foreign("theirs", None);
    sleep(3 * INTERVAL).await;
    let adopting = part("theirs").with(|binding| {
        binding.adoption = Adoption::ByName;
        binding.observe_adopted = true;
    });
    let synced = remotes.apply(&one, &adopting, &want("theirs", 99)).await.unwrap();
    assert_eq!((synced.item.id.as_str(), synced.origin), (theirs.as_str(), Origin::Adopted));
    assert_eq!(remotes.withdraw(&one, &adopting).await, Ok(Finalized::Done));
    assert_eq!(remotes.parts(&one), [""; 0]);
    let is_untouched = |world: &World| world.items[&theirs] == world.foreign[&theirs];
    assert!(is_untouched(&server.lock()));

    // With the deletion policy orphan, the part leaves the record, and its item stays.
    made(&remotes, &one, "udp").await;
    let orphan = part("udp").with(|binding| binding.deletion = DeletionPolicy::Orphan);
    assert_eq!(remotes.withdraw(&one, &orphan).await, Ok(Finalized::Done));
    assert_eq!(names(&server), ["theirs", "udp"]);
    assert_eq!(remotes.parts(&one), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_parts_are_those_of_this_collection_and_of_this_object() {
    let remotes: Marked = process(&Shared::default());
    let mut record = Record::new(CLUSTER, "u-1");
    let entry = Entry { origin: Origin::Made, scope: String::new(), name: "a".to_owned(), id: None, replaces: None };
    // Another collection may have a word that begins with ours.
    for key in ["item", "item/b/c", "item/tcp", "items", "items/x", "bucket", "bucket/item"] {
        record.set(key, Some(entry.clone()));
    }
    let one = object("one", "u-1");
    one.world.lock().record = Some(record.text());
    assert_eq!(remotes.parts(&one), ["", "b/c", "tcp"]);
    let copy = object("copy", "u-2");
    for text in [record.text(), "no record".to_owned()] {
        copy.world.lock().record = Some(text.clone());
        assert_eq!(remotes.parts(&copy), [""; 0], "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_item_is_looked_up_in_the_list_and_then_on_the_server() {
    let server = Shared::default();
    let remotes: Marked = process(&server);
    let known = server.make_foreign("known", None);
    assert_eq!(remotes.look_up("", &known).await.unwrap().unwrap().name, "known");
    let calls = server.lock().calls;
    assert_eq!(remotes.look_up("", &known).await.unwrap().unwrap().name, "known");
    assert_eq!(server.lock().calls, calls, "an item of the list costs no call");

    // The list is older than this item.
    let recent = server.make_foreign("recent", None);
    assert_eq!(remotes.look_up("", &recent).await.unwrap().unwrap().name, "recent");
    assert_eq!(remotes.look_up("", "i-9").await.unwrap(), None, "neither the list nor the server has it");
    assert_eq!(costs(&server), (1, 0));

    // Without an answer nobody knows whether there is such an item.
    let calls = server.lock().calls;
    server.lock().faults = vec![(calls, Fault::Unreachable)];
    assert_eq!(reason(remotes.look_up("", "i-9").await), "Unavailable");
    let nobody: Remotes<Server<true, true>> = Remotes::default();
    assert_eq!(reason(nobody.look_up("", &known).await), "NotBegun");
}

#[tokio::test(start_paused = true)]
async fn each_event_of_an_item_is_told() {
    let server = Shared::default();
    let remotes: Marked = process(&server);
    let one = object("one", "u-1");
    made(&remotes, &one, "tcp").await;
    remotes.apply(&one, &part("tcp"), &want("tcp", 2)).await.unwrap();
    remotes.withdraw(&one, &part("tcp")).await.unwrap();
    let events = one.world.lock().events.clone();
    let events: Vec<_> = events.into_iter().map(|ObjectEvent { reason, message, .. }| (reason, message)).collect();
    let told = |reason, message: &str| (reason, message.to_owned());
    let expected = [
        told("Created", "created the item tcp (i-1)"),
        told("Updated", "updated the item tcp (i-1), which differed in content"),
        told("Deleted", "deleted the item tcp (i-1)"),
    ];
    assert_eq!(events, expected);
}
