//! The state that objects share: one list, claims, references, and the objects that a difference wakes.

use std::{collections::BTreeSet, time::Duration};

use konverge_core::{allow::Pattern, error::Classify};
use konverge_remote::{Adoption, Binding, DeletionPolicy, Failure, Finalized, Interest, Mark, Remotes, Subject};
use tokio::{sync::mpsc::UnboundedReceiver, time::sleep};

use crate::world::{CLUSTER, Desired, Fault, INTERVAL, Item, Object, Server, Shared, process};

pub(crate) type Marked = Remotes<Server<true, true>>;

pub(crate) fn want(name: &str, content: u32) -> Desired {
    Desired { name: name.to_owned(), content }
}

/// An object with a record and a status of its own.
pub(crate) fn object(name: &'static str, uid: &'static str) -> Object {
    Object { name, uid, ..Object::new(&Shared::default()) }
}

/// The names of the objects that were woken since the last call.
fn woken(changes: &mut UnboundedReceiver<Subject>) -> BTreeSet<String> {
    std::iter::from_fn(|| changes.try_recv().ok()).map(|subject| subject.name).collect()
}

/// How many lists and how many writes the server has served.
pub(crate) fn costs(server: &Shared) -> (usize, usize) {
    let world = server.lock();
    (world.lists, world.writes)
}

/// An object whose item is there.
async fn settled(remotes: &Marked, object: &Object, created: i64, name: &str) -> Item {
    let binding = Binding::new(name);
    object.declare(remotes, created, Interest::default().claims(&binding));
    object.reconcile(remotes, &binding, &want(name, 1)).await.unwrap()
}

pub(crate) fn reason<T: std::fmt::Debug>(result: Result<T, Failure>) -> &'static str {
    result.unwrap_err().reason()
}

#[tokio::test(start_paused = true)]
async fn many_objects_at_rest_cost_one_list_per_interval_and_no_write() {
    let server = Shared::default();
    let remotes: Marked = process(&server);
    let names: Vec<&'static str> = (0..500).map(|number| &*format!("n-{number}").leak()).collect();
    let mut objects = Vec::new();
    for name in &names {
        let object = object(name, name);
        settled(&remotes, &object, 0, name).await;
        objects.push(object);
    }
    assert_eq!(costs(&server), (1, 500), "one list, and one call per item");
    for object in &objects {
        assert_eq!(object.world.lock().writes, 2, "the record with the finalizer, and the status");
    }

    let polling = tokio::spawn({
        let remotes = remotes.clone();
        async move { remotes.poll().await }
    });
    sleep(10 * INTERVAL + INTERVAL / 2).await;
    for (object, name) in objects.iter().zip(&names) {
        object.reconcile(&remotes, &Binding::new(*name), &want(name, 1)).await.unwrap();
    }
    let lists = server.lock().lists;
    assert!((10..=11).contains(&lists), "{lists}");
    polling.abort();

    // A restart costs one list.
    let remotes: Marked = process(&server);
    for (object, name) in objects.iter().zip(&names) {
        object.reconcile(&remotes, &Binding::new(*name), &want(name, 1)).await.unwrap();
    }
    assert_eq!(costs(&server), (lists + 1, 500));
}

#[tokio::test(start_paused = true)]
async fn a_difference_wakes_the_object_that_it_concerns_and_no_other() {
    let server = Shared::default();
    let remotes: Marked = process(&server);
    let mut changes = remotes.changes("Thing").unwrap();
    let (first, second) = (object("first", "u-1"), object("second", "u-2"));
    let item = settled(&remotes, &first, 0, "first").await;
    settled(&remotes, &second, 0, "second").await;
    let user = object("user", "u-3");
    user.declare(&remotes, 0, Interest::default().refers_to("", "first"));
    let polling = tokio::spawn({
        let remotes = remotes.clone();
        async move { remotes.poll().await }
    });
    sleep(2 * INTERVAL).await;
    assert_eq!(woken(&mut changes), BTreeSet::new(), "own writes and lists without a difference wake nobody");

    server.lock().items.get_mut(&item.id).unwrap().content = 5;
    sleep(2 * INTERVAL).await;
    assert_eq!(woken(&mut changes), BTreeSet::from(["first".to_owned(), "user".to_owned()]));
    first.reconcile(&remotes, &Binding::new("first"), &want("first", 1)).await.unwrap();
    assert_eq!(woken(&mut changes), BTreeSet::from(["user".to_owned()]), "an own write wakes those who refer to it");

    // Renamed on the server: its object is known by the id.
    server.lock().items.get_mut(&item.id).unwrap().name = "other".to_owned();
    sleep(2 * INTERVAL).await;
    assert!(woken(&mut changes).contains("first"));
    polling.abort();
}

