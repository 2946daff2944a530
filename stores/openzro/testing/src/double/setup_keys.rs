//! Setup keys.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{AccountState, Outcome, Refusal, body::Body, refused};
use crate::target::ZERO_TIME;

pub(super) struct SetupKey {
    id: String,
    key: String,
    pub(super) name: String,
    kind: String,
    expires: Option<Timestamp>,
    pub(super) auto_groups: Vec<String>,
    usage_limit: i64,
    ephemeral: bool,
    extra_labels: bool,
    revoked: bool,
    updated: Timestamp,
}

fn missing<T>(id: &str) -> Result<T, Refusal> {
    refused(404, format!("setup key: {id} not found"))
}

impl SetupKey {
    fn shown_with(&self, key: &str) -> Value {
        let state = match self.expires {
            _ if self.revoked => "revoked",
            Some(expires) if expires <= Timestamp::now() => "expired",
            _ => "valid",
        };
        json!({ "id": self.id, "key": key, "name": self.name, "type": self.kind, "state": state, "valid": state == "valid",
            "revoked": self.revoked, "expires": self.expires.map_or_else(|| ZERO_TIME.to_owned(), |time| time.to_string()),
            "last_used": ZERO_TIME, "updated_at": self.updated.to_string(), "used_times": 0, "usage_limit": self.usage_limit,
            "auto_groups": self.auto_groups, "ephemeral": self.ephemeral, "allow_extra_dns_labels": self.extra_labels })
    }

    pub(super) fn shown(&self) -> Value {
        self.shown_with(&format!("{}****", &self.key[..5]))
    }
}

impl AccountState {
    fn check_auto_groups(&self, groups: &[String]) -> Result<(), Refusal> {
        for id in groups {
            match self.group(id) {
                None => return refused(422, format!("invalid auto groups: group not found: {id}")),
                Some(group) if group.name == "All" => {
                    return refused(422, "invalid auto groups: can't add 'all' group to the setup key");
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    pub(super) fn create_setup_key(&mut self, body: &Body, id: String) -> Outcome {
        body.only(&[
            "name",
            "type",
            "expires_in",
            "auto_groups",
            "usage_limit",
            "ephemeral",
            "allow_extra_dns_labels",
        ])?;
        let (name, kind) = (body.text("name")?, body.text("type")?);
        let (expires_in, usage_limit) =
            (body.number("expires_in")?.unwrap_or(0), body.number("usage_limit")?.unwrap_or(0));
        let auto_groups = body.texts("auto_groups")?.unwrap_or_default();
        if name.is_empty() {
            return refused(422, "setup key name shouldn't be empty");
        }
        if !["reusable", "one-off"].contains(&kind.as_str()) {
            return refused(422, format!("unknown setup key type {kind}"));
        }
        if expires_in < 0 {
            return refused(422, "expiresin can not be in the past");
        }
        self.check_auto_groups(&auto_groups)?;
        let number = self.setup_keys.len();
        let key = SetupKey {
            key: format!(
                "D0{number:06X}-0000-4000-8000-{:0>12}",
                id.trim_start_matches("double").trim_start_matches('0')
            ),
            id,
            name,
            usage_limit: if kind == "one-off" { 1 } else { usage_limit },
            kind,
            expires: (expires_in > 0).then(|| Timestamp::now() + SignedDuration::from_secs(expires_in)),
            auto_groups,
            ephemeral: body.flag("ephemeral")?.unwrap_or_default(),
            extra_labels: body.flag("allow_extra_dns_labels")?.unwrap_or_default(),
            revoked: false,
            updated: Timestamp::now(),
        };
        let shown = key.shown_with(&key.key);
        self.setup_keys.push(key);
        self.unproven_event();
        Ok(shown)
    }

    pub(super) fn get_setup_key(&self, id: &str) -> Outcome {
        let key = self.setup_keys.iter().find(|key| key.id == id);
        key.map_or_else(|| missing(id), |key| Ok(key.shown()))
    }

    pub(super) fn put_setup_key(&mut self, id: &str, body: &Body) -> Outcome {
        body.only(&[
            "allow_extra_dns_labels",
            "auto_groups",
            "ephemeral",
            "expires",
            "id",
            "last_used",
            "name",
            "revoked",
            "state",
            "type",
            "updated_at",
            "usage_limit",
            "used_times",
            "valid",
        ])?;
        let Some(auto_groups) = body.texts("auto_groups")? else {
            return refused(422, "setup key autogroups field is invalid");
        };
        let Some(position) = self.setup_keys.iter().position(|key| key.id == id) else { return missing(id) };
        let revoked = body.flag("revoked")?.unwrap_or_default();
        if self.setup_keys[position].revoked && !revoked {
            return refused(422, "can't un-revoke a revoked setup key");
        }
        self.check_auto_groups(&auto_groups)?;
        let key = &mut self.setup_keys[position];
        (key.auto_groups, key.revoked, key.updated) = (auto_groups, revoked, Timestamp::now());
        let shown = key.shown();
        self.unproven_event();
        Ok(shown)
    }

    pub(super) fn delete_setup_key(&mut self, id: &str) -> Outcome {
        let before = self.setup_keys.len();
        self.setup_keys.retain(|key| key.id != id);
        if self.setup_keys.len() == before {
            return missing(id);
        }
        self.unproven_event();
        Ok(json!({}))
    }
}
