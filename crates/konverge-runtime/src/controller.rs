//! Workers that take keys from a queue and bring each object to where it should be.
//!
//! A run that fails, hangs or panics concerns its own key only: it is counted, logged and repeated with growing pauses, while
//! the other workers go on. The pauses grow with the time since the first failure and not with the number of events. A run that fails because
//! an endpoint answers nobody is repeated when the endpoint answers again.

mod rate;

use std::{
    any::Any,
    fmt::{Debug, Display},
    hash::Hash,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use konverge_core::{
    backoff::Backoff,
    error::{Classify, ErrorClass, in_one_line},
};
use tokio::{task::JoinSet, time::Instant};
use tracing::{Instrument, Span, field::Empty};

use crate::{
    metrics::controller::{ControllerMetrics, RunResult},
    queue::{Completion, Queue, Request},
    telemetry::note_trace,
};

pub use rate::Rate;
use rate::RateLimit;

/// Brings one object into its desired state.
///
/// Level based: it is told which object and not what happened, looks at both sides and does what is missing. Implementations
/// write `async fn reconcile`.
pub trait Reconciler: Send + Sync + 'static {
    /// Names the object; shown in logs.
    type Key: Clone + Eq + Hash + Display + Send + Sync + 'static;
    /// The error type. Its class decides when the next attempt is made.
    type Error: std::error::Error + Classify + Send + Sync + 'static;

    /// One run. It may be dropped at any await when it takes too long, so every write in it must be safe to repeat.
    fn reconcile(&self, request: Request<Self::Key>) -> impl Future<Output = Result<Action, Self::Error>> + Send;

    /// Called after a run that could not report itself. Its work is dropped after [`ABORT_REPORT_LIMIT`], and its failures are not reported.
    fn on_abort(&self, key: &Self::Key, why: &Aborted) -> impl Future<Output = ()> + Send {
        let _ = (key, why);
        std::future::ready(())
    }
}

/// How long [`Reconciler::on_abort`] may take.
pub const ABORT_REPORT_LIMIT: Duration = Duration::from_secs(10);

/// Why a run ended without a result. It gets no further variant, so that a controller is known to word each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Aborted {
    /// It took longer than this.
    TimedOut(Duration),
    /// It panicked, and said this.
    Panicked(String),
}

/// When to run again for an object after a successful run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Runs again when something changes.
    Done,
    /// Runs again when something changes, or after this long at low priority: a poll, a safety repetition.
    ///
    /// Each pause is up to a tenth longer at random, and at most ten minutes longer, so objects that were listed together spread out.
    After(Duration),
    /// Runs again when something changes, or after this long at the priority of the run that ends: something that was begun because of a
    /// change is still under way. The pause is stretched as that of [`After`](Self::After) is.
    AfterAtSamePriority(Duration),
}

/// The longest pause after a refusal; the shortest is half of it. A policy or a role that was mended is noticed within it.
const REFUSED_AT_MOST: Duration = Duration::from_secs(120);

/// The time limits after which a run counts as stuck. A machine under load may be late with one, hardly with three.
const STUCK_AFTER: u32 = 3;

/// Workers for one queue.
pub struct Controller<R: Reconciler> {
    reconciler: Arc<R>,
    queue: Queue<R::Key>,
    metrics: ControllerMetrics,
    workers: usize,
    time_limit: Duration,
    backoff: Backoff,
    permanent_retry: Duration,
    rate: Option<RateLimit>,
    /// The conditions for the first run.
    ready: Option<Ready>,
}

type Ready = Shared<BoxFuture<'static, ()>>;

