//! Access policies: one of the API's policies, with one rule, for each protocol of an object.

use std::collections::BTreeSet;

use konverge::remote::{Deletion, Failure, Mark, Remote};
use konverge_openzro::{
    Collection, Fields,
    types::{self, Policy},
};
use serde_json::{Value, json};

use super::{differing, marked};
use crate::account::Account;

/// The policies of an account. The mark is in the description of the rule, where the dashboard shows it last.
pub struct Policies(Account);

impl Policies {
    /// The policies of this account.
    pub fn new(account: Account) -> Self {
        Self(account)
    }
}

/// The desired content of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesiredPolicy {
    /// The name.
    pub name: String,
    /// The description, without the mark.
    pub description: String,
    /// Whether it has an effect.
    pub enabled: bool,
    /// `accept` or `drop`.
    pub action: String,
    /// `tcp`, `udp`, `icmp` or `all`.
    pub protocol: String,
    /// The ports; empty for all.
    pub ports: Ports,
    /// Ids of the source groups; never empty.
    pub sources: BTreeSet<String>,
    /// The items that the sources may reach.
    pub destination: Destination,
    /// Whether destinations may reach sources, too.
    pub bidirectional: bool,
}

/// The items that the sources of a policy may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// The groups with these ids; never empty.
    Groups(BTreeSet<String>),
    /// One network resource.
    Resource {
        /// Its id.
        id: String,
        /// `host`, `subnet` or `domain`.
        kind: String,
    },
}

/// Ports of a rule, as ranges; a single port begins and ends its range.
pub type Ports = BTreeSet<(u16, u16)>;

/// A policy in normal form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyItem {
    id: String,
    name: String,
    description: String,
    enabled: bool,
    rules: Vec<RuleItem>,
}

/// A rule in normal form.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RuleItem {
    name: String,
    description: String,
    enabled: bool,
    action: String,
    protocol: String,
    bidirectional: bool,
    ports: Ports,
    sources: BTreeSet<String>,
    destination: Destination,
    /// Whether it names a resource in place of source groups, or a port that is none, which no custom resource can say.
    has_more: bool,
}

impl PolicyItem {
    /// The id.
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl From<Policy> for PolicyItem {
    fn from(policy: Policy) -> Self {
        let rules = policy.rules.into_iter().map(RuleItem::from).collect();
        Self { id: policy.id, name: policy.name, description: policy.description, enabled: policy.enabled, rules }
    }
}

impl From<types::Rule> for RuleItem {
    fn from(rule: types::Rule) -> Self {
        let ids = |references: Vec<types::Reference>| references.into_iter().map(|reference| reference.id).collect();
        let destination = match rule.destination_resource {
            Some(resource) => Destination::Resource { id: resource.id, kind: resource.r#type },
            None => Destination::Groups(ids(rule.destinations)),
        };
        let single = rule.ports.iter().map(|port| port.parse().map(|port: u16| (port, port)));
        let (single, is_odd) = match single.collect::<Result<Ports, _>>() {
            Ok(ports) => (ports, false),
            Err(_) => (Ports::new(), true),
        };
        Self {
            name: rule.name,
            description: rule.description,
            enabled: rule.enabled,
            action: rule.action,
            protocol: rule.protocol,
            bidirectional: rule.bidirectional,
            ports: rule.port_ranges.iter().map(|range| (range.start, range.end)).chain(single).collect(),
            sources: ids(rule.sources),
            destination,
            has_more: rule.source_resource.is_some() || is_odd,
        }
    }
}

/// The keys of a rule that a custom resource decides. The server takes either single ports or ranges.
fn rule(desired: &DesiredPolicy, mark: &Mark) -> Value {
    let mut rule = json!({
        "name": desired.name,
        "description": marked(&desired.description, mark),
        "enabled": desired.enabled,
        "action": desired.action,
        "protocol": desired.protocol,
        "bidirectional": desired.bidirectional,
        "sources": desired.sources,
    });
    match &desired.destination {
        Destination::Groups(ids) => rule["destinations"] = json!(ids),
        Destination::Resource { id, kind } => rule["destinationResource"] = json!({ "id": id, "type": kind }),
    }
    if desired.ports.iter().all(|(first, last)| first == last) {
        rule["ports"] = desired.ports.iter().map(|(port, _)| json!(port.to_string())).collect();
    } else {
        rule["port_ranges"] =
            desired.ports.iter().map(|(first, last)| json!({ "start": first, "end": last })).collect();
    }
    rule
}

/// Sets our keys of a policy as it was read, and keeps all others, such as posture checks.
fn edit(body: &mut Fields, desired: &DesiredPolicy, mark: &Mark) {
    let first = body.get("rules").and_then(|rules| rules.get(0)).and_then(Value::as_object).cloned();
    let mut kept = first.unwrap_or_default();
    for contrary in ["ports", "port_ranges", "sourceResource", "destinations", "destinationResource"] {
        kept.remove(contrary);
    }
    if let Value::Object(ours) = rule(desired, mark) {
        kept.extend(ours);
    }
    body.insert("name".to_owned(), json!(desired.name));
    body.insert("description".to_owned(), json!(desired.description));
    body.insert("enabled".to_owned(), json!(desired.enabled));
    body.insert("rules".to_owned(), json!([kept]));
}

impl Remote for Policies {
    type Item = PolicyItem;
    type Desired = DesiredPolicy;

