//! The guard of deletions. If many objects are deleted at once, the server keeps their items until a person approves.

use std::time::Duration;

use konverge_core::deletion_guard::DeletionBudget;
use konverge_remote::{Binding, DeletionPolicy, Deletions, Finalized, Interest, Record, Remotes, Settings};
use tokio::time::sleep;

use crate::{
    sharing::{Marked, object, reason, want},
    world::{CLUSTER, INTERVAL, Object, Server, Shared},
};

/// The next step in the messages of the tests.
const NEXT_STEP: &str = "; approve them";

/// A process with a guard of five deletions, and the guard.
fn guarded(server: &Shared) -> (Marked, Deletions) {
    let (remotes, deletions) = (Remotes::default(), Deletions::new(Some(DeletionBudget::default()), NEXT_STEP));
    let guard = deletions.clone();
    remotes.begin(
        Server(server.clone()),
        Settings::default().with(|settings| {
            settings.interval = INTERVAL;
            settings.deletions = guard;
        }),
    );
    (remotes, deletions)
}

/// As the watch shows the object, which has a record.
fn show(remotes: &Marked, object: &Object, is_deleting: bool) {
    let mut interest = Interest::default().claims(&Binding::new(object.name));
    interest.is_recorded = true;
    interest.is_deleting = is_deleting;
    object.declare(remotes, 0, interest);
}

/// The watch shows that the object is gone.
fn leave(remotes: &Marked, object: &Object) {
    remotes.interest(&konverge_remote::Ledger::subject(object), None);
}

/// Objects with an item each.
async fn objects(remotes: &Marked, count: usize) -> Vec<Object> {
    let mut objects = Vec::new();
    for number in 0..count {
        let name: &'static str = format!("n-{number}").leak();
        let object = object(name, name);
        show(remotes, &object, false);
        object.reconcile(remotes, &Binding::new(name), &want(name, 1)).await.unwrap();
        objects.push(object);
    }
    objects
}

async fn delete(remotes: &Marked, object: &Object) -> Finalized {
    object.delete(remotes, &Binding::new(object.name)).await.unwrap()
}

fn is_stopped(finalized: &Finalized) -> bool {
    matches!(finalized, Finalized::Pending(_, "DeletionsStopped", _))
}

fn items(server: &Shared) -> usize {
    server.lock().items.len()
}

#[tokio::test(start_paused = true)]
async fn many_deletions_at_once_wait_for_an_approval() {
    let server = Shared::default();
    let (remotes, deletions) = guarded(&server);
    let objects = objects(&remotes, 20).await;
    for object in &objects[..8] {
        show(&remotes, object, true);
    }
    assert_eq!(deletions.stopped(), None, "nothing was refused yet");
    for object in &objects[..8] {
        for _ in 0..2 {
            let Finalized::Pending(_, reason, message) = delete(&remotes, object).await else { panic!("released") };
            let expected =
                "8 deletions are requested in namespace shop, and 5 of 20 are allowed without approval; approve them";
            assert_eq!((reason, &*message), ("DeletionsStopped", expected));
        }
        let told = object.world.lock().events.iter().filter(|event| event.reason == "DeletionsStopped").count();
        assert_eq!(told, 1, "an event for each object, and none for each look");
    }
    assert_eq!(items(&server), 20);
    assert_eq!(
        deletions.stopped().map(|stopped| (stopped.requested, stopped.allowed, stopped.known)),
        Some((8, 5, 20))
    );
    sleep(Duration::from_hours(1)).await;
    assert!(is_stopped(&delete(&remotes, &objects[0]).await), "time alone approves nothing");

    assert_eq!(deletions.approve(), 8);
    assert_eq!(deletions.stopped(), None);
    for object in &objects[..8] {
        assert_eq!(delete(&remotes, object).await, Finalized::Done);
        leave(&remotes, object);
    }
    assert_eq!(items(&server), 12);
    // Approved deletions no longer count.
    for object in &objects[8..13] {
        show(&remotes, object, true);
        assert_eq!(delete(&remotes, object).await, Finalized::Done);
        leave(&remotes, object);
    }
    assert_eq!(items(&server), 7);
}

