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
    assert!(state.missing(state.known(None)).is_empty());
    assert_eq!(version(&state), Some(5));
    state.see(applied(object(1, 5)));
    assert_eq!(state.missing(state.known(Some("elsewhere"))).len(), 0);
    assert_eq!(state.missing(state.known(Some("a"))).len(), 1);
    assert!(state.known(None).is_empty());
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
    assert!(state.missing(HashSet::new()).is_empty());
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

/// What happens in the model.
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
    // Those who write are not told of it themselves, so only what was held counts as told.
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
                        // What others did to it before goes with it.
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
