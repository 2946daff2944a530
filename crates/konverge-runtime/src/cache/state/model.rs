//! Two caches against a model of an API server. The model has several objects, writes of ours and of other clients, late watches,
//! lists and bookmarks. Answers may be lost or late, and an older copy may replace the store.
//!
//! After each step, in each cache: no known object goes back to an older version. An object is gone once the watch has passed its deletion,
//! or a list lacks it. An object that this process wrote is known until the watch or a list shows something newer. In the end each cache
//! equals the API server, and each change of another client has been told.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use rand::{RngExt, SeedableRng, rngs::SmallRng, seq::SliceRandom};

use super::*;

const KEYS: usize = 3;
const CACHES: usize = 2;
const STEPS: usize = 150;
const SCHEDULES: u64 = 3000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Object {
    uid: u64,
    version: u64,
    /// Whether it has the label that the first cache selects.
    is_labelled: bool,
}

type Objects = [Option<Object>; KEYS];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Write {
    Apply {
        is_labelled: bool,
    },
    /// The uid that was known, which the request names.
    Delete {
        uid: u64,
    },
}

/// The answer of the API server, with the version at which it processed a deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Object(Object),
    Gone {
        uid: u64,
        at: u64,
    },
    NotFound {
        at: u64,
    },
    /// A conflict, or no answer at all.
    Lost,
}

/// A write of ours under way.
#[derive(Debug, Clone, Copy)]
struct Request {
    write: Write,
    /// The uid that each cache knew.
    known_uids: [Option<u64>; CACHES],
    answer: Option<Answer>,
}

/// A list that is being read.
struct List {
    version: u64,
    objects: Objects,
    order: Vec<usize>,
    missing: HashSet<ObjectKey>,
}

/// One cache with its watch.
struct Cache {
    state: State<ConfigMap>,
    /// Whether the watch selects only labelled objects.
    selects_label: bool,
    /// The commit that the watch showed last; `None` while it is broken.
    shown: Option<u64>,
    list: Option<List>,
    /// The latest version that was known of each object.
    latest: [u64; KEYS],
    /// The objects that were known until the API server told this process that they are gone. A cache that knew nothing of an object when
    /// this process deleted it may still be shown its creation.
    deleted: HashSet<u64>,
    /// The version at which the API server last told this process that it does not have the object.
    absent_at: [u64; KEYS],
    /// The last commit by other clients that the watch shows, and up to which commit a subscriber was told.
    foreign: [u64; KEYS],
    told: [u64; KEYS],
    /// The store was replaced, and no list has shown the new one yet.
    is_replaced: bool,
}

impl Cache {
    fn new(selects_label: bool) -> Self {
        Self {
            state: State::default(),
            selects_label,
            shown: None,
            list: None,
            latest: [0; KEYS],
            deleted: HashSet::new(),
            absent_at: [0; KEYS],
            foreign: [0; KEYS],
            told: [0; KEYS],
            is_replaced: false,
        }
    }

    fn selects(&self, object: &Object) -> bool {
        object.is_labelled || !self.selects_label
    }

    fn selected(&self, object: Option<Object>) -> Option<Object> {
        object.filter(|object| self.selects(object))
    }

    /// Returns uid and version of the object as it is known.
    fn known(&self, number: usize) -> Option<(u64, u64)> {
        let parsed = |text: &Option<String>| text.as_ref().unwrap().parse().unwrap();
        let object = self.state.objects.get(&key(number))?;
        Some((parsed(&object.metadata.uid), parsed(&object.metadata.resource_version)))
    }

    /// Subscribers are told while the watch, or the list, has come so far.
    fn tell(&mut self, changes: &Changes<ConfigMap>, horizon: u64) {
        for (changed, _) in changes {
            let number = (0..KEYS).find(|number| key(*number) == *changed).unwrap();
            self.told[number] = self.told[number].max(horizon);
        }
    }

    /// The API server does not have the object at this version. Its earlier changes by other clients went with it.
    fn is_gone(&mut self, number: usize, uid: Option<u64>, at: u64) {
        self.deleted.extend(self.known(number).map(|(known, _)| known).filter(|known| Some(*known) == uid));
        self.absent_at[number] = at;
        if self.foreign[number] <= at {
            self.foreign[number] = 0;
        }
    }

    fn horizon(&self) -> u64 {
        self.list.as_ref().map_or(self.shown.unwrap_or(0), |list| list.version)
    }
}

