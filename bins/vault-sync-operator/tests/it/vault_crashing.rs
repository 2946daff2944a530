//! The operator, crashed at every write to Vault, and told nothing of the success of every one (F01, F02; I12, I13).

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures::{FutureExt, StreamExt, stream};
use konverge_testkit::{Process, eventually};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::{
    forms::Forms,
    front::{self, FrontAction, FrontRequest},
    inheriting::Inheriting,
    life::Plain,
    lives::Life,
    pushes::Pushes,
    stage::{Result, Stage, View, until},
};

/// The time limit of every wait.
const LIMIT: Duration = Duration::from_mins(1);

/// So often a life is lived that has fewer writes than its fault waits for.
const ATTEMPTS: usize = 3;

/// The fault of a write.
#[derive(Debug, Clone, Copy)]
enum Fault {
    KillBefore,
    KillAfter,
    ReplyLost,
}

/// How a life ended, and how many writes to Vault it took.
struct Ended {
    state: Value,
    writes: usize,
    befallen: bool,
}

async fn live<L: Life>(stage: &'static Stage, life: L, fault: Option<(Fault, usize)>) -> Result<Ended> {
    let namespace = stage.plane.namespace("vault-crash").await?;
    let view = stage.view(&namespace).await;
    let (writes, befallen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(fault.is_none())));
    let process = Arc::new(Mutex::new(None::<Process>));
    let (counted, reached, killed) = (Arc::clone(&writes), Arc::clone(&befallen), Arc::clone(&process));
    let kill = move || {
        if let Some(process) = &mut *killed.lock().unwrap() {
            process.kill();
            process.start_again().unwrap();
        }
    };
    let decide = move |asked: FrontRequest| {
        let number = if asked.is_write() { counted.fetch_add(1, Ordering::SeqCst) + 1 } else { 0 };
        let fault = fault.filter(|(_, nth)| *nth == number).map(|(fault, _)| fault);
        reached.fetch_or(fault.is_some(), Ordering::SeqCst);
        let action = match fault {
            None => FrontAction::Passes,
            Some(Fault::KillBefore) => {
                kill();
                FrontAction::Vanishes
            }
            Some(Fault::KillAfter) => FrontAction::AnswerVanishes(Box::new(kill.clone())),
            Some(Fault::ReplyLost) => FrontAction::AnswerVanishes(Box::new(|| ())),
        };
        std::future::ready(action).boxed()
    };
    let vault = front::serve(&stage.server, Box::new(decide)).await?;
    // The list of orphans is its own.
    let own = if L::FLAGS.is_empty() { None } else { Some(stage.another(|manifest| manifest).await.1) };
    let (spec, ..) = stage.operator(own.as_deref().unwrap_or(stage.kubeconfig()), &namespace, &vault);
    let spec = spec.args(L::FLAGS);
    *process.lock().unwrap() = Some(Process::start(stage.plane.run_directory(), spec)?);
    let outcome = steps(life, &view).await;
    drop(process.lock().unwrap().take());
    outcome?;
    let left = life.left(&stage.server, &view).await?;
    Ok(Ended { state: left, writes: writes.load(Ordering::SeqCst), befallen: befallen.load(Ordering::SeqCst) })
}

/// Lives with a fault, and again as long as it does not come to it.
async fn befallen(stage: &'static Stage, life: impl Life, point: (Fault, usize)) -> Result<Ended> {
    let mut attempt = 1;
    loop {
        let ended = live(stage, life, Some(point)).await?;
        if ended.befallen || attempt == ATTEMPTS {
            return Ok(ended);
        }
        attempt += 1;
    }
}

