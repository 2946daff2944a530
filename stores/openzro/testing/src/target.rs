//! The target of a property, and the transcript of its calls.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use serde_json::{Map, Value};

/// No call of a property takes longer on any target.
const LONGEST_CALL: Duration = Duration::from_secs(30);

/// Keys whose values are times.
const TIMES: [&str; 7] =
    ["created_at", "updated_at", "expires", "last_used", "timestamp", "expiration_date", "last_login"];

/// The time of what has not happened.
pub const ZERO_TIME: &str = "0001-01-01T00:00:00Z";

/// An account of a target, for one property.
#[derive(Clone)]
pub struct Account {
    /// Its id. The id of its group `All` ends with `-all`, and those of its users end with `-` and their role.
    pub id: String,
    /// Tokens by role: `owner`, `admin`, `network_admin`, `user`, `blocked`, and `expired`, one of an admin.
    pub tokens: BTreeMap<&'static str, String>,
}

/// A complete answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The JSON of the body. A body that is no JSON is a text.
    pub body: Value,
}

/// One property's session on one target. The property cannot tell which target it is.
pub struct Session {
    url: String,
    client: Client<HttpConnector, Full<Bytes>>,
    /// Its own account.
    pub account: Account,
    /// An account that is not its own.
    pub other: Account,
    transcript: Mutex<Vec<String>>,
    /// Symbols for what differs between two runs, in the order of their first appearance.
    symbols: Mutex<Vec<(String, String)>>,
}

impl Reply {
    /// The id of the object.
    ///
    /// # Panics
    /// If it has none.
    #[expect(clippy::expect_used, reason = "a property without its object has failed")]
    pub fn id(&self) -> String {
        self.body["id"].as_str().map(str::to_owned).ok_or_else(|| self.body.to_string()).expect("an object with an id")
    }

    /// The server's message.
    pub fn message(&self) -> &str {
        self.body["message"].as_str().unwrap_or_default()
    }
}

impl Session {
    /// A session of a property on the target at this address.
    pub fn new(url: &str, account: Account, other: Account) -> Self {
        let symbols = vec![(account.id.clone(), "<account>".to_owned()), (other.id.clone(), "<other>".to_owned())];
        Self {
            url: url.trim_end_matches('/').to_owned(),
            client: Client::builder(TokioExecutor::new()).build_http(),
            account,
            other,
            transcript: Mutex::default(),
            symbols: Mutex::new(symbols),
        }
    }

    /// GET as the admin.
    pub async fn get(&self, path: &str) -> Reply {
        self.call("admin", Method::GET, path, Value::Null).await
    }

    /// POST as the admin.
    pub async fn post(&self, path: &str, body: Value) -> Reply {
        self.call("admin", Method::POST, path, body).await
    }

    /// PUT as the admin.
    pub async fn put(&self, path: &str, body: Value) -> Reply {
        self.call("admin", Method::PUT, path, body).await
    }

    /// DELETE as the admin.
    pub async fn delete(&self, path: &str) -> Reply {
        self.call("admin", Method::DELETE, path, Value::Null).await
    }

    /// A call as the user of this role. [`Value::Null`] is no body.
    pub async fn call(&self, role: &str, method: Method, path: &str, body: Value) -> Reply {
        let authorization = format!("Token {}", self.account.tokens[role]);
        let content = if body.is_null() { String::new() } else { body.to_string() };
        let reply = self.send(method.clone(), path, Some(&authorization), content).await;
        self.learn(&reply.body);
        let shown = if body.is_null() { String::new() } else { self.normal(body, "").to_string() };
        self.note(&format!(
            "{role} {method} {path} {shown} -> {} {}",
            reply.status,
            self.normal(reply.body.clone(), "")
        ));
        reply
    }

    /// A call with this header and body, that the transcript shows as `what`.
    pub async fn raw(&self, what: &str, method: Method, path: &str, authorization: Option<&str>, body: &str) -> Reply {
        let reply = self.send(method, path, authorization, body.to_owned()).await;
        self.note(&format!("{what} -> {} {}", reply.status, self.normal(reply.body.clone(), "")));
        reply
    }

