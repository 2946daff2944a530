//! The limits of an endpoint, applied to each call.

use std::sync::Arc;

use tokio::{
    sync::Semaphore,
    time::{Instant, sleep_until, timeout_at},
};

use crate::{
    breaker::{Breaker, Outcome, Refusal},
    limits::{Limits, Pace},
};

/// The limits and the breaker of one endpoint, shared by all its callers.
pub struct Gate {
    pace: Pace,
    places: Semaphore,
    breaker: Breaker,
    limits: Limits,
}

/// A call that was not sent, so it has no effect. It gets no further variant, so that a client is known to word each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotSent {
    /// The endpoint did not serve a moment ago.
    Paused(Refusal),
    /// The deadline passed while the call waited for the limits.
    Late,
}

impl Gate {
    /// A gate with these limits.
    pub fn new(limits: Limits) -> Self {
        Self {
            pace: Pace::new(&limits),
            places: Semaphore::new(limits.concurrency.get()),
            breaker: Breaker::new(),
            limits,
        }
    }

    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns why calls are not sent now, or `None` if they are.
    fn refusal(&self) -> Option<Refusal> {
        self.breaker.refusal(Instant::now())
    }

    /// Returns the last failure while the endpoint does not serve, or `None` if it does.
    pub fn outage(&self) -> Option<Arc<str>> {
        self.breaker.outage(Instant::now())
    }

    /// The endpoint has said in another way that it serves: the next call finds out. A pause that it asked for itself is kept.
    pub fn serves(&self) {
        self.breaker.serves(Instant::now());
    }

    /// Runs one exchange within the limits. `Ok(None)` means that it was begun and did not complete in time.
    ///
    /// `judge` says what the result means for the breaker; `None` teaches it nothing, for an exchange that never reached the endpoint.
    pub async fn run<T>(
        &self,
        deadline: Instant,
        exchange: impl Future<Output = T>,
        judge: impl FnOnce(Option<&T>) -> Option<Outcome>,
    ) -> Result<Option<T>, NotSent> {
        // A call that is not sent takes nothing of the rate.
        if let Some(refusal) = self.refusal() {
            return Err(NotSent::Paused(refusal));
        }
        // Callers that wait for the rate hold no place.
        let due = self.pace.reserve(Instant::now());
        if due > deadline {
            return Err(NotSent::Late);
        }
        // A timer ends with a millisecond, so one that is due costs a call one or two.
        if due > Instant::now() {
            sleep_until(due).await;
        }
        let place = timeout_at(deadline, self.places.acquire()).await;
        let _place = place.map_err(|_| NotSent::Late)?;
        let pass = self.breaker.pass(Instant::now()).map_err(NotSent::Paused)?;
        let result = timeout_at(deadline, exchange).await.ok();
        if let Some(outcome) = judge(result.as_ref()) {
            pass.report(outcome, Instant::now(), rand::random());
        }
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use std::{num::NonZeroUsize, time::Duration};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_that_hangs_costs_only_its_caller_until_all_places_are_taken() {
        let limits = Limits { concurrency: NonZeroUsize::new(2).unwrap(), ..Limits::default() };
        let gate = Gate::new(limits);
        let second = Duration::from_secs(1);
        let late = |result: Option<&()>| result.is_none().then(|| Outcome::Late("hangs".into()));
        let hangs = gate.run(Instant::now() + second, std::future::pending(), late);
        let answered = gate.run(Instant::now() + second, async {}, |_| Some(Outcome::Served));
        assert_eq!(tokio::join!(hangs, answered), (Ok(None), Ok(Some(()))));
        let hang = || gate.run(Instant::now() + second, std::future::pending::<()>(), |_| None);
        let waits = gate.run(Instant::now() + second / 2, async {}, |_| None);
        assert_eq!(tokio::join!(hang(), hang(), waits), (Ok(None), Ok(None), Err(NotSent::Late)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_within_the_rate_waits_for_no_timer() {
        let gate = Gate::new(Limits::default());
        // Not at the end of a millisecond, where a timer that is due ends at once.
        tokio::time::advance(Duration::from_micros(300)).await;
        let began = Instant::now();
        let called = gate.run(began + Duration::from_secs(1), async {}, |_| Some(Outcome::Served)).await;
        assert_eq!((called, began.elapsed()), (Ok(Some(())), Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_during_a_pause_is_not_sent_and_takes_nothing_of_the_rate() {
        let gate = Gate::new(Limits::default());
        let soon = || Instant::now() + Duration::from_secs(1);
        let closed = gate.run(soon(), async {}, |_| Some(Outcome::Closed("sealed".into()))).await;
        assert_eq!(closed, Ok(Some(())));
        for _ in 0..1000 {
            let refused = gate.run(soon(), async { panic!("it is not sent") }, |_: Option<&()>| None).await;
            assert!(matches!(refused, Err(NotSent::Paused(_))));
        }
        gate.serves();
        assert_eq!(gate.run(soon(), async {}, |_| Some(Outcome::Served)).await, Ok(Some(())));
    }
}