/// Takes each step when the one before is done.
async fn steps<L: Life>(life: L, view: &View) -> Result<()> {
    for step in 0..L::STEPS {
        life.change(view, step).await?;
        let deadline = Instant::now() + LIMIT;
        while !life.is_converged(view, step).await? {
            if Instant::now() >= deadline {
                return Err(format!("step {step} is not done within {LIMIT:?}").into());
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(())
}

/// Lives once without faults and then once for each fault at each write to Vault, and compares how it ends. `writes` is how many there are.
async fn survives<L: Life>(life: L, faults: &[Fault], writes: usize) {
    let stage = Stage::shared().await;
    let reference = live(stage, life, None).await.unwrap();
    assert_eq!(reference.writes, writes, "{}", reference.state);
    let points = (1..=reference.writes).flat_map(|nth| faults.iter().map(move |fault| (*fault, nth)));
    let runs = stream::iter(points).map(async |point| (point, befallen(stage, life, point).await));
    let ended: Vec<_> = runs.buffer_unordered(L::AT_ONCE).collect().await;
    let mut wrong = Vec::new();
    for (point, ended) in ended {
        match ended {
            Ok(ended) if ended.befallen && ended.state == reference.state => {}
            Ok(ended) => wrong.push(format!("{point:?}: befallen {}, {}", ended.befallen, ended.state)),
            Err(error) => wrong.push(format!("{point:?}: {error}")),
        }
    }
    assert!(wrong.is_empty(), "as it should be: {}\n{}", reference.state, wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn it_survives_a_crash_at_every_write_to_vault() {
    // Two paths written, marked and written again; one moved to; three deleted and unmarked.
    survives(Plain, &[Fault::KillBefore, Fault::KillAfter, Fault::ReplyLost], 4 + 2 + 2 + 6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_survives_it_in_every_form_that_a_push_can_have() {
    // Four paths written and written again, three of them marked; one deleted on version 1, one destroyed and unmarked, one gone with its
    // metadata, and one kept and unmarked. A kill before a write leaves the same state as a kill after the previous write.
    survives(Forms, &[Fault::KillAfter, Fault::ReplyLost], 8 + 3 + 1 + 2 + 1 + 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_survives_it_with_vault_pushes_by_label_and_into_a_shared_path() {
    // Three paths written and marked; two of them written again; one deleted and unmarked when its Secret lost the label, one with its
    // object; and one unmarked and written without the key that was ours.
    survives(Pushes, &[Fault::KillBefore, Fault::KillAfter, Fault::ReplyLost], 3 * 2 + 2 + 2 + 2 + 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_survives_it_while_content_waits_for_its_deletion_and_is_handed_over() {
    // Three paths written and marked; one handed over by its mark, and created in vain by its heir; three deleted and unmarked.
    survives(Inheriting, &[Fault::KillAfter, Fault::ReplyLost], 3 * 2 + 2 + 3 * 2).await;
}

/// The content is deleted and loses its mark in two requests.
#[tokio::test(flavor = "multi_thread")]
async fn lost_replies_while_an_orphan_is_cleared_cost_seconds() {
    let stage = Stage::shared().await;
    let namespace = stage.plane.namespace("reply-lost").await.unwrap();
    let view = stage.view(&namespace).await;
    let left_to_lose = Arc::new(AtomicUsize::new(0));
    let left = Arc::clone(&left_to_lose);
    let decide = move |asked: FrontRequest| {
        let take = |left: usize| if asked.is_write() { left.checked_sub(1) } else { None };
        let is_lost = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok();
        let action = if is_lost { FrontAction::AnswerVanishes(Box::new(|| ())) } else { FrontAction::Passes };
        std::future::ready(action).boxed()
    };
    let vault = front::serve(&stage.server, Box::new(decide)).await.unwrap();
    let kubeconfig = stage.another(|manifest| manifest).await.1;
    let (spec, ..) = stage.operator(&kubeconfig, &namespace, &vault);
    let _process = Process::start(stage.plane.run_directory(), spec.arg("-deletion-grace=1s")).unwrap();
    let path = view.path("db");
    view.secret("db", &[("n", "1")], Some(&path)).await.unwrap();
    until("it is in sync", async || view.is_synced("Secret", "db", &[&path]).await).await;

    left_to_lose.store(2, Ordering::SeqCst);
    view.delete("Secret", "db").await.unwrap();
    let is_cleared = async || {
        let (held, (_, is_marked)) = (view.read(&path).await.unwrap(), view.versions(&path).await.unwrap());
        (held.is_none() && !is_marked).then_some(())
    };
    eventually(Duration::from_secs(40), is_cleared).await.unwrap();
    assert_eq!(left_to_lose.load(Ordering::SeqCst), 0);
}
