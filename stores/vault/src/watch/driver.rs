//! The task that asks.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures::{StreamExt, future::OptionFuture, stream::FuturesUnordered};
use konverge_core::{
    digest::DigestKey,
    error::{Classify, ErrorClass},
};
use tokio::time::{Instant, sleep_until};

use super::{
    Shared, folder,
    key::Seen,
    poll::{PollMethod, poll},
    schedule::Job,
};
use crate::{client::Vault, error::VaultError, mount::Location};

/// The result of a job.
enum Answers {
    One(Location, PollMethod, Result<Seen, VaultError>),
    Folder(Vec<Location>, Result<Option<BTreeMap<Location, Seen>>, VaultError>),
}

pub(super) async fn run(vault: Vault, key: Arc<DigestKey>, shared: Arc<Shared>) {
    // A job that waits here has no deadline yet. It gets one when it waits for the client's limits.
    let places = vault.limits().concurrency.get();
    let mut running = FuturesUnordered::new();
    loop {
        while running.len() < places {
            let job = shared.schedule().take(Instant::now());
            let Some(job) = job else { break };
            running.push(ask(&vault, &key, &shared, job));
        }
        let next = if running.len() < places { shared.schedule().next_due() } else { None };
        tokio::select! {
            Some(answers) = running.next() => note(&shared, answers),
            Some(()) = OptionFuture::from(next.map(sleep_until)) => {}
            () = shared.wake.notified() => {}
        }
    }
}

async fn ask(vault: &Vault, key: &DigestKey, shared: &Shared, job: Job) -> Answers {
    let count = || {
        shared.questions.fetch_add(1, Ordering::Relaxed);
    };
    match job {
        Job::One(location, method) => {
            let (method, outcome) = poll(vault, &location, method, key, count).await;
            Answers::One(location, method, outcome)
        }
        Job::Folder(locations) => {
            count();
            let outcome = folder::list(vault, &locations).await;
            Answers::Folder(locations, outcome)
        }
    }
}

fn note(shared: &Shared, answers: Answers) {
    let now = Instant::now();
    let mut schedule = shared.schedule();
    match answers {
        Answers::One(location, method, outcome) => {
            let pause = outcome.as_ref().err().and_then(pause);
            schedule.done(&location, method, outcome, pause, now, rand::random());
        }
        Answers::Folder(locations, Ok(Some(mut seen))) => {
            let (told, left_out): (Vec<_>, Vec<_>) =
                locations.into_iter().partition(|location| seen.contains_key(location));
            for location in told {
                if let Some(seen) = seen.remove(&location) {
                    schedule.done(&location, PollMethod::Metadata, Ok(seen), None, now, rand::random());
                }
            }
            schedule.ask_alone(&left_out, now);
        }
        Answers::Folder(locations, Ok(None)) => schedule.no_folders(&locations, now),
        // Each of them tells its own error.
        Answers::Folder(locations, Err(_)) => schedule.ask_alone(&locations, now),
    }
}

/// How long the server wants to be left alone.
fn pause(error: &VaultError) -> Option<Duration> {
    match error.class() {
        ErrorClass::After(pause) if error.is_outage() => Some(pause),
        _ => None,
    }
}
