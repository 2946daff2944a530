//! The cache between real threads. In any order of theirs, the known state never goes back, a writer reads at least its own write,
//! and a writer is notified of the changes of others but not of its own.
//!
//! Each burst ends with a watch that has shown everything. So a change that is not told is not made good by the next one, and is found.

use std::{
    sync::{
        Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicUsize},
    },
    thread,
};

use k8s_openapi::api::core::v1::ConfigMap;
use rand::{RngExt, SeedableRng, rngs::SmallRng};

use super::*;
use crate::{schedule::yield_or_sleep, watch::Guarded};

const KEYS: usize = 3;
const WRITERS: u64 = 3;
const OTHERS: u64 = 2;
const BURSTS: u64 = 150;

/// An object as the API server has it: its uid and its version.
type Object = (u64, u64);

/// The API server's state of one key.
#[derive(Clone, Default)]
struct Record {
    object: Option<Object>,
    /// The version that the last deletion made.
    deleted_at: u64,
    /// Whether somebody else changed it in this burst. A write of ours whose answer is lost is such a change.
    by_others: bool,
    /// Whether we deleted it in this burst: then nobody needs to hear of what others did before, and may.
    deleted_by_us: bool,
}

/// Commits changes in one order, and notes them for the watch: the key, the object, and whether it is gone.
#[derive(Default)]
struct Server {
    version: u64,
    records: [Record; KEYS],
    log: Vec<(usize, Object, bool)>,
}

impl Server {
    /// Changes the object, or makes it anew. Returns it.
    fn apply(&mut self, key: usize) -> Object {
        self.version += 1;
        let uid = self.records[key].object.map_or(self.version, |(uid, _)| uid);
        let object = (uid, self.version);
        self.records[key].object = Some(object);
        self.log.push((key, object, false));
        object
    }

    /// Deletes the object if there is one with this uid, or with any. Returns it as it was at its end.
    fn delete(&mut self, key: usize, only: Option<u64>) -> Option<Object> {
        let (uid, _) = self.records[key].object.take_if(|(uid, _)| only.is_none_or(|only| only == *uid))?;
        self.version += 1;
        self.records[key].deleted_at = self.version;
        self.log.push((key, (uid, self.version), true));
        Some((uid, self.version))
    }
}

struct World {
    server: Mutex<Server>,
    store: Store<ConfigMap>,
    writer: Subscriber,
    /// How often the writer was told of each key.
    told: Arc<[AtomicUsize; KEYS]>,
    /// As a queue does: a key has one worker at a time.
    worked_on: [Mutex<()>; KEYS],
    /// Nobody changes anything any more in this burst.
    is_over: AtomicBool,
}

fn key(number: usize) -> ObjectKey {
    ObjectKey::namespaced("a", format!("b{number}"))
}

fn config_map(number: usize, (uid, version): Object) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.namespace = Some("a".to_owned());
    object.metadata.name = Some(format!("b{number}"));
    object.metadata.uid = Some(uid.to_string());
    object.metadata.resource_version = Some(version.to_string());
    object
}

impl World {
    fn new() -> Self {
        let (store, told) = (Store::new("test"), Arc::<[AtomicUsize; KEYS]>::default());
        let counts = Arc::clone(&told);
        let writer = store.subscribe(move |changed, _| {
            let number = (0..KEYS).find(|number| key(*number) == *changed).unwrap();
            counts[number].fetch_add(1, Ordering::SeqCst);
        });
        let (server, worked_on, is_over) = (Mutex::default(), Default::default(), AtomicBool::new(false));
        Self { server, store, writer, told, worked_on, is_over }
    }