#[tokio::test(start_paused = true)]
async fn a_new_process_deletes_nothing_before_it_knows_what_the_former_one_had_stopped() {
    for was_stopped in [false, true] {
        let server = Shared::default();
        let (remotes, deletions) = guarded(&server);
        let objects = objects(&remotes, 10).await;
        let (object, other) = (&objects[0], &objects[1]);
        let _ = deletions.clone().waiting();
        show(&remotes, object, true);
        assert!(is_stopped(&delete(&remotes, object).await));
        assert_eq!(object.world.lock().events.iter().filter(|event| event.reason == "DeletionsStopped").count(), 0);
        deletions.begin(was_stopped);
        assert_eq!(is_stopped(&delete(&remotes, object).await), was_stopped, "few, but the former process had begun");
        deletions.approve();
        assert_eq!(delete(&remotes, object).await, Finalized::Done);
        leave(&remotes, object);
        sleep(Duration::from_mins(6)).await;
        show(&remotes, other, true);
        assert_eq!(delete(&remotes, other).await, Finalized::Done);
    }
}

#[tokio::test(start_paused = true)]
async fn deletions_one_by_one_count_for_five_minutes() {
    let server = Shared::default();
    let (remotes, deletions) = guarded(&server);
    let objects = objects(&remotes, 20).await;
    for object in &objects[..5] {
        show(&remotes, object, true);
        assert_eq!(delete(&remotes, object).await, Finalized::Done);
        leave(&remotes, object);
    }
    show(&remotes, &objects[5], true);
    let Finalized::Pending(_, _, message) = delete(&remotes, &objects[5]).await else { panic!("deleted") };
    assert_eq!(
        message,
        "6 deletions are requested in namespace shop, and 5 of 20 are allowed without approval; approve them"
    );
    assert_eq!(items(&server), 15);
    sleep(Duration::from_mins(5)).await;
    assert_eq!(delete(&remotes, &objects[5]).await, Finalized::Done);
    assert_eq!((items(&server), deletions.stopped()), (14, None));
}

#[tokio::test(start_paused = true)]
async fn a_restart_lets_no_deletion_go() {
    let server = Shared::default();
    let (remotes, _) = guarded(&server);
    let objects = objects(&remotes, 20).await;
    let (remotes, _) = guarded(&server);
    for (number, object) in objects.iter().enumerate() {
        show(&remotes, object, number < 6);
    }
    assert!(is_stopped(&delete(&remotes, &objects[0]).await));
    assert_eq!(items(&server), 20);
}

