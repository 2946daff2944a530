//! The cache against a model of an API server: several objects, writes of ours and of others, a watch that is late, lists, bookmarks,
//! answers that are lost or late, and a store that is replaced by an older copy.
//!
//! After each step: nothing that is known goes back to an older version, nothing that was proven to be gone is there, and what we wrote is
//! there until something newer is. In the end the cache is what the API server has, and nothing that others did went unheard.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use rand::{RngExt, SeedableRng, rngs::SmallRng, seq::SliceRandom};

use super::*;

const KEYS: usize = 3;
const STEPS: usize = 120;
const SCHEDULES: u64 = 6000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Object {
    uid: u64,
    version: u64,
    /// Whether it has the label that the watch selects.
    selected: bool,
}

type Objects = [Option<Object>; KEYS];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Write {
    Apply {
        selected: bool,
    },
    /// The uid that was known, which the request names.
    Delete {
        uid: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Object(Object),
    Gone(u64),
    NotFound,
    Conflict,
}

/// A write of ours under way.
#[derive(Debug, Clone, Copy)]
struct Request {
    write: Write,
    known_uid: Option<u64>,
    answer: Option<Answer>,
}

/// A list that is being read.
struct List {
    version: u64,
    objects: Objects,
    order: Vec<usize>,
    missing: HashSet<ObjectKey>,
}

struct Model {
    state: State<ConfigMap>,
    random: SmallRng,
    objects: Objects,
    version: u64,
    next_uid: u64,
    /// What there was after each commit.
    history: Vec<(u64, Objects)>,
    /// The commit that the watch showed last; none while it is broken.
    shown: Option<u64>,
    list: Option<List>,
    requests: [Option<Request>; KEYS],
    /// The latest version that was known of each.
    latest: [u64; KEYS],
    /// What we deleted.
    deleted: HashSet<u64>,
    /// What left the selection at some time. Of that, the watch shows an end that is none, and it may come back until it shows the real one.
    left: HashSet<u64>,
    /// The last commit by others, and up to which commit a subscriber was told.
    foreign: [u64; KEYS],
    heard: [u64; KEYS],
    /// The store was replaced, and no list has shown it yet.
    is_replaced: bool,
}

fn key(number: usize) -> ObjectKey {
    ObjectKey::namespaced("a", format!("b{number}"))
}

fn config_map(number: usize, uid: u64, version: u64) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.namespace = Some("a".to_owned());
    object.metadata.name = Some(format!("b{number}"));
    object.metadata.uid = Some(uid.to_string());
    object.metadata.resource_version = Some(version.to_string());
    object
}

impl Model {
    fn new(seed: u64) -> Self {
        Self {
            state: State::default(),
            random: SmallRng::seed_from_u64(seed),
            objects: [None; KEYS],
            version: 1,
            next_uid: 1,
            history: vec![(1, [None; KEYS])],
            shown: None,
            list: None,
            requests: [None; KEYS],
            latest: [0; KEYS],
            deleted: HashSet::new(),
            left: HashSet::new(),
            foreign: [0; KEYS],
            heard: [0; KEYS],
            is_replaced: false,
        }
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.random.random_range(0..one_in) == 0
    }

    fn commit(&mut self, number: usize, object: Option<(u64, bool)>) {
        self.version += 1;
        self.left.extend(object.filter(|(_, selected)| !selected).map(|(uid, _)| uid));
        self.objects[number] = object.map(|(uid, selected)| Object { uid, version: self.version, selected });
        self.history.push((self.version, self.objects));
    }

    fn apply(&mut self, number: usize, selected: bool) -> Object {
        let uid = self.objects[number].map_or(self.next_uid, |object| object.uid);
        self.next_uid = self.next_uid.max(uid + 1);
        self.commit(number, Some((uid, selected)));
        self.objects[number].expect("just made")
    }

    fn at(&self, version: u64) -> Objects {
        self.history.iter().rev().find(|(at, _)| *at <= version).expect("the beginning").1
    }

    /// As it is known: uid and version.
    fn known(&self, number: usize) -> Option<(u64, u64)> {
        let parsed = |text: &Option<String>| text.as_ref().unwrap().parse().unwrap();
        let object = self.state.objects.get(&key(number))?;
        Some((parsed(&object.metadata.uid), parsed(&object.metadata.resource_version)))
    }

    /// Subscribers are told while the watch, or the list, has come so far.
    fn tell(&mut self, changes: &Changes<ConfigMap>, horizon: u64) {
        for (changed, _) in changes {
            let number = (0..KEYS).find(|number| key(*number) == *changed).unwrap();
            self.heard[number] = self.heard[number].max(horizon);
        }
    }

    fn horizon(&self) -> u64 {
        self.list.as_ref().map_or(self.shown.unwrap_or(0), |list| list.version)
    }

