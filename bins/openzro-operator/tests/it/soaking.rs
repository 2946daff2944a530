//! Random plans for a long time (F37): objects come, change and go, people edit and delete items, one request in six goes wrong, and the operator is
//! killed and restarted. After each round there is exactly what is declared, and nothing of other people has changed.
//!
//! The operator runs without an end in the second half, so that its memory and its latency can be compared. `KONVERGE_SOAK_SECONDS` sets the length, such as
//! 86400 for a day, and `KONVERGE_SOAK_SEED` repeats a plan.

use std::{
    collections::BTreeMap,
    env,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use konverge_openzro::Collection;
use konverge_testkit::{Process, eventually};
use konverge_testkit_stores::{Fault, Seen};
use kube::{
    ResourceExt,
    api::ListParams,
    core::{ApiResource, DynamicObject},
};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::{
    crashing::Trouble,
    lives::{by_hand, of_people},
    stage::{LIMIT, Stage, World, resource},
};

/// A run in the usual tests.
const SHORT: u64 = 45;
/// A run that proves that figures stay flat.
const LONG: u64 = 3600;
/// Rounds of a half, at least.
const LEAST: usize = 3;
/// Changes of a round.
const STEPS: usize = 20;
/// Objects of a kind at the same time.
const SLOTS: u64 = 8;
/// Edits after a round whose time is taken.
const EDITS: usize = 5;
/// Faults end with a round, and pauses after them last up to two minutes.
const SETTLED: Duration = Duration::from_mins(5);

/// The faults of requests, while the weather is bad.
struct Weather {
    is_bad: AtomicBool,
    random: Mutex<SmallRng>,
}

impl Weather {
    fn fault(&self, seen: &Seen) -> Option<Fault> {
        let mut random = self.random.lock().unwrap();
        if !self.is_bad.load(Ordering::SeqCst) || !random.random_ratio(1, 6) {
            return None;
        }
        let of_any = [
            Trouble::AnswerLost,
            Trouble::AnswerCut,
            Trouble::Refused,
            Trouble::Limited,
            Trouble::Misrouted,
            Trouble::Unauthenticated,
            Trouble::Unavailable,
        ];
        // A list that is `null` is an empty one: a server that lies about all it has.
        let of_writes = [Trouble::Null];
        let troubles: Vec<_> = of_any.iter().chain(of_writes.iter().filter(|_| seen.method != "GET")).collect();
        troubles[random.random_range(0..troubles.len())].fault(seen)
    }
}

/// The two kinds of the plan. A group has no mark, and a policy has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Group,
    Policy,
}

impl Kind {
    const ALL: [Self; 2] = [Self::Group, Self::Policy];

    fn resource(self) -> ApiResource {
        match self {
            Self::Group => resource("v1alpha1", "Group"),
            Self::Policy => resource("v1", "OZPolicy"),
        }
    }

    fn collection(self) -> Collection {
        match self {
            Self::Group => Collection::Groups,
            Self::Policy => Collection::Policies,
        }
    }

    /// The spec with this content: the name of a group, the port of a policy.
    fn spec(self, object: &str, content: u64) -> Value {
        match self {
            Self::Group => json!({ "name": format!("soak {content}") }),
            Self::Policy => json!({ "name": object, "sourceGroups": ["theirs"], "destinationGroups": ["theirs"],
                "protocols": ["tcp"], "ports": [content] }),
        }
    }

    /// The item with this content, as [`shown`](Self::shown) says it.
    fn item(self, object: &str, content: u64) -> String {
        match self {
            Self::Group => format!("soak {content}"),
            Self::Policy => format!("{object} TCP {}", json!([content.to_string()])),
        }
    }

    fn shown(self, item: &Value) -> String {
        let name = item["name"].as_str().unwrap_or_default();
        match self {
            Self::Group => name.to_owned(),
            Self::Policy => format!("{name} {}", item["rules"][0]["ports"]),
        }
    }
}

/// The declared state: the object and the content of each slot that is taken.
struct Plan<'a> {
    world: &'a World,
    random: SmallRng,
    declared: BTreeMap<(Kind, u64), (String, u64)>,
    count: u64,
}

