//! The operator, killed at every write to openZro and misled about every one of them (F01, F02; I12, I13): in the end there is exactly one item for
//! each object, none is left after the deletion, and nothing that people made has changed.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use konverge_testkit_stores::{Fault, Seen};
use tokio::time::{Instant, sleep};

use crate::{
    lives::{Items, Life, Routing, Served, by_hand, of_people},
    stage::{LIMIT, Stage},
};

/// How a write goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The operator is killed before the server gets the write.
    KilledBefore,
    /// The operator is killed after the write has taken effect, and before its answer arrives.
    KilledAfter,
    /// The write takes effect, and its answer is lost.
    AnswerLost,
    /// The write takes effect, and its answer ends in the middle.
    AnswerCut,
    /// The server says that it has failed. The write has no effect.
    Refused,
    /// The server asks to come back later.
    Limited,
    /// A proxy on the way says that there is no such page.
    Misrouted,
    /// The token is refused for a moment.
    Unauthenticated,
    /// The server is about to stop. The write has no effect.
    Unavailable,
    /// The answer of a write that deletes nothing is `null`. The write has no effect.
    Null,
}

impl Trouble {
    const ALL: [Self; 10] = [
        Self::KilledBefore,
        Self::KilledAfter,
        Self::AnswerLost,
        Self::AnswerCut,
        Self::Refused,
        Self::Limited,
        Self::Misrouted,
        Self::Unauthenticated,
        Self::Unavailable,
        Self::Null,
    ];