    fn interfere(&mut self) {
        let number = self.random.random_range(0..KEYS);
        let is_selected = |object: Option<Object>| object.is_some_and(|object| object.selected);
        let before = self.objects[number];
        if before.is_some() && self.chance(4) {
            self.commit(number, None);
        } else {
            let selected = !self.chance(8);
            self.apply(number, selected);
        }
        // The watch shows nothing of what it does not select.
        if is_selected(before) || is_selected(self.objects[number]) {
            self.foreign[number] = self.version;
        }
    }

    /// A write of ours goes on by one step: begun, committed, answered or lost.
    fn write(&mut self) {
        let number = self.random.random_range(0..KEYS);
        match self.requests[number] {
            None => {
                let known_uid = self.known(number).map(|(uid, _)| uid);
                let write = match known_uid {
                    Some(uid) if self.chance(4) => Write::Delete { uid },
                    _ => Write::Apply { selected: !self.chance(8) },
                };
                self.state.begin_write(&key(number));
                self.requests[number] = Some(Request { write, known_uid, answer: None });
            }
            Some(request @ Request { answer: None, .. }) => {
                let answer = match (request.write, self.objects[number]) {
                    (Write::Apply { selected }, Some(object)) if object.selected == selected && self.chance(4) => {
                        Answer::Object(object)
                    }
                    (Write::Apply { selected }, _) => Answer::Object(self.apply(number, selected)),
                    (Write::Delete { uid }, Some(object)) if object.uid == uid => {
                        self.commit(number, None);
                        // What others did to it before goes with it.
                        self.foreign[number] = 0;
                        Answer::Gone(uid)
                    }
                    (Write::Delete { .. }, Some(_)) => Answer::Conflict,
                    (Write::Delete { .. }, None) => {
                        self.foreign[number] = 0;
                        Answer::NotFound
                    }
                };
                self.requests[number] = Some(Request { answer: Some(answer), ..request });
            }
            Some(request @ Request { answer: Some(answer), .. }) => {
                self.requests[number] = None;
                let answer = if self.chance(5) { Answer::Conflict } else { answer };
                self.answer(number, answer, &request);
            }
        }
    }

    fn answer(&mut self, number: usize, answer: Answer, request: &Request) {
        let (horizon, known_uid) = (self.horizon(), request.known_uid);
        let held = match answer {
            Answer::Object(Object { uid, version, selected }) => {
                let (_, held) = self.state.wrote(&key(number), config_map(number, uid, version));
                // The answer to a write that changed nothing cannot be told from one that did: who reads it has heard of that version.
                if self.foreign[number] == version {
                    self.heard[number] = self.heard[number].max(version);
                }
                if !self.is_replaced && selected {
                    // Held events may know of something newer, such as the end of the object.
                    let is_newer_or_gone = match self.known(number) {
                        Some((_, known)) => known >= version,
                        None => self.at(horizon)[number].is_none_or(|at| !at.selected || at.version > version),
                    };
                    let is_ended = self.deleted.contains(&uid);
                    assert!(
                        is_newer_or_gone || is_ended,
                        "{version} was written and is not known: {:?}",
                        self.known(number)
                    );
                }
                held
            }
            Answer::Gone(uid) => {
                let (_, held) = self.state.deleted(&key(number), Some(&uid.to_string()));
                self.deleted.insert(uid);
                held
            }
            Answer::NotFound => {
                self.deleted.extend(known_uid);
                let uid = known_uid.map(|uid| uid.to_string());
                self.state.deleted(&key(number), uid.as_deref()).1
            }
            Answer::Conflict => self.state.end_write(&key(number)),
        };
        self.tell(&held, horizon);
    }

    /// The watch shows its next event, or a bookmark.
    fn show(&mut self) {
        let Some(shown) = self.shown else { return };
        if self.chance(5) {
            let changes = self.state.passed(None, shown);
            self.tell(&changes, shown);
            return self.proves(shown);
        }
        let Some((version, after)) = self.history.iter().find(|(version, _)| *version > shown).copied() else { return };
        let before = self.at(shown);
        self.shown = Some(version);
        let Some(number) = (0..KEYS).find(|number| before[*number] != after[*number]) else { return };
        let selected = |object: Option<Object>| object.filter(|object| object.selected);
        let seen = match (selected(before[number]), selected(after[number])) {
            (_, Some(Object { uid, version, .. })) => {
                Seen::Applied { object: Guarded(Ok(config_map(number, uid, version))), listed: false }
            }
            (Some(object), None) => Seen::Deleted(Guarded(Ok(config_map(number, object.uid, version)))),
            (None, None) => return,
        };
        let changes = self.state.see(seen);
        self.tell(&changes, version);
    }