    const NOUN: &'static str = "policy";
    const NAMES_ARE_UNIQUE: bool = false;

    async fn list(&self, scope: &str) -> Result<Vec<PolicyItem>, Failure> {
        Ok(self.0.of(scope)?.list::<Policy>(&Collection::Policies).await?.into_iter().map(Into::into).collect())
    }

    async fn get(&self, scope: &str, id: &str) -> Result<Option<PolicyItem>, Failure> {
        Ok(self.0.of(scope)?.find::<Policy>(&Collection::Policies.place(id)).await?.map(Into::into))
    }

    async fn create(&self, scope: &str, desired: &DesiredPolicy, mark: &Mark) -> Result<PolicyItem, Failure> {
        let mut fields = Fields::new();
        edit(&mut fields, desired, mark);
        Ok(self.0.of(scope)?.create::<Policy>(&Collection::Policies, Value::Object(fields)).await?.0.into())
    }

    async fn update(
        &self,
        scope: &str,
        item: &PolicyItem,
        desired: &DesiredPolicy,
        mark: &Mark,
    ) -> Result<PolicyItem, Failure> {
        let place = Collection::Policies.place(&item.id);
        Ok(self.0.of(scope)?.modify::<Policy>(&place, |body| edit(body, desired, mark)).await?.into())
    }

    async fn delete(&self, scope: &str, item: &PolicyItem) -> Result<Deletion, Failure> {
        self.0.of(scope)?.delete(&Collection::Policies.place(&item.id)).await
    }

    fn id(item: &PolicyItem) -> &str {
        &item.id
    }

    fn name(item: &PolicyItem) -> &str {
        &item.name
    }

    fn mark(item: &PolicyItem) -> Option<Mark> {
        item.rules.iter().find_map(|rule| Mark::find_in(&rule.description))
    }

