//! The subscribers, and the time at which each location is read. Pure: the time and chance are handed in.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use konverge_core::{backoff::Backoff, error::in_one_line, outage::PROBES};
use tokio::{sync::watch, time::Instant};

use super::{Known, Seen, poll::PollMethod};
use crate::{
    error::VaultError,
    mount::{KvVersion, Location, Mount},
};

/// After questions without an answer that concern one location.
const PAUSES: Backoff = Backoff { base: Duration::from_secs(5), factor: 2.0, cap: Duration::from_mins(5) };

/// An interval is drawn from this much less to this much more, so that locations that were asked for together come apart.
const SPREAD: f64 = 0.1;

/// That something is gone is asked again this soon before it is told.
const CONFIRM: Duration = Duration::from_secs(1);

/// From so many locations in a folder on, listing it is cheaper than asking for each.
const FOLDER_WORTH: usize = 4;

/// A server that cannot list folders with their metadata may be replaced by one that can.
const FOLDERS_AGAIN: Duration = Duration::from_hours(1);

/// A thing to ask.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Job {
    One(Location, PollMethod),
    /// All of these are in one folder.
    Folder(Vec<Location>),
}

struct Entry {
    interests: BTreeMap<u64, Duration>,
    known: watch::Sender<Known>,
    /// When it is asked for; nothing while it is being asked for.
    due: Option<Instant>,
    failures: u32,
    absences: u32,
    method: PollMethod,
    /// Its folder's listing left it out, so that it is asked for by itself next time.
    alone: bool,
}

/// All locations that somebody wants.
#[derive(Default)]
pub(super) struct Schedule {
    entries: BTreeMap<Location, Entry>,
    queue: BTreeSet<(Instant, Location)>,
    /// Engines that cannot list folders, until when that is believed.
    without_folders: BTreeMap<Mount, Instant>,
}

impl Schedule {
    pub(super) fn add(
        &mut self,
        location: &Location,
        id: u64,
        every: Duration,
        now: Instant,
    ) -> watch::Receiver<Known> {
        let entry = self.entries.entry(location.clone()).or_insert_with(|| Entry {
            interests: BTreeMap::new(),
            known: watch::channel(Known::default()).0,
            due: Some(now),
            failures: 0,
            absences: 0,
            method: PollMethod::default(),
            alone: false,
        });
        entry.interests.insert(id, every);
        // Somebody who wants it more often does not wait for the end of a longer interval.
        if let Some(due) = entry.due {
            let sooner = due.min(now + every);
            self.queue.remove(&(due, location.clone()));
            self.queue.insert((sooner, location.clone()));
            entry.due = Some(sooner);
        }
        let mut receiver = entry.known.subscribe();
        // A later subscriber receives the known state at once.
        if entry.known.borrow().seen.is_some() {
            receiver.mark_changed();
        }
        receiver
    }

    pub(super) fn remove(&mut self, location: &Location, id: u64) {
        let Some(entry) = self.entries.get_mut(location) else { return };
        entry.interests.remove(&id);
        if entry.interests.is_empty()
            && let Some(entry) = self.entries.remove(location)
            && let Some(due) = entry.due
        {
            self.queue.remove(&(due, location.clone()));
        }
    }

