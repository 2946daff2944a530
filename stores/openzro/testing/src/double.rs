//! A management server in this process that knows what the contract has proven, and nothing else.

mod account;
mod body;
mod dns;
mod groups;
mod networks;
mod policies;
mod setup_keys;

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Router,
    body::to_bytes,
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use self::{
    account::{Settings, User},
    body::Body,
    dns::Zone,
    groups::Group,
    networks::{Network, Resource, Router as NetworkRouter},
    policies::Policy,
    setup_keys::SetupKey,
};
use crate::target::Account;

/// The largest request.
const LARGEST: usize = 16 * 1024 * 1024;

/// The refusals, and their form.
#[derive(Debug)]
enum Refusal {
    /// An error in the form of the API.
    Api(u16, String),
    /// Text of the server's router.
    Unmatched,
    /// A known route, and not with this method.
    Method,
    /// No property of the contract covers it.
    Unproven(String),
}

type Outcome = Result<Value, Refusal>;

fn refused<T>(status: u16, message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal::Api(status, message.into()))
}

/// The double. Dropping it ends it, and fails the test if a call had been made that no property covers.
pub struct Double {
    url: String,
    world: Arc<Mutex<World>>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Default)]
struct World {
    accounts: BTreeMap<String, AccountState>,
    /// Account, user, and whether it has expired.
    tokens: BTreeMap<String, (String, String, bool)>,
    last_id: u64,
    unproven: Vec<String>,
}

/// All of one account.
struct AccountState {
    id: String,
    groups: Vec<Group>,
    policies: Vec<Policy>,
    posture_checks: Vec<Value>,
    setup_keys: Vec<SetupKey>,
    networks: Vec<Network>,
    resources: Vec<Resource>,
    routers: Vec<NetworkRouter>,
    zones: Vec<Zone>,
    settings: Settings,
    users: Vec<User>,
    /// Activity and target, the oldest first; `None` for a write whose event no property covers.
    events: Vec<Option<(&'static str, String)>>,
    /// The user of the current request.
    user: String,
}

impl Double {
    /// Starts one.
    pub async fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let world = Arc::new(Mutex::new(World::default()));
        let router = Router::new().fallback(answer).with_state(Arc::clone(&world));
        let task = tokio::spawn(async move {
            // It ends with the task alone.
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { url, world, task })
    }

    /// Where it answers.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A new account with a group `All` and a user of each role.
    pub fn account(&self) -> Account {
        let mut world = lock(&self.world);
        let id = format!("account{:03}", world.accounts.len());
        let mut account = AccountState::new(&id);
        let mut tokens = BTreeMap::new();
        for (name, role, is_blocked) in [
            ("owner", "owner", false),
            ("admin", "admin", false),
            ("network_admin", "network_admin", false),
            ("user", "user", false),
            ("blocked", "admin", true),
            ("expired", "admin", false),
        ] {
            let user = format!("{id}-{name}");
            let token = format!("nbp_{:0>30}{:0>6}", user.replace(['-', '_'], "x"), tokens.len());
            world.tokens.insert(token.clone(), (id.clone(), user.clone(), name == "expired"));
            account.users.push(User::new(&user, name, role, is_blocked));
            tokens.insert(name, token);
        }
        world.accounts.insert(id.clone(), account);
        Account { id, tokens }
    }

    /// The calls so far that no property covers.
    pub fn unproven(&self) -> Vec<String> {
        lock(&self.world).unproven.clone()
    }
}

impl Drop for Double {
    fn drop(&mut self) {
        self.task.abort();
        let unproven = self.unproven();
        assert!(
            unproven.is_empty() || std::thread::panicking(),
            "no property of the contract covers these calls; add one and run `cargo xtask openzro --record` on a machine with the \
             server: {unproven:#?}"
        );
    }
}

fn lock(world: &Mutex<World>) -> MutexGuard<'_, World> {
    world.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn answer(State(world): State<Arc<Mutex<World>>>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let outcome = match to_bytes(body, LARGEST).await {
        Ok(body) => lock(&world).answer(&head.method, &path, &head.headers, &body),
        Err(error) => Err(Refusal::Unproven(error.to_string())),
    };
    let json = |status: StatusCode, body: &Value| {
        (status, [(header::CONTENT_TYPE, "application/json; charset=UTF-8")], body.to_string()).into_response()
    };
    match outcome {
        Ok(body) => json(StatusCode::OK, &body),
        Err(Refusal::Api(status, message)) => {
            let code = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
            json(code, &json!({ "message": message, "code": status }))
        }
        Err(Refusal::Unmatched) => (StatusCode::NOT_FOUND, "404 page not found\n").into_response(),
        Err(Refusal::Method) => StatusCode::METHOD_NOT_ALLOWED.into_response(),
        Err(Refusal::Unproven(what)) => {
            let what = format!("{} {path}: {what}", head.method);
            lock(&world).unproven.push(what.clone());
            (StatusCode::NOT_IMPLEMENTED, what).into_response()
        }
    }
}

impl World {
    /// A new id, of the length of the server's.
    fn id(&mut self) -> String {
        self.last_id += 1;
        format!("double{:014}", self.last_id)
    }