impl Plan<'_> {
    /// A number that was never used before. It is a port, too.
    fn fresh(&mut self) -> u64 {
        self.count += 1;
        self.count % 65_000 + 1
    }

    /// Creates, edits or deletes an object.
    async fn change(&mut self) {
        let kind = Kind::ALL[usize::from(self.random.random_ratio(1, 3))];
        let (slot, content) = ((kind, self.random.random_range(0..SLOTS)), self.fresh());
        let resource = kind.resource();
        match self.declared.get(&slot).map(|(object, _)| object.clone()) {
            None => {
                // An object of its own each time, because the former one may still be on its way out.
                let object = format!("{}-{}", self.world.namespace, self.count);
                self.world.create(&resource, &object, kind.spec(&object, content)).await;
                self.declared.insert(slot, (object, content));
            }
            Some(object) if self.random.random_ratio(1, 4) => {
                self.world.delete(&resource, &object).await;
                self.declared.remove(&slot);
            }
            Some(object) => {
                self.world.edit(&resource, &object, kind.spec(&object, content)).await;
                self.declared.insert(slot, (object, content));
            }
        }
    }

    /// A person renames a group, or deletes an item, of an object that is settled.
    async fn meddle(&mut self) {
        let Some((&(kind, _), (object, content))) = self.declared.iter().nth(self.declared.len() / 2) else { return };
        let (expected, dashboard) = (kind.item(object, *content), &self.world.dashboard);
        let items = self.world.items(&kind.collection()).await;
        let item = items.iter().find(|item| kind.shown(item) == expected).unwrap();
        let place = kind.collection().place(item["id"].as_str().unwrap());
        if kind == Kind::Group && self.random.random_ratio(1, 2) {
            let name = format!("meddled {}", self.count);
            dashboard.modify(&place, |body| drop(body.insert("name".to_owned(), name.into()))).await.unwrap();
        } else {
            dashboard.delete(&place).await.unwrap();
        }
    }

    /// Returns how the objects and the server differ from what is declared, if they do.
    async fn differs(&self) -> Option<String> {
        for kind in Kind::ALL {
            let declared =
                || self.declared.iter().filter(move |((of, _), _)| *of == kind).map(|(_, declared)| declared);
            let objects = self.world.api(&kind.resource()).list(&ListParams::default()).await.unwrap().items;
            let mut known: Vec<_> = objects.iter().map(|object| (object.name_any(), is_ready(object))).collect();
            known.sort();
            let mut expected: Vec<_> = declared().map(|(object, _)| (object.clone(), true)).collect();
            expected.sort();
            if known != expected {
                return Some(format!("{kind:?}: objects and whether they are ready: {known:?}, not {expected:?}"));
            }
            let items = self.world.items(&kind.collection()).await;
            let of_others = ["theirs", "All"];
            let ours = items.iter().filter(|item| !of_others.contains(&item["name"].as_str().unwrap_or_default()));
            let mut found: Vec<_> = ours.map(|item| kind.shown(item)).collect();
            found.sort();
            let mut expected: Vec<_> = declared().map(|(object, content)| kind.item(object, *content)).collect();
            expected.sort();
            if found != expected {
                return Some(format!("{kind:?}: on the server: {found:?}, not {expected:?}"));
            }
        }
        None
    }

    /// Takes the times of some edits, from the answer of the API server until the server has answered the write.
    async fn edits(&mut self) -> Vec<Duration> {
        let Some((&slot, (object, _))) = self.declared.iter().next() else { return Vec::new() };
        let (object, mut times) = (object.clone(), Vec::new());
        for _ in 0..EDITS {
            let (from, content) = (self.world.front.count(), self.fresh());
            self.world.edit(&slot.0.resource(), &object, slot.0.spec(&object, content)).await;
            self.declared.insert(slot, (object.clone(), content));
            let edited = Instant::now();
            let written = async || {
                let calls = self.world.front.since(from);
                calls.iter().find(|seen| seen.method == "PUT").and_then(|seen| seen.answered)
            };
            let written = eventually(LIMIT, written).await.unwrap_or_else(|_| panic!("{object} is not written"));
            times.push(written.saturating_duration_since(edited));
            sleep(Duration::from_millis(100)).await;
        }
        times
    }
}

/// Whether the object is as its current spec says.
fn is_ready(object: &DynamicObject) -> bool {
    let conditions = object.data["status"]["conditions"].as_array();
    conditions.into_iter().flatten().any(|known| {
        let is_current = known["observedGeneration"].as_i64() == object.metadata.generation;
        is_current && known["type"] == "Ready" && known["status"] == "True"
    })
}

/// The figures of rounds that can be compared.
#[derive(Default)]
struct Figures {
    resident: Vec<f64>,
    times: Vec<Vec<Duration>>,
}

impl Figures {
    async fn take(&mut self, plan: &mut Plan<'_>, operator: &Process) {
        self.times.push(plan.edits().await);
        self.resident.push(operator.resident().unwrap());
    }