impl<R: Reconciler> Controller<R> {
    /// Eight workers, 60 seconds for a run; transient errors are repeated after 1 s to 5 min, refusals after 1 s to 2 min and permanent errors
    /// after 30 min.
    /// Named after its queue in logs and metrics.
    pub fn new(reconciler: Arc<R>, queue: Queue<R::Key>, metrics: &ControllerMetrics) -> Self {
        Self {
            reconciler,
            queue,
            metrics: metrics.clone(),
            workers: 8,
            time_limit: Duration::from_secs(60),
            backoff: Backoff::default(),
            permanent_retry: Duration::from_secs(1800),
            rate: None,
            ready: None,
        }
    }

    /// How many objects are worked on at once; at least one.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// How long one run may take before it is dropped and counted as failed.
    #[must_use]
    pub fn time_limit(mut self, time_limit: Duration) -> Self {
        self.time_limit = time_limit;
        self
    }

    /// The pauses after transient errors.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// The pause after a permanent error: the event that mends it may have been missed, so it is not for ever.
    #[must_use]
    pub fn permanent_retry(mut self, pause: Duration) -> Self {
        self.permanent_retry = pause;
        self
    }

    /// Limits how many runs may begin, of all objects together. The default is no limit.
    #[must_use]
    pub fn rate(mut self, rate: Rate) -> Self {
        self.rate = Some(RateLimit::new(rate));
        self
    }

    /// Lets the first run wait for `ready`, such as for caches that are complete. The queue fills meanwhile.
    #[must_use]
    pub fn ready(mut self, ready: impl Future<Output = ()> + Send + 'static) -> Self {
        self.ready = Some(ready.boxed().shared());
        self
    }

    /// Its queue.
    pub fn queue(&self) -> &Queue<R::Key> {
        &self.queue
    }

