//! The meaning of an `OZPolicy`: which policies the server should have for it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use konverge::kube::ResourceExt;

use crate::{
    annotations::GENERATED_BY,
    api::v1::{OZPolicy, OZPolicyRule, OZPolicySpec, OZPolicyStatus, OZResource, OZResourceSpec},
    control::short_digest,
    remote::Ports,
};

/// The protocols of the flat form. The original has one policy on the server for each.
const PROTOCOLS: [&str; 2] = ["tcp", "udp"];

/// One policy that the server should have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// Tells it from the other policies of the object.
    pub(super) id: String,
    /// The name of the rule, if it stands for one.
    pub(super) rule: Option<String>,
    pub(super) name: String,
    pub(super) description: String,
    pub(super) enabled: bool,
    pub(super) action: String,
    pub(super) protocol: String,
    /// Empty for all.
    pub(super) ports: Ports,
    /// Names of groups; never empty.
    pub(super) sources: BTreeSet<String>,
    /// Names of groups, or the name of one resource; never empty. Before the split, of both.
    pub(super) destinations: BTreeSet<String>,
    pub(super) bidirectional: bool,
}

/// The meaning of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lowered {
    pub(super) parts: Vec<Part>,
    /// The words for what the flat form lacks to have an effect.
    pub(super) lacking: Vec<&'static str>,
}

/// The name and the part of a rule's policy that leads to one resource.
fn for_resource(part: &Part, rule: &str, name: &str, key: &str) -> Part {
    let rule = format!("{rule} to {key}");
    Part {
        id: rule_part(&rule),
        name: format!("{} {key}", part.name),
        rule: Some(rule),
        destinations: [name.to_owned()].into(),
        ..part.clone()
    }
}

/// Splits the policies of rules that have resources among their destinations: the server has either groups or one resource in a rule. `resources` are
/// the namespace and name of each destination that is a resource.
pub(super) fn split(lowered: Lowered, resources: &BTreeMap<String, String>) -> Result<Lowered, String> {
    let mut parts: Vec<Part> = Vec::new();
    for part in lowered.parts {
        let is_resource = |name: &String| resources.contains_key(name);
        let (of_resources, of_groups): (BTreeSet<_>, _) = part.destinations.iter().cloned().partition(is_resource);
        // One resource may have two names, with and without its namespace.
        let keys: BTreeMap<&String, &String> = of_resources.iter().map(|name| (&resources[name], name)).collect();
        let rule = part.rule.clone().unwrap_or_default();
        parts.extend(keys.into_iter().map(|(key, name)| for_resource(&part, &rule, name, key)));
        if !of_groups.is_empty() {
            parts.push(Part { destinations: of_groups, ..part });
        }
    }
    let mut ids = BTreeSet::new();
    if let Some(twice) = parts.iter().find(|part| !ids.insert(&part.id)) {
        let rule = twice.rule.as_deref().unwrap_or_default();
        return Err(format!(
            "spec.rules has {rule:?} and a rule to a resource that has the same name; rename the former"
        ));
    }
    Ok(Lowered { parts, ..lowered })
}

/// The groups, ports and members that resources add to a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Contribution {
    pub(super) groups: BTreeSet<String>,
    pub(super) tcp: BTreeSet<i32>,
    pub(super) udp: BTreeSet<i32>,
    /// Namespace and name of each resource, in order.
    pub(super) members: Vec<String>,
}

impl Contribution {
    /// The contribution of all resources that name the policy and are not being deleted.
    pub(super) fn of<'a>(policy: &OZPolicy, resources: impl IntoIterator<Item = &'a OZResource>) -> Self {
        let mut contribution = Self::default();
        for resource in resources {
            if resource.metadata.deletion_timestamp.is_none() && takes_part(resource, policy) {
                let spec = &resource.spec;
                contribution.groups.extend(spec.groups.iter().cloned());
                contribution.tcp.extend(&spec.tcp_ports);
                contribution.udp.extend(&spec.udp_ports);
                let namespace = resource.namespace().unwrap_or_default();
                contribution.members.push(format!("{namespace}/{}", resource.name_any()));
            }
        }
        contribution.members.sort_unstable();
        contribution
    }
}

