//! Items of a former operator, and the object that keeps an item that two want.

use konverge_remote::{Adoption, Binding, Finalized, Interest, Ledger, Mark, Origin, Remotes};
use tokio::time::sleep;

use crate::{
    sharing::{Marked, object, reason, want},
    world::{CLUSTER, FORMER, Fault, INTERVAL, Object, Server, Shared, process},
};

/// An object whose status has the id of this item.
fn with_status(name: &'static str, uid: &'static str, id: &str) -> Object {
    let object = object(name, uid);
    object.world.lock().status = Some(id.to_owned());
    object
}

#[tokio::test(start_paused = true)]
async fn an_item_of_a_former_operator_counts_as_made_for_the_object_whose_status_names_it() {
    let server = Shared::default();
    let id = server.lock().make("one", FORMER, None).id;
    let remotes: Marked = process(&server);
    let binding = Binding::new("one").with(|binding| binding.id = Some(id.clone()));
    let one = with_status("one", "u-1", &id);
    let synced = remotes.apply(&one, &binding, &want("one", 1)).await.unwrap();
    assert_eq!((synced.item.id.as_str(), synced.origin), (id.as_str(), Origin::Made));
    assert_eq!(server.lock().items[&id].mark, Some(Mark::new(CLUSTER, "u-1", "")), "it gets our mark");
    assert!(one.world.lock().is_held, "it is deleted with its object one day");
    assert_eq!(one.delete(&remotes, &Binding::new("one")).await, Ok(Finalized::Done));
    assert!(server.lock().items.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_item_of_a_former_operator_is_deleted_even_if_its_object_was_never_reconciled() {
    for (content, is_deleted) in [(FORMER, true), (7, false)] {
        let server = Shared::default();
        let id = server.lock().make("one", content, None).id;
        let remotes: Marked = process(&server);
        let one = with_status("one", "u-1", &id);
        assert_eq!(one.delete(&remotes, &Binding::new("one")).await, Ok(Finalized::Done));
        assert_eq!(server.lock().items.is_empty(), is_deleted, "{content}");
        assert_eq!(remotes.left_behind().len(), usize::from(!is_deleted), "an item without proof is told of");
    }
}

#[tokio::test(start_paused = true)]
async fn an_item_of_a_former_operator_is_not_ours_without_the_status_that_names_it() {
    let server = Shared::default();
    let id = server.lock().make("one", FORMER, None).id;
    let remotes: Marked = process(&server);
    let binding = Binding::new("one");
    let stranger = object("one", "u-1");
    assert_eq!(reason(stranger.reconcile(&remotes, &binding, &want("one", 1)).await), "NameTaken");
    assert_eq!(stranger.delete(&remotes, &binding).await, Ok(Finalized::Done));

    // The status of a copy does not count either, because its record is of another object.
    let original = object("two", "u-2");
    original.reconcile(&remotes, &Binding::new("two"), &want("two", 1)).await.unwrap();
    let copy = with_status("copy", "u-3", &id);
    copy.world.lock().record = original.world.lock().record.clone();
    copy.world.lock().is_held = true;
    assert_eq!(reason(copy.reconcile(&remotes, &binding, &want("one", 1)).await), "NameTaken");
    assert_eq!(copy.delete(&remotes, &binding).await, Ok(Finalized::Done));

    // An item that was adopted on request stays adopted, regardless of its maker.
    let adopting = binding.with(|binding| binding.adoption = Adoption::ByName);
    assert_eq!(remotes.apply(&stranger, &adopting, &want("one", FORMER)).await.unwrap().origin, Origin::Adopted);
    assert_eq!(stranger.delete(&remotes, &adopting).await, Ok(Finalized::Done));
    assert!(server.lock().items.contains_key(&id));
}

#[tokio::test(start_paused = true)]
async fn an_id_that_is_proof_needs_no_trace_of_the_former_operator() {
    for (id_is_proof, origin) in [(true, Origin::Made), (false, Origin::Adopted)] {
        let server = Shared::default();
        let id = server.lock().make("one", 7, None).id;
        let remotes: Remotes<Server<false, true>> = process(&server);
        let one = with_status("one", "u-1", &id);
        let binding = Binding::new("one").with(|binding| binding.id_is_proof = id_is_proof);
        let known = binding.clone().with(|binding| binding.id = Some(id.clone()));
        assert_eq!(remotes.apply(&one, &known, &want("one", 7)).await.unwrap().origin, origin);
        assert_eq!(one.delete(&remotes, &binding).await, Ok(Finalized::Done));
        assert_eq!(server.lock().items.is_empty(), id_is_proof);
    }
}

/// Two objects that want one item: when each was created, and whether it has a record. The first has the smaller uid.
async fn keeper(remotes: &Marked, [first, second]: [(i64, bool); 2]) -> Vec<&'static str> {
    let binding = Binding::new("one");
    let objects = [object("first", "u-1"), object("second", "u-2")];
    for (object, (created, is_recorded)) in objects.iter().zip([first, second]) {
        let mut interest = Interest::default().claims(&binding);
        interest.is_recorded = is_recorded;
        object.declare(remotes, created, interest);
    }
    let mut kept = Vec::new();
    for object in &objects {
        match object.reconcile(remotes, &binding, &want("one", 1)).await {
            Ok(_) => kept.push(object.name),
            Err(failure) => assert!(["Claimed", "NotOurs"].contains(&reason::<()>(Err(failure))), "{}", object.name),
        }
    }
    kept
}

#[tokio::test(start_paused = true)]
async fn of_two_objects_of_one_second_the_recorded_one_keeps_the_item() {
    for (ages, expected) in [
        // The older keeps it, whether or not the other has a record.
        ([(1, false), (2, true)], "first"),
        ([(2, true), (1, false)], "second"),
        // In one second the record decides, and not the uid.
        ([(1, true), (1, false)], "first"),
        ([(1, false), (1, true)], "second"),
        // Without a difference the smaller uid decides, so that both objects agree.
        ([(1, false), (1, false)], "first"),
        ([(1, true), (1, true)], "first"),
    ] {
        let server = Shared::default();
        assert_eq!(keeper(&process(&server), ages).await, [expected], "{ages:?}");
        assert_eq!(server.lock().items.len(), 1, "{ages:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_item_of_this_process_is_kept_although_its_watch_does_not_show_the_record_yet() {
    let server = Shared::default();
    // Without marks and with adoption, nothing but the claims keeps a second object from the item.
    let remotes: Remotes<Server<false, true>> = process(&server);
    let binding = Binding::new("one").with(|binding| binding.adoption = Adoption::ByName);
    let (first, second) = (object("first", "u-2"), object("second", "u-1"));
    let claim = || Interest::default().claims(&binding);
    first.declare(&remotes, 1, claim());
    first.reconcile(&remotes, &binding, &want("one", 1)).await.unwrap();
    second.declare(&remotes, 1, claim());
    assert_eq!(reason(second.reconcile(&remotes, &binding, &want("one", 2)).await), "Claimed");
    first.reconcile(&remotes, &binding, &want("one", 1)).await.unwrap();

    // After a restart the record says it.
    let remotes: Remotes<Server<false, true>> = process(&server);
    second.declare(&remotes, 1, claim());
    let mut recorded = claim();
    recorded.is_recorded = true;
    first.declare(&remotes, 1, recorded);
    assert_eq!(reason(second.reconcile(&remotes, &binding, &want("one", 2)).await), "Claimed");
    first.reconcile(&remotes, &binding, &want("one", 1)).await.unwrap();
    assert_eq!(second.record(), None);
    assert_eq!(server.lock().items["i-1"].content, 1);
}

/// An object with the item of this name, and another one whose status has the id of that item.
async fn shared(server: &Shared, remotes: &Marked) -> (Object, Object, String) {
    let binding = Binding::new("one").with(|binding| binding.adoption = Adoption::ByName);
    let first = object("first", "u-1");
    first.declare(remotes, 1, Interest::default().claims(&binding));
    let id = first.reconcile(remotes, &binding, &want("one", FORMER)).await.unwrap().id;
    assert_eq!(server.lock().items[&id].mark, Some(Mark::new(CLUSTER, "u-1", "")));
    let second = with_status("second", "u-2", &id);
    second.declare(remotes, 2, Interest::default().claims(&binding));
    assert_eq!(reason(second.reconcile(remotes, &binding, &want("one", FORMER)).await), "NotOurs");
    (first, second, id)
}

#[tokio::test(start_paused = true)]
async fn an_item_that_is_handed_over_belongs_to_the_next_object_and_goes_with_the_last() {
    let server = Shared::default();
    let remotes: Marked = process(&server);
    let (first, second, id) = shared(&server, &remotes).await;
    let binding = Binding::new("one").with(|binding| binding.adoption = Adoption::ByName);
    for _ in 0..2 {
        // A crash after the call repeats it.
        assert_eq!(remotes.hand_over(&first, &binding).await, Ok(Finalized::Done));
        let item = server.lock().items[&id].clone();
        assert_eq!((item.name.as_str(), item.content, item.mark), ("one", FORMER, None));
    }
    remotes.interest(&first.subject(), None);
    second.reconcile(&remotes, &binding, &want("one", FORMER)).await.unwrap();
    assert_eq!(server.lock().items[&id].mark, Some(Mark::new(CLUSTER, "u-2", "")));
    // The former object touches it no more.
    assert_eq!(remotes.hand_over(&first, &binding).await, Ok(Finalized::Done));
    assert_eq!(first.delete(&remotes, &binding).await, Ok(Finalized::Done));
    assert_eq!(server.lock().items[&id].mark, Some(Mark::new(CLUSTER, "u-2", "")));
    assert_eq!(second.delete(&remotes, &binding).await, Ok(Finalized::Done));
    assert!(server.lock().items.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_next_object_deletes_an_item_that_it_was_handed_and_never_reconciled() {
    let server = Shared::default();
    let remotes: Marked = process(&server);
    let (first, second, _) = shared(&server, &remotes).await;
    let binding = Binding::new("one").with(|binding| binding.adoption = Adoption::ByName);
    assert_eq!(remotes.hand_over(&first, &binding).await, Ok(Finalized::Done));
    assert_eq!(second.delete(&remotes, &binding).await, Ok(Finalized::Done));
    assert!(server.lock().items.is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_adopted_item_is_not_written_when_it_is_handed_over() {
    let server = Shared::default();
    let id = server.lock().make("one", 7, None).id;
    let remotes: Marked = process(&server);
    let binding = Binding::new("one").with(|binding| {
        binding.adoption = Adoption::ByName;
        binding.observe_adopted = true;
    });
    let first = object("first", "u-1");
    first.reconcile(&remotes, &binding, &want("one", 1)).await.unwrap();
    let writes = server.lock().writes;
    assert_eq!(remotes.hand_over(&first, &binding).await, Ok(Finalized::Done));
    let world = server.lock();
    assert_eq!((world.writes, world.items[&id].content), (writes, 7));
}

#[tokio::test(start_paused = true)]
async fn an_item_that_appears_after_a_refused_create_is_not_ours_even_if_the_record_could_not_be_taken_back() {
    for is_made_by_others in [true, false] {
        let server = Shared::default();
        server.lock().faults = vec![(1, Fault::Refused)];
        let remotes: Remotes<Server<false, true>> = process(&server);
        let (one, binding) = (object("one", "u-1"), Binding::new("one"));
        // The object changes between the create and the write that takes the record back.
        one.world.lock().faults = vec![(1, Fault::Unreachable)];
        assert_eq!(reason(one.reconcile(&remotes, &binding, &want("one", 1)).await), "Refused", "the create's own");
        assert_ne!(one.world.lock().record, None);
        let theirs = is_made_by_others.then(|| server.make_foreign("one", None));
        sleep(3 * INTERVAL).await;
        let again = one.reconcile(&remotes, &binding, &want("one", 1)).await;
        if let Some(id) = &theirs {
            assert_eq!(reason(again), "NameTaken");
            let world = server.lock();
            assert_eq!(world.items[id], world.foreign[id]);
        } else {
            assert_eq!(again.unwrap().content, 1);
        }
        assert_eq!(one.delete(&remotes, &binding).await, Ok(Finalized::Done));
        assert_eq!(server.lock().items.len(), usize::from(is_made_by_others));
    }
}
