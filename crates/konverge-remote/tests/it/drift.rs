//! Changes that others make to the items of objects: the layer counts them, corrects them, and sees them before it deletes an item.

use std::collections::BTreeMap;

use konverge_core::error::Classify;
use konverge_remote::{Binding, Figures, Finalized, Interest, Settings};
use tokio::time::sleep;

use crate::{
    sharing::{Marked, object, want},
    world::{Fault, INTERVAL, Item, Object, Server, Shared, VISITED, process},
};

/// An object with an item of its own, and the server that both share with others.
async fn stage() -> (Shared, Marked, Object, Binding, Item) {
    let server = Shared::default();
    let remotes: Marked = process(&server);
    let (object, binding) = (object("a", "u-1"), Binding::new("a"));
    object.declare(&remotes, 0, Interest::default().claims(&binding));
    let item = object.reconcile(&remotes, &binding, &want("a", 1)).await.unwrap();
    (server, remotes, object, binding, item)
}

fn edit(server: &Shared, item: &Item, content: u32) {
    server.lock().items.get_mut(&item.id).unwrap().content = content;
}

#[tokio::test(start_paused = true)]
async fn what_others_put_into_an_item_since_the_last_list_keeps_it() {
    for (deletes_foreign_content, stays) in [(false, true), (true, false)] {
        let (server, remotes, object, binding, item) = stage().await;
        edit(&server, &item, VISITED);
        let lists = server.lock().lists;
        let binding = binding.with(|binding| binding.deletes_foreign_content = deletes_foreign_content);
        assert_eq!(object.delete(&remotes, &binding).await, Ok(Finalized::Done));
        let world = server.lock();
        assert_eq!((world.items.contains_key(&item.id), world.lists), (stays, lists));
        let left = remotes.left_behind();
        assert_eq!(left.len(), usize::from(stays));
        assert!(left.iter().all(|left| left.item.contains("a guest")), "{left:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn drift_is_counted_once_when_it_needs_a_write_and_once_when_it_is_corrected() {
    let (server, remotes, object, binding, item) = stage().await;
    let counted = || {
        let Figures { created, updated, deleted, drift_found, drift_corrected, .. } = remotes.figures();
        [created, updated, deleted, drift_found, drift_corrected]
    };
    assert_eq!(counted(), [1, 0, 0, 0, 0]);
    let polling = tokio::spawn({
        let remotes = remotes.clone();
        async move { remotes.poll().await }
    });
    let reconcile = async |content| object.reconcile(&remotes, &binding, &want("a", content)).await;

    // An edit of the object is no drift.
    sleep(2 * INTERVAL).await;
    reconcile(2).await.unwrap();
    assert_eq!(counted(), [1, 1, 0, 0, 0]);

    // A change that the server takes and does not keep is found once, however often it is tried.
    edit(&server, &item, 77);
    sleep(2 * INTERVAL).await;
    assert_eq!(counted(), [1, 1, 0, 0, 0], "nobody has looked at the object yet");
    server.lock().does_ignore_updates = true;
    reconcile(2).await.unwrap_err();
    sleep(10 * INTERVAL).await;
    reconcile(2).await.unwrap_err();
    assert_eq!(counted()[3..], [1, 0]);
    server.lock().does_ignore_updates = false;
    sleep(10 * INTERVAL).await;
    reconcile(2).await.unwrap();
    assert_eq!(counted()[3..], [1, 1]);

    // A change and its undoing by the same person need no write.
    edit(&server, &item, 77);
    sleep(2 * INTERVAL).await;
    edit(&server, &item, 2);
    sleep(2 * INTERVAL).await;
    reconcile(2).await.unwrap();
    assert_eq!(counted()[3..], [1, 1]);

    // An item that vanished is replaced.
    server.lock().items.remove(&item.id);
    sleep(2 * INTERVAL).await;
    reconcile(2).await.unwrap();
    assert_eq!((counted()[0], &counted()[3..]), (2, &[2, 2][..]));

    assert_eq!(object.delete(&remotes, &binding).await, Ok(Finalized::Done));
    assert_eq!((counted()[2], &counted()[3..]), (1, &[2, 2][..]));
    polling.abort();
}

#[tokio::test(start_paused = true)]
async fn the_age_of_a_list_is_known_and_grows_while_the_server_is_away() {
    let (server, remotes, ..) = stage().await;
    let none = BTreeMap::new();
    assert_eq!((Marked::default().figures().list_ages, remotes.figures().list_ages), (none.clone(), none.clone()));
    let poll = |remotes: &Marked| {
        let remotes = remotes.clone();
        tokio::spawn(async move { remotes.poll().await })
    };
    let age = |remotes: &Marked| remotes.figures().list_ages[""];
    let polling = poll(&remotes);
    sleep(10 * INTERVAL + INTERVAL / 2).await;
    assert!(age(&remotes) < INTERVAL, "{:?}", age(&remotes));
    server.lock().is_dead = true;
    sleep(10 * INTERVAL).await;
    assert!(age(&remotes) > 10 * INTERVAL, "{:?}", age(&remotes));

    // The successor has never had a list, and the former leader reads none any more.
    let successor = Marked::default();
    successor.begin(Server(server.clone()), Settings::default());
    object("a", "u-1").declare(&successor, 0, Interest::default().claims(&Binding::new("a")));
    let of_successor = poll(&successor);
    sleep(10 * INTERVAL).await;
    assert!(age(&successor) >= 10 * INTERVAL, "{:?}", age(&successor));
    polling.abort();
    polling.await.unwrap_err();
    assert_eq!(remotes.figures().list_ages, none);
    of_successor.abort();
}

/// The status leads to the item, so its new name does not wait for a write to Kubernetes. The record gets the name and the id afterwards.
#[tokio::test(start_paused = true)]
async fn an_item_that_is_known_by_its_id_is_renamed_before_the_record_has_the_name() {
    let server = Shared::default();
    let object = Object::new(&server);
    let remotes = process::<false, true>(&server);
    let item = object.reconcile(&remotes, &Binding::new("a"), &want("a", 1)).await.unwrap();
    let before = server.lock().calls;
    server.lock().faults = vec![(before + 1, Fault::Unreachable)];
    let renamed = object.reconcile(&remotes, &Binding::new("b"), &want("b", 1)).await;
    assert!(renamed.is_err(), "the second call, which is the write of the record, fails");
    assert_eq!(server.lock().items[&item.id].name, "b");
    object.reconcile(&remotes, &Binding::new("b"), &want("b", 1)).await.unwrap();
    let record = server.lock().record.clone().unwrap();
    assert!(record.contains(r#""name":"b""#) && record.contains(&item.id), "{record}");
    // From then on, the record alone leads to the item, under whichever name.
    server.lock().status = None;
    let known = object.reconcile(&remotes, &Binding::new("c"), &want("c", 1)).await.unwrap();
    assert_eq!((known.id, known.name.as_str()), (item.id, "c"));
}

#[tokio::test(start_paused = true)]
async fn edits_of_an_object_never_count_as_a_contest() {
    let (server, remotes, object, binding, item) = stage().await;
    for content in 2..30 {
        object.reconcile(&remotes, &binding, &want("a", content)).await.unwrap();
        assert_eq!(server.lock().items[&item.id].content, content);
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sets_an_item_back_again_and_again_is_told_and_answered_with_growing_pauses() {
    let (server, remotes, object, binding, item) = stage().await;
    let polling = tokio::spawn({
        let remotes = remotes.clone();
        async move { remotes.poll().await }
    });
    let mut answers = 0;
    let contested = loop {
        edit(&server, &item, 77);
        sleep(2 * INTERVAL).await;
        match object.reconcile(&remotes, &binding, &want("a", 1)).await {
            Ok(_) => answers += 1,
            Err(failure) => break failure,
        }
        assert!(answers < 20, "nobody notices");
    };
    assert!(answers > 3, "{answers}");
    assert_eq!(contested.reason(), "Contested");
    assert_eq!(server.lock().items[&item.id].content, 77, "it is left as it is for a while");
    // The longest pause.
    sleep(5 * INTERVAL).await;
    object.reconcile(&remotes, &binding, &want("a", 1)).await.unwrap();
    assert_eq!(server.lock().items[&item.id].content, 1);
    polling.abort();
}

/// F13, I12: a replica that has lost the lease sends nothing more, whatever its run was about.
#[tokio::test(start_paused = true)]
async fn without_the_lease_nothing_is_created_changed_or_deleted() {
    let (server, remotes, object, binding, item) = stage().await;
    let before = server.lock().items.clone();
    let object = Object { is_deposed: true, ..object };
    let changed = object.reconcile(&remotes, &binding, &want("a", 2)).await.unwrap_err();
    let deleted = object.delete(&remotes, &binding).await.unwrap_err();
    assert_eq!((changed.reason(), deleted.reason()), ("NotLeading", "NotLeading"));
    assert_eq!(server.lock().items, before);
    // Nor is an item that has vanished made anew.
    server.lock().items.remove(&item.id);
    sleep(3 * INTERVAL).await;
    let made = object.reconcile(&remotes, &binding, &want("a", 1)).await.unwrap_err();
    assert_eq!(made.reason(), "NotLeading");
    assert!(server.lock().items.is_empty());
}
