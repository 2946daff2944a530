//! The account, its users and their tokens, and audit events.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::{AccountState, Outcome, Refusal, World, body::Body, refused};
use crate::target::ZERO_TIME;

/// All settings, each with its value in a new account, which is also that of a setting that a PUT leaves out.
fn zero() -> Value {
    json!({
        "admission_enforcement_enabled": false, "admission_exempt_groups": [], "admission_posture_checks": [],
        "client_update_exclude_groups": [], "client_update_force": false, "client_update_target_groups": [],
        "client_update_target_peers": [], "client_update_target_version": "", "dns_domain": "",
        "extra": { "network_traffic_disable_default_port_filter": false, "network_traffic_logs_enabled": false,
            "network_traffic_packet_counter_enabled": false, "peer_approval_enabled": false },
        "groups_propagation_enabled": false, "jwt_allow_groups": [], "jwt_groups_claim_name": "",
        "jwt_groups_enabled": false, "lazy_connection_enabled": false, "mfa_enforce_federated": false,
        "mfa_enforce_local": false, "peer_inactivity_expiration": 0, "peer_inactivity_expiration_enabled": false,
        "peer_login_expiration": 86400, "peer_login_expiration_enabled": false, "regular_users_view_blocked": false,
        "routing_peer_dns_resolution_enabled": false
    })
}

/// Settings whose values no property has changed.
const UNPROVEN: [&str; 9] = [
    "admission_posture_checks",
    "client_update_exclude_groups",
    "client_update_force",
    "client_update_target_groups",
    "client_update_target_peers",
    "client_update_target_version",
    "dns_domain",
    "extra",
    "peer_inactivity_expiration",
];

pub(super) struct Settings(Map<String, Value>);

impl Default for Settings {
    fn default() -> Self {
        Self(zero().as_object().cloned().unwrap_or_default())
    }
}

pub(super) struct User {
    pub(super) id: String,
    name: String,
    pub(super) role: String,
    pub(super) is_blocked: bool,
    tokens: Vec<Value>,
}

impl User {
    pub(super) fn new(id: &str, name: &str, role: &str, is_blocked: bool) -> Self {
        Self { id: id.to_owned(), name: name.to_owned(), role: role.to_owned(), is_blocked, tokens: Vec::new() }
    }

    fn shown(&self) -> Value {
        json!({ "id": self.id, "name": self.name, "role": self.role, "is_blocked": self.is_blocked, "is_current": false,
            "is_service_user": true, "issued": "api", "last_login": ZERO_TIME, "auto_groups": [], "email": "",
            "status": if self.is_blocked { "blocked" } else { "active" } })
    }
}

impl AccountState {
    pub(super) fn show_account(&self) -> Value {
        json!({ "id": self.id, "created_at": "2026-01-01T00:00:00Z", "created_by": format!("{}-owner", self.id),
            "domain": format!("{}.test", self.id), "domain_category": "private",
            "onboarding": { "onboarding_flow_pending": false, "signup_form_pending": false }, "settings": self.settings.0 })
    }

    pub(super) fn put_account(&mut self, id: &str, body: &Body) -> Outcome {
        if id != self.id {
            return refused(403, "failed to validate user permissions: user is not part of this account");
        }
        body.only(&["created_at", "created_by", "domain", "domain_category", "id", "onboarding", "settings"])?;
        let sent = body.value("settings").and_then(Value::as_object).cloned().unwrap_or_default();
        let expiration = sent.get("peer_login_expiration").and_then(Value::as_i64).unwrap_or_default();
        if expiration < 3600 {
            return refused(422, "peer login expiration can't be smaller than one hour");
        }
        if !sent.contains_key("extra") {
            return Err(Refusal::Unproven("settings without `extra`, with which the server crashes".to_owned()));
        }
        let zero = zero();
        let zero = zero.as_object().cloned().unwrap_or_default();
        if let Some(key) = sent.keys().find(|key| !zero.contains_key(*key) && !key.starts_with("konverge_unknown")) {
            return Err(Refusal::Unproven(format!("the setting {key}")));
        }
        if let Some(key) = UNPROVEN.into_iter().find(|key| sent.get(*key).is_some_and(|value| *value != zero[*key])) {
            return Err(Refusal::Unproven(format!("another value of the setting {key}")));
        }
        let mut new = zero;
        for (key, value) in &mut new {
            match sent.get(key).filter(|value| !value.is_null()) {
                Some(sent) => *value = sent.clone(),
                None if key.starts_with("mfa_") => *value = self.settings.0[key].clone(),
                None => {}
            }
        }
        self.settings.0 = new;
        self.unproven_event();
        Ok(self.show_account())
    }