/// For example, the items of such objects are in use.
#[tokio::test(start_paused = true)]
async fn objects_that_wait_for_something_else_count_for_five_minutes() {
    let server = Shared::default();
    let (remotes, deletions) = guarded(&server);
    let objects = objects(&remotes, 20).await;
    for object in &objects[..6] {
        show(&remotes, object, true);
    }
    sleep(Duration::from_mins(5)).await;
    for object in &objects[..6] {
        // The watch shows another change of the object.
        show(&remotes, object, true);
    }
    show(&remotes, &objects[6], true);
    assert_eq!(delete(&remotes, &objects[6]).await, Finalized::Done);
    // They are counted when their turn comes.
    let mut outcomes = Vec::new();
    for object in &objects[..6] {
        outcomes.push(is_stopped(&delete(&remotes, object).await));
    }
    assert_eq!(outcomes, [false, false, false, false, true, true]);
    assert_eq!((items(&server), deletions.stopped().is_some()), (15, true));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_keeps_its_item_goes_and_is_no_deletion() {
    let server = Shared::default();
    let (remotes, deletions) = guarded(&server);
    let objects = objects(&remotes, 20).await;
    for object in &objects[..6] {
        show(&remotes, object, true);
    }
    assert!(is_stopped(&delete(&remotes, &objects[0]).await));
    let orphan = Binding::new(objects[5].name).with(|binding| binding.deletion = DeletionPolicy::Orphan);
    assert_eq!(objects[5].delete(&remotes, &orphan).await.unwrap(), Finalized::Done);
    leave(&remotes, &objects[5]);
    // Five are as many as may be deleted.
    assert_eq!(deletions.stopped(), None);
    for object in &objects[..5] {
        assert_eq!(delete(&remotes, object).await, Finalized::Done);
    }
    assert_eq!(items(&server), 15);
}

#[tokio::test(start_paused = true)]
async fn the_deadline_of_a_deletion_that_waits_keeps_the_item() {
    let server = Shared::default();
    let (remotes, deletions) = guarded(&server);
    let mut objects = objects(&remotes, 6).await;
    for object in &objects {
        show(&remotes, object, true);
    }
    objects[0].deleting_for = Duration::from_hours(1);
    let limit = Duration::from_mins(15);
    let binding = Binding::new(objects[0].name).with(|binding| binding.deletion_deadline = Some(limit));
    assert_eq!(objects[0].delete(&remotes, &binding).await.unwrap(), Finalized::Done);
    assert!(remotes.left_behind()[0].item.contains("6 deletions are requested"), "{:?}", remotes.left_behind());
    leave(&remotes, &objects[0]);
    assert_eq!((items(&server), deletions.stopped()), (6, None));
}

#[tokio::test(start_paused = true)]
async fn the_items_of_one_object_are_one_deletion() {
    let server = Shared::default();
    let (remotes, deletions) = guarded(&server);
    let objects = objects(&remotes, 20).await;
    let name = |part: usize| format!("n-0/{part}");
    let part = |part: usize| Binding::new(name(part)).with(|binding| binding.part = format!("p{part}"));
    for number in 0..9 {
        remotes.apply(&objects[0], &part(number), &want(&name(number), 1)).await.unwrap();
    }
    show(&remotes, &objects[0], true);
    for number in 0..9 {
        assert_eq!(remotes.finalize(&objects[0], &part(number)).await.unwrap(), Finalized::Done, "{number}");
    }
    assert_eq!((items(&server), deletions.stopped()), (20, None));
}

#[tokio::test(start_paused = true)]
async fn parts_that_objects_lose_count_unless_others_replace_them() {
    let server = Shared::default();
    let (remotes, deletions) = guarded(&server);
    let objects = objects(&remotes, 20).await;
    let name = |object: &Object| format!("{} beside", object.name);
    let beside = |object: &Object| Binding::new(name(object)).with(|binding| binding.part = "beside".to_owned());
    for object in &objects[..7] {
        remotes.apply(object, &beside(object), &want(&name(object), 1)).await.unwrap();
    }
    for object in &objects[..5] {
        assert_eq!(remotes.withdraw(object, &beside(object)).await.unwrap(), Finalized::Done);
    }
    assert!(is_stopped(&remotes.withdraw(&objects[5], &beside(&objects[5])).await.unwrap()));
    assert!(deletions.stopped().is_some());
    let record = Record::read(objects[5].world.lock().record.as_deref(), CLUSTER, objects[5].uid).unwrap();
    assert!(record.part("item/beside").is_some(), "the record still has it");
    // Another item has taken its place.
    let replaced = beside(&objects[6]).with(|binding| binding.is_replaced = true);
    assert_eq!(remotes.withdraw(&objects[6], &replaced).await.unwrap(), Finalized::Done);
    // The object has its part back.
    remotes.apply(&objects[5], &beside(&objects[5]), &want(&name(&objects[5]), 1)).await.unwrap();
    assert_eq!((items(&server), deletions.stopped()), (21, None));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_counts_nothing() {
    let server = Shared::default();
    let (remotes, deletions) = guarded(&server);
    let mut objects = objects(&remotes, 7).await;
    for object in &mut objects {
        object.is_dry_run = true;
        let outcome = object.delete(&remotes, &Binding::new(object.name)).await;
        assert_eq!(reason(outcome), "DryRun");
    }
    assert_eq!((items(&server), deletions.stopped()), (7, None));
}