    /// The resident set at the end by that at the beginning.
    fn growth(&self) -> f64 {
        self.resident[self.resident.len() - 1] / self.resident[1]
    }

    /// The median of the last rounds by that of the first ones.
    fn slowdown(&self) -> f64 {
        let median = |rounds: &[Vec<Duration>]| {
            let mut times: Vec<_> = rounds.iter().flatten().collect();
            times.sort();
            times[times.len() / 2].as_secs_f64()
        };
        let (first, last) = self.times.split_at(self.times.len() / 2);
        median(last) / median(first)
    }
}

fn setting(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap())
}

/// Waits until all is as declared, and shows what is not.
async fn settled(plan: &Plan<'_>, operator: &Process, round: usize) {
    let deadline = Instant::now() + SETTLED;
    while let Some(difference) = plan.differs().await {
        if Instant::now() >= deadline {
            let journal = plan.world.front.journal();
            let calls = journal.iter().rev().take(40);
            let calls: Vec<_> = calls.map(|seen| format!("{} {} {:?}", seen.method, seen.path, seen.status)).collect();
            panic!("round {round} does not end: {difference}\n{calls:#?}\n{}", operator.logged());
        }
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn f37_random_plans_under_faults_end_as_declared_and_figures_stay_flat() {
    let seconds = setting("KONVERGE_SOAK_SECONDS").unwrap_or(SHORT);
    let seed = setting("KONVERGE_SOAK_SEED").unwrap_or(37);
    let stage = Stage::set().await;
    let world = stage.world().await;
    by_hand(&world).await;
    let before = of_people(&world).await;
    let weather =
        Arc::new(Weather { is_bad: AtomicBool::new(false), random: Mutex::new(SmallRng::seed_from_u64(!seed)) });
    let decides = Arc::clone(&weather);
    world.front.plan(move |seen| decides.fault(seen));
    let mut operator = stage.start(&world);
    let mut plan = Plan { world: &world, random: SmallRng::seed_from_u64(seed), declared: BTreeMap::new(), count: 0 };
    let (mut figures, mut round) = (Figures::default(), 0);
    let begun = Instant::now();
    let half = Duration::from_secs(seconds) / 2;
    while begun.elapsed() < 2 * half || figures.resident.len() < LEAST {
        let is_first_half = begun.elapsed() < half || round < LEAST;
        plan.meddle().await;
        weather.is_bad.store(true, Ordering::SeqCst);
        for _ in 0..STEPS {
            plan.change().await;
            sleep(Duration::from_millis(plan.random.random_range(0..60))).await;
            if is_first_half && plan.random.random_ratio(1, 20) {
                if plan.random.random_ratio(1, 2) {
                    operator.kill();
                } else {
                    operator.terminate(LIMIT).await.unwrap();
                }
                operator.start_again().unwrap();
            }
        }
        weather.is_bad.store(false, Ordering::SeqCst);
        settled(&plan, &operator, round).await;
        assert_eq!(of_people(&world).await, before, "what people made has changed in round {round} of seed {seed}");
        if !is_first_half {
            figures.take(&mut plan, &operator).await;
            settled(&plan, &operator, round).await;
        }
        round += 1;
    }
    weather.is_bad.store(true, Ordering::SeqCst);
    let from = world.front.count();
    for ((kind, _), (object, _)) in std::mem::take(&mut plan.declared) {
        world.delete(&kind.resource(), &object).await;
    }
    // One request is enough: after a failure, the operator pauses.
    let is_tried = async || (world.front.count() > from).then_some(());
    assert!(eventually(SETTLED, is_tried).await.is_ok(), "the operator does nothing about the deletions");
    weather.is_bad.store(false, Ordering::SeqCst);
    settled(&plan, &operator, round).await;
    assert_eq!(of_people(&world).await, before);
    let (growth, slowdown, changes) = (figures.growth(), figures.slowdown(), plan.count);
    // The API server deletes an object now and then just as it gets its finalizer.
    let escaped = operator.logged().matches("deleted the object past its finalizer").count();
    eprintln!(
        "{changes} changes in {round} rounds of seed {seed}, {escaped} objects past their finalizer: memory x {growth:.2}, \
         latency x {slowdown:.2}"
    );
    // Other tests share the machine with a short run.
    let (most_growth, most_slowdown) = if seconds < LONG { (1.3, 10.0) } else { (1.1, 1.1) };
    assert!(growth <= most_growth, "{:?}", figures.resident);
    assert!(slowdown <= most_slowdown, "{:?}", figures.times);
}