/// The policies that a resource names, separated by commas.
pub(in crate::control) fn requested_policies(spec: &OZResourceSpec) -> Vec<String> {
    spec.policy_name.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The name of the object that the original generates for a policy that a resource names and that does not exist.
pub(in crate::control) fn generated_name(policy: &str, namespace: &str, resource: &str) -> String {
    format!("{policy}-{namespace}-{resource}")
}

fn takes_part(resource: &OZResource, policy: &OZPolicy) -> bool {
    let (namespace, name) = (resource.namespace().unwrap_or_default(), resource.name_any());
    let is_generated_by_it =
        policy.annotations().get(GENERATED_BY).is_some_and(|by| *by == format!("{namespace}/{name}"));
    requested_policies(&resource.spec).iter().any(|requested| {
        *requested == policy.name_any()
            || (is_generated_by_it && generated_name(requested, &namespace, &name) == policy.name_any())
    })
}

/// Returns the policies that the server should have, or the reason why the spec has no meaning.
pub(super) fn lower(spec: &OZPolicySpec, contribution: &Contribution) -> Result<Lowered, String> {
    if spec.rules.is_empty() { flat(spec, contribution) } else { rules(spec) }
}

/// The flat form: one policy for each protocol that has ports.
fn flat(spec: &OZPolicySpec, contribution: &Contribution) -> Result<Lowered, String> {
    if let Some(unknown) = spec.protocols.iter().find(|protocol| !PROTOCOLS.contains(&protocol.as_str())) {
        return Err(format!("spec.protocols has {unknown:?}; use tcp or udp"));
    }
    let own = ports("spec.ports", &spec.ports)?;
    let tcp = ports("tcpPorts of its resources", &contribution.tcp)?;
    let udp = ports("udpPorts of its resources", &contribution.udp)?;
    let sources: BTreeSet<String> = spec.source_groups.iter().cloned().collect();
    let destinations: BTreeSet<String> = spec.destination_groups.iter().chain(&contribution.groups).cloned().collect();
    let mut lacking = Vec::new();
    if sources.is_empty() {
        lacking.push("sourceGroups");
    }
    if destinations.is_empty() {
        lacking.push("destinationGroups");
    }
    let mut lowered = Lowered::default();
    for (protocol, of_resources) in PROTOCOLS.into_iter().zip([tcp, udp]) {
        let is_wanted = spec.protocols.is_empty() || spec.protocols.iter().any(|wanted| wanted == protocol);
        let ports: Ports = own.union(&of_resources).copied().collect();
        if !is_wanted || ports.is_empty() || !lacking.is_empty() {
            continue;
        }
        lowered.parts.push(Part {
            id: protocol.to_owned(),
            rule: None,
            name: format!("{} {}", spec.name, protocol.to_ascii_uppercase()),
            description: spec.description.clone().unwrap_or_default(),
            enabled: spec.enabled.unwrap_or(true),
            action: "accept".to_owned(),
            protocol: protocol.to_owned(),
            ports,
            sources: sources.clone(),
            destinations: destinations.clone(),
            bidirectional: spec.bidirectional,
        });
    }
    if lowered.parts.is_empty() && lacking.is_empty() {
        lacking.push("ports");
    }
    lowered.lacking = lacking;
    Ok(lowered)
}

fn ports<'a>(field: &str, ports: impl IntoIterator<Item = &'a i32>) -> Result<Ports, String> {
    ports.into_iter().map(|port| port_of(field, i64::from(*port)).map(|port| (port, port))).collect()
}

fn port_of(field: &str, port: i64) -> Result<u16, String> {
    let valid = u16::try_from(port).ok().filter(|port| *port > 0);
    valid.ok_or_else(|| format!("{field} has {port}; a port is between 1 and 65535"))
}

/// The documented form: one policy for each rule, because the server keeps only one rule of a new policy.
fn rules(spec: &OZPolicySpec) -> Result<Lowered, String> {
    let mut names = BTreeSet::new();
    let mut lowered = Lowered::default();
    for rule in &spec.rules {
        if !names.insert(&rule.name) {
            return Err(format!("spec.rules has two rules named {:?}; give each a name of its own", rule.name));
        }
        lowered.parts.push(of_rule(spec, rule)?);
    }
    Ok(lowered)
}