    /// The fault of a write. A deletion for which the server answers 200 is done.
    pub(crate) fn fault(self, seen: &Seen) -> Option<Fault> {
        let json = |status, body: &str| {
            let headers = vec![("content-type", "application/json".to_owned())];
            Some(Fault::Answer { status, headers, body: body.to_owned() })
        };
        match self {
            Self::KilledBefore => Some(Fault::Hang),
            Self::KilledAfter => Some(Fault::HoldReply),
            Self::AnswerLost => Some(Fault::DropReply),
            Self::AnswerCut => Some(Fault::Truncate(3)),
            Self::Refused => json(500, r#"{"message":"internal server error","code":500}"#),
            Self::Limited => Some(Fault::too_many_requests(1)),
            Self::Misrouted => Some(Fault::html_404()),
            Self::Unauthenticated => json(401, r#"{"message":"token invalid","code":401}"#),
            Self::Unavailable => json(503, r#"{"message":"shutting down","code":503}"#),
            Self::Null if seen.method == "DELETE" => None,
            Self::Null => json(200, "null"),
        }
    }

    fn kills(self) -> bool {
        matches!(self, Self::KilledBefore | Self::KilledAfter)
    }
}

/// Which writes go wrong.
#[derive(Clone, Copy, Debug)]
enum When {
    /// None.
    Never,
    /// The write with this number, from 1.
    At(usize),
    /// Each write when it comes for the first time, by its method and path.
    First,
}

/// The writes of a run, and those that are in trouble.
#[derive(Default)]
struct Writes {
    count: AtomicUsize,
    known: Mutex<BTreeSet<String>>,
    /// The requests of the writes that hang until the operator is killed.
    held: Mutex<Vec<usize>>,
    troubled: AtomicUsize,
}

impl Writes {
    fn decide(&self, seen: &Seen, trouble: Trouble, when: When) -> Option<Fault> {
        if seen.method == "GET" {
            return None;
        }
        let number = self.count.fetch_add(1, Ordering::SeqCst) + 1;
        let is_new = self.known.lock().unwrap().insert(format!("{} {}", seen.method, seen.path));
        let is_hit = match when {
            When::Never => false,
            When::At(nth) => nth == number,
            When::First => is_new,
        };
        if !is_hit {
            return None;
        }
        let fault = trouble.fault(seen)?;
        self.troubled.fetch_add(1, Ordering::SeqCst);
        if trouble.kills() {
            self.held.lock().unwrap().push(seen.number);
        }
        Some(fault)
    }
}

/// Lives once. Returns how many writes there were and how many of them had trouble, or what is wrong in the end.
async fn live(stage: &Stage, life: impl Life, trouble: Trouble, when: When) -> Result<(usize, usize), String> {
    let world = stage.world().await;
    by_hand(&world).await;
    let before = of_people(&world).await;
    let writes = Arc::new(Writes::default());
    let decides = Arc::clone(&writes);
    world.front.plan(move |seen| decides.decide(seen, trouble, when));
    let mut operator = stage.start(&world);
    let steps = steps(life, &world, || {
        let held: Vec<_> = writes.held.lock().unwrap().drain(..).collect();
        let has_arrived = |number: &usize| {
            trouble == Trouble::KilledBefore
                || world.front.journal().get(*number).is_some_and(|seen| seen.status.is_some())
        };
        let (due, early): (Vec<_>, Vec<_>) = held.into_iter().partition(has_arrived);
        writes.held.lock().unwrap().extend(early);
        if !due.is_empty() {
            operator.kill();
            operator.start_again().unwrap();
        }
    })
    .await;
    let calls = || {
        let journal = world.front.journal();
        let writes = journal.iter().filter(|seen| seen.method != "GET");
        writes.map(|seen| format!("{} {} {:?}", seen.method, seen.path, seen.status)).collect::<Vec<_>>().join("\n")
    };
    operator.kill();
    let case = format!("{trouble:?} {when:?}");
    steps.map_err(|why| format!("{case}: {why}\n{}\n{}", calls(), tail(&operator.logged())))?;
    let after = of_people(&world).await;
    if after != before {
        return Err(format!("{case}: what people made has changed: {before:#?} {after:#?}\n{}", calls()));
    }
    Ok((writes.count.load(Ordering::SeqCst), writes.troubled.load(Ordering::SeqCst)))
}

fn tail(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

/// Takes each step when the one before is done. `meanwhile` kills the operator where that is due.
async fn steps<L: Life>(life: L, world: &crate::stage::World, mut meanwhile: impl FnMut()) -> Result<(), String> {
    for step in 0..L::STEPS {
        life.change(world, step).await;
        let deadline = Instant::now() + LIMIT;
        while !life.is_converged(world, step).await {
            meanwhile();
            if Instant::now() >= deadline {
                return Err(format!("step {step} is not done within {LIMIT:?}"));
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn each_write_to_openzro_survives_each_trouble() {
    let stage = Stage::set().await;
    let (writes, _) = live(&stage, Items, Trouble::Refused, When::Never).await.unwrap();
    // Two groups, a key and a policy made; a group and a policy edited and a second policy made; one withdrawn; four deleted.
    assert_eq!(writes, 4 + 3 + 1 + 4);
    for nth in 1..=writes {
        // A kill before a write leaves the same state as a kill after the one before it.
        for trouble in [Trouble::KilledAfter, Trouble::AnswerLost, Trouble::Refused] {
            // A failed run leaves items that would disturb the next, so the first failure ends the test.
            let (_, troubled) = live(&stage, Items, trouble, When::At(nth)).await.unwrap_or_else(|why| panic!("{why}"));
            assert_eq!(troubled, 1, "{trouble:?} at {nth}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_write_may_go_wrong_when_it_comes_for_the_first_time() {
    let stage = Stage::set().await;
    for trouble in Trouble::ALL {
        let items = live(&stage, Items, trouble, When::First).await.unwrap_or_else(|why| panic!("{why}"));
        let routing = live(&stage, Routing, trouble, When::First).await.unwrap_or_else(|why| panic!("{why}"));
        for (_, troubled) in [items, routing] {
            // Without the deletions, there are five paths.
            let least = if trouble == Trouble::Null { 5 } else { 10 };
            assert!(troubled >= least, "{trouble:?}: {troubled}");
        }
    }
}

/// Neither records nor routers have a mark: a record is known by its content, and a router by its group. These are the troubles in which that
/// matters, or in which nothing was made.
#[tokio::test(flavor = "multi_thread")]
async fn every_write_for_a_service_may_go_wrong_when_it_comes_for_the_first_time() {
    let stage = Stage::set().await;
    for trouble in [Trouble::KilledAfter, Trouble::AnswerLost, Trouble::AnswerCut, Trouble::Refused, Trouble::Null] {
        let (_, troubled) = live(&stage, Served, trouble, When::First).await.unwrap_or_else(|why| panic!("{why}"));
        // A network, a group, a key, a router, a resource and a record are made, the resource is edited, and all of them are deleted.
        let least = if trouble == Trouble::Null { 6 } else { 12 };
        assert!(troubled >= least, "{trouble:?}: {troubled}");
    }
}