    pub(super) fn create_user(&mut self, body: &Body, id: &str) -> Outcome {
        body.only(&["role", "auto_groups", "is_service_user", "name"])?;
        if body.text("role")? != "user" || body.flag("is_service_user")? != Some(true) {
            return Err(Refusal::Unproven("another user than a service user with the role user".to_owned()));
        }
        let user = User::new(id, &body.text("name")?, "user", false);
        let shown = user.shown();
        self.users.push(user);
        self.unproven_event();
        Ok(shown)
    }

    pub(super) fn put_user(&mut self, id: &str, body: &Body) -> Outcome {
        body.only(&["role", "auto_groups", "is_blocked"])?;
        let (role, blocked) = (body.text("role")?, body.flag("is_blocked")?.unwrap_or_default());
        let Some(user) = self.users.iter_mut().find(|user| user.id == id) else {
            return Err(Refusal::Unproven("a missing user".to_owned()));
        };
        if role != "admin" || blocked {
            return Err(Refusal::Unproven("another change of a user than to the role admin".to_owned()));
        }
        user.role = role;
        let shown = user.shown();
        self.unproven_event();
        Ok(shown)
    }

    pub(super) fn delete_user(&mut self, id: &str) -> Outcome {
        let before = self.users.len();
        self.users.retain(|user| user.id != id);
        if self.users.len() == before {
            return refused(404, format!("user: {id} not found"));
        }
        self.unproven_event();
        Ok(json!({}))
    }

    pub(super) fn audit(&self) -> Outcome {
        let mut events = Vec::new();
        for (number, event) in self.events.iter().enumerate().rev() {
            let Some((activity, target)) = event else {
                return Err(Refusal::Unproven("events of other writes than those of groups and networks".to_owned()));
            };
            events.push(json!({ "id": (number + 1).to_string(), "activity": activity, "activity_code": activity,
                "initiator_email": "", "initiator_id": self.user, "initiator_name": "admin", "meta": {},
                "target_id": target, "timestamp": Timestamp::now().to_string() }));
        }
        Ok(Value::Array(events))
    }
}

impl World {
    /// The routes beneath `/users/{id}/tokens`.
    pub(super) fn tokens(
        &mut self,
        (account, caller): (&str, &str),
        method: &str,
        of: &str,
        rest: &[&str],
        body: &[u8],
        id: &str,
    ) -> Outcome {
        let Some(state) = self.accounts.get_mut(account) else { return refused(401, "token invalid") };
        let is_admin = state.users.iter().any(|user| user.id == caller && user.role == "admin" && !user.is_blocked);
        if !is_admin {
            return Err(Refusal::Unproven("tokens for another role than admin".to_owned()));
        }
        let Some(user) = state.users.iter_mut().find(|user| user.id == of) else {
            return Err(Refusal::Unproven("tokens of a missing user".to_owned()));
        };
        let position = rest.first().map(|id| user.tokens.iter().position(|token| token["id"] == *id).ok_or(*id));
        match (method, rest, position) {
            // The list of a user that the double has made a token for would have that one, too.
            ("GET", [], _) if user.tokens.is_empty() && of.starts_with("double") => Ok(Value::Null),
            ("GET", [_], Some(Ok(position))) => Ok(user.tokens[position].clone()),
            (_, [_], Some(Err(id))) => refused(404, format!("pat: {id} not found")),
            ("DELETE", [id], Some(Ok(position))) => {
                user.tokens.remove(position);
                self.tokens.remove(&plain(id));
                state.unproven_event();
                Ok(json!({}))
            }
            ("POST", [], _) => {
                let body = Body::parse(body)?;
                body.only(&["name", "expires_in"])?;
                let days = body.number("expires_in")?.unwrap_or_default();
                if body.text("name")?.is_empty() {
                    return refused(422, "token name can't be empty");
                }
                if !(1..=365).contains(&days) {
                    return refused(422, "expiration has to be between 1 and 365");
                }
                let now = Timestamp::now();
                let token = json!({ "id": id, "name": body.text("name")?, "created_by": caller, "created_at": now.to_string(),
                    "expiration_date": (now + SignedDuration::from_hours(24 * days)).to_string() });
                user.tokens.push(token.clone());
                let of = (account.to_owned(), of.to_owned(), false);
                self.tokens.insert(plain(id), of);
                state.unproven_event();
                Ok(json!({ "plain_token": plain(id), "personal_access_token": token }))
            }
            _ => Err(Refusal::Unproven("the route".to_owned())),
        }
    }
}

/// The clear text of the token with this id.
fn plain(id: &str) -> String {
    format!("nbp_{id:0>36}")
}
