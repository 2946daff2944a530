//! Typed views of [`Object`](crate::Object), for reading. Fields that they do not know stay in the object.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// `null` counts as the type's default.
fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(deserializer: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

macro_rules! views {
    ($($(#[$outer:meta])* $name:ident { $($(#[$inner:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$outer])*
        #[derive(Debug, Clone, PartialEq, Default, Deserialize)]
        #[non_exhaustive]
        pub struct $name {
            $($(#[$inner])* #[serde(default, deserialize_with = "or_default")] pub $field: $type,)*
        }
    )*};
}

views! {
    /// A reference with an id, as answers have them in lists.
    Reference {
        /// The id.
        id: String,
        /// The name, if the answer has one.
        name: String,
    }
    /// A resource, as groups and rules refer to it.
    ResourceReference {
        /// The id.
        id: String,
        /// `host`, `subnet` or `domain`.
        r#type: String,
    }
    /// A group.
    Group {
        /// The id.
        id: String,
        /// The name. It need not be unique.
        name: String,
        /// `api`, `jwt` or `integration`.
        issued: String,
        /// Its peers.
        peers: Vec<Reference>,
        /// Its resources.
        resources: Vec<ResourceReference>,
    }
    /// An access policy.
    Policy {
        /// The id.
        id: String,
        /// The name. It need not be unique.
        name: String,
        /// The description.
        description: String,
        /// Whether it has an effect.
        enabled: bool,
        /// Ids of posture checks that sources must pass.
        source_posture_checks: Vec<String>,
        /// Its rules.
        rules: Vec<Rule>,
    }
    /// A rule of a policy.
    Rule {
        /// The id: after a POST that of the policy.
        id: String,
        /// The name.
        name: String,
        /// The description.
        description: String,
        /// Whether it has an effect.
        enabled: bool,
        /// `accept` or `drop`.
        action: String,
        /// Whether destinations may reach sources, too.
        bidirectional: bool,
        /// `all`, `tcp`, `udp` or `icmp`.
        protocol: String,
        /// Ports, as texts.
        ports: Vec<String>,
        /// Ranges of ports.
        port_ranges: Vec<PortRange>,
        /// Source groups.
        sources: Vec<Reference>,
        /// Destination groups.
        destinations: Vec<Reference>,
        /// A source that is one resource.
        #[serde(rename = "sourceResource")]
        source_resource: Option<ResourceReference>,
        /// A destination that is one resource.
        #[serde(rename = "destinationResource")]
        destination_resource: Option<ResourceReference>,
    }
    /// A range of ports.
    PortRange {
        /// The first.
        start: u16,
        /// The last.
        end: u16,
    }
    /// A setup key, without the key itself.
    SetupKey {
        /// The id.
        id: String,
        /// The name. It need not be unique.
        name: String,
        /// The first five characters and stars.
        key: String,
        /// `reusable` or `one-off`.
        r#type: String,
        /// `valid`, `overused`, `expired` or `revoked`.
        state: String,
        /// Whether peers can use it.
        valid: bool,
        /// Whether it was revoked, which is for ever.
        revoked: bool,
        /// When it expires; the year 1 for never.
        expires: String,
        /// How often it was used.
        used_times: i64,
        /// How often it may be used; 0 is no limit.
        usage_limit: i64,
        /// Ids of the groups that its peers join.
        auto_groups: Vec<String>,
        /// Whether its peers are removed after they disconnect.
        ephemeral: bool,
        /// Whether its peers may present extra DNS labels.
        allow_extra_dns_labels: bool,
    }
    /// A network.
    Network {
        /// The id.
        id: String,
        /// The name. It need not be unique.
        name: String,
        /// The description.
        description: String,
        /// Ids of its routers.
        routers: Vec<String>,
        /// Ids of its resources.
        resources: Vec<String>,
        /// Ids of policies that concern it.
        policies: Vec<String>,
    }
    /// A resource of a network.
    Resource {
        /// The id.
        id: String,
        /// The name, unique in the account.
        name: String,
        /// The description.
        description: String,
        /// `host`, `subnet` or `domain`.
        r#type: String,
        /// The address in the server's form, such as `10.0.0.1/32`.
        address: String,
        /// Whether it has an effect.
        enabled: bool,
        /// Its groups.
        groups: Vec<Reference>,
    }
    /// A router of a network.
    Router {
        /// The id.
        id: String,
        /// The peer, or an empty text.
        peer: String,
        /// Ids of groups of peers.
        peer_groups: Vec<String>,
        /// The metric.
        metric: i64,
        /// Whether it hides sources behind its own address.
        masquerade: bool,
        /// Whether it has an effect.
        enabled: bool,
    }
    /// A DNS zone.
    Zone {
        /// The id.
        id: String,
        /// The name for people.
        name: String,
        /// The domain, which cannot change.
        domain: String,
        /// Whether it has an effect.
        enabled: bool,
        /// Whether peers search names in it.
        enable_search_domain: bool,
        /// Ids of the groups that get it.
        distribution_groups: Vec<String>,
        /// Its records.
        records: Vec<Record>,
    }
    /// A DNS record.
    Record {
        /// The id.
        id: String,
        /// The full name.
        name: String,
        /// `A`, `AAAA` or `CNAME`.
        r#type: String,
        /// The address or name.
        content: String,
        /// Seconds.
        ttl: i64,
    }
    /// An account.
    Account {
        /// The id.
        id: String,
        /// All settings, raw: an update must send back each of them.
        settings: BTreeMap<String, Value>,
    }
    /// A peer.
    Peer {
        /// The id.
        id: String,
        /// The name.
        name: String,
        /// Whether it is connected.
        connected: bool,
        /// Its groups.
        groups: Vec<Reference>,
    }
    /// A user.
    User {
        /// The id.
        id: String,
        /// The name.
        name: String,
        /// `owner`, `admin`, `network_admin` or `user`.
        role: String,
        /// Whether it is a program.
        is_service_user: bool,
        /// Whether it is blocked.
        is_blocked: bool,
        /// Whether the token is its own.
        is_current: bool,
    }
    /// An audit event.
    AuditEvent {
        /// The id, which grows.
        id: String,
        /// For example `group.add`.
        activity_code: String,
        /// The user.
        initiator_id: String,
        /// The object.
        target_id: String,
        /// When.
        timestamp: String,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_is_an_empty_list_and_unknown_keys_are_ignored() {
        let group: Group =
            serde_json::from_value(json!({ "id": "g", "peers": null, "resources": null, "x": [] })).unwrap();
        assert!(group.peers.is_empty() && group.resources.is_empty() && group.id == "g");
        let rule = json!({ "sources": null, "destinations": null, "port_ranges": [{ "start": 1, "end": 9 }] });
        let policy: Policy = serde_json::from_value(json!({ "rules": [rule], "source_posture_checks": null })).unwrap();
        assert_eq!(policy.rules[0].port_ranges[0].end, 9);
        assert!(serde_json::from_value::<Policy>(json!({ "rules": null })).unwrap().rules.is_empty());
        let network = json!({ "routers": null, "resources": null, "policies": null });
        assert_eq!(serde_json::from_value::<Network>(network).unwrap(), Network::default());
    }
}
