//! The way in: one Vault, one token, one set of limits.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use http::{HeaderValue, Method};
use konverge_endpoint::Limits;
use serde::Deserialize;
use tokio::time::{Instant, sleep, timeout_at};

use crate::{
    answer::Answer,
    call::Call,
    config::{ConfigError, VaultConfig, namespace_header},
    error::VaultError,
    mounts::Mounts,
    session::{LoginCounts, Session, Verdict},
    transport::Transport,
};

/// A server that has not caught up does so in moments; it is asked again this often.
const BEHIND_ATTEMPTS: u32 = 3;

/// The longest pause before such a repetition.
const BEHIND_PAUSE: Duration = Duration::from_millis(300);

/// The number of other tokens with which a refused request is sent again. A short-lived token may expire while the request waits for the
/// limits.
const INVALID_ATTEMPTS: u32 = 3;

/// A Vault or OpenBao. Clones share connections, token and limits.
///
/// Guarantees: the client sends nothing before the first call. Each call ends within [`Limits::deadline`](crate::Limits::deadline). One
/// login replaces a lost token for all callers, and each refused call is sent once more. While a server does not serve, the breaker lets
/// only one probe through now and then.
///
/// Does not repeat calls that fail for another reason: the error's class says when another attempt makes sense. A write that ended
/// without a response may have taken effect ([`VaultError::is_ambiguous`]); a read shows whether it has.
#[derive(Clone)]
pub struct Vault {
    shared: Arc<Shared>,
    namespace: Option<HeaderValue>,
}

struct Shared {
    transport: Arc<Transport>,
    session: Session,
    mounts: Mounts,
}

/// The health that a server reports.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Health {
    /// Whether it has been initialised.
    pub initialized: bool,
    /// Whether it is sealed and so serves nothing.
    pub sealed: bool,
    /// Whether another node leads.
    #[serde(default)]
    pub standby: bool,
    /// Its version.
    #[serde(default)]
    pub version: String,
}

impl Vault {
    /// A client. To be called within a tokio runtime, where the task that keeps the token runs until the last clone is dropped.
    pub fn new(config: &VaultConfig) -> Self {
        let transport = Arc::new(Transport::new(config));
        let session = Session::start(Arc::clone(&transport), config);
        let shared = Shared { transport, session, mounts: Mounts::default() };
        Self { shared: Arc::new(shared), namespace: config.namespace.clone() }
    }

    /// The same client at work in another namespace.
    pub fn in_namespace(&self, namespace: &str) -> Result<Self, ConfigError> {
        Ok(Self { shared: Arc::clone(&self.shared), namespace: Some(namespace_header(namespace)?) })
    }

    /// Logs in if that has not been done; for readiness.
    pub async fn log_in(&self) -> Result<(), VaultError> {
        let deadline = Instant::now() + self.shared.transport.limits().deadline;
        let call = Call::new(Method::GET, String::new(), "log in".to_owned(), "a login");
        let token = timeout_at(deadline, self.shared.session.log_in()).await;
        token.map_err(|_| self.shared.transport.too_late(&call))?
    }

    /// Why there is no token; nothing if there is one, or if nobody has needed one.
    pub fn login_failure(&self) -> Option<VaultError> {
        self.shared.session.failure()
    }

    /// How often this client has logged in.
    pub fn login_counts(&self) -> LoginCounts {
        self.shared.session.counts()
    }

    /// Returns the health that the server reports. Needs no token, and asks also while the server is sealed or the breaker is open. If the
    /// server says that it serves, the breaker closes, unless the server has asked for a pause.
    pub async fn health(&self) -> Result<Health, VaultError> {
        let route = "sys/health?standbyok=true&perfstandbyok=true&sealedcode=200&uninitcode=200".to_owned();
        let call = Call::new(Method::GET, route, "ask for its health".to_owned(), "nothing");
        let answer = self.shared.transport.send_always(&call).await?;
        let health: Health = self.succeeded(&call, answer)?.parse(&self.shared.transport.describe(&call))?;
        if health.initialized && !health.sealed {
            self.shared.transport.serves();
        }
        Ok(health)
    }