    fn differences(item: &PolicyItem, desired: &DesiredPolicy, mark: &Mark) -> Result<Vec<&'static str>, Failure> {
        let [rule] = item.rules.as_slice() else { return Ok(vec!["rules"]) };
        Ok(differing([
            ("name", item.name == desired.name && rule.name == desired.name),
            ("description", item.description == desired.description),
            ("mark", rule.description == marked(&desired.description, mark)),
            ("enabled", item.enabled == desired.enabled && rule.enabled == desired.enabled),
            ("action", rule.action == desired.action),
            ("protocol", rule.protocol == desired.protocol),
            ("bidirectional", rule.bidirectional == desired.bidirectional),
            ("ports", rule.ports == desired.ports && !rule.has_more),
            ("sources", rule.sources == desired.sources),
            ("destinations", rule.destination == desired.destination),
        ]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desired() -> DesiredPolicy {
        let ids = |ids: [&str; 2]| ids.map(str::to_owned).into();
        DesiredPolicy {
            name: "web TCP".to_owned(),
            description: "to the web".to_owned(),
            enabled: true,
            action: "accept".to_owned(),
            protocol: "tcp".to_owned(),
            ports: [(443, 443), (80, 80)].into(),
            sources: ids(["s1", "s2"]),
            destination: Destination::Groups(ids(["d1", "d2"])),
            bidirectional: true,
        }
    }

    fn mark() -> Mark {
        Mark::new("c", "u", "tcp")
    }

    /// As the server shows a policy with these fields.
    fn shown(mut fields: Fields, change: impl FnOnce(&mut Value)) -> PolicyItem {
        fields.insert("id".to_owned(), json!("p"));
        for key in ["sources", "destinations"] {
            let ids = fields["rules"][0][key].as_array().unwrap().iter().rev();
            fields["rules"][0][key] = ids.map(|id| json!({ "id": id })).collect();
        }
        let mut fields = Value::Object(fields);
        change(&mut fields);
        serde_json::from_value::<Policy>(fields).unwrap().into()
    }

    #[test]
    fn a_policy_differs_only_in_what_a_custom_resource_says_and_in_no_order() {
        let mut fields = Fields::new();
        edit(&mut fields, &desired(), &mark());
        for (change, expected) in [
            (json!({}), &[][..]),
            (json!({ "ports": ["80", "443"] }), &[]),
            (json!({ "ports": ["80"] }), &["ports"]),
            (json!({ "port_ranges": [{ "start": 1, "end": 2 }] }), &["ports"]),
            (json!({ "enabled": false }), &["enabled"]),
            (json!({ "action": "drop", "protocol": "udp" }), &["action", "protocol"]),
            (json!({ "description": "to the web" }), &["mark"]),
            (json!({ "sources": null }), &["sources"]),
            (json!({ "sourceResource": { "id": "r", "type": "host" } }), &["ports"]),
            (json!({ "destinationResource": { "id": "r", "type": "host" } }), &["destinations"]),
        ] {
            let item = shown(fields.clone(), |policy| {
                let rule = policy["rules"][0].as_object_mut().unwrap();
                rule.extend(change.as_object().unwrap().clone());
            });
            assert_eq!(Policies::differences(&item, &desired(), &mark()).as_deref(), Ok(expected), "{change}");
        }
        let two = shown(fields.clone(), |policy| {
            let rule = policy["rules"][0].clone();
            policy["rules"].as_array_mut().unwrap().push(rule);
        });
        assert_eq!(Policies::differences(&two, &desired(), &mark()).unwrap(), ["rules"]);
        let checked = shown(fields, |policy| policy["source_posture_checks"] = json!(["check"]));
        assert!(Policies::differences(&checked, &desired(), &mark()).unwrap().is_empty());
    }

    #[test]
    fn w2_an_edit_keeps_posture_checks_and_unknown_keys() {
        let body = json!({ "name": "old", "source_posture_checks": ["check"], "new": 1,
            "rules": [{ "id": "r", "newer": 2, "port_ranges": [{ "start": 1, "end": 9 }], "ports": null }] });
        let Value::Object(mut body) = body else { unreachable!() };
        edit(&mut body, &desired(), &mark());
        assert_eq!((&body["source_posture_checks"], &body["new"]), (&json!(["check"]), &json!(1)));
        let rule = &body["rules"][0];
        assert_eq!((&rule["id"], &rule["newer"], rule.get("port_ranges")), (&json!("r"), &json!(2), None));
        assert_eq!(rule["ports"], json!(["80", "443"]));
        // A resource takes the place of groups, and the other way round.
        assert_eq!(rule["destinations"], json!(["d1", "d2"]));
        let resource = Destination::Resource { id: "r1".to_owned(), kind: "host".to_owned() };
        edit(&mut body, &DesiredPolicy { destination: resource, ..desired() }, &mark());
        let expected = json!({ "id": "r1", "type": "host" });
        assert_eq!((&body["rules"][0]["destinationResource"], body["rules"][0].get("destinations")), (&expected, None));
        edit(&mut body, &desired(), &mark());
        assert_eq!(body["rules"][0].get("destinationResource"), None);
        // A range leaves no place for single ports.
        let ranges = DesiredPolicy { ports: [(80, 80), (8000, 8010)].into(), ..desired() };
        edit(&mut body, &ranges, &mark());
        let expected = json!([{ "start": 80, "end": 80 }, { "start": 8000, "end": 8010 }]);
        assert_eq!((&body["rules"][0]["port_ranges"], body["rules"][0].get("ports")), (&expected, None));
    }
}