struct Model {
    caches: [Cache; CACHES],
    random: SmallRng,
    objects: Objects,
    version: u64,
    next_uid: u64,
    /// The objects after each commit.
    history: Vec<(u64, Objects)>,
    requests: [Option<Request>; KEYS],
    /// The objects that were unlabelled at some time. The watch of the first cache shows an end that is none, and the object may come back
    /// until the watch shows its deletion.
    unlabelled: HashSet<u64>,
    /// Whether watches break after the first list.
    breaks: bool,
    /// Whether each step is printed, because this schedule has failed.
    is_traced: bool,
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
    fn new(seed: u64, is_traced: bool) -> Self {
        Self {
            caches: [Cache::new(true), Cache::new(false)],
            random: SmallRng::seed_from_u64(seed),
            objects: [None; KEYS],
            version: 1,
            next_uid: 1,
            history: vec![(1, [None; KEYS])],
            requests: [None; KEYS],
            unlabelled: HashSet::new(),
            breaks: seed.is_multiple_of(2),
            is_traced,
        }
    }

    /// Prints a line if this schedule has failed.
    fn trace(&self, line: impl FnOnce() -> String) {
        if self.is_traced {
            eprintln!("{}", line());
        }
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.random.random_range(0..one_in) == 0
    }

    fn commit(&mut self, number: usize, object: Option<(u64, bool)>) {
        self.version += 1;
        self.unlabelled.extend(object.filter(|(_, is_labelled)| !is_labelled).map(|(uid, _)| uid));
        self.objects[number] = object.map(|(uid, is_labelled)| Object { uid, version: self.version, is_labelled });
        self.history.push((self.version, self.objects));
        self.trace(|| format!("commit {} of {number}: {:?}", self.version, self.objects[number]));
    }

    fn apply(&mut self, number: usize, is_labelled: bool) -> Object {
        let uid = self.objects[number].map_or(self.next_uid, |object| object.uid);
        self.next_uid = self.next_uid.max(uid + 1);
        self.commit(number, Some((uid, is_labelled)));
        self.objects[number].expect("just made")
    }

    fn at(&self, version: u64) -> Objects {
        self.history.iter().rev().find(|(at, _)| *at <= version).expect("the beginning").1
    }

    fn interfere(&mut self) {
        let number = self.random.random_range(0..KEYS);
        let before = self.objects[number];
        if before.is_some() && self.chance(4) {
            self.commit(number, None);
        } else {
            let is_labelled = !self.chance(8);
            self.apply(number, is_labelled);
        }
        for cache in &mut self.caches {
            // The watch shows nothing of what it does not select.
            if cache.selected(before).is_some() || cache.selected(self.objects[number]).is_some() {
                cache.foreign[number] = self.version;
            }
        }
    }

    /// A write of ours goes on by one step: begun, committed, answered or lost.
    fn write(&mut self) {
        let number = self.random.random_range(0..KEYS);
        match self.requests[number] {
            None => {
                let known_uids = [0, 1].map(|cache: usize| self.caches[cache].known(number).map(|(uid, _)| uid));
                let write = match known_uids[self.random.random_range(0..CACHES)] {
                    Some(uid) if self.chance(4) => Write::Delete { uid },
                    _ => Write::Apply { is_labelled: !self.chance(8) },
                };
                self.trace(|| format!("begin to {write:?} {number}"));
                for cache in &mut self.caches {
                    cache.state.begin_write(&key(number));
                }
                self.requests[number] = Some(Request { write, known_uids, answer: None });
            }
            Some(request @ Request { answer: None, .. }) => {
                let answer = self.process(number, request.write);
                self.requests[number] = Some(Request { answer: Some(answer), ..request });
            }
            Some(request @ Request { answer: Some(answer), .. }) => {
                self.requests[number] = None;
                let answer = if self.chance(5) { Answer::Lost } else { answer };
                self.answer(number, answer, &request);
            }
        }
    }

    /// The API server processes a request.
    fn process(&mut self, number: usize, write: Write) -> Answer {
        match (write, self.objects[number]) {
            (Write::Apply { is_labelled }, Some(object)) if object.is_labelled == is_labelled && self.chance(4) => {
                Answer::Object(object)
            }
            (Write::Apply { is_labelled }, _) => Answer::Object(self.apply(number, is_labelled)),
            (Write::Delete { uid }, Some(object)) if object.uid == uid => {
                self.commit(number, None);
                Answer::Gone { uid, at: self.version }
            }
            (Write::Delete { .. }, Some(_)) => Answer::Lost,
            (Write::Delete { .. }, None) => Answer::NotFound { at: self.version },
        }
    }