    fn server(&self) -> MutexGuard<'_, Server> {
        self.server.lock().unwrap()
    }

    fn object(&self, number: usize) -> Option<Object> {
        let parsed = |text: &Option<String>| text.as_ref().unwrap().parse().unwrap();
        let object = self.store.get(&key(number))?;
        Some((parsed(&object.metadata.uid), parsed(&object.metadata.resource_version)))
    }

    /// The version that is known.
    fn known(&self, number: usize) -> Option<u64> {
        self.object(number).map(|(_, version)| version)
    }

    /// A write of ours: an apply of whatever there is, or a deletion of what is known.
    fn write(&self, random: &mut SmallRng) {
        let number = random.random_range(0..KEYS);
        let _alone = self.worked_on[number].lock().unwrap();
        let writing = self.store.writing(key(number), Some(self.writer));
        yield_or_sleep(random);
        let to_delete = self.object(number).filter(|_| random.random_range(0..5) == 0);
        let (deletes, is_lost) = (to_delete.is_some(), random.random_range(0..8) == 0);
        let committed = {
            let mut server = self.server();
            let committed = match to_delete {
                Some((uid, _)) => server.delete(number, Some(uid)),
                None => Some(server.apply(number)),
            };
            if committed.is_some() {
                server.records[number].by_others |= is_lost;
                server.records[number].deleted_by_us |= deletes;
            }
            committed
        };
        yield_or_sleep(random);
        let Some((uid, version)) = committed.filter(|_| !is_lost) else { return drop(writing) };
        if deletes {
            writing.deleted(Some(&uid.to_string()));
        } else {
            writing.wrote(config_map(number, (uid, version)));
        }
        let known = self.known(number);
        let is_newer = if deletes {
            known.is_none_or(|known| known > version)
        } else {
            known.map_or_else(|| self.server().records[number].deleted_at > version, |known| known >= version)
        };
        assert!(is_newer, "{known:?} is known of {number} after a write of {version}; it was a deletion: {deletes}");
    }

    /// A change by somebody else.
    fn interfere(&self, random: &mut SmallRng) {
        let number = random.random_range(0..KEYS);
        let mut server = self.server();
        let deletes = random.random_range(0..4) == 0;
        let committed = if deletes { server.delete(number, None) } else { Some(server.apply(number)) };
        server.records[number].by_others |= committed.is_some();
    }

    /// Shows what is committed, later and in its order, until all of it is shown.
    fn watch(&self, random: &mut SmallRng) {
        let mut shown = 0;
        loop {
            let is_over = self.is_over.load(Ordering::SeqCst);
            let next = self.server().log.get(shown).copied();
            match next {
                Some((number, object, is_gone)) => {
                    let object = Guarded(Ok(config_map(number, object)));
                    self.store.see(if is_gone {
                        Seen::Deleted(object)
                    } else {
                        Seen::Applied { object, listed: false }
                    });
                    shown += 1;
                }
                None if is_over => return,
                None => thread::yield_now(),
            }
            yield_or_sleep(random);
        }
    }

    /// Looks all the time.
    fn read(&self) {
        let mut latest = [0; KEYS];
        while !self.is_over.load(Ordering::SeqCst) {
            for (number, latest) in latest.iter_mut().enumerate() {
                let Some(known) = self.known(number) else { continue };
                assert!(known >= *latest, "what is known of {number} went back from {latest} to {known}");
                *latest = known;
            }
        }
    }

    fn burst(&self, random: impl Fn(u64) -> SmallRng) {
        self.is_over.store(false, Ordering::SeqCst);
        let several = |mut random: SmallRng, act: fn(&Self, &mut SmallRng)| {
            for _ in 0..random.random_range(0..3) {
                act(self, &mut random);
                yield_or_sleep(&mut random);
            }
        };
        thread::scope(|scope| {
            let ours = (0..WRITERS).map(|number| (number, Self::write as fn(&Self, &mut SmallRng)));
            let others = (0..OTHERS).map(|number| (WRITERS + number, Self::interfere as _));
            let several = &several;
            let acting: Vec<_> = ours
                .chain(others)
                .map(|(number, act)| (random(number), act))
                .map(|(random, act)| scope.spawn(move || several(random, act)))
                .collect();
            let mut of_the_watch = random(WRITERS + OTHERS);
            scope.spawn(move || self.watch(&mut of_the_watch));
            scope.spawn(|| self.read());
            // Also when one of them panics the others are to end.
            let ended: Vec<_> = acting.into_iter().map(thread::ScopedJoinHandle::join).collect();
            self.is_over.store(true, Ordering::SeqCst);
            for ended in ended {
                ended.unwrap();
            }
        });
    }

    fn is_at_rest(&self, seed: u64) {
        let mut server = self.server();
        for (number, record) in server.records.iter_mut().enumerate() {
            let known = self.known(number);
            assert_eq!(known, record.object.map(|(_, version)| version), "seed {seed}: of {number} this is known");
            let told = self.told[number].swap(0, Ordering::SeqCst);
            if !record.deleted_by_us {
                let by_others = record.by_others;
                assert_eq!(told > 0, by_others, "seed {seed}: {number} was told {told} times; by others: {by_others}");
            }
            (record.by_others, record.deleted_by_us) = (false, false);
        }
        server.log.clear();
    }
}

fn run(seed: u64) {
    let world = World::new();
    for burst in 0..BURSTS {
        world.burst(|number| SmallRng::seed_from_u64((seed * BURSTS + burst) * 100 + number));
        world.is_at_rest(seed);
    }
}

#[test]
fn nothing_goes_back_and_nothing_of_others_is_lost_between_threads() {
    (0..6).for_each(run);
}