    /// Returns the capabilities of the token on each of these API paths, such as `secret/data/a`. A check can then name missing ones
    /// beforehand. `deny` alone counts as none.
    pub async fn capabilities(&self, paths: &[&str]) -> Result<BTreeMap<String, Vec<String>>, VaultError> {
        #[derive(Deserialize)]
        struct Allowed {
            data: BTreeMap<String, Vec<String>>,
        }

        let what = "ask for the token's capabilities".to_owned();
        let call = Call::new(Method::POST, "sys/capabilities-self".to_owned(), what, "update");
        let call = call.json(&serde_json::json!({ "paths": paths }));
        let answer = self.ask(&call).await?;
        let answer = self.succeeded(&call, answer)?;
        let mut allowed = self.parse::<Allowed>(&call, &answer)?.data;
        // Beside the paths there is a list for the first of them alone.
        allowed.retain(|path, _| paths.contains(&path.as_str()));
        Ok(allowed)
    }

    /// Revokes the token, if it came from a login. A later call logs in again. Ends within two seconds; if Vault does not answer by then, the
    /// token expires by itself.
    pub async fn close(&self) {
        self.shared.session.close().await;
    }

    /// The limits that it keeps to.
    pub fn limits(&self) -> &Limits {
        self.shared.transport.limits()
    }

    pub(crate) fn mounts(&self) -> &Mounts {
        &self.shared.mounts
    }

    pub(crate) fn namespace(&self) -> Option<&HeaderValue> {
        self.namespace.as_ref()
    }

    /// Reads the body of a success.
    pub(crate) fn parse<'a, T: Deserialize<'a>>(&self, call: &Call, answer: &'a Answer) -> Result<T, VaultError> {
        answer.parse(&self.shared.transport.describe(call))
    }

    /// Sends it as the bearer of the token. Any status is an answer.
    pub(crate) async fn ask(&self, call: &Call) -> Result<Answer, VaultError> {
        let transport = &self.shared.transport;
        let deadline = Instant::now() + transport.limits().deadline;
        timeout_at(deadline, self.ask_before(call, deadline)).await.unwrap_or_else(|_| Err(transport.too_late(call)))
    }

    /// The answer, if it is a success.
    pub(crate) fn succeeded(&self, call: &Call, answer: Answer) -> Result<Answer, VaultError> {
        if answer.is_success() { Ok(answer) } else { Err(answer.error(&self.shared.transport.describe(call))) }
    }

    /// Checks that the answer confirms a change that has no result.
    pub(crate) fn confirmed(&self, call: &Call, answer: &Answer) -> Result<(), VaultError> {
        if answer.is_confirmation() { Ok(()) } else { Err(answer.error(&self.shared.transport.describe(call))) }
    }

    async fn ask_before(&self, call: &Call, deadline: Instant) -> Result<Answer, VaultError> {
        let session = &self.shared.session;
        let (mut doubted, mut behind) = (0, 0);
        loop {
            let token = session.token().await?;
            let answer =
                self.shared.transport.send(call, Some(&token.header), self.namespace.as_ref(), deadline).await?;
            if answer.is_denied() {
                let invalid = answer.is_invalid_token();
                let again = doubted < if invalid { INVALID_ATTEMPTS } else { 1 };
                if again && session.check_token(&token, invalid).await == Verdict::Changed {
                    doubted += 1;
                    continue;
                }
            } else {
                session.prove(&token);
            }
            // Nothing was done, so this may be sent again, whatever it is.
            if answer.status.as_u16() == 412 && behind < BEHIND_ATTEMPTS {
                behind += 1;
                sleep(BEHIND_PAUSE.mul_f64(rand::random())).await;
                continue;
            }
            return Ok(answer);
        }
    }
}