    /// A liveness check. It fails when a worker is stuck. A run is dropped at its time limit wherever it waits. A run that is
    /// in flight for several times that limit never waits, so only a restart ends it.
    pub fn watchdog(&self) -> impl Fn() -> Result<(), String> + Send + Sync + 'static {
        let (queue, limit) = (self.queue.clone(), self.time_limit * STUCK_AFTER);
        move || match queue.longest_in_flight() {
            Some(age) if age > limit => Err(format!("a run has been in flight for {} s", age.as_secs())),
            _ => Ok(()),
        }
    }

    /// Works until the queue is closed, and then until the runs in flight have ended. Dropping it drops them where they are.
    pub async fn run(self) {
        self.metrics.configured(self.queue.name(), self.workers);
        if let Some(ready) = self.ready.clone()
            && self.queue.closed().run_until_cancelled(ready).await.is_none()
        {
            return;
        }
        let (workers, controller) = (self.workers, Arc::new(self));
        let mut running = JoinSet::new();
        for _ in 0..workers {
            let controller = Arc::clone(&controller);
            running.spawn(async move { controller.work().await }.in_current_span());
        }
        running.join_all().await;
    }

    async fn work(&self) {
        while let Some(request) = self.next().await {
            let key = request.key.clone();
            let span = tracing::info_span!(
                "reconcile",
                controller = self.queue.name(),
                object = %key,
                attempt = request.attempt,
                trace_id = Empty,
                result = Empty,
                otel.status_code = Empty,
            );
            let trace = note_trace(&span);
            // In memory of its own, which a worker has only while it works: a run takes some kilobytes, and most workers wait.
            let completion = Box::pin(self.reconcile(request, trace)).instrument(span).await;
            self.queue.complete(&key, completion);
        }
    }

    /// The place in the rate is taken before the object, so that a more urgent one can still come first.
    async fn next(&self) -> Option<Request<R::Key>> {
        if let Some(rate) = &self.rate {
            self.queue.closed().run_until_cancelled(rate.acquire()).await?;
        }
        self.queue.next().await
    }

    async fn reconcile(&self, request: Request<R::Key>, trace: Option<String>) -> Completion {
        tracing::debug!(reasons = ?request.reasons, "starting");
        let (controller, started) = (self.queue.name(), Instant::now());
        self.metrics.started(controller);
        let key = request.key.clone();
        let run = AssertUnwindSafe(async { self.reconciler.reconcile(request).await }).catch_unwind();
        let ended = tokio::time::timeout(self.time_limit, run).await;
        let (completion, result) = match ended {
            Ok(Ok(Ok(Action::Done))) => (Completion::Done, RunResult::Success),
            Ok(Ok(Ok(Action::After(pause)))) => {
                (Completion::DoneUntil(jittered(pause, rand::random())), RunResult::RequeueAfter)
            }
            Ok(Ok(Ok(Action::AfterAtSamePriority(pause)))) => {
                (Completion::Again(jittered(pause, rand::random())), RunResult::RequeueAfter)
            }
            Ok(Ok(Err(error))) => self.failed(&key, &error),
            Ok(Err(panic)) => {
                let pause = self.pause(&key);
                let cause = panic_text(&*panic).to_owned();
                tracing::error!(cause, retry_after = ?pause, "the reconciler panicked: please report this");
                self.report_abort(&key, Aborted::Panicked(cause)).await;
                (Completion::Abandoned(pause), RunResult::Panicked)
            }
            Err(_elapsed) => {
                let pause = self.pause(&key);
                tracing::warn!(limit = ?self.time_limit, retry_after = ?pause, "gave up a run that took too long");
                self.report_abort(&key, Aborted::TimedOut(self.time_limit)).await;
                (Completion::Abandoned(pause), RunResult::TimedOut)
            }
        };
        let result = self.metrics.finished(controller, result, started.elapsed(), trace);
        let span = Span::current();
        span.record("result", result);
        if result == "error" {
            span.record("otel.status_code", "ERROR");
        }
        completion
    }

    async fn report_abort(&self, key: &R::Key, why: Aborted) {
        let report = AssertUnwindSafe(self.reconciler.on_abort(key, &why)).catch_unwind();
        if !matches!(tokio::time::timeout(ABORT_REPORT_LIMIT, report).await, Ok(Ok(()))) {
            tracing::warn!(?why, "could not report the end of the run");
        }
    }

    fn failed(&self, key: &R::Key, error: &R::Error) -> (Completion, RunResult) {
        let reason = error.reason();
        let pause = match (error.class(), error.retry_after()) {
            (ErrorClass::Unavailable(endpoint), _) => {
                tracing::warn!(error = %in_one_line(error), reason, endpoint, "failed; waits until the endpoint answers again");
                return (Completion::Unavailable(endpoint), RunResult::Error { reason, permanent: false });
            }
            (_, Some(pause)) | (ErrorClass::After(pause), None) => jittered(pause, rand::random()),
            (ErrorClass::Permanent, None) => jittered(self.permanent_retry, rand::random()),
            (ErrorClass::Refused, None) => {
                let backoff = Backoff { cap: REFUSED_AT_MOST, ..self.backoff };
                backoff.late_delay(self.queue.level_after_failure(key), rand::random())
            }
            (_, None) => self.pause(key),
        };
        tracing::warn!(error = %in_one_line(error), reason, retry_after = ?pause, "failed");
        let permanent = error.class().needs_a_change();
        (Completion::Retry(pause), RunResult::Error { reason, permanent })
    }

    fn pause(&self, key: &R::Key) -> Duration {
        self.backoff.delay(self.queue.level_after_failure(key), rand::random())
    }
}

/// By how much of a pause [`Action::After`] may be late.
const JITTER: f64 = 0.1;
/// By how much it may be late at most: an object that asks for a run in sixty days means that day.
const LATEST: Duration = Duration::from_secs(600);

/// The pause, longer by a part that `random`, a number from 0 to 1, chooses.
fn jittered(pause: Duration, random: f64) -> Duration {
    pause.saturating_add(pause.mul_f64(JITTER * random.clamp(0.0, 1.0)).min(LATEST))
}

/// Returns the message of a panic, if it is text.
pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words")
}

#[cfg(test)]
mod outage_tests;
#[cfg(test)]
mod tests;
