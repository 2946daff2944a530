//! The cache against a model: an API server that commits writes of ours and of others in one order, and a watch that shows them late.

use std::collections::VecDeque;

use k8s_openapi::api::core::v1::ConfigMap;
use proptest::prelude::*;

use super::*;
use crate::watch::Undecodable;

fn key() -> ObjectKey {
    ObjectKey::namespaced("a", "b")
}

fn object(uid: u64, version: u64) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.namespace = Some("a".to_owned());
    object.metadata.name = Some("b".to_owned());
    object.metadata.uid = Some(uid.to_string());
    object.metadata.resource_version = Some(version.to_string());
    object
}

fn applied(object: ConfigMap) -> Seen<ConfigMap> {
    Seen::Applied { object: Guarded(Ok(object)), listed: false }
}

/// A list that has nothing, and does not say of which version it is.
fn end_list(state: &mut State<ConfigMap>, namespace: Option<&str>) -> Changes<ConfigMap> {
    let known = state.begin_list(namespace);
    state.end_list(namespace, None, known)
}

fn version(state: &State<ConfigMap>) -> Option<u64> {
    state.objects.get(&key()).map(|object| object.metadata.resource_version.as_ref().unwrap().parse().unwrap())
}

#[test]
fn the_echo_of_a_write_wakes_nobody_even_if_it_comes_before_the_answer() {
    let mut state = State::default();
    assert_eq!(state.see(applied(object(1, 1))).len(), 1);
    state.begin_write(&key());
    assert!(state.see(applied(object(1, 2))).is_empty(), "held");
    let (own, seen) = state.wrote(&key(), object(1, 2));
    assert_eq!((own.len(), seen.len()), (1, 0));
    assert_eq!(version(&state), Some(2));
}

#[test]
fn a_foreign_change_that_our_write_overtook_is_told() {
    let mut state = State::default();
    state.see(applied(object(1, 1)));
    state.begin_write(&key());
    let (_, seen) = state.wrote(&key(), object(1, 3));
    assert!(seen.is_empty());
    let told = state.see(applied(object(1, 2))).pop().unwrap().1;
    assert_eq!(told.old.unwrap().metadata.resource_version.as_deref(), Some("1"), "as it was before our write");
    assert_eq!(version(&state), Some(3), "what is known does not go back");
    assert!(state.see(applied(object(1, 3))).is_empty());
    assert!(state.before.is_empty());
}

#[test]
fn a_write_of_unknown_outcome_leaves_the_word_to_the_watch() {
    let mut state = State::default();
    state.begin_write(&key());
    state.see(applied(object(1, 1)));
    assert_eq!(state.end_write(&key()).len(), 1);
}

#[test]
fn a_list_that_is_older_than_our_write_takes_nothing_away() {
    let mut state = State::default();
    state.begin_write(&key());
    state.wrote(&key(), object(1, 5));
    assert!(end_list(&mut state, None).is_empty());
    assert_eq!(version(&state), Some(5));
    state.see(applied(object(1, 5)));
    assert_eq!(end_list(&mut state, Some("elsewhere")).len(), 0);
    assert_eq!(end_list(&mut state, Some("a")).len(), 1);
    assert!(state.begin_list(None).is_empty());
}

#[test]
fn what_cannot_be_understood_is_not_taken_for_gone() {
    let mut state = State::default();
    state.see(applied(object(1, 1)));
    let broken = || {
        let metadata = object(1, 2).metadata;
        Seen::Applied { object: Guarded(Err(Undecodable { metadata, error: "no".to_owned() })), listed: false }
    };
    assert!(state.see(broken()).is_empty());
    assert_eq!((version(&state), state.undecodable.len()), (Some(1), 1));
    assert!(state.end_list(None, None, HashSet::new()).is_empty());
    assert_eq!((version(&state), state.undecodable.len()), (Some(1), 1));
    assert_eq!(state.see(applied(object(1, 3))).len(), 1);
    assert!(state.undecodable.is_empty());
}

#[test]
fn the_late_deletion_of_a_predecessor_does_not_take_the_successor() {
    let mut state = State::default();
    state.see(applied(object(2, 5)));
    assert!(state.see(Seen::Deleted(Guarded(Ok(object(1, 4))))).is_empty());
    assert_eq!(version(&state), Some(5));
}

