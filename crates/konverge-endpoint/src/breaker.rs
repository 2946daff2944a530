//! A circuit breaker: an endpoint that is closed, unreachable or out of quota gets one request now and then instead of all of them.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use konverge_core::outage::{LONGEST_PAUSE, PROBES};
use tokio::time::Instant;

/// The number of failures in a row that are an outage; fewer may be those of one connection.
const FAILURES: u32 = 5;

/// How a request ended, which decides about the next one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The endpoint answered the request, whether it granted or refused it.
    Served,
    /// There was no answer.
    Failed(Arc<str>),
    /// There was no answer in time. If others have been answered meanwhile, that tells of what was asked for and not of the server.
    Late(Arc<str>),
    /// It says itself that it serves nobody.
    Closed(Arc<str>),
    /// It says itself when to come back.
    Limited(Arc<str>, Duration),
}

/// Why a request is not sent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Refusal {
    /// The last failure.
    pub cause: Arc<str>,
    /// How long until a request may be sent.
    pub after: Duration,
}

#[derive(Debug)]
enum State {
    Closed {
        failures: u32,
        /// When there was an answer last.
        served: Option<Instant>,
    },
    Open {
        until: Instant,
        pauses: u32,
        cause: Arc<str>,
        /// Whether the server said itself until when.
        told: bool,
    },
    /// One request is under way to see whether it serves again, or a second one if the first hangs.
    Probing { pauses: u32, cause: Arc<str>, since: Instant, is_second: bool },
}

/// The circuit breaker of one endpoint, shared by all requests to it.
pub struct Breaker(Mutex<State>);

/// Leave to send one request. The caller must report the outcome. If the permit is dropped before, the outcome is unknown.
#[must_use]
pub struct Pass<'a> {
    breaker: &'a Breaker,
    begun: Instant,
    probe: bool,
    reported: bool,
}

impl Default for Breaker {
    fn default() -> Self {
        Self::new()
    }
}

impl Breaker {
    /// A closed breaker: requests are sent.
    pub fn new() -> Self {
        Self(Mutex::new(State::Closed { failures: 0, served: None }))
    }

    /// Asks whether a request may be sent.
    pub fn pass(&self, now: Instant) -> Result<Pass<'_>, Refusal> {
        let mut state = self.state();
        let probe = state.admit(now)?;
        Ok(Pass { breaker: self, begun: now, probe, reported: false })
    }

    /// The server says that it serves: the next request finds out whether it does. A pause that it asked for itself is kept to.
    pub fn serves(&self, now: Instant) {
        self.state().serves(now);
    }

    /// The reason not to send a request now, without asking to send one.
    pub fn refusal(&self, now: Instant) -> Option<Refusal> {
        self.state().refusal(now)
    }

    /// Returns the last failure, or `None` if the endpoint serves. An outage lasts until a request succeeds; a pause that the server asked for lasts as
    /// long as it said.
    pub fn outage(&self, now: Instant) -> Option<Arc<str>> {
        self.state().outage(now)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pass<'_> {
    /// Tells the breaker how the request ended. `jitter` is from 0 to 1.
    pub fn report(mut self, outcome: Outcome, now: Instant, jitter: f64) {
        self.reported = true;
        self.breaker.state().learn(outcome, (self.begun, now), jitter);
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if self.probe && !self.reported {
            self.breaker.state().forget_probe(Instant::now());
        }
    }
}

impl State {
    /// Whether a request may be sent, and whether it is the one that finds out.
    fn admit(&mut self, now: Instant) -> Result<bool, Refusal> {
        if let Some(refusal) = self.refusal(now) {
            return Err(refusal);
        }
        let (pauses, cause, is_second) = match self {
            Self::Closed { .. } => return Ok(false),
            Self::Open { pauses, cause, .. } => (*pauses, Arc::clone(cause), false),
            Self::Probing { pauses, cause, .. } => (*pauses, Arc::clone(cause), true),
        };
        *self = Self::Probing { pauses, cause, since: now, is_second };
        Ok(true)
    }

    fn refusal(&self, now: Instant) -> Option<Refusal> {
        match self {
            Self::Open { until, cause, .. } if *until > now => {
                Some(Refusal { cause: Arc::clone(cause), after: *until - now })
            }
            Self::Probing { cause, since, is_second, .. } if *is_second || now < *since + LONGEST_PAUSE => {
                Some(Refusal { cause: Arc::clone(cause), after: PROBES.base })
            }
            Self::Closed { .. } | Self::Open { .. } | Self::Probing { .. } => None,
        }
    }

