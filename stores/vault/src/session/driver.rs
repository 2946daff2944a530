//! The task that has the token.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::{HeaderValue, Method};
use konverge_core::{
    backoff::Backoff,
    error::{Classify, ErrorClass},
    outage,
};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until},
};

use super::{
    Counters, Request, State, Token, Verdict,
    token_check::{TokenCheck, TokenState},
};
use crate::{
    answer::Answer,
    call::Call,
    config::VaultConfig,
    error::VaultError,
    lifetime::{Lifetime, Step},
    login::{Attempt, Granted, Login, LookedUp, WITHOUT_LOOK_UP, header},
    transport::Transport,
};

/// After a failed login. Everything waits for it, and one attempt per process is cheap.
const PAUSES: Backoff = outage::PROBES;

/// A token with hardly any time left is not looked after more often than this.
const SOONEST: Duration = Duration::from_millis(200);

/// A token, and what is known of it.
struct Held {
    token: Token,
    /// The result of the first grant.
    asked: Duration,
    granted: Instant,
    expires: Option<Instant>,
    verified: Option<Instant>,
}

/// The next scheduled step.
type Due = Option<(Instant, Step)>;

pub(super) struct Driver {
    transport: Arc<Transport>,
    login: Login,
    how: Arc<str>,
    namespace: Option<HeaderValue>,
    state: watch::Sender<State>,
    counters: Arc<Counters>,
    held: Option<Held>,
    due: Due,
    generation: u64,
    failures: u32,
    /// When a refusal last led to a login.
    replaced: Option<Instant>,
    /// A token of ours was looked up by itself.
    looks_up: bool,
}