fn of_rule(spec: &OZPolicySpec, rule: &OZPolicyRule) -> Result<Part, String> {
    let name = &rule.name;
    let protocol = rule.protocol.clone().unwrap_or_else(|| "all".to_owned());
    let field = format!("the rule {name}");
    let ports = rule.ports.iter().map(|port| range(&field, port)).collect::<Result<Ports, _>>()?;
    if !ports.is_empty() && !PROTOCOLS.contains(&protocol.as_str()) {
        return Err(format!("{field} has ports, which the protocol {protocol} has not; use tcp or udp"));
    }
    if rule.sources.is_empty() || rule.destinations.is_empty() {
        return Err(format!("{field} needs sources and destinations"));
    }
    Ok(Part {
        id: rule_part(name),
        rule: Some(name.clone()),
        name: format!("{} {name}", spec.name),
        description: rule.description.clone().or_else(|| spec.description.clone()).unwrap_or_default(),
        enabled: spec.enabled.unwrap_or(true) && rule.enabled.unwrap_or(true),
        action: rule.action.clone().unwrap_or_else(|| "accept".to_owned()),
        protocol,
        ports,
        sources: rule.sources.iter().cloned().collect(),
        destinations: rule.destinations.iter().cloned().collect(),
        bidirectional: rule.bidirectional,
    })
}

fn range(field: &str, port: &IntOrString) -> Result<(u16, u16), String> {
    let text = match port {
        IntOrString::Int(port) => port.to_string(),
        IntOrString::String(text) => text.clone(),
    };
    let (first, last) = text.split_once('-').unwrap_or((&text, &text));
    let port = |text: &str| match text.trim().parse() {
        Ok(port) => port_of(field, port),
        Err(_) => Err(format!("{field} has the port {text:?}; use a number or a range such as 8000-8010")),
    };
    let (first, last) = (port(first)?, port(last)?);
    if first > last {
        return Err(format!("{field} has the range {text:?}, which ends before it begins"));
    }
    Ok((first, last))
}

/// The part of a rule. Names of rules are texts for people, so a digest stands for them.
fn rule_part(name: &str) -> String {
    format!("rule-{}", short_digest(name))
}

/// The id of a part in the status.
pub(super) fn id(policy: &OZPolicy, part: &str) -> Option<String> {
    let status = policy.status.as_ref()?;
    match part {
        "tcp" => status.tcp_policy_id.clone(),
        "udp" => status.udp_policy_id.clone(),
        rule => status.rule_policy_ids.iter().find(|(name, _)| rule_part(name) == rule).map(|(_, id)| id.clone()),
    }
}

/// Sets the id of a part in a status.
pub(super) fn set_id(status: &mut OZPolicyStatus, part: &Part, id: Option<&str>) {
    let id = id.map(str::to_owned);
    match (part.id.as_str(), &part.rule, id) {
        (_, Some(rule), Some(id)) => drop(status.rule_policy_ids.insert(rule.clone(), id)),
        ("tcp", _, id) => status.tcp_policy_id = id,
        ("udp", _, id) => status.udp_policy_id = id,
        _ => {}
    }
}

/// Takes the id of a part out of a status.
pub(super) fn forget_id(status: &mut OZPolicyStatus, part: &str) {
    match part {
        "tcp" => status.tcp_policy_id = None,
        "udp" => status.udp_policy_id = None,
        rule => status.rule_policy_ids.retain(|name, _| rule_part(name) != rule),
    }
}

/// All parts that may exist on the server: those of the record, and those whose ids are in the status.
pub(super) fn existing_parts(policy: &OZPolicy, recorded: Vec<String>) -> BTreeSet<String> {
    let status = policy.status.as_ref();
    let flat = PROTOCOLS.into_iter().filter(|part| id(policy, part).is_some()).map(str::to_owned);
    let rules = status.into_iter().flat_map(|status| status.rule_policy_ids.keys()).map(|name| rule_part(name));
    recorded.into_iter().chain(flat).chain(rules).collect()
}

/// The names of all groups that the spec itself refers to.
pub(super) fn group_names(spec: &OZPolicySpec) -> BTreeSet<String> {
    if spec.rules.is_empty() {
        return spec.source_groups.iter().chain(&spec.destination_groups).cloned().collect();
    }
    spec.rules.iter().flat_map(|rule| rule.sources.iter().chain(&rule.destinations)).cloned().collect()
}