    /// The watch breaks, and a list begins, or goes on by one object, or ends.
    fn list(&mut self) {
        let Some(mut list) = self.list.take() else {
            self.shown = None;
            let missing = self.state.begin_list(None);
            let mut order: Vec<_> =
                (0..KEYS).filter(|number| self.objects[*number].is_some_and(|object| object.selected)).collect();
            order.shuffle(&mut self.random);
            self.list = Some(List { version: self.version, objects: self.objects, order, missing });
            return;
        };
        let version = list.version;
        if let Some(number) = list.order.pop() {
            let Object { uid, version: of_object, .. } = list.objects[number].unwrap();
            list.missing.remove(&key(number));
            self.list = Some(list);
            let object = Guarded(Ok(config_map(number, uid, of_object)));
            let changes = self.state.see(Seen::Applied { object, listed: true });
            return self.tell(&changes, version);
        }
        let changes = self.state.end_list(None, Some(version), list.missing);
        self.tell(&changes, version);
        self.shown = Some(version);
        if std::mem::replace(&mut self.is_replaced, false) {
            self.latest = [0; KEYS];
        }
        self.proves(version);
    }

    /// The watch, or a list, has shown all up to this version: what is known is that, or newer.
    fn proves(&self, version: u64) {
        for number in (0..KEYS).filter(|number| self.requests[*number].is_none()) {
            let there = self.at(version)[number].filter(|object| object.selected);
            match (self.known(number), there) {
                (Some((_, known)), _) if known > version => {}
                (None, Some(object)) if self.deleted.contains(&object.uid) => {}
                (known, there) => {
                    let there = there.map(|object| (object.uid, object.version));
                    assert_eq!(known, there, "of {number} at {version}");
                }
            }
        }
    }

    /// The store is replaced by an older copy. Versions go on from there, or from beyond those that were.
    fn replace(&mut self) {
        let to = self.random.random_range(0..self.history.len());
        self.history.truncate(to + 1);
        let (version, objects) = self.history[to];
        self.version = if self.chance(2) { version } else { self.version + 1 };
        self.objects = objects;
        self.history.push((self.version, objects));
        (self.shown, self.list, self.is_replaced) = (None, None, true);
        (self.foreign, self.heard) = ([0; KEYS], [0; KEYS]);
        self.deleted.clear();
        // What is under way is lost with the connections.
        for number in 0..KEYS {
            if let Some(request) = self.requests[number].take() {
                self.answer(number, Answer::Conflict, &request);
            }
        }
        self.list();
    }

    fn check(&mut self) {
        if self.is_replaced {
            return;
        }
        for number in 0..KEYS {
            let Some((uid, version)) = self.known(number) else { continue };
            assert!(version >= self.latest[number], "{number} went back from {} to {version}", self.latest[number]);
            let is_deleted = self.deleted.contains(&uid) && !self.left.contains(&uid);
            assert!(!is_deleted, "{number} came back after we deleted it");
            self.latest[number] = version;
        }
    }

    async fn run(&mut self) {
        for _ in 0..STEPS {
            match self.random.random_range(0..100) {
                0..20 => self.interfere(),
                // A write before a list has shown the replaced store is believed to the list only, and seen when the watch shows it.
                20..50 if !self.is_replaced => self.write(),
                50..54 => tokio::time::advance(Duration::from_secs(20)).await,
                54..55 => self.replace(),
                55..57 => self.list(),
                _ if self.list.is_some() || self.shown.is_none() => self.list(),
                _ => self.show(),
            }
            self.check();
        }
        for number in 0..KEYS {
            if let Some(request) = self.requests[number].take() {
                self.answer(number, request.answer.unwrap_or(Answer::Conflict), &request);
            }
        }
        while self.list.is_some() || self.shown.is_none() {
            self.list();
        }
        while self.shown != Some(self.version) {
            self.show();
        }
        tokio::time::advance(Duration::from_mins(1)).await;
        let changes = self.state.passed(None, self.version);
        self.tell(&changes, self.version);
        self.check();
        self.deleted.clear();
        self.proves(self.version);
        for number in 0..KEYS {
            let is_there = self.objects[number].is_some_and(|object| object.selected);
            let (foreign, heard) = (self.foreign[number], self.heard[number]);
            assert!(!is_there || foreign <= heard, "{number} was changed at {foreign}, last heard at {heard}");
        }
        assert!(self.state.writing.is_empty() && self.state.before.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_goes_back_nothing_gone_stays_and_nothing_is_unheard() {
    // One schedule alone: its number instead of the range.
    for seed in 0..SCHEDULES {
        let run = std::panic::AssertUnwindSafe(async { Model::new(seed).run().await });
        if let Err(panic) = futures::FutureExt::catch_unwind(run).await {
            eprintln!("schedule {seed}");
            std::panic::resume_unwind(panic);
        }
    }
}