#[tokio::test(start_paused = true)]
async fn while_the_server_is_away_all_objects_are_told_once_and_share_one_call() {
    let server = Shared::default();
    let remotes: Marked = process(&server);
    let mut changes = remotes.changes("Thing").unwrap();
    let (first, second) = (object("first", "u-1"), object("second", "u-2"));
    settled(&remotes, &first, 0, "first").await;
    settled(&remotes, &second, 0, "second").await;
    let polling = tokio::spawn({
        let remotes = remotes.clone();
        async move { remotes.poll().await }
    });
    let from = server.lock().calls;
    server.lock().faults = (from..from + 100).map(|at| (at, Fault::Unreachable)).collect();
    sleep(INTERVAL + INTERVAL / 2).await;
    assert_eq!(woken(&mut changes), BTreeSet::new(), "one failed list changes nothing");
    sleep(2 * INTERVAL).await;
    assert_eq!(woken(&mut changes).len(), 2);
    sleep(3 * INTERVAL).await;
    assert_eq!(woken(&mut changes), BTreeSet::new(), "once");
    let before = server.lock().calls;
    let (binding, desired) = (Binding::new("first"), want("first", 1));
    let runs = (0..20).map(|_| first.reconcile(&remotes, &binding, &desired));
    for run in futures_in_turn(runs).await {
        assert_eq!(reason(run), "Unavailable");
    }
    assert!(server.lock().calls - before <= 2, "callers share a failed call");
    polling.abort();
}

/// The results of futures, one after the other.
async fn futures_in_turn<T>(futures: impl Iterator<Item = impl Future<Output = T>>) -> Vec<T> {
    let mut results = Vec::new();
    for future in futures {
        results.push(future.await);
    }
    results
}