/// The names that the policies of an object have on the server.
pub(super) fn policy_names(spec: &OZPolicySpec) -> Vec<String> {
    if spec.rules.is_empty() {
        PROTOCOLS.iter().map(|protocol| format!("{} {}", spec.name, protocol.to_ascii_uppercase())).collect()
    } else {
        spec.rules.iter().map(|rule| format!("{} {}", spec.name, rule.name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(fields: &Value) -> OZPolicySpec {
        let mut spec = json!({ "name": "web", "sourceGroups": ["devs"], "destinationGroups": ["servers"] });
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(spec).unwrap()
    }

    fn resource(name: &str, fields: Value) -> OZResource {
        let spec = serde_json::from_value::<OZResourceSpec>(fields).unwrap();
        let mut resource = OZResource::new(name, spec);
        resource.metadata.namespace = Some("shop".to_owned());
        resource
    }

    /// The parts with their ports, and what lacks.
    fn summary(lowered: &Lowered) -> (Vec<(&str, Vec<u16>)>, &[&'static str]) {
        let parts =
            lowered.parts.iter().map(|part| (part.id.as_str(), part.ports.iter().map(|(port, _)| *port).collect()));
        (parts.collect(), &lowered.lacking)
    }

    #[test]
    fn w21_ports_and_groups_alone_make_a_policy_and_what_lacks_is_named() {
        let none = Contribution::default();
        for (fields, parts, lacking) in [
            (json!({ "ports": [443, 80] }), vec![("tcp", vec![80, 443]), ("udp", vec![80, 443])], &[][..]),
            (json!({ "ports": [443], "protocols": ["tcp"] }), vec![("tcp", vec![443])], &[]),
            (json!({}), vec![], &["ports"]),
            (json!({ "ports": [1], "sourceGroups": [] }), vec![], &["sourceGroups"]),
            (
                json!({ "ports": [1], "destinationGroups": [], "sourceGroups": [] }),
                vec![],
                &["sourceGroups", "destinationGroups"],
            ),
        ] {
            let lowered = lower(&spec(&fields), &none).unwrap();
            assert_eq!(summary(&lowered), (parts, lacking), "{fields}");
        }
    }

    #[test]
    fn a_spec_without_a_meaning_says_which_field_is_wrong() {
        for (fields, word) in [
            (json!({ "ports": [0] }), "spec.ports has 0"),
            (json!({ "ports": [65536] }), "65536"),
            (json!({ "ports": [1], "protocols": ["icmp"] }), "\"icmp\""),
            (json!({ "rules": [{ "name": "a", "sources": ["x"] }] }), "the rule a needs sources and destinations"),
            (
                json!({ "rules": [{ "name": "a", "sources": ["x"], "destinations": ["y"], "ports": [1] }] }),
                "protocol all",
            ),
            (
                json!({ "rules": [{ "name": "a", "sources": ["x"], "destinations": ["y"], "protocol": "tcp", "ports": ["9-1"] }] }),
                "ends before",
            ),
            (
                json!({ "rules": [{ "name": "a", "sources": ["x"], "destinations": ["y"], "protocol": "tcp", "ports": ["http"] }] }),
                "\"http\"",
            ),
            (
                json!({ "rules": [{ "name": "a", "sources": ["x"], "destinations": ["y"] }, { "name": "a" }] }),
                "two rules named",
            ),
        ] {
            let error = lower(&spec(&fields), &Contribution::default()).unwrap_err();
            assert!(error.contains(word), "{fields}: {error}");
        }
    }

    #[test]
    fn rules_become_one_policy_each() {
        let rules = json!({ "rules": [
            { "name": "web in", "sources": ["a"], "destinations": ["b"], "protocol": "tcp", "ports": [80, "8000-8010"] },
            { "name": "drop", "sources": ["a"], "destinations": ["b"], "action": "drop", "enabled": false, "bidirectional": false },
        ] });
        let lowered = lower(&spec(&rules), &Contribution::default()).unwrap();
        let [web, drop] = lowered.parts.as_slice() else { panic!("{lowered:?}") };
        assert_eq!((web.name.as_str(), web.ports.clone()), ("web web in", [(80, 80), (8000, 8010)].into()));
        assert_eq!(
            (drop.action.as_str(), drop.protocol.as_str(), drop.enabled, drop.bidirectional),
            ("drop", "all", false, false)
        );
        assert_ne!(web.id, drop.id);
    }

    #[test]
    fn each_resource_of_a_rule_has_a_policy_of_its_own() {
        let rules = json!({ "rules": [
            { "name": "ssh", "sources": ["a"], "destinations": ["b", "db", "shop/db", "c", "web"], "protocol": "tcp", "ports": [22] },
            { "name": "none", "sources": ["a"], "destinations": ["db"] },
        ] });
        let keys = [("db", "shop/db"), ("shop/db", "shop/db"), ("web", "shop/web")];
        let resources = keys.map(|(name, key)| (name.to_owned(), key.to_owned())).into();
        let lowered = lower(&spec(&rules), &Contribution::default()).unwrap();
        let split = split(lowered.clone(), &resources).unwrap();
        let texts = |part: &Part| (part.name.clone(), part.destinations.iter().cloned().collect::<Vec<_>>().join(" "));
        let expected = [
            ("web ssh shop/db", "shop/db"),
            ("web ssh shop/web", "web"),
            ("web ssh", "b c"),
            ("web none shop/db", "db"),
        ];
        let expected = expected.map(|(name, destinations)| (name.to_owned(), destinations.to_owned()));
        assert_eq!(split.parts.iter().map(texts).collect::<Vec<_>>(), expected);
        assert!(split.parts[..3].iter().all(|part| part.ports == [(22, 22)].into()));
        // The id in the status belongs to the same part.
        let mut policy = OZPolicy::new("web", spec(&rules));
        let mut status = OZPolicyStatus::default();
        split.parts.iter().for_each(|part| set_id(&mut status, part, Some(&part.name)));
        policy.status = Some(status);
        for part in &split.parts {
            assert_eq!(id(&policy, &part.id).as_deref(), Some(&*part.name));
        }
        assert_eq!(super::split(lowered.clone(), &BTreeMap::new()).unwrap(), lowered);

        let rules = json!({ "rules": [
            { "name": "ssh", "sources": ["a"], "destinations": ["db"] },
            { "name": "ssh to shop/db", "sources": ["a"], "destinations": ["b"] },
        ] });
        let lowered = lower(&spec(&rules), &Contribution::default()).unwrap();
        assert!(super::split(lowered, &resources).unwrap_err().contains("rename the former"));
    }

    #[test]
    fn w7_resources_contribute_exactly_their_ports_and_groups() {
        let policy = OZPolicy::new("web", spec(&json!({})));
        let fields = |policies: &str, port: u16| json!({ "name": "r", "address": "10.0.0.1", "groups": ["shop"], "policyName": policies, "tcpPorts": [port] });
        let mut gone = resource("gone", fields("web", 3));
        gone.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
        let resources = [
            resource("b", fields("db, web", 1)),
            resource("a", fields("web", 2)),
            resource("c", fields("db", 4)),
            gone,
        ];
        let contribution = Contribution::of(&policy, &resources);
        assert_eq!(contribution.members, ["shop/a", "shop/b"]);
        assert_eq!((contribution.tcp.clone(), contribution.udp.clone()), ([1, 2].into(), [].into()));
        let lowered = lower(&policy.spec, &contribution).unwrap();
        assert_eq!(summary(&lowered), (vec![("tcp", vec![1, 2])], &[][..]));
        assert_eq!(lowered.parts[0].destinations, ["servers".to_owned(), "shop".to_owned()].into());
    }

    #[test]
    fn w22_a_generated_policy_knows_its_resource() {
        let mut policy = OZPolicy::new("web-shop-a", spec(&json!({})));
        policy.metadata.annotations = Some([(GENERATED_BY.to_owned(), "shop/a".to_owned())].into());
        let fields = json!({ "name": "r", "address": "10.0.0.1", "groups": [], "policyName": "web", "udpPorts": [53] });
        let resources = [resource("a", fields.clone()), resource("b", fields)];
        assert_eq!(Contribution::of(&policy, &resources).members, ["shop/a"]);
    }

    #[test]
    fn a_part_is_known_by_its_record_or_its_id() {
        let mut policy = OZPolicy::new("web", spec(&json!({})));
        let mut status = OZPolicyStatus { tcp_policy_id: Some("t".to_owned()), ..OZPolicyStatus::default() };
        status.rule_policy_ids.insert("web in".to_owned(), "r".to_owned());
        policy.status = Some(status);
        let rule = rule_part("web in");
        let expected = ["tcp".to_owned(), "udp".to_owned(), rule.clone()].into();
        assert_eq!(existing_parts(&policy, vec!["udp".to_owned()]), expected);
        assert_eq!((id(&policy, &rule), id(&policy, "udp")), (Some("r".to_owned()), None));
        let status = policy.status.as_mut().unwrap();
        forget_id(status, &rule);
        forget_id(status, "tcp");
        assert_eq!(*status, OZPolicyStatus::default());
    }
}