    /// A call that the transcript does not show, because its answer is not the same in each run.
    ///
    /// # Panics
    /// If the target does not answer, or answers with a header that would let clients do better.
    #[expect(clippy::expect_used, reason = "a target that does not answer has failed the property")]
    pub async fn send(&self, method: Method, path: &str, authorization: Option<&str>, body: String) -> Reply {
        let mut request = Request::builder().method(method).uri(format!("{}/api{path}", self.url));
        request = request.header(header::CONTENT_TYPE, "application/json");
        if let Some(authorization) = authorization {
            request = request.header(header::AUTHORIZATION, authorization);
        }
        let request = request.body(Full::from(body)).expect("a request");
        let answer = tokio::time::timeout(LONGEST_CALL, self.client.request(request)).await;
        let answer = answer.expect("an answer in time").expect("an answer");
        for name in ["etag", "retry-after", "link", "x-total-count"] {
            assert!(!answer.headers().contains_key(name), "the server has changed: it has a header {name}");
        }
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.expect("a complete answer").to_bytes();
        let text = || Value::String(String::from_utf8_lossy(&body).trim().to_owned());
        Reply { status, body: serde_json::from_slice(&body).unwrap_or_else(|_| text()) }
    }

    /// Adds a line to the transcript.
    pub fn note(&self, line: &str) {
        let mut line = line.to_owned();
        let mut symbols = lock(&self.symbols).clone();
        // A longer id may contain a shorter one.
        symbols.sort_by_key(|(actual, _)| std::cmp::Reverse(actual.len()));
        for (actual, symbol) in symbols {
            line = line.replace(&actual, &symbol);
        }
        lock(&self.transcript).push(line);
    }

    /// All lines so far.
    pub fn transcript(&self) -> String {
        let lines = lock(&self.transcript).clone();
        lines.into_iter().map(|line| line + "\n").collect()
    }

    /// Gives each new id of an answer a symbol.
    pub fn learn(&self, value: &Value) {
        match value {
            Value::Array(values) => values.iter().for_each(|value| self.learn(value)),
            Value::Object(map) => {
                if let Some(id) = map.get("id").and_then(Value::as_str).filter(|id| id.len() >= 16) {
                    let mut symbols = lock(&self.symbols);
                    if !symbols.iter().any(|(actual, _)| id.contains(actual.as_str())) {
                        let symbol = format!("<{}>", symbols.len() - 1);
                        symbols.push((id.to_owned(), symbol));
                    }
                }
                map.values().for_each(|value| self.learn(value));
            }
            _ => {}
        }
    }

    /// Without times and keys, and with each list in an order of its own content.
    fn normal(&self, value: Value, key: &str) -> Value {
        match value {
            Value::Array(values) => {
                let mut values: Vec<_> = values.into_iter().map(|value| self.normal(value, "")).collect();
                if key != "rules" {
                    let symbols = lock(&self.symbols).clone();
                    values.sort_by_cached_key(|value| {
                        let mut text = value.to_string();
                        for (actual, symbol) in &symbols {
                            text = text.replace(actual, symbol);
                        }
                        text
                    });
                }
                Value::Array(values)
            }
            Value::Object(map) => {
                let map: Map<_, _> = map
                    .into_iter()
                    .map(|(key, value)| {
                        let value = self.normal(value, &key);
                        (key, value)
                    })
                    .collect();
                Value::Object(map)
            }
            Value::String(text) if TIMES.contains(&key) && text != ZERO_TIME => Value::String("<time>".to_owned()),
            Value::String(text) if key == "key" => {
                Value::String(if text.ends_with("****") { "<masked key>" } else { "<key>" }.to_owned())
            }
            Value::String(_) if key == "plain_token" => Value::String("<token>".to_owned()),
            other => other,
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