    fn outage(&self, now: Instant) -> Option<Arc<str>> {
        match self {
            Self::Closed { .. } => None,
            // By its own word it serves again.
            Self::Open { until, told: true, .. } if *until <= now => None,
            Self::Open { cause, .. } | Self::Probing { cause, .. } => Some(Arc::clone(cause)),
        }
    }

    fn learn(&mut self, outcome: Outcome, (begun, now): (Instant, Instant), jitter: f64) {
        let (failures, served, pauses) = match self {
            Self::Closed { failures, served } => (*failures, *served, 0),
            Self::Open { pauses, .. } | Self::Probing { pauses, .. } => (FAILURES, None, *pauses),
        };
        let open =
            |cause, pauses: u32| Self::Open { until: now + PROBES.delay(pauses, jitter), pauses, cause, told: false };
        *self = match outcome {
            Outcome::Limited(cause, pause) => Self::Open { until: now + pause, pauses, cause, told: true },
            // A call that was under way when the breaker opened says nothing new, whether it succeeds or fails.
            _ if matches!(self, Self::Open { .. }) => return,
            Outcome::Served => Self::Closed { failures: 0, served: Some(now) },
            Outcome::Late(_) if served.is_some_and(|served| served > begun) => return,
            Outcome::Closed(cause) => open(cause, pauses + 1),
            Outcome::Failed(cause) | Outcome::Late(cause) if failures + 1 >= FAILURES => open(cause, pauses + 1),
            Outcome::Failed(_) | Outcome::Late(_) => Self::Closed { failures: failures + 1, served },
        };
    }

    fn forget_probe(&mut self, now: Instant) {
        if let Self::Probing { pauses, cause, .. } = self {
            *self = Self::Open { until: now, pauses: *pauses, cause: Arc::clone(cause), told: false };
        }
    }