#[tokio::test(start_paused = true)]
async fn of_two_objects_that_want_one_item_the_older_keeps_it() {
    let server = Shared::default();
    let remotes: Marked = process(&server);
    let mut changes = remotes.changes("Thing").unwrap();
    let (older, younger) = (object("older", "u-1"), object("younger", "u-2"));
    let binding = Binding::new("one");
    older.declare(&remotes, 1, Interest::default().claims(&binding));
    younger.declare(&remotes, 2, Interest::default().claims(&binding));
    assert_eq!(reason(younger.reconcile(&remotes, &binding, &want("one", 2)).await), "Claimed");
    let item = older.reconcile(&remotes, &binding, &want("one", 1)).await.unwrap();
    // It says the same whether the item is there yet or not.
    assert_eq!(reason(younger.reconcile(&remotes, &binding, &want("one", 2)).await), "Claimed");
    assert_eq!(server.lock().items[&item.id].content, 1);

    // The younger is woken when the older lets go.
    woken(&mut changes);
    assert_eq!(older.delete(&remotes, &binding).await, Ok(Finalized::Done));
    remotes.interest(&konverge_remote::Ledger::subject(&older), None);
    assert!(woken(&mut changes).contains("younger"));
    younger.reconcile(&remotes, &binding, &want("one", 2)).await.unwrap();
    assert_eq!(server.lock().items.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_may_not_use_an_item_keeps_no_other_from_it() {
    let server = Shared::default();
    let remotes: Marked = process(&server);
    let id = server.make_foreign("team/db", None);
    let names = |pattern: &str| Some(vec![Pattern::new(pattern)]);
    let by_id = |binding: &mut Binding| binding.adoption = Adoption::ById(id.clone());
    let by_name = Binding::new("team/web");
    let adopting = Binding::new("team/x").with(by_id);
    for (number, (binding, content)) in [(by_name, 1), (adopting, 2)].into_iter().enumerate() {
        let refused = binding.clone().with(|binding| binding.names = names("other/*"));
        let permitted = binding.with(|binding| binding.names = names("team/*"));
        let older = object(["older-a", "older-b"][number], ["u-1", "u-2"][number]);
        let younger = object(["younger-a", "younger-b"][number], ["u-3", "u-4"][number]);
        older.declare(&remotes, 1, Interest::default().claims(&refused));
        younger.declare(&remotes, 2, Interest::default().claims(&permitted));
        let desired = want(&permitted.name, content);
        younger.reconcile(&remotes, &permitted, &desired).await.unwrap();
        // A claim that the rules permit counts.
        older.declare(&remotes, 1, Interest::default().claims(&permitted));
        let third = object(["third-a", "third-b"][number], ["u-5", "u-6"][number]);
        third.declare(&remotes, 3, Interest::default().claims(&permitted));
        assert_eq!(reason(third.reconcile(&remotes, &permitted, &desired).await), "Claimed");
    }
}

#[tokio::test(start_paused = true)]
async fn references_wait_for_items_and_items_wait_for_those_who_refer_to_them() {
    let server = Shared::default();
    let remotes: Marked = process(&server);
    let mut changes = remotes.changes("Thing").unwrap();
    let user = object("user", "u-2");
    user.declare(&remotes, 1, Interest::default().refers_to("", "group"));
    let names = ["group".to_owned()];
    let missing = remotes.resolve("", &names).await.unwrap_err();
    assert_eq!(missing.reason(), "WaitingForReference");
    let next = "waits for item group, which the server does not have; create it, or correct the name";
    assert_eq!(missing.to_string(), next);
    let both = remotes.resolve("", &["group".to_owned(), "other".to_owned()]).await.unwrap_err();
    let next = "waits for item group, item other, which the server does not have; create them, or correct the names";
    assert_eq!(both.to_string(), next);

    let owner = object("owner", "u-1");
    let item = settled(&remotes, &owner, 1, "group").await;
    assert_eq!(woken(&mut changes), BTreeSet::from(["user".to_owned()]), "it is woken when the item appears");
    assert_eq!(remotes.resolve("", &names).await.unwrap()[0].id, item.id);

    let binding = Binding::new("group");
    let pending = owner.delete(&remotes, &binding).await.unwrap();
    let Finalized::Pending(_, "InUse", message) = pending else { panic!("{pending:?}") };
    assert!(message.ends_with("is in use by Thing shop/user"), "{message}");
    remotes.interest(&konverge_remote::Ledger::subject(&user), None);
    assert_eq!(woken(&mut changes), BTreeSet::from(["owner".to_owned()]), "it is woken when the last user goes");
    assert_eq!(owner.delete(&remotes, &binding).await, Ok(Finalized::Done));
    assert!(server.lock().items.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_copied_record_and_another_clusters_mark_count_for_nothing() {
    let server = Shared::default();
    let remotes: Marked = process(&server);
    let original = object("original", "u-1");
    let item = settled(&remotes, &original, 1, "one").await;
    // A copy with its annotations and even its status, as a backup restores it.
    let copy = object("copy", "u-2");
    copy.world.lock().record = original.world.lock().record.clone();
    copy.world.lock().status = Some(item.id.clone());
    copy.world.lock().is_held = true;
    let binding = Binding::new("one");
    assert_eq!(reason(copy.reconcile(&remotes, &binding, &want("one", 9)).await), "NotOurs");
    assert_eq!(copy.delete(&remotes, &binding).await, Ok(Finalized::Done));
    assert_eq!(server.lock().items[&item.id].content, 1);

    // Kinds without marks: the record decides.
    let server = Shared::default();
    let remotes: Remotes<Server<false, true>> = process(&server);
    let original = object("original", "u-1");
    let item = original.reconcile(&remotes, &binding, &want("one", 1)).await.unwrap();
    copy.world.lock().record = original.world.lock().record.clone();
    copy.world.lock().status = Some(item.id.clone());
    assert_eq!(reason(copy.reconcile(&remotes, &binding, &want("one", 9)).await), "NameTaken");
    assert_eq!(copy.delete(&remotes, &binding).await, Ok(Finalized::Done));
    assert_eq!(server.lock().items[&item.id].content, 1);
}

#[tokio::test(start_paused = true)]
async fn writes_without_effect_and_writes_that_are_undone_end_in_a_refusal() {
    let server = Shared::default();
    let remotes: Marked = process(&server);
    let one = object("one", "u-1");
    let item = settled(&remotes, &one, 1, "one").await;
    let binding = Binding::new("one");
    server.lock().does_ignore_updates = true;
    assert_eq!(reason(one.reconcile(&remotes, &binding, &want("one", 2)).await), "NoEffect");

    server.lock().does_ignore_updates = false;
    // Failed writes do not count as reverts.
    for _ in 0..6 {
        let from = server.lock().calls;
        server.lock().faults = vec![(from, Fault::Unreachable)];
        assert_eq!(reason(one.reconcile(&remotes, &binding, &want("one", 3)).await), "Unavailable");
    }
    sleep(20 * INTERVAL).await;
    remotes.resolve("", &[]).await.unwrap();
    let (mut writes, mut contested) = (server.lock().writes, false);
    for _ in 0..30 {
        sleep(INTERVAL / 10).await;
        server.lock().items.get_mut(&item.id).unwrap().content = 99;
        // The poll has seen it.
        remotes.resolve("", &[]).await.unwrap();
        sleep(2 * INTERVAL).await;
        contested |= one.reconcile(&remotes, &binding, &want("one", 2)).await.is_err();
    }
    writes = server.lock().writes - writes;
    assert!(contested && writes < 30, "{writes} writes");
}

#[tokio::test(start_paused = true)]
async fn after_its_deadline_a_deletion_is_given_up_and_the_item_is_listed() {
    let server = Shared::default();
    let remotes: Marked = process(&server);
    let one = object("one", "u-1");
    settled(&remotes, &one, 1, "one").await;
    let binding = Binding::new("one").with(|binding| binding.deletion_deadline = Some(Duration::from_secs(60)));
    let from = server.lock().calls;
    server.lock().faults = (from..from + 100).map(|at| (at, Fault::Unreachable)).collect();
    assert_eq!(reason(one.delete(&remotes, &binding).await), "Unavailable");
    let late = Object { deleting_for: Duration::from_secs(61), ..object("one", "u-1") };
    late.world.lock().record = one.world.lock().record.clone();
    late.world.lock().is_held = true;
    assert_eq!(late.delete(&remotes, &binding).await, Ok(Finalized::Done));
    let left = remotes.left_behind();
    assert_eq!(left[0].item, "the item one, because the deadline of its deletion has passed: no answer");

    // With deletion policy orphan, an object goes at once, also during an outage of the server.
    let orphan = binding.with(|binding| binding.deletion = DeletionPolicy::Orphan);
    assert_eq!(one.delete(&remotes, &orphan).await, Ok(Finalized::Done));

    // It is found again by its mark.
    server.lock().faults.clear();
    sleep(3 * INTERVAL).await;
    assert_eq!(remotes.orphans("", CLUSTER).await.unwrap().len(), 0, "its object is there");
    remotes.interest(&konverge_remote::Ledger::subject(&one), None);
    server.make_foreign("theirs", Some(Mark::new("c-2", "u-7", "")));
    sleep(3 * INTERVAL).await;
    let orphans = remotes.orphans("", CLUSTER).await.unwrap();
    assert_eq!(orphans.iter().map(|item| item.name.as_str()).collect::<Vec<_>>(), ["one"]);
}

#[tokio::test(start_paused = true)]
async fn an_adopted_or_released_item_says_that_it_stays_and_is_never_an_orphan() {
    let server = Shared::default();
    let remotes: Marked = process(&server);
    let mark = || Mark::new(CLUSTER, "u-1", "");
    let of = |id: &str| server.lock().items[id].mark.clone();

    // Adopted, with a change of its content.
    let id = server.make_foreign("theirs", None);
    let adopter = object("adopter", "u-1");
    let adoption = Binding::new("theirs").with(|binding| binding.adoption = Adoption::ByName);
    adopter.declare(&remotes, 1, Interest::default().claims(&adoption));
    adopter.reconcile(&remotes, &adoption, &want("theirs", 1)).await.unwrap();
    assert_eq!(of(&id), Some(mark().with_stay(true)));
    // A backup without record and status: the mark alone tells that somebody else made it.
    for lost in [false, true] {
        if lost {
            adopter.world.lock().record = None;
            adopter.world.lock().status = None;
        }
        assert_eq!(adopter.delete(&remotes, &adoption).await, Ok(Finalized::Done));
        assert!(server.lock().items.contains_key(&id), "deleted although it was adopted");
    }
    remotes.interest(&konverge_remote::Ledger::subject(&adopter), None);

    // Made, released, taken back, released again.
    let maker = object("maker", "u-2");
    let own = settled(&remotes, &maker, 2, "own").await.id;
    let writes = server.lock().writes;
    for (deletion, stays) in
        [(DeletionPolicy::Orphan, true), (DeletionPolicy::Delete, false), (DeletionPolicy::Orphan, true)]
    {
        let binding = Binding::new("own").with(|binding| binding.deletion = deletion);
        for _ in 0..2 {
            maker.reconcile(&remotes, &binding, &want("own", 1)).await.unwrap();
        }
        assert_eq!(of(&own), Some(Mark::new(CLUSTER, "u-2", "").with_stay(stays)), "{deletion:?}");
    }
    assert_eq!(server.lock().writes, writes + 3, "one write for each change of mind");
    remotes.interest(&konverge_remote::Ledger::subject(&maker), None);

    server.make_foreign("left", Some(Mark::new(CLUSTER, "u-9", "")));
    sleep(3 * INTERVAL).await;
    let orphans = remotes.orphans("", CLUSTER).await.unwrap();
    assert_eq!(orphans.iter().map(|item| item.name.as_str()).collect::<Vec<_>>(), ["left"]);
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_somebody_removed_is_set_again() {
    let server = Shared::default();
    let remotes: Marked = process(&server);
    let one = object("one", "u-1");
    settled(&remotes, &one, 1, "one").await;
    one.world.lock().is_held = false;
    one.reconcile(&remotes, &Binding::new("one"), &want("one", 1)).await.unwrap();
    assert!(one.world.lock().is_held);
    assert_eq!(costs(&server), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_and_a_preview_show_the_plan_and_write_nowhere() {
    let server = Shared::default();
    let remotes: Marked = process(&server);
    let (binding, one) = (Binding::new("one"), object("one", "u-1"));
    let item = settled(&remotes, &one, 1, "one").await;
    let dry = Object { is_dry_run: true, ..object("one", "u-1") };
    dry.world.lock().record = one.world.lock().record.clone();
    dry.world.lock().is_held = true;
    let before = costs(&server).1;
    for (content, expected) in [(1, "the item one (i-1) is in sync"), (2, "would update the item one (i-1) in content")]
    {
        let step = remotes.preview(&dry, &binding, Some(&want("one", content))).await.unwrap();
        assert_eq!(step.describe::<Server<true, true>>(&binding), expected);
    }
    let refused = dry.reconcile(&remotes, &binding, &want("one", 2)).await.unwrap_err();
    assert_eq!(
        (refused.reason(), refused.to_string().as_str()),
        ("DryRun", "would update the item one (i-1) in content")
    );
    let refused = dry.delete(&remotes, &binding).await.unwrap_err();
    assert_eq!(refused.to_string(), "would delete the item one (i-1)");
    let other = Binding::new("two");
    let stranger = Object { is_dry_run: true, ..object("two", "u-2") };
    let refused = stranger.reconcile(&remotes, &other, &want("two", 1)).await.unwrap_err();
    assert_eq!(refused.to_string(), "would create the item two");
    assert_eq!((costs(&server).1, dry.world.lock().writes), (before, 0));
    assert_eq!(stranger.world.lock().writes, 0);
    assert_eq!(server.lock().items[&item.id].content, 1);
}

#[tokio::test(start_paused = true)]
async fn names_that_repeat_and_scopes_that_change_are_refused() {
    let server = Shared::default();
    let remotes: Remotes<Server<true, false>> = process(&server);
    for _ in 0..2 {
        server.make_foreign("two", None);
    }
    let one = object("one", "u-1");
    let by_name = Binding::new("two").with(|binding| binding.adoption = Adoption::ByName);
    assert_eq!(reason(one.reconcile(&remotes, &by_name, &want("two", 1)).await), "Ambiguous");
    let missing = Binding::new("two").with(|binding| binding.adoption = Adoption::ById("i-9".to_owned()));
    assert_eq!(reason(one.reconcile(&remotes, &missing, &want("two", 1)).await), "NotFound");
    // Names repeat on this server, so a third one is made, and no other is touched.
    let item = one.reconcile(&remotes, &Binding::new("two"), &want("two", 1)).await.unwrap();
    assert_eq!(item.id, "i-3");
    let moved = Binding::new("two").with(|binding| binding.scope = "elsewhere".to_owned());
    assert_eq!(reason(one.reconcile(&remotes, &moved, &want("two", 1)).await), "ScopeChanged");
    assert_eq!(reason(one.delete(&remotes, &moved).await), "ScopeChanged");
    assert_eq!(server.lock().items.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_item_that_one_list_leaves_out_is_asked_for_before_it_counts_as_gone() {
    let server = Shared::default();
    let remotes: Marked = process(&server);
    let one = object("one", "u-1");
    let item = settled(&remotes, &one, 1, "one").await;
    // A list without the item, and the item by itself: as from a replica that lags behind.
    let hidden = server.lock().items.remove(&item.id).unwrap();
    server.make_foreign("theirs", None);
    sleep(3 * INTERVAL).await;
    remotes.resolve("", &[]).await.unwrap();
    server.lock().items.insert(item.id.clone(), hidden);
    let again = one.reconcile(&remotes, &Binding::new("one"), &want("one", 1)).await.unwrap();
    assert_eq!(again.id, item.id);
    assert_eq!(server.lock().items.len(), 2, "no second one");
}