    fn answer(&mut self, number: usize, answer: Answer, request: &Request) {
        self.trace(|| format!("answer {answer:?} of {number}"));
        for index in 0..CACHES {
            let cache = &mut self.caches[index];
            let horizon = cache.horizon();
            let told = match answer {
                Answer::Object(Object { uid, version, .. }) => {
                    // The answer to a write that changed nothing cannot be told from one that did, so its reader knows of that version.
                    if cache.foreign[number] == version {
                        cache.told[number] = cache.told[number].max(version);
                    }
                    cache.state.wrote(&key(number), config_map(number, uid, version)).1
                }
                Answer::Gone { uid, at } => {
                    cache.is_gone(number, Some(uid), at);
                    cache.state.deleted(&key(number), Some(&uid.to_string())).1
                }
                Answer::NotFound { at } => {
                    cache.is_gone(number, request.known_uids[index], at);
                    let uid = request.known_uids[index].map(|uid| uid.to_string());
                    cache.state.deleted(&key(number), uid.as_deref()).1
                }
                Answer::Lost => cache.state.end_write(&key(number)),
            };
            cache.tell(&told, horizon);
            if let Answer::Object(object) = answer {
                self.is_written(index, number, object);
            }
        }
    }

    /// Asserts that an object which this process wrote is known, unless the watch has shown something newer.
    fn is_written(&self, index: usize, number: usize, object: Object) {
        let cache = &self.caches[index];
        if cache.is_replaced || !cache.selects(&object) {
            return;
        }
        let horizon = cache.horizon();
        let is_known_or_gone = match cache.known(number) {
            Some((_, known)) => known >= object.version,
            None => self.history.iter().any(|(version, objects)| {
                let there = cache.selected(objects[number]);
                (object.version..=horizon).contains(version) && there.is_none_or(|there| there.uid != object.uid)
            }),
        };
        assert!(is_known_or_gone, "cache {index}: {object:?} was written, and {:?} is known", cache.known(number));
    }

    /// The watch shows its next event, or a bookmark.
    fn show(&mut self, index: usize) {
        let Some(shown) = self.caches[index].shown else { return };
        if self.chance(5) {
            return self.bookmark(index, shown);
        }
        let Some((version, after)) = self.history.iter().find(|(version, _)| *version > shown).copied() else { return };
        let before = self.at(shown);
        let cache = &mut self.caches[index];
        cache.shown = Some(version);
        let Some(number) = (0..KEYS).find(|number| before[*number] != after[*number]) else { return };
        let seen = match (cache.selected(before[number]), cache.selected(after[number])) {
            (_, Some(Object { uid, version, .. })) => {
                Seen::Applied { object: Guarded(Ok(config_map(number, uid, version))), listed: false }
            }
            (Some(object), None) => Seen::Deleted(Guarded(Ok(config_map(number, object.uid, version)))),
            (None, None) => return,
        };
        let changes = cache.state.see(seen);
        cache.tell(&changes, version);
        self.trace(|| format!("cache {index} is shown {version} of {number}"));
        self.proves(index, version, false);
    }

    fn bookmark(&mut self, index: usize, version: u64) {
        self.trace(|| format!("cache {index} is shown a bookmark at {version}"));
        let cache = &mut self.caches[index];
        let changes = cache.state.passed(None, version);
        cache.tell(&changes, version);
        self.proves(index, version, true);
    }

    /// The watch breaks, and a list begins, or goes on by one object, or ends.
    fn list(&mut self, index: usize) {
        let cache = &mut self.caches[index];
        let Some(mut list) = cache.list.take() else {
            cache.shown = None;
            let missing = cache.state.begin_list(None);
            let mut order: Vec<_> =
                (0..KEYS).filter(|number| cache.selected(self.objects[*number]).is_some()).collect();
            order.shuffle(&mut self.random);
            // A list shows no object that came and went in between.
            for number in (0..KEYS).filter(|number| !order.contains(number)) {
                cache.foreign[number] = 0;
            }
            cache.list = Some(List { version: self.version, objects: self.objects, order, missing });
            return self.trace(|| format!("cache {index} begins a list at {}", self.version));
        };
        let version = list.version;
        if let Some(number) = list.order.pop() {
            let Object { uid, version: of_object, .. } = list.objects[number].unwrap();
            list.missing.remove(&key(number));
            cache.list = Some(list);
            let object = Guarded(Ok(config_map(number, uid, of_object)));
            let changes = cache.state.see(Seen::Applied { object, listed: true });
            cache.tell(&changes, version);
            return self.trace(|| format!("cache {index} lists {number}"));
        }
        let changes = cache.state.end_list(None, Some(version), list.missing);
        cache.tell(&changes, version);
        cache.shown = Some(version);
        if std::mem::replace(&mut cache.is_replaced, false) {
            cache.latest = [0; KEYS];
        }
        self.trace(|| format!("cache {index} ends the list at {version}"));
        self.proves(index, version, true);
    }

