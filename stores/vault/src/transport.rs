//! One request and its answer, within the limits.

use std::{
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use http::{HeaderMap, HeaderName, HeaderValue, header};
use konverge_endpoint::{ClientSettings, Clients, Gate, Limits, NotSent, Outcome, Refusal, address, retry_after};
use tokio::time::Instant;
use url::Url;
use zeroize::Zeroizing;

use crate::{
    answer::{Answer, RequestDescription},
    call::Call,
    config::VaultConfig,
    error::VaultError,
};

const TOKEN: HeaderName = HeaderName::from_static("x-vault-token");
const NAMESPACE: HeaderName = HeaderName::from_static("x-vault-namespace");
/// Some proxies demand it, as a proof that no browser was led to ask.
const REQUEST: HeaderName = HeaderName::from_static("x-vault-request");

/// A standby says where its leader is, and that is all that Vault redirects for.
const REDIRECTS: u32 = 2;

/// The way to one Vault, shared by all that ask it.
pub(crate) struct Transport {
    base: Url,
    address: Arc<str>,
    clients: Clients,
    gate: Gate,
    follow_redirects: bool,
}

impl Transport {
    pub(crate) fn new(config: &VaultConfig) -> Self {
        let shown = config.address.as_str().trim_end_matches("/v1/");
        Self {
            base: config.address.clone(),
            address: shown.into(),
            clients: Clients::new(
                ClientSettings::new("Vault", concat!("konverge-vault/", env!("CARGO_PKG_VERSION"))).with(|settings| {
                    settings.tls.clone_from(&config.tls);
                    settings.proxy.clone_from(&config.proxy);
                    settings.connect = config.limits.connect;
                }),
            ),
            gate: Gate::new(config.limits),
            follow_redirects: config.follow_redirects,
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        self.gate.limits()
    }

    pub(crate) fn describe(&self, call: &Call) -> RequestDescription {
        RequestDescription { what: call.what.clone(), address: Arc::clone(&self.address), capability: call.capability }
    }

    pub(crate) fn too_late(&self, call: &Call) -> VaultError {
        let (what, address) = (call.what.clone(), Arc::clone(&self.address));
        VaultError::Deadline { what, address, limit: self.limits().deadline }
    }

    /// Sends it and reads the answer, whatever its status. An error is one without an answer.
    pub(crate) async fn send(
        &self,
        call: &Call,
        token: Option<&HeaderValue>,
        namespace: Option<&HeaderValue>,
        deadline: Instant,
    ) -> Result<Answer, VaultError> {
        let exchange = self.exchange(call, headers(call, token, namespace));
        match self.gate.run(deadline, exchange, |answer| self.judge(answer)).await {
            Ok(Some(answer)) => answer,
            Ok(None) | Err(NotSent::Late) => Err(self.too_late(call)),
            Err(NotSent::Paused(refusal)) => Err(self.paused(call, refusal)),
        }
    }

    /// The outcome, as the breaker counts it.
    fn judge(&self, answer: Option<&Result<Answer, VaultError>>) -> Option<Outcome> {
        match answer {
            Some(Ok(answer)) => Some(answer.outcome()),
            // It was not asked.
            Some(Err(VaultError::Credential { .. })) => None,
            Some(Err(VaultError::Unreachable { cause, .. })) => {
                self.clients.doubt();
                Some(Outcome::Failed(cause.as_str().into()))
            }
            None => Some(Outcome::Late("it does not answer in time".into())),
            Some(Err(_)) => Some(Outcome::Served),
        }
    }

    /// Sends it without a token, whatever the breaker knows, and teaches it nothing.
    pub(crate) async fn send_always(&self, call: &Call) -> Result<Answer, VaultError> {
        let outcome =
            tokio::time::timeout(self.limits().deadline, self.exchange(call, headers(call, None, None))).await;
        outcome.unwrap_or_else(|_| Err(self.too_late(call)))
    }

    /// The server has said that it serves.
    pub(crate) fn serves(&self) {
        self.gate.serves();
    }

    fn paused(&self, call: &Call, Refusal { cause, after, .. }: Refusal) -> VaultError {
        VaultError::Paused { what: call.what.clone(), address: Arc::clone(&self.address), cause, after }
    }

    async fn exchange(&self, call: &Call, headers: HeaderMap) -> Result<Answer, VaultError> {
        let client = self.clients.get().await?;
        let mut url = self.base.join(&call.route).map_err(|_| self.garbage(call, "no address comes of the path"))?;
        for _ in 0..=REDIRECTS {
            let request = client.request(call.method.clone(), url.clone()).headers(headers.clone());
            let answer = request.body(call.body.clone()).send().await;
            let answer = answer.map_err(|error| self.unreachable(call, error))?;
            let location = answer.headers().get(header::LOCATION).and_then(|location| location.to_str().ok());
            match (answer.status().as_u16(), location) {
                (307 | 308, Some(location)) => {
                    let next = address::follow(&url, location);
                    let next =
                        next.ok_or_else(|| self.garbage(call, "a redirect without TLS or without a valid address"))?;
                    if next.origin() != url.origin() && !self.follow_redirects {
                        return Err(self.elsewhere(call, &next));
                    }
                    url = next;
                }
                _ => return self.read(call, answer).await,
            }
        }
        Err(self.garbage(call, "a redirect after others"))
    }

    async fn read(&self, call: &Call, mut answer: reqwest::Response) -> Result<Answer, VaultError> {
        let limit = self.limits().answer;
        let known = answer.content_length().and_then(|length| usize::try_from(length).ok()).unwrap_or_default();
        let too_large = || self.garbage(call, &format!("it is larger than the {limit} bytes that are allowed"));
        if known > limit {
            return Err(too_large());
        }
        // Enough from the start, so that no copy is left behind by growing.
        let mut body = Zeroizing::new(Vec::with_capacity(known));
        while let Some(chunk) = answer.chunk().await.map_err(|error| self.unreachable(call, error))? {
            if body.len() + chunk.len() > limit {
                return Err(too_large());
            }
            body.extend_from_slice(&chunk);
        }
        let (retry_after, date) = (retry_after(answer.headers(), SystemTime::now()), date(answer.headers()));
        Ok(Answer { status: answer.status(), body, retry_after, date })
    }

    fn elsewhere(&self, call: &Call, to: &Url) -> VaultError {
        let cause = format!(
            "a redirect to {}, which is not followed, because the token would go there; if that is the active node of this Vault, set \
             --vault-follow-redirects, name that address, or let Vault forward requests",
            to.origin().ascii_serialization()
        );
        self.garbage(call, &cause)
    }

    fn garbage(&self, call: &Call, cause: &str) -> VaultError {
        let (what, address) = (call.what.clone(), Arc::clone(&self.address));
        VaultError::Garbage { what, address, cause: cause.to_owned() }
    }

    fn unreachable(&self, call: &Call, error: reqwest::Error) -> VaultError {
        let error = error.without_url();
        let mut innermost: &dyn std::error::Error = &error;
        while let Some(source) = innermost.source() {
            innermost = source;
        }
        let (what, address) = (call.what.clone(), Arc::clone(&self.address));
        VaultError::Unreachable { what, address, cause: innermost.to_string() }
    }
}

fn headers(call: &Call, token: Option<&HeaderValue>, namespace: Option<&HeaderValue>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(REQUEST, HeaderValue::from_static("true"));
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(call.content_type));
    headers.extend(token.map(|token| (TOKEN, token.clone())));
    headers.extend(namespace.map(|namespace| (NAMESPACE, namespace.clone())));
    headers
}

fn date(headers: &HeaderMap) -> Option<i64> {
    let date = httpdate::parse_http_date(headers.get(header::DATE)?.to_str().ok()?).ok()?;
    i64::try_from(date.duration_since(UNIX_EPOCH).ok()?.as_secs()).ok()
}
