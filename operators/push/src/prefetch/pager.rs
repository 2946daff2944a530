//! How far one namespace has been read, and the answer to a request for one of its Secrets. Pure.

use std::collections::HashMap;

use tokio::{sync::watch, time::Instant};

/// Secrets in the first page. It shows how large they are.
const FIRST: u32 = 8;

/// And at most in one after it: of the largest that the API server takes, 1 MiB each, a page still fits in beside all else.
const LARGEST: u32 = 32;

/// A page with more than this, in bytes of values, is the last: what takes time there is not the number of requests, and the next might take
/// more memory than there is.
const HEAVY: usize = 1 << 20;

/// The most Secrets that were read and not fetched. With more of them the pager stops, because the runs want other Secrets.
const MOST_LEFT: usize = 64;

/// After this many Secrets, half must have been wanted. Otherwise the pager stops.
const SAMPLE: usize = LARGEST as usize;

/// A namespace that is read in the order of names. `T` is what a Secret holds.
pub(super) struct NamespacePager<T> {
    /// Secrets that were read and not fetched yet.
    left: HashMap<String, Held<T>>,
    /// The last name that was read.
    reached: Option<String>,
    next: Next,
    /// Secrets in the next page.
    size: u32,
    /// How many were read, and how many of them are wanted.
    seen: usize,
    wanted: usize,
    /// Tells the waiting runs that a page has come, or that none will.
    turned: watch::Sender<()>,
    begun: Instant,
    /// When the last page came.
    turned_at: Instant,
}

/// A Secret that was read and not fetched yet.
struct Held<T> {
    version: String,
    content: T,
    read: Instant,
}

enum Next {
    /// There is a page behind this token. `None` is the first page.
    At(Option<String>),
    /// A run reads it.
    Reading,
    /// There is none.
    Nothing,
}

/// The answer to a request for a Secret.
pub(super) enum Answer<T> {
    /// Here it is.
    Fetched(T),
    /// It has to be read by itself.
    Alone,
    /// Ask again when this changes, or has ended.
    Wait(watch::Receiver<()>),
    /// Read the page behind this token, of this size, and ask again.
    Read(Option<String>, u32),
}

/// A page that was read.
pub(super) struct Page<T> {
    /// The names, versions and contents of the requested Secrets.
    pub(super) wanted: Vec<(String, String, T)>,
    /// The last name in it, wanted or not.
    pub(super) last: Option<String>,
    /// How many are in it, wanted or not.
    pub(super) seen: usize,
    /// Of all values in it.
    pub(super) bytes: usize,
    /// Where it goes on.
    pub(super) token: Option<String>,
}

impl<T> NamespacePager<T> {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            left: HashMap::new(),
            reached: None,
            next: Next::At(None),
            size: FIRST,
            seen: 0,
            wanted: 0,
            turned: watch::Sender::new(()),
            begun: now,
            turned_at: now,
        }
    }

    /// Answers a run that wants the Secret in this version; data of another version is of no use. `others_wait` tells whether further runs wait.
    pub(super) fn fetch(&mut self, name: &str, version: &str, others_wait: bool) -> Answer<T> {
        if let Some(held) = self.left.remove(name) {
            return if held.version == version { Answer::Fetched(held.content) } else { Answer::Alone };
        }
        if self.reached.as_deref().is_some_and(|reached| name <= reached) {
            return Answer::Alone;
        }
        match &mut self.next {
            Next::Reading => Answer::Wait(self.turned.subscribe()),
            Next::At(token) if others_wait && self.left.len() < MOST_LEFT => {
                let token = token.take();
                self.next = Next::Reading;
                Answer::Read(token, self.size)
            }
            Next::At(_) | Next::Nothing => Answer::Alone,
        }
    }

    /// A page has come.
    pub(super) fn turn(&mut self, page: Page<T>, now: Instant) {
        self.seen += page.seen;
        self.wanted += page.wanted.len();
        let is_foreign = self.seen >= SAMPLE && self.wanted * 2 < self.seen;
        let is_last = is_foreign || page.bytes > HEAVY;
        let held = |(name, version, content)| (name, Held { version, content, read: now });
        self.left.extend(page.wanted.into_iter().map(held));
        self.reached = page.last.or(self.reached.take());
        self.size = self.size.saturating_mul(2).min(LARGEST);
        self.turned_at = now;
        self.next = page.token.filter(|_| !is_last).map_or(Next::Nothing, |token| Next::At(Some(token)));
        self.turned.send_replace(());
    }

    /// Nothing more is read.
    pub(super) fn stop(&mut self) {
        self.next = Next::Nothing;
        self.turned.send_replace(());
    }

    /// Drops each Secret that was read then or before, and stops if no page has come since then.
    pub(super) fn tidy(&mut self, then: Instant) {
        self.left.retain(|_, held| held.read > then);
        if self.left.is_empty() {
            self.left.shrink_to_fit();
        }
        if self.turned_at <= then && !matches!(self.next, Next::Reading) {
            self.next = Next::Nothing;
        }
    }

    /// Returns when the Secret was read that has been held longest.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.left.values().map(|held| held.read).min()
    }

    /// Whether it has ended, and begun before then.
    pub(super) fn is_over(&self, begun_before: Instant) -> bool {
        matches!(self.next, Next::Nothing) && self.left.is_empty() && self.begun < begun_before
    }
}

#[cfg(test)]
mod tests;