    /// Asserts that each known object is as the watch, or a list, has shown it, or newer. An object that the watch does not select is
    /// known until a bookmark or list says that it has shown all.
    fn proves(&self, index: usize, version: u64, is_complete: bool) {
        let cache = &self.caches[index];
        for number in (0..KEYS).filter(|number| self.requests[*number].is_none()) {
            let there = cache.selected(self.at(version)[number]);
            let is_unselected = |known| self.at(known)[number].is_some_and(|object| !cache.selects(&object));
            match (cache.known(number), there) {
                (Some((_, known)), _) if known > version => {}
                (None, Some(_)) if cache.absent_at[number] > version => {}
                (Some((_, known)), None) if !is_complete && is_unselected(known) => {}
                (known, there) => {
                    let there = there.map(|object| (object.uid, object.version));
                    assert_eq!(known, there, "cache {index}: object {number} at {version}");
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
        self.trace(|| format!("the store of {version} takes over and goes on from {}: {objects:?}", self.version));
        for cache in &mut self.caches {
            cache.deleted.clear();
            (cache.shown, cache.list, cache.is_replaced) = (None, None, true);
            (cache.foreign, cache.told, cache.absent_at) = ([0; KEYS], [0; KEYS], [0; KEYS]);
        }
        // Requests under way are lost with the connections.
        for number in 0..KEYS {
            if let Some(request) = self.requests[number].take() {
                self.answer(number, Answer::Lost, &request);
            }
        }
        for index in 0..CACHES {
            self.list(index);
        }
    }

    fn check(&mut self) {
        for index in 0..CACHES {
            let cache = &mut self.caches[index];
            if cache.is_replaced {
                continue;
            }
            for number in 0..KEYS {
                let Some((uid, version)) = cache.known(number) else { continue };
                let latest = std::mem::replace(&mut cache.latest[number], version);
                assert!(version >= latest, "cache {index}: object {number} went back from {latest} to {version}");
                let may_come_back = cache.selects_label && self.unlabelled.contains(&uid);
                let came_back = cache.deleted.contains(&uid) && !may_come_back;
                assert!(!came_back, "cache {index}: object {number} came back after this process deleted it");
            }
        }
        self.trace(|| {
            let known = self.caches.each_ref().map(|cache| [0, 1, 2].map(|number| cache.known(number)));
            let shown = self.caches.each_ref().map(|cache| cache.shown);
            format!("    shown {shown:?}, known {known:?}, told {:?}", self.caches.each_ref().map(|cache| cache.told))
        });
    }

    async fn run(&mut self) {
        for _ in 0..STEPS {
            let index = self.random.random_range(0..CACHES);
            let is_replaced = self.caches.iter().any(|cache| cache.is_replaced);
            let is_listing = self.caches[index].list.is_some() || self.caches[index].shown.is_none();
            match self.random.random_range(0..100) {
                0..15 => self.interfere(),
                // A write before a list has shown the replaced store is believed to the list only, and seen when the watch shows it.
                15..45 if !is_replaced => self.write(),
                45..48 => tokio::time::advance(Duration::from_secs(20)).await,
                48..49 if self.breaks => self.replace(),
                49..52 if self.breaks => self.list(index),
                _ if is_listing => self.list(index),
                _ => self.show(index),
            }
            self.check();
        }
        for number in 0..KEYS {
            if let Some(request) = self.requests[number].take() {
                self.answer(number, request.answer.unwrap_or(Answer::Lost), &request);
            }
        }
        for index in 0..CACHES {
            while self.caches[index].list.is_some() || self.caches[index].shown.is_none() {
                self.list(index);
            }
            while self.caches[index].shown != Some(self.version) {
                self.show(index);
                self.check();
            }
        }
        tokio::time::advance(Duration::from_secs(60)).await;
        for index in 0..CACHES {
            self.bookmark(index, self.version);
            self.check();
            let cache = &self.caches[index];
            for number in 0..KEYS {
                let is_there = cache.selected(self.objects[number]).is_some();
                let (foreign, told) = (cache.foreign[number], cache.told[number]);
                assert!(
                    !is_there || foreign <= told,
                    "cache {index}: object {number} was changed at {foreign}, last told at {told}"
                );
            }
            assert!(cache.state.writing.is_empty() && cache.state.before.is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_goes_back_nothing_gone_stays_and_no_change_is_untold() {
    for seed in 0..SCHEDULES {
        let run = |is_traced| std::panic::AssertUnwindSafe(async move { Model::new(seed, is_traced).run().await });
        if futures::FutureExt::catch_unwind(run(false)).await.is_err() {
            eprintln!("schedule {seed}, step by step:");
            run(true).0.await;
        }
    }
}