#[test]
fn an_object_that_a_later_list_lacks_is_gone_even_if_its_echo_was_never_shown() {
    let mut state = State::default();
    state.begin_write(&key());
    state.wrote(&key(), object(1, 5));
    // Another client deletes it at 6, the watch breaks, and the list that follows is of 7.
    let known = state.begin_list(None);
    assert_eq!(state.end_list(None, Some(7), known).len(), 1);
    assert_eq!(version(&state), None);
    // The same where the list came first and the answer of the lost write never did.
    let mut state = State::default();
    state.see(applied(object(1, 1)));
    state.begin_write(&key());
    let known = state.begin_list(None);
    assert!(state.end_list(None, Some(7), known).is_empty(), "what is being written is looked at when that is over");
    assert_eq!(state.end_write(&key()).len(), 1);
    assert_eq!(version(&state), None);
}

#[test]
fn a_write_that_is_newer_than_the_list_stays_until_the_watch_has_come_so_far() {
    let mut state = State::default();
    let known = state.begin_list(None);
    state.end_list(None, Some(4), known);
    let known = state.begin_list(None);
    state.begin_write(&key());
    state.wrote(&key(), object(1, 5));
    assert!(state.end_list(None, Some(4), known).is_empty());
    assert!(state.passed(None, 4).is_empty());
    assert_eq!(version(&state), Some(5));
    assert_eq!(state.passed(None, 5).len(), 1, "not shown: the watch is not about it");
    assert_eq!(version(&state), None);
    // A version that the watch has passed already is not stored.
    state.begin_write(&key());
    assert!(state.wrote(&key(), object(1, 5)).0.is_empty());
    assert_eq!(version(&state), None);
}

#[tokio::test(start_paused = true)]
async fn nothing_goes_back_however_late_the_watch_is() {
    let mut state = State::default();
    state.see(applied(object(1, 1)));
    state.begin_write(&key());
    state.wrote(&key(), object(1, 3));
    tokio::time::advance(std::time::Duration::from_secs(10 * 60)).await;
    assert_eq!(state.see(applied(object(1, 2))).len(), 1, "the change that our write overtook is told");
    assert_eq!(version(&state), Some(3));
    // An object that we deleted does not come back, whatever others did to it before.
    state.begin_write(&key());
    state.deleted(&key(), Some("1"));
    tokio::time::advance(std::time::Duration::from_secs(10 * 60)).await;
    for version_seen in [3, 4] {
        state.see(applied(object(1, version_seen)));
        assert_eq!(version(&state), None);
    }
    state.see(Seen::Deleted(Guarded(Ok(object(1, 5)))));
    state.see(applied(object(6, 6)));
    assert_eq!(version(&state), Some(6));
    // An object that left the selection, and that a later write of ours brought back, does not go.
    state.begin_write(&key());
    state.wrote(&key(), object(6, 8));
    state.see(Seen::Deleted(Guarded(Ok(object(6, 7)))));
    assert_eq!(version(&state), Some(8));
}

#[test]
fn a_list_of_an_older_world_is_believed_and_own_writes_are_forgotten() {
    let named = |name: &str, version| {
        let mut object = object(version, version);
        object.metadata.name = Some(name.to_owned());
        object
    };
    let listed = |object| Seen::Applied { object: Guarded(Ok(object)), listed: true };
    let mut state = State::default();
    for object in [named("changed", 10), named("same", 11), named("made", 30)] {
        state.see(applied(object));
    }
    let written = ObjectKey::namespaced("a", "written");
    state.begin_write(&written);
    state.wrote(&written, named("written", 40));
    state.see(applied(named("changed", 35)));
    // The copy is of version 20.
    let mut missing = state.begin_list(None);
    for object in [named("changed", 10), named("same", 11)] {
        missing.remove(&ObjectKey::of(&object).unwrap());
        state.see(listed(object));
    }
    let changes = state.end_list(None, Some(20), missing);
    let mut told: Vec<_> = changes.iter().map(|(key, change)| (key.name.as_str(), change.new.is_some())).collect();
    told.sort_unstable();
    assert_eq!(told, [("changed", true), ("made", false), ("written", false)]);
    let mut left: Vec<_> = state.keys().map(|key| key.name).collect();
    left.sort();
    assert_eq!(left, ["changed", "same"]);
    // Changes in the new world are news, also where their versions are lower than those of the old one.
    assert_eq!(state.see(applied(named("changed", 21))).len(), 1);
    assert_eq!(state.see(applied(named("written", 22))).len(), 1);
}

