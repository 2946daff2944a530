//! Policies and posture checks.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{
    AccountState, Outcome, Refusal,
    body::{Body, null_if_empty},
    refused,
};

pub(super) struct Policy {
    id: String,
    pub(super) name: String,
    description: String,
    enabled: bool,
    posture_checks: Option<Vec<String>>,
    rules: Vec<Rule>,
}

struct Rule {
    id: String,
    /// All keys that are shown as they are.
    shown: Map<String, Value>,
    sources: Vec<String>,
    destinations: Vec<String>,
}

impl Policy {
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Whether one of these groups is a destination.
    pub(super) fn leads_to(&self, groups: &[&str]) -> bool {
        self.rules.iter().flat_map(|rule| &rule.destinations).any(|group| groups.contains(&group.as_str()))
    }

    pub(super) fn names_group(&self, id: &str) -> bool {
        self.rules.iter().any(|rule| rule.sources.iter().chain(&rule.destinations).any(|group| group == id))
    }
}

fn missing<T>(id: &str) -> Result<T, Refusal> {
    refused(404, format!("policy: {id} not found"))
}

const PORTS: &str = "valid port value is in 1..65535 range";

impl AccountState {
    pub(super) fn show_policy(&self, policy: &Policy) -> Value {
        // The server shows a source group only in the first rule that names it.
        let mut seen = BTreeSet::new();
        let mut rules = Vec::new();
        for rule in &policy.rules {
            let sources = rule.sources.iter().filter(|id| !seen.contains(*id)).collect::<Vec<_>>();
            let shown = |ids: Vec<&String>| {
                null_if_empty(ids.into_iter().filter_map(|id| self.group(id)).map(super::Group::minimum).collect())
            };
            seen.extend(rule.sources.iter());
            let mut object = rule.shown.clone();
            object.insert("id".to_owned(), json!(rule.id));
            object.insert("sources".to_owned(), shown(sources));
            object.insert("destinations".to_owned(), shown(rule.destinations.iter().collect()));
            seen.extend(rule.destinations.iter());
            rules.push(Value::Object(object));
        }
        json!({ "id": policy.id, "name": policy.name, "description": policy.description, "enabled": policy.enabled,
            "source_posture_checks": policy.posture_checks, "rules": rules })
    }

    pub(super) fn get_policy(&self, id: &str) -> Outcome {
        let policy = self.policies.iter().find(|policy| policy.id == id);
        policy.map_or_else(|| missing(id), |policy| Ok(self.show_policy(policy)))
    }

    /// A POST if there is no `id`.
    pub(super) fn put_policy(&mut self, id: Option<&str>, body: &Body, new: &str) -> Outcome {
        let known = ["id", "name", "description", "enabled", "source_posture_checks", "rules"];
        body.only(&known)?;
        let mut rules = Vec::new();
        for rule in body.list("rules")?.unwrap_or_default() {
            rules.push(Body::of(&rule)?);
        }
        let owner = id.unwrap_or(new).to_owned();
        // A wrong type is found before anything else, then whether there is such a policy.
        for rule in &rules {
            rule.texts("ports")?;
            rule.texts("sources")?;
            rule.texts("destinations")?;
        }
        let position = id.map(|id| self.policies.iter().position(|policy| policy.id == id).ok_or(id)).transpose();
        let position = position.or_else(missing)?;
        let name = body.text("name")?;
        if name.is_empty() {
            return refused(422, "policy name shouldn't be empty");
        }
        if rules.is_empty() {
            return refused(422, "policy rules shouldn't be empty");
        }
        let mut policy = Policy {
            id: owner.clone(),
            name,
            description: body.text("description")?,
            enabled: body.flag("enabled")?.unwrap_or_default(),
            posture_checks: body.texts("source_posture_checks")?,
            rules: Vec::new(),
        };
        let checks = &self.posture_checks;
        let exists = |id: &String| checks.iter().any(|check| check["id"] == id.as_str());
        if policy.posture_checks.iter().flatten().any(|id| !exists(id)) {
            return Err(Refusal::Unproven("an unknown posture check".to_owned()));
        }
        for rule in rules {
            let explicit = if id.is_some() { rule.text("id")? } else { String::new() };
            let rule_id = if explicit.is_empty() { owner.clone() } else { explicit };
            policy.rules.push(self.rule(&rule, rule_id)?);
        }
        let shown = self.show_policy(&policy);
        // Rules with one id are one row, and the first one is kept.
        let mut ids = BTreeSet::new();
        policy.rules.retain(|rule| ids.insert(rule.id.clone()));
        match position {
            Some(position) => self.policies[position] = policy,
            None => self.policies.push(policy),
        }
        self.unproven_event();
        Ok(shown)
    }