    fn serves(&mut self, now: Instant) {
        if let Self::Open { until, told: false, .. } = self {
            *until = now.min(*until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed() -> Outcome {
        Outcome::Failed("connection refused".into())
    }

    fn report(breaker: &Breaker, outcome: Outcome) {
        breaker.pass(Instant::now()).map(|pass| pass.report(outcome, Instant::now(), 1.0)).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn it_opens_after_some_failures_and_one_request_finds_out() {
        let breaker = Breaker::new();
        for _ in 1..FAILURES {
            report(&breaker, failed());
        }
        report(&breaker, Outcome::Served);
        for _ in 0..FAILURES {
            report(&breaker, failed());
        }
        let refusal = breaker.pass(Instant::now()).err().unwrap();
        assert_eq!((&*refusal.cause, refusal.after), ("connection refused", Duration::from_millis(500)));
        tokio::time::advance(refusal.after).await;
        let probe = breaker.pass(Instant::now()).unwrap();
        assert!(breaker.pass(Instant::now()).is_err(), "one at a time");
        probe.report(failed(), Instant::now(), 1.0);
        assert_eq!(breaker.pass(Instant::now()).err().unwrap().after, Duration::from_secs(1));
        tokio::time::advance(Duration::from_secs(1)).await;
        report(&breaker, Outcome::Served);
        assert!(breaker.pass(Instant::now()).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_lasts_until_a_request_is_served_whatever_the_pauses() {
        let breaker = Breaker::new();
        let outage = || breaker.outage(Instant::now());
        assert_eq!(outage(), None);
        for _ in 0..FAILURES {
            report(&breaker, failed());
        }
        let pause = breaker.refusal(Instant::now()).unwrap().after;
        tokio::time::advance(pause).await;
        assert_eq!((breaker.refusal(Instant::now()), outage().as_deref()), (None, Some("connection refused")));
        let probe = breaker.pass(Instant::now()).unwrap();
        tokio::time::advance(LONGEST_PAUSE).await;
        assert_eq!(outage().as_deref(), Some("connection refused"), "while the probe hangs");
        probe.report(Outcome::Served, Instant::now(), 1.0);
        assert_eq!(outage(), None);
        report(&breaker, Outcome::Limited("quota".into(), Duration::from_secs(7)));
        assert_eq!(outage().as_deref(), Some("quota"));
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(outage(), None, "the server said so itself");
    }

    /// Many paths hang, and one is asked for now and then.
    #[tokio::test(start_paused = true)]
    async fn paths_that_hang_are_no_outage_while_another_is_answered() {
        let breaker = Breaker::new();
        let late = || Outcome::Late("it does not answer in time".into());
        for (what, is_answered, is_outage) in [("another is answered", true, false), ("nobody is", false, true)] {
            let hanging: Vec<_> = (0..2 * FAILURES).map(|_| breaker.pass(Instant::now()).unwrap()).collect();
            tokio::time::advance(Duration::from_secs(1)).await;
            if is_answered {
                report(&breaker, Outcome::Served);
            }
            tokio::time::advance(Duration::from_secs(29)).await;
            for pass in hanging {
                pass.report(late(), Instant::now(), 1.0);
            }
            assert_eq!(breaker.pass(Instant::now()).is_err(), is_outage, "{what}");
        }
        // The probe fails.
        tokio::time::advance(PROBES.base).await;
        report(&breaker, late());
        assert!(breaker.pass(Instant::now()).is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_is_given_up_makes_room_for_the_next() {
        let breaker = Breaker::new();
        report(&breaker, Outcome::Closed("sealed".into()));
        tokio::time::advance(PROBES.cap).await;
        drop(breaker.pass(Instant::now()).unwrap());
        assert!(breaker.pass(Instant::now()).is_ok());
    }

    /// A server that takes connections and says nothing.
    #[tokio::test(start_paused = true)]
    async fn a_probe_that_hangs_is_joined_by_a_second_one() {
        let breaker = Breaker::new();
        report(&breaker, Outcome::Closed("sealed".into()));
        tokio::time::advance(PROBES.cap).await;
        let hangs = breaker.pass(Instant::now()).unwrap();
        assert!(breaker.pass(Instant::now()).is_err());
        tokio::time::advance(Duration::from_secs(4)).await;
        report(&breaker, Outcome::Served);
        assert!(breaker.pass(Instant::now()).is_ok(), "it is known four seconds later that it serves");
        hangs.report(Outcome::Late("it does not answer in time".into()), Instant::now(), 1.0);
        assert!(breaker.pass(Instant::now()).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_under_way_does_not_shorten_a_pause() {
        let breaker = Breaker::new();
        let (early, late) = (breaker.pass(Instant::now()).unwrap(), breaker.pass(Instant::now()).unwrap());
        early.report(Outcome::Limited("quota".into(), Duration::from_secs(9)), Instant::now(), 1.0);
        late.report(Outcome::Served, Instant::now(), 1.0);
        assert_eq!(breaker.pass(Instant::now()).err().unwrap().after, Duration::from_secs(9));
    }

    #[tokio::test(start_paused = true)]
    async fn sealed_for_an_hour_it_hears_few_questions_and_the_first_one_after_comes_at_once() {
        let breaker = Breaker::new();
        let end = Instant::now() + Duration::from_secs(3600);
        let mut questions = 0;
        while Instant::now() < end {
            match breaker.pass(Instant::now()) {
                Ok(pass) => {
                    questions += 1;
                    pass.report(Outcome::Closed("sealed".into()), Instant::now(), 1.0);
                }
                Err(refusal) => tokio::time::advance(refusal.after).await,
            }
        }
        assert!((900..=920).contains(&questions), "one in four seconds: {questions} in an hour");
        report(&breaker, Outcome::Closed("sealed".into()));
        assert!(breaker.pass(Instant::now()).is_err());
        breaker.serves(Instant::now());
        report(&breaker, Outcome::Served);
        assert!(breaker.pass(Instant::now()).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn it_stays_away_as_long_as_it_is_told() {
        let breaker = Breaker::new();
        report(&breaker, Outcome::Limited("quota".into(), Duration::from_secs(120)));
        assert_eq!(breaker.pass(Instant::now()).err().unwrap().after, Duration::from_secs(120));
        breaker.serves(Instant::now());
        assert_eq!(
            breaker.pass(Instant::now()).err().unwrap().after,
            Duration::from_secs(120),
            "a quota is one for all"
        );
        tokio::time::advance(Duration::from_secs(120)).await;
        assert!(breaker.pass(Instant::now()).is_ok());
    }
}