#[test]
fn a_write_across_two_worlds_leaves_the_word_to_the_list() {
    let mut state = State::default();
    state.see(applied(object(7, 32)));
    state.begin_write(&key());
    let missing = state.begin_list(None);
    assert!(state.end_list(None, Some(10), missing).is_empty());
    state.deleted(&key(), Some("7"));
    assert_eq!(version(&state), None);
    state.see(applied(object(8, 11)));
    assert_eq!(version(&state), Some(11), "nothing of the old world is in the way");
}

#[test]
fn an_older_world_whose_versions_have_passed_ours_is_believed_too() {
    let mut state = State::default();
    state.see(applied(object(1, 10)));
    state.see(applied(object(1, 30)));
    state.begin_list(None);
    state.see(Seen::Applied { object: Guarded(Ok(object(1, 10))), listed: true });
    assert_eq!(version(&state), Some(30), "until the version of the list is known");
    assert_eq!(state.end_list(None, Some(50), HashSet::new()).len(), 1);
    assert_eq!(version(&state), Some(10));
}

#[test]
fn an_object_that_left_the_selection_before_our_deletion_does_not_come_back() {
    let mut state = State::default();
    state.see(applied(object(1, 1)));
    state.begin_write(&key());
    state.wrote(&key(), object(1, 29));
    state.begin_write(&key());
    // Another client takes the label away at 24 and puts it back at 25. Our write of 29 and our deletion follow.
    state.see(Seen::Deleted(Guarded(Ok(object(1, 24)))));
    state.see(applied(object(1, 25)));
    state.deleted(&key(), Some("1"));
    assert_eq!(version(&state), None, "25 is from before our deletion");
    assert!(state.see(applied(object(1, 29))).is_empty());
    state.see(Seen::Deleted(Guarded(Ok(object(1, 30)))));
    assert_eq!(state.see(applied(object(2, 31))).len(), 1, "a successor is news");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_predecessor_before_our_write_is_told_however_late_it_is() {
    let mut state = State::default();
    state.begin_write(&key());
    state.wrote(&key(), object(12, 41));
    tokio::time::advance(std::time::Duration::from_secs(10 * 60)).await;
    assert_eq!(state.see(Seen::Deleted(Guarded(Ok(object(8, 40))))).len(), 1);
    assert_eq!(version(&state), Some(41));
}

#[test]
fn own_writes_of_a_newer_store_do_not_hide_what_the_restored_one_has() {
    let listed = |object| Seen::Applied { object: Guarded(Ok(object)), listed: true };
    // The object that this process deleted, after the watch has shown its successor and the successor's end.
    let mut state = State::default();
    state.see(applied(object(3, 9)));
    state.begin_write(&key());
    state.deleted(&key(), Some("3"));
    state.see(applied(object(6, 19)));
    state.see(Seen::Deleted(Guarded(Ok(object(6, 20)))));
    state.begin_list(None);
    state.see(listed(object(3, 9)));
    state.end_list(None, Some(32), HashSet::new());
    assert_eq!(version(&state), Some(9));
}

#[test]
fn a_deletion_that_a_later_list_proves_is_forgotten() {
    let mut state = State::default();
    state.see(applied(object(1, 5)));
    state.begin_write(&key());
    state.deleted(&key(), Some("1"));
    // The watch breaks before it has shown the end.
    let known = state.begin_list(None);
    assert!(state.end_list(None, Some(7), known).is_empty());
    assert!(!state.unobserved.awaits(&key()), "or one entry per deleted object stays for ever");
}

/// The steps of the model.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Somebody else writes, creating the object if need be.
    Foreign,
    /// Somebody else deletes.
    ForeignDelete,
    /// We begin a write; the server commits it at once.
    Write,
    /// We begin a deletion; the server commits it at once, if we know the latest version.
    Delete,
    /// The answer to our write under way arrives.
    Answer,
    /// The answer to our write under way is lost.
    Lost,
    /// The watch shows its next event.
    Show,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    use Step::*;
    let step = prop_oneof![
        1 => Just(Foreign),
        1 => Just(ForeignDelete),
        1 => Just(Write),
        1 => Just(Delete),
        1 => Just(Answer),
        1 => Just(Lost),
        3 => Just(Show)
    ];
    prop::collection::vec(step, 0..40)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Event {
    Applied { uid: u64, version: u64 },
    Deleted { uid: u64 },
}

/// The object as the server has it: uid and version.
#[derive(Default)]
struct World {
    object: Option<(u64, u64)>,
    clock: u64,
    /// Not shown yet, each with the time of its commit.
    watch: VecDeque<(u64, Event)>,
    /// The commit of the last event shown.
    shown: u64,
    /// Our write under way, and what its answer will say.
    answer: Option<Event>,
    /// The commit of the last change that somebody else made, which must be heard of.
    foreign: u64,
}

impl World {
    fn commit_write(&mut self) -> Event {
        self.clock += 1;
        let uid = self.object.map_or(self.clock, |(uid, _)| uid);
        self.object = Some((uid, self.clock));
        let event = Event::Applied { uid, version: self.clock };
        self.watch.push_back((self.clock, event));
        event
    }

    fn commit_delete(&mut self) -> Option<Event> {
        let (uid, _) = self.object.take()?;
        self.clock += 1;
        self.watch.push_back((self.clock, Event::Deleted { uid }));
        Some(Event::Deleted { uid })
    }
}

fn show(state: &mut State<ConfigMap>, event: Event) -> Changes<ConfigMap> {
    state.see(match event {
        Event::Applied { uid, version } => applied(object(uid, version)),
        Event::Deleted { uid } => Seen::Deleted(Guarded(Ok(object(uid, 0)))),
    })
}

fn answer(state: &mut State<ConfigMap>, event: Event) -> Changes<ConfigMap> {
    // Writers are not notified of their own writes, so only held events count as notified.
    match event {
        Event::Applied { uid, version } => state.wrote(&key(), object(uid, version)).1,
        Event::Deleted { uid } => state.deleted(&key(), Some(&uid.to_string())).1,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn in_the_end_the_cache_is_the_world_and_no_foreign_change_went_unheard(steps in steps()) {
        let (mut state, mut world, mut heard) = (State::default(), World::default(), 0);
        for step in steps.into_iter().chain([Step::Answer]).chain(std::iter::repeat_n(Step::Show, 40)) {
            let changes = match step {
                Step::Foreign => {
                    world.commit_write();
                    world.foreign = world.clock;
                    Vec::new()
                }
                Step::ForeignDelete => {
                    if world.commit_delete().is_some() {
                        world.foreign = world.clock;
                    }
                    Vec::new()
                }
                Step::Write if world.answer.is_none() => {
                    state.begin_write(&key());
                    world.answer = Some(world.commit_write());
                    Vec::new()
                }
                // Deletions name the version that was seen.
                Step::Delete if world.answer.is_none() && version(&state) == world.object.map(|(_, version)| version) => {
                    if let Some(event) = world.commit_delete() {
                        // Earlier changes of others go with it.
                        world.foreign = 0;
                        state.begin_write(&key());
                        world.answer = Some(event);
                    }
                    Vec::new()
                }
                Step::Answer => world.answer.take().map(|event| answer(&mut state, event)).unwrap_or_default(),
                Step::Lost => world.answer.take().map(|_| state.end_write(&key())).unwrap_or_default(),
                Step::Show => match world.watch.pop_front() {
                    Some((at, event)) => {
                        world.shown = at;
                        show(&mut state, event)
                    }
                    None => Vec::new(),
                },
                Step::Write | Step::Delete => Vec::new(),
            };
            if !changes.is_empty() {
                heard = world.shown;
            }
        }
        prop_assert!(world.watch.is_empty() && state.writing.is_empty());
        prop_assert_eq!(version(&state), world.object.map(|(_, version)| version));
        let unheard = world.object.is_some() && world.foreign > heard;
        prop_assert!(!unheard, "foreign change at {}, last heard at {}", world.foreign, heard);
    }
}