    fn rule(&self, body: &Body, id: String) -> Result<Rule, Refusal> {
        body.only(&[
            "id",
            "name",
            "description",
            "enabled",
            "action",
            "bidirectional",
            "protocol",
            "ports",
            "port_ranges",
            "sources",
            "destinations",
            "sourceResource",
            "destinationResource",
        ])?;
        let (sources, destinations) = (body.texts("sources")?, body.texts("destinations")?);
        let (source, destination) = (body.value("sourceResource"), body.value("destinationResource"));
        if sources.is_some() && source.is_some() || destinations.is_some() && destination.is_some() {
            return Err(Refusal::Unproven("groups and a resource".to_owned()));
        }
        if sources.is_none() && source.is_none() || destinations.is_none() && destination.is_none() {
            return refused(
                422,
                "specify either sources or source resources and destinations or destination resources",
            );
        }
        let action = body.text("action")?;
        if !["accept", "drop"].contains(&action.as_str()) {
            return refused(422, "unknown action type");
        }
        let (ports, ranges) = (body.texts("ports")?.unwrap_or_default(), body.list("port_ranges")?.unwrap_or_default());
        if !ports.is_empty() && !ranges.is_empty() {
            return refused(422, "specify either individual ports or port ranges, not both");
        }
        if ports.iter().any(|port| !port.parse::<i64>().is_ok_and(|port| (1..=65535).contains(&port))) {
            return refused(422, PORTS);
        }
        let in_range = |value: &Value| value.as_i64().is_some_and(|port| (1..=65535).contains(&port));
        if ranges.iter().any(|range| !in_range(&range["start"]) || !in_range(&range["end"])) {
            return refused(422, PORTS);
        }
        let protocol = body.text("protocol")?;
        match protocol.as_str() {
            "tcp" | "udp" => {}
            "all" | "icmp" if ports.is_empty() && ranges.is_empty() => {}
            "all" | "icmp" => return refused(422, "for all or icmp protocol ports is not allowed"),
            other => return refused(422, format!("unknown protocol type: {other}")),
        }
        let mut shown = Map::new();
        let mut show = |key: &str, value: Value| shown.insert(key.to_owned(), value);
        show("name", json!(body.text("name")?));
        show("description", json!(body.text("description")?));
        show("enabled", json!(body.flag("enabled")?.unwrap_or_default()));
        show("action", json!(action));
        show("bidirectional", json!(body.flag("bidirectional")?.unwrap_or_default()));
        show("protocol", json!(protocol));
        if !ports.is_empty() {
            show("ports", json!(ports));
        }
        if !ranges.is_empty() {
            show("port_ranges", json!(ranges));
        }
        for (key, resource) in [("sourceResource", source), ("destinationResource", destination)] {
            if let Some(resource) = resource {
                show(key, resource.clone());
            }
        }
        let existing = |ids: Option<Vec<String>>| -> Vec<String> {
            ids.into_iter().flatten().filter(|id| self.group(id).is_some()).collect()
        };
        Ok(Rule { id, shown, sources: existing(sources), destinations: existing(destinations) })
    }

    pub(super) fn delete_policy(&mut self, id: &str) -> Outcome {
        let before = self.policies.len();
        self.policies.retain(|policy| policy.id != id);
        if self.policies.len() == before {
            return missing(id);
        }
        self.unproven_event();
        Ok(json!({}))
    }

    pub(super) fn create_posture_check(&mut self, body: &Body, id: &str) -> Outcome {
        body.only(&["name", "description", "checks"])?;
        let check = json!({ "id": id, "name": body.text("name")?, "description": body.text("description")?,
            "checks": body.value("checks") });
        self.posture_checks.push(check.clone());
        self.unproven_event();
        Ok(check)
    }
}