    fn answer(&mut self, method: &Method, path: &str, headers: &HeaderMap, body: &[u8]) -> Outcome {
        let Some(path) = path.strip_prefix("/api/") else { return Err(Refusal::Unproven("no /api".to_owned())) };
        if path == "services" || path.ends_with('/') {
            return Err(Refusal::Unmatched);
        }
        if *method == Method::PATCH {
            return if path == "groups" { Err(Refusal::Method) } else { Err(Refusal::Unproven("PATCH".to_owned())) };
        }
        let (account, user) = self.authenticate(headers)?;
        let id = self.id();
        let segments: Vec<_> = path.split('/').collect();
        let method = method.as_str();
        if let ["users", of, "tokens", rest @ ..] = segments.as_slice() {
            return self.tokens((&account, &user), method, of, rest, body, &id);
        }
        let Some(account) = self.accounts.get_mut(&account) else { return refused(401, "token invalid") };
        account.authorize(&user, method, &segments)?;
        account.user = user;
        account.route(method, &segments, body, id)
    }

    /// The account and the user of the token.
    fn authenticate(&self, headers: &HeaderMap) -> Result<(String, String), Refusal> {
        let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (scheme, token) = value.split_once(' ').unwrap_or((value, ""));
        if !["token", "bearer"].contains(&scheme.to_ascii_lowercase().as_str()) {
            return refused(401, "no valid authentication provided");
        }
        match self.tokens.get(token) {
            Some((account, user, false)) => Ok((account.clone(), user.clone())),
            _ => refused(401, "token invalid"),
        }
    }
}

impl AccountState {
    fn new(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            groups: vec![Group::new(format!("{id}-all"), "All")],
            policies: Vec::new(),
            posture_checks: Vec::new(),
            setup_keys: Vec::new(),
            networks: Vec::new(),
            resources: Vec::new(),
            routers: Vec::new(),
            zones: Vec::new(),
            settings: Settings::default(),
            users: Vec::new(),
            events: Vec::new(),
            user: String::new(),
        }
    }

    fn authorize(&self, user: &str, method: &str, segments: &[&str]) -> Result<(), Refusal> {
        let Some(user) = self.users.iter().find(|known| known.id == user) else {
            return refused(401, "token invalid");
        };
        let is_read = method == "GET";
        if user.is_blocked {
            return match (is_read, segments) {
                (true, ["groups"]) => refused(403, "user is blocked"),
                (true, ["dns", "zones"]) => refused(403, "permission denied"),
                (true, ["policies" | "networks" | "accounts"]) | (false, ["groups"]) => {
                    refused(403, "failed to validate user permissions: user is blocked")
                }
                _ => Err(Refusal::Unproven("a blocked user".to_owned())),
            };
        }
        match (user.role.as_str(), segments[0]) {
            ("owner" | "admin", _) => Ok(()),
            _ if is_read => Ok(()),
            ("network_admin", "groups" | "networks" | "policies") => Ok(()),
            ("network_admin", "setup-keys" | "accounts")
            | ("user", "groups" | "networks" | "policies" | "setup-keys" | "accounts") => {
                refused(403, "permission denied")
            }
            (role, _) => Err(Refusal::Unproven(format!("a write of {role}"))),
        }
    }

    fn route(&mut self, method: &str, segments: &[&str], body: &[u8], id: String) -> Outcome {
        let parsed = || Body::parse(body);
        match (method, segments) {
            ("GET", ["groups"]) => Ok(self.groups.iter().map(Group::shown).collect()),
            ("POST", ["groups"]) => self.create_group(&parsed()?, id),
            ("GET", ["groups", id]) => self.get_group(id),
            ("PUT", ["groups", id]) => self.put_group(id, &parsed()?),
            ("DELETE", ["groups", id]) => self.delete_group(id),
            ("GET", ["policies"]) => Ok(self.policies.iter().map(|policy| self.show_policy(policy)).collect()),
            ("POST", ["policies"]) => self.put_policy(None, &parsed()?, &id),
            ("GET", ["policies", id]) => self.get_policy(id),
            ("PUT", ["policies", one]) => self.put_policy(Some(one), &parsed()?, &id),
            ("DELETE", ["policies", id]) => self.delete_policy(id),
            ("POST", ["posture-checks"]) => self.create_posture_check(&parsed()?, &id),
            ("GET", ["setup-keys"]) => Ok(self.setup_keys.iter().map(SetupKey::shown).collect()),
            ("POST", ["setup-keys"]) => self.create_setup_key(&parsed()?, id),
            ("GET", ["setup-keys", id]) => self.get_setup_key(id),
            ("PUT", ["setup-keys", id]) => self.put_setup_key(id, &parsed()?),
            ("DELETE", ["setup-keys", id]) => self.delete_setup_key(id),
            (_, ["networks", rest @ ..]) => self.route_networks(method, rest, body, id),
            (_, ["dns", "zones", rest @ ..]) => self.route_zones(method, rest, body, id),
            ("GET", ["accounts"]) => Ok(json!([self.show_account()])),
            ("PUT", ["accounts", id]) => self.put_account(id, &parsed()?),
            ("POST", ["users"]) => self.create_user(&parsed()?, &id),
            ("GET", ["users", "current"]) => refused(403, "permission denied"),
            ("PUT", ["users", id]) => self.put_user(id, &parsed()?),
            ("DELETE", ["users", id]) => self.delete_user(id),
            ("GET", ["peers"] | ["peers", _, "accessible-peers"]) => Ok(json!([])),
            ("GET", ["peers", id]) => refused(404, format!("peer not found: {id}")),
            ("GET", ["events", "audit"]) => self.audit(),
            _ => Err(Refusal::Unproven("the route".to_owned())),
        }
    }

    /// Notes a write whose event a property covers.
    fn event(&mut self, activity: &'static str, target: &str) {
        self.events.push(Some((activity, target.to_owned())));
    }

    /// Notes a write whose event no property covers.
    fn unproven_event(&mut self) {
        self.events.push(None);
    }
}