impl Driver {
    pub(super) fn new(
        transport: Arc<Transport>,
        config: &VaultConfig,
        state: watch::Sender<State>,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            transport,
            login: config.login.clone(),
            how: config.login.how().into(),
            namespace: config.namespace.clone(),
            state,
            counters,
            held: None,
            due: None,
            generation: 0,
            failures: 0,
            replaced: None,
            looks_up: false,
        }
    }

    pub(super) async fn run(mut self, mut requests: mpsc::Receiver<Request>) {
        loop {
            let due = self.due;
            tokio::select! {
                request = requests.recv() => match request {
                    Some(Request::Wanted) if matches!(*self.state.borrow(), State::Idle) => self.log_in().await,
                    Some(Request::Wanted) => {}
                    Some(Request::Spent(generation)) => {
                        if self.held.as_ref().is_some_and(|held| held.token.generation == generation) {
                            self.replace().await;
                        }
                    }
                    Some(Request::CheckToken { generation, invalid, verdict }) => {
                        // A caller that no longer waits needs no verdict.
                        let _ = verdict.send(self.check_token(generation, invalid).await);
                    }
                    Some(Request::Close(done)) => {
                        self.revoke().await;
                        let _ = done.send(());
                    }
                    None => return,
                },
                step = wait(due) => match step {
                    Step::Renew => self.renew().await,
                    Step::LogIn => self.log_in().await,
                },
            }
        }
    }

    async fn log_in(&mut self) {
        match self.attempt().await {
            Ok((header, lifetime, uses)) => {
                self.failures = 0;
                count(&self.counters.succeeded);
                self.generation += 1;
                let uses = (uses > 0).then(|| Arc::new(AtomicU64::new(uses)));
                let token = Token { header, generation: self.generation, uses };
                let now = Instant::now();
                self.held = Some(Held { token, asked: lifetime.ttl, granted: now, expires: None, verified: Some(now) });
                self.extend(lifetime);
                tracing::debug!(login = %self.how, ttl_seconds = lifetime.ttl.as_secs(), "logged in to Vault");
            }
            Err(error) => {
                count(&self.counters.failed);
                self.fail(error);
            }
        }
    }

    /// Takes note of how long the token lives from now on, and shows it.
    fn extend(&mut self, lifetime: Lifetime) {
        let now = Instant::now();
        let Some(held) = &mut self.held else { return };
        held.expires = (!lifetime.ttl.is_zero()).then(|| now + lifetime.ttl);
        let next = lifetime.next(held.asked, rand::random());
        held.asked = held.asked.max(lifetime.ttl);
        self.due = next.map(|(after, step)| (now + after.max(SOONEST), step));
        self.state.send_replace(State::Ready(held.token.clone()));
    }

    /// A token that is still good is kept for the rest of its time; it is tried again after a pause.
    fn fail(&mut self, error: VaultError) {
        self.failures += 1;
        let now = Instant::now();
        let pause = PAUSES.delay(self.failures, rand::random());
        let pause = match error.class() {
            // No request was sent; this one may be the first when that ends.
            ErrorClass::After(asked) if matches!(error, VaultError::Paused { .. }) => {
                asked + PAUSES.delay(1, rand::random())
            }
            ErrorClass::After(asked) if error.is_outage() => asked.max(pause),
            _ => pause,
        };
        // For ever, if it does not expire.
        let left = self.held.as_ref().map(|held| held.expires.map_or(pause, |expires| expires.duration_since(now)));
        let left = left.filter(|left| !left.is_zero());
        self.due = Some((now + left.map_or(pause, |left| pause.min(left)), Step::LogIn));
        if left.is_some() {
            tracing::debug!(login = %self.how, %error, "cannot log in to Vault again; the token is still good");
            return;
        }
        if self.failures == 1 {
            tracing::warn!(login = %self.how, %error, "cannot log in to Vault");
        }
        self.held = None;
        self.state.send_replace(State::Failed(Arc::clone(&self.how), Arc::new(error)));
    }

    /// The token, its lifetime, and the number of requests that Vault accepts with it; zero means unlimited.
    async fn attempt(&self) -> Result<(HeaderValue, Lifetime, u64), VaultError> {
        match self.login.attempt().await? {
            Attempt::Ask(call) => {
                let answer = self.ask(&call, None).await.map_err(refused)?;
                let auth = answer.parse::<Granted>(&self.transport.describe(&call))?.auth;
                Ok((header(auth.client_token)?, auth.lifetime(), auth.num_uses))
            }
            Attempt::LookUp(call, token) => {
                let answer = self.send(&call, Some(&token)).await?;
                if answer.is_denied() && !answer.is_invalid_token() {
                    return Ok((token, WITHOUT_LOOK_UP, 0));
                }
                let answer = self.succeeded(&call, answer).map_err(refused)?;
                Ok((token, answer.parse::<LookedUp>(&self.transport.describe(&call))?.data.lifetime(), 0))
            }
        }
    }

    async fn renew(&mut self) {
        // A new token in the file is better than the old one renewed.
        if let Ok(Attempt::LookUp(_, token)) = self.login.attempt().await
            && self.held.as_ref().is_none_or(|held| held.token.header != token)
        {
            return self.log_in().await;
        }
        let Some(held) = &self.held else { return self.log_in().await };
        let call = call(Method::POST, "auth/token/renew-self", "renew the token", "update");
        let outcome = self.ask(&call, Some(&held.token.header)).await;
        let outcome =
            outcome.and_then(|answer| Ok(answer.parse::<Granted>(&self.transport.describe(&call))?.auth.lifetime()));
        match outcome {
            Ok(lifetime) => {
                count(&self.counters.renewed);
                self.failures = 0;
                self.extend(lifetime);
            }
            // It answers, so a login may do; at the end of all renewals Vault answers with an error of its own, 500.
            Err(VaultError::Unavailable { .. }) => self.log_in().await,
            Err(error) if error.is_outage() => self.fail(error),
            Err(_) => self.log_in().await,
        }
    }

    async fn check_token(&mut self, generation: u64, invalid: bool) -> Verdict {
        let Some(held) = &self.held else { return Verdict::Changed };
        if held.token.generation != generation {
            return Verdict::Changed;
        }
        let since = |at: Option<Instant>| at.map(|at| at.elapsed());
        let token = TokenState {
            invalid,
            proven: self.counters.proven.load(Ordering::Relaxed) >= generation,
            age: held.granted.elapsed(),
            verified: since(held.verified.filter(|verified| *verified > held.granted)),
            replaced: since(self.replaced),
            looks_up: self.looks_up,
        };
        let check = match token.judge() {
            TokenCheck::LookUp => self.look_up(token).await,
            decided => decided,
        };
        if check != TokenCheck::LogIn {
            return Verdict::Stands;
        }
        self.replaced = Some(Instant::now());
        self.replace().await;
        let counts_uses = self.held.as_ref().is_some_and(|held| held.token.uses.is_some());
        if !invalid && !self.looks_up && !counts_uses {
            // Only the old token can show the meaning of a later refusal of the new one, and only while the old one is valid.
            self.looks_up = matches!(self.looked_up().await, Some(Ok(())));
        }
        Verdict::Changed
    }

    /// Discards a token that is spent, or worse than a new one, so that no request uses it during the login.
    async fn replace(&mut self) {
        self.held = None;
        self.state.send_replace(State::Idle);
        self.log_in().await;
    }

    async fn look_up(&mut self, token: TokenState) -> TokenCheck {
        let Some(outcome) = self.looked_up().await else { return TokenCheck::LogIn };
        match outcome {
            Ok(()) => {
                self.looks_up = true;
                let check = token.judge_again(true);
                if let Some(held) = &mut self.held {
                    held.verified = Some(Instant::now());
                }
                check
            }
            Err(VaultError::Denied { .. }) => token.judge_again(false),
            Err(_) => TokenCheck::Stands,
        }
    }

    /// Looks up the token. Returns `None` without a token, or without a use left for the look-up.
    async fn looked_up(&self) -> Option<Result<(), VaultError>> {
        let held = self.held.as_ref().filter(|held| held.token.take())?;
        let call = call(Method::GET, "auth/token/lookup-self", "look up the token", "read");
        Some(self.ask(&call, Some(&held.token.header)).await.map(drop))
    }

    async fn revoke(&mut self) {
        self.due = None;
        let held = self.held.take();
        self.state.send_replace(State::Idle);
        if let Some(held) = held.filter(|_| !matches!(self.login, Login::Token(_))) {
            let call = call(Method::POST, "auth/token/revoke-self", "revoke the token", "update");
            // A token that cannot be given back expires.
            let _ = self.ask(&call, Some(&held.token.header)).await;
        }
    }

    async fn ask(&self, call: &Call, token: Option<&HeaderValue>) -> Result<Answer, VaultError> {
        let answer = self.send(call, token).await?;
        self.succeeded(call, answer)
    }

    async fn send(&self, call: &Call, token: Option<&HeaderValue>) -> Result<Answer, VaultError> {
        let deadline = Instant::now() + self.transport.limits().deadline;
        self.transport.send(call, token, self.namespace.as_ref(), deadline).await
    }

    fn succeeded(&self, call: &Call, answer: Answer) -> Result<Answer, VaultError> {
        if answer.is_success() { Ok(answer) } else { Err(answer.error(&self.transport.describe(call))) }
    }
}

fn call(method: Method, route: &str, what: &str, capability: &'static str) -> Call {
    Call::new(method, route.to_owned(), what.to_owned(), capability)
}

/// A refused login has nothing to do with policies, and all with who asks.
fn refused(error: VaultError) -> VaultError {
    match error {
        VaultError::Denied { cause, .. } => VaultError::LoginRefused { status: 403, cause },
        VaultError::Rejected { status, cause, .. } => VaultError::LoginRefused { status, cause },
        other => other,
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

async fn wait(due: Due) -> Step {
    match due {
        Some((at, step)) => {
            sleep_until(at).await;
            step
        }
        None => std::future::pending().await,
    }
}
