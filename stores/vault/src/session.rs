//! One token for all callers.
//!
//! A task of its own logs in, renews and logs in again; callers take what it has. So however many want a token, or lose it, at
//! once, there is one login.

mod driver;
mod token_check;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use http::HeaderValue;
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::timeout,
};
use tokio_util::task::AbortOnDropHandle;

use self::driver::Driver;
use crate::{config::VaultConfig, error::VaultError, transport::Transport};

/// How many may ask the task at a time before the next waits for a place.
const QUEUE: usize = 64;

/// The timeout of the revocation of the token. A program has to end within its grace period.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// Where the task stands.
#[derive(Clone)]
enum State {
    /// Nobody has asked for a token.
    Idle,
    Ready(Token),
    /// The method of the login, and the cause.
    Failed(Arc<str>, Arc<VaultError>),
}

/// A token and which one of the client's it is.
#[derive(Clone)]
pub(crate) struct Token {
    pub(crate) header: HeaderValue,
    generation: u64,
    /// The number of remaining requests with the token, or `None` if Vault does not count them.
    uses: Option<Arc<AtomicU64>>,
}

impl Token {
    /// Consumes one use of the token. Returns `false` if there is none left.
    fn take(&self) -> bool {
        let take = |uses: &Arc<AtomicU64>| {
            uses.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
        };
        self.uses.as_ref().is_none_or(take)
    }
}

enum Request {
    /// Somebody needs a token.
    Wanted,
    /// Records that the token of this generation has no use left.
    Spent(u64),
    /// Something was refused to a token.
    CheckToken { generation: u64, invalid: bool, verdict: oneshot::Sender<Verdict> },
    /// Nobody needs one any more.
    Close(oneshot::Sender<()>),
}

/// The verdict about a doubted token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The refusal stands.
    Stands,
    /// Ask for a token again.
    Changed,
}

/// Figures about logins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoginCounts {
    /// Logins that gave a token.
    pub succeeded: u64,
    /// Attempts that did not.
    pub failed: u64,
    /// Tokens renewed.
    pub renewed: u64,
}

#[derive(Default)]
struct Counters {
    succeeded: AtomicU64,
    failed: AtomicU64,
    renewed: AtomicU64,
    /// The newest token that something was done with.
    proven: AtomicU64,
}

/// The callers' side.
pub(crate) struct Session {
    state: watch::Receiver<State>,
    requests: mpsc::Sender<Request>,
    counters: Arc<Counters>,
    _driver: AbortOnDropHandle<()>,
}

impl Session {
    /// Nothing is asked of Vault before somebody wants a token.
    pub(crate) fn start(transport: Arc<Transport>, config: &VaultConfig) -> Self {
        let (sender, state) = watch::channel(State::Idle);
        let (requests, receiver) = mpsc::channel(QUEUE);
        let counters = Arc::new(Counters::default());
        let driver = Driver::new(transport, config, sender, Arc::clone(&counters));
        let driver = AbortOnDropHandle::new(tokio::spawn(driver.run(receiver)));
        Self { state, requests, counters, _driver: driver }
    }

    /// Returns a token for one request, after a login if there is none. Fails at once while logins fail; they are retried in the
    /// background.
    pub(crate) async fn token(&self) -> Result<Token, VaultError> {
        self.token_if(Token::take).await
    }

    /// Logs in if there is no token.
    pub(crate) async fn log_in(&self) -> Result<(), VaultError> {
        self.token_if(|_| true).await.map(drop)
    }

    async fn token_if(&self, take: impl Fn(&Token) -> bool) -> Result<Token, VaultError> {
        let mut state = self.state.clone();
        loop {
            let request = match &*state.borrow_and_update() {
                State::Ready(token) if take(token) => return Ok(token.clone()),
                State::Ready(token) => Request::Spent(token.generation),
                State::Failed(how, source) => return Err(failed(how, source)),
                State::Idle => Request::Wanted,
            };
            // It ends only with this, so there is somebody to hear and to answer.
            let _ = self.requests.send(request).await;
            let _ = state.changed().await;
        }
    }

    /// Something was refused to the token: is it the token? `invalid` if Vault said so.
    pub(crate) async fn check_token(&self, token: &Token, invalid: bool) -> Verdict {
        let (verdict, answer) = oneshot::channel();
        let request = Request::CheckToken { generation: token.generation, invalid, verdict };
        let _ = self.requests.send(request).await;
        answer.await.unwrap_or(Verdict::Stands)
    }

    /// Something was done with the token.
    pub(crate) fn prove(&self, token: &Token) {
        self.counters.proven.fetch_max(token.generation, Ordering::Relaxed);
    }

    /// Why there is no token; nothing if there is one or nobody has asked.
    pub(crate) fn failure(&self) -> Option<VaultError> {
        match &*self.state.borrow() {
            State::Failed(how, source) => Some(failed(how, source)),
            State::Idle | State::Ready(_) => None,
        }
    }

    /// Revokes the token, if it came from a login and Vault answers soon. Otherwise the token expires.
    pub(crate) async fn close(&self) {
        let (done, closed) = oneshot::channel();
        let close = async {
            let _ = self.requests.send(Request::Close(done)).await;
            let _ = closed.await;
        };
        // The task may be waiting for Vault, for as long as a request may take.
        let _ = timeout(CLOSE_WITHIN, close).await;
    }

    pub(crate) fn counts(&self) -> LoginCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LoginCounts {
            succeeded: count(&self.counters.succeeded),
            failed: count(&self.counters.failed),
            renewed: count(&self.counters.renewed),
        }
    }
}

fn failed(how: &Arc<str>, source: &Arc<VaultError>) -> VaultError {
    VaultError::Login { how: Arc::clone(how), source: Arc::clone(source) }
}