    /// When there is something to ask.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.queue.first().map(|(due, _)| *due)
    }

    /// Takes the next location to read, if its time has come.
    pub(super) fn take(&mut self, now: Instant) -> Option<Job> {
        let (_, location) = self.queue.first().filter(|(due, _)| *due <= now)?.clone();
        let alone = self.entries.get(&location).is_some_and(|entry| entry.alone);
        let folder = if alone { Vec::new() } else { self.folder(&location, now) };
        if folder.len() >= FOLDER_WORTH {
            for location in &folder {
                self.begin(location);
            }
            return Some(Job::Folder(folder));
        }
        let method = self.begin(&location)?;
        Some(Job::One(location, method))
    }

    fn begin(&mut self, location: &Location) -> Option<PollMethod> {
        let entry = self.entries.get_mut(location)?;
        if let Some(due) = entry.due.take() {
            self.queue.remove(&(due, location.clone()));
        }
        Some(entry.method)
    }

    /// The locations of the same folder that are due within half an interval, if the engine may be able to list them.
    fn folder(&self, location: &Location, now: Instant) -> Vec<Location> {
        let mount = location.mount();
        let unable = self.without_folders.get(mount).is_some_and(|until| *until > now);
        if mount.version() == KvVersion::One || unable {
            return Vec::new();
        }
        let first = Location::first_in(mount, location.folder());
        let beneath = self
            .entries
            .range(first..)
            .take_while(|(other, _)| other.mount() == mount && other.name().starts_with(location.folder()));
        let soon = beneath.filter(|(other, entry)| {
            other.folder() == location.folder()
                && !entry.alone
                && entry.due.is_some_and(|due| due <= now + entry.interval() / 2)
        });
        soon.map(|(other, _)| other.clone()).collect()
    }

    /// The engine cannot list folders; these are asked for one by one at once.
    pub(super) fn no_folders(&mut self, locations: &[Location], now: Instant) {
        for location in locations {
            self.without_folders.insert(location.mount().clone(), now + FOLDERS_AGAIN);
            self.set_due(location, now);
        }
    }

    /// The listing did not tell of these; they are asked for one by one at once.
    pub(super) fn ask_alone(&mut self, locations: &[Location], now: Instant) {
        for location in locations {
            if let Some(entry) = self.entries.get_mut(location) {
                entry.alone = true;
            }
            self.set_due(location, now);
        }
    }

    /// Takes an answer, tells it if it is another one, and plans the next question.
    pub(super) fn done(
        &mut self,
        location: &Location,
        method: PollMethod,
        outcome: Result<Seen, VaultError>,
        pause: Option<Duration>,
        now: Instant,
        jitter: f64,
    ) {
        // Nobody wants it any more.
        let Some(entry) = self.entries.get_mut(location) else { return };
        entry.method = method;
        entry.alone = false;
        let after = match outcome {
            Ok(seen) => entry.learn(seen, now, jitter),
            Err(error) => entry.fail(error, pause, jitter),
        };
        self.set_due(location, now + after);
    }

    fn set_due(&mut self, location: &Location, due: Instant) {
        if let Some(entry) = self.entries.get_mut(location) {
            if let Some(old) = entry.due.replace(due) {
                self.queue.remove(&(old, location.clone()));
            }
            self.queue.insert((due, location.clone()));
        }
    }
}

impl Entry {
    /// The shortest that anybody wants.
    fn interval(&self) -> Duration {
        self.interests.values().min().copied().unwrap_or(PAUSES.cap)
    }

    fn learn(&mut self, seen: Seen, now: Instant, jitter: f64) -> Duration {
        let interval = self.interval().mul_f64(1.0 + SPREAD * (2.0 * jitter - 1.0));
        self.failures = 0;
        self.absences = if seen == Seen::Absent { self.absences.saturating_add(1) } else { 0 };
        if self.absences == 1 {
            return CONFIRM.min(interval);
        }
        self.known.send_if_modified(|known| {
            if known.seen.as_ref().is_some_and(|before| seen.is_before(before)) {
                return false;
            }
            let changed = known.failure.is_some() || known.seen.as_ref().is_none_or(|before| !before.agrees(&seen));
            *known = Known { seen: Some(seen), verified: Some(now), failure: None };
            changed
        });
        interval
    }

    fn fail(&mut self, error: VaultError, pause: Option<Duration>, jitter: f64) -> Duration {
        // A location that was not asked for because Vault is left alone is asked for when that ends, and those that wait so are spread over a second.
        let is_unsent = matches!(error, VaultError::Paused { .. });
        self.failures = self.failures.saturating_add(u32::from(!is_unsent));
        self.absences = 0;
        let backoff = match &error {
            _ if is_unsent => PROBES.base.saturating_add(Duration::from_secs(1).mul_f64(jitter) / 2),
            error if error.concerns_every_request() => PROBES.delay(self.failures, jitter),
            _ => PAUSES.delay(self.failures, jitter),
        };
        let spread = Duration::from_secs(1).mul_f64(if is_unsent { jitter } else { 0.0 });
        self.known.send_if_modified(|known| match &known.failure {
            // Nobody was asked, so that nothing is known but what was before.
            Some(_) if is_unsent => false,
            before => {
                let is_news = before.as_ref().is_none_or(|before| !is_like(before, &error));
                known.failure = Some(Arc::new(error));
                is_news
            }
        });
        backoff.max(pause.unwrap_or_default().saturating_add(spread))
    }
}

/// Whether two errors tell of the same trouble. Numbers in their words do not count: they are times that pass.
fn is_like(one: &VaultError, other: &VaultError) -> bool {
    let words = |error| in_one_line(error).replace(|letter: char| letter.is_ascii_digit(), "");
    words(one) == words(other)
}

#[cfg(test)]
mod tests;
