//! Networks, resources and routers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::{Value, json};

use super::{
    AccountState, Group, Outcome, Policy, Refusal,
    body::{Body, null_if_empty},
    refused,
};

pub(super) struct Network {
    id: String,
    name: String,
    description: String,
}

pub(super) struct Resource {
    id: String,
    network: String,
    name: String,
    description: String,
    kind: &'static str,
    address: String,
    enabled: bool,
}

pub(super) struct Router {
    pub(super) id: String,
    network: String,
    peer: String,
    pub(super) peer_groups: Option<Vec<String>>,
    metric: i64,
    masquerade: bool,
    enabled: bool,
}

impl Router {
    fn shown(&self) -> Value {
        json!({ "id": self.id, "peer": self.peer, "peer_groups": self.peer_groups, "metric": self.metric,
            "masquerade": self.masquerade, "enabled": self.enabled })
    }
}

fn missing<T>(prefix: &str, id: &str) -> Result<T, Refusal> {
    refused(404, format!("{prefix}network: {id} not found"))
}

/// The form in which the server keeps an address, and its type.
fn canonical(address: &str) -> Option<(String, &'static str)> {
    // The server parses addresses as strictly as this: no blanks, no leading zeros.
    if let Ok(ip) = address.parse::<IpAddr>() {
        return Some((format!("{ip}/{}", if ip.is_ipv4() { 32 } else { 128 }), "host"));
    }
    if let Some((ip, bits)) = address.split_once('/') {
        let bits: u8 = bits.parse().ok()?;
        let (ip, fits) = match (ip.parse::<Ipv4Addr>(), ip.parse::<Ipv6Addr>()) {
            (Ok(ip), _) => (ip.to_string(), bits <= 32),
            (_, Ok(ip)) => (ip.to_string(), bits <= 128),
            _ => return None,
        };
        // An IPv6 network of 32 bits counts as a host there.
        return fits.then(|| (format!("{ip}/{bits}"), if [32, 128].contains(&bits) { "host" } else { "subnet" }));
    }
    let name = address.strip_prefix("*.").unwrap_or(address);
    let (labels, last) = name.rsplit_once('.')?;
    let label = |label: &str| !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    let is_domain = labels.split('.').all(label) && last.len() >= 2 && last.chars().all(|c| c.is_ascii_alphabetic());
    is_domain.then(|| (address.to_owned(), "domain"))
}

impl AccountState {
    pub(super) fn route_networks(&mut self, method: &str, segments: &[&str], body: &[u8], id: String) -> Outcome {
        let parsed = || Body::parse(body);
        match (method, segments) {
            ("GET", []) => Ok(self.networks.iter().map(|network| self.show_network(network, json!([]))).collect()),
            ("POST", []) => self.create_network(&parsed()?, id),
            ("GET", ["resources"]) => Ok(self.resources.iter().map(|resource| self.show_resource(resource)).collect()),
            ("GET", ["routers"]) => Ok(self.routers.iter().map(Router::shown).collect()),
            ("GET", [network]) => self.get_network(network),
            ("PUT", [network]) => self.put_network(network, &parsed()?),
            ("DELETE", [network]) => self.delete_network(network),
            ("GET", [network, "resources"]) => {
                let of_it = self.resources.iter().filter(|resource| resource.network == *network);
                Ok(null_if_empty(of_it.map(|resource| self.show_resource(resource)).collect()))
            }
            ("POST", [network, "resources"]) => self.create_resource(network, &parsed()?, &id),
            ("GET", [network, "resources", id]) => self.get_resource(network, id),
            ("PUT", [network, "resources", id]) => self.put_resource(network, id, &parsed()?),
            ("DELETE", [network, "resources", id]) => self.delete_resource(network, id),
            ("GET", [network, "routers"]) => {
                Ok(self.routers.iter().filter(|router| router.network == *network).map(Router::shown).collect())
            }
            ("POST", [network, "routers"]) => self.put_router(network, None, &parsed()?, id),
            ("GET", [network, "routers", id]) => self.get_router(network, id),
            ("PUT", [network, "routers", one]) => self.put_router(network, Some(one), &parsed()?, id),
            ("DELETE", [network, "routers", id]) => self.delete_router(network, id),
            _ => Err(Refusal::Unproven("the route".to_owned())),
        }
    }

    fn network(&self, id: &str) -> Option<&Network> {
        self.networks.iter().find(|network| network.id == id)
    }

    /// `none` stands for no routers.
    fn show_network(&self, network: &Network, none: Value) -> Value {
        let resources = self.resources.iter().filter(|resource| resource.network == network.id);
        let routers: Vec<_> =
            self.routers.iter().filter(|router| router.network == network.id).map(|router| json!(router.id)).collect();
        let parts: Vec<_> = resources.clone().map(|resource| resource.id.as_str()).collect();
        let holds = |group: &&Group| group.resources.iter().any(|(id, _)| parts.contains(&id.as_str()));
        let groups: Vec<_> = self.groups.iter().filter(holds).map(|group| group.id.as_str()).collect();
        let policies = self.policies.iter().filter(|policy| policy.leads_to(&groups)).map(Policy::id);
        let policies: Vec<_> = policies.collect();
        json!({ "id": network.id, "name": network.name, "description": network.description, "policies": policies,
            "resources": null_if_empty(resources.map(|resource| json!(resource.id)).collect()),
            "routers": if routers.is_empty() { none } else { Value::Array(routers) }, "routing_peers_count": 0 })
    }

    fn network_content(body: &Body) -> Result<(String, String), Refusal> {
        let known = ["name", "description", "id", "policies", "resources", "routers", "routing_peers_count"];
        body.only(&known)?;
        Ok((body.text("name")?, body.text("description")?))
    }

    fn create_network(&mut self, body: &Body, id: String) -> Outcome {
        let (name, description) = Self::network_content(body)?;
        self.event("network.create", &id);
        let network = Network { id, name, description };
        let mut shown = self.show_network(&network, json!([]));
        shown["resources"] = json!([]);
        self.networks.push(network);
        Ok(shown)
    }

    fn get_network(&self, id: &str) -> Outcome {
        let network = self.network(id);
        network.map_or_else(|| missing("", id), |network| Ok(self.show_network(network, Value::Null)))
    }

    fn put_network(&mut self, id: &str, body: &Body) -> Outcome {
        let (name, description) = Self::network_content(body)?;
        let Some(network) = self.networks.iter_mut().find(|network| network.id == id) else {
            return missing("failed to get network: ", id);
        };
        (network.name, network.description) = (name, description);
        self.event("network.update", id);
        self.get_network(id)
    }

    fn delete_network(&mut self, id: &str) -> Outcome {
        if self.network(id).is_none() {
            return missing("failed to get network: ", id);
        }
        let had_parts = self.routers.iter().any(|router| router.network == id);
        let parts: Vec<_> = self
            .resources
            .iter()
            .filter(|resource| resource.network == id)
            .map(|resource| resource.id.clone())
            .collect();
        for part in &parts {
            self.set_groups(part, "", &[]);
        }
        self.resources.retain(|resource| resource.network != id);
        self.routers.retain(|router| router.network != id);
        self.networks.retain(|network| network.id != id);
        if had_parts || !parts.is_empty() {
            self.unproven_event();
        }
        self.event("network.delete", id);
        Ok(json!({}))
    }

    fn show_resource(&self, resource: &Resource) -> Value {
        let holds = |group: &&Group| group.resources.iter().any(|(id, _)| *id == resource.id);
        let groups = self.groups.iter().filter(holds).map(Group::minimum).collect();
        json!({ "id": resource.id, "name": resource.name, "description": resource.description, "type": resource.kind,
            "address": resource.address, "enabled": resource.enabled, "groups": null_if_empty(groups) })
    }

    /// Puts the resource into exactly these groups.
    fn set_groups(&mut self, id: &str, kind: &str, groups: &[String]) {
        for group in &mut self.groups {
            let is_in = group.resources.iter().any(|(known, _)| known == id);
            let wanted = groups.contains(&group.id);
            if wanted && !is_in {
                group.resources.push((id.to_owned(), kind.to_owned()));
            } else if !wanted {
                group.resources.retain(|(known, _)| known != id);
            }
        }
    }

    /// The content of a request, with the groups and without network and id.
    fn resource_content(&self, body: &Body, action: &str) -> Result<(Resource, Vec<String>), Refusal> {
        body.only(&["name", "description", "address", "enabled", "groups", "id", "type"])?;
        let groups = body.texts("groups")?.unwrap_or_default();
        let Some((address, kind)) = canonical(&body.text("address")?) else {
            return refused(500, "internal server error");
        };
        if let Some(unknown) = groups.iter().find(|id| self.group(id).is_none()) {
            if action != "create" {
                return Err(Refusal::Unproven("an unknown group".to_owned()));
            }
            let why = "failed to add resource to group: error adding resource to group";
            return refused(404, format!("failed to create network resource: {why}: group: {unknown} not found"));
        }
        let resource = Resource {
            id: String::new(),
            network: String::new(),
            name: body.text("name")?,
            description: body.text("description")?,
            kind,
            address,
            enabled: body.flag("enabled")?.unwrap_or_default(),
        };
        Ok((resource, groups))
    }

    fn create_resource(&mut self, network: &str, body: &Body, id: &str) -> Outcome {
        if self.network(network).is_none() {
            return missing("failed to create network resource: failed to get network: ", network);
        }
        let name = body.text("name")?;
        if self.resources.iter().any(|resource| resource.name == name) {
            return refused(
                422,
                format!("failed to create network resource: resource with name {name} already exists"),
            );
        }
        let (resource, groups) = self.resource_content(body, "create")?;
        let resource = Resource { id: id.to_owned(), network: network.to_owned(), ..resource };
        self.set_groups(id, resource.kind, &groups);
        let shown = self.show_resource(&resource);
        self.resources.push(resource);
        self.unproven_event();
        Ok(shown)
    }

    fn missing_resource<T>(prefix: &str, id: &str) -> Result<T, Refusal> {
        refused(404, format!("{prefix}failed to get network resource: network resource: {id} not found"))
    }

    fn get_resource(&self, network: &str, id: &str) -> Outcome {
        match self.resources.iter().find(|resource| resource.id == id) {
            None => Self::missing_resource("", id),
            // That it is not part of the network is an error without a type.
            Some(resource) if resource.network != network => refused(500, "internal server error"),
            Some(resource) => Ok(self.show_resource(resource)),
        }
    }

    fn put_resource(&mut self, network: &str, id: &str, body: &Body) -> Outcome {
        let (resource, groups) = self.resource_content(body, "update")?;
        if self.network(network).is_none() {
            return Err(Refusal::Unproven("a PUT into a missing network".to_owned()));
        }
        let Some(position) = self.resources.iter().position(|resource| resource.id == id) else {
            return Self::missing_resource("failed to update network resource: ", id);
        };
        if self.resources.iter().any(|other| other.id != id && other.name == resource.name) {
            return refused(422, "failed to update network resource: new resource name already exists");
        }
        self.resources[position] = Resource { id: id.to_owned(), network: network.to_owned(), ..resource };
        self.set_groups(id, self.resources[position].kind, &groups);
        self.unproven_event();
        self.get_resource(network, id)
    }

    fn delete_resource(&mut self, network: &str, id: &str) -> Outcome {
        match self.resources.iter().find(|resource| resource.id == id) {
            None => Self::missing_resource("failed to delete network resource: failed to delete resource: ", id),
            Some(resource) if resource.network != network => refused(500, "internal server error"),
            Some(_) => {
                self.set_groups(id, "", &[]);
                self.resources.retain(|resource| resource.id != id);
                self.unproven_event();
                Ok(json!({}))
            }
        }
    }

    /// A POST if there is no `id`.
    fn put_router(&mut self, network: &str, id: Option<&str>, body: &Body, new: String) -> Outcome {
        body.only(&["id", "peer", "peer_groups", "metric", "masquerade", "enabled"])?;
        let router = Router {
            id: id.map_or(new, str::to_owned),
            network: network.to_owned(),
            peer: body.text("peer")?,
            peer_groups: body.texts("peer_groups")?,
            metric: body.number("metric")?.unwrap_or_default(),
            masquerade: body.flag("masquerade")?.unwrap_or_default(),
            enabled: id.is_none() || body.flag("enabled")?.unwrap_or_default(),
        };
        if self.network(network).is_none() {
            return missing("failed to get network: ", network);
        }
        let shown = router.shown();
        self.routers.retain(|known| known.id != router.id);
        self.routers.push(router);
        self.unproven_event();
        Ok(shown)
    }

    fn get_router(&self, network: &str, id: &str) -> Outcome {
        match self.routers.iter().find(|router| router.id == id) {
            Some(router) if router.network == network => Ok(router.shown()),
            Some(_) => Err(Refusal::Unproven("a router of another network".to_owned())),
            None => refused(404, format!("failed to get network router: network router: {id} not found")),
        }
    }

    fn delete_router(&mut self, network: &str, id: &str) -> Outcome {
        match self.routers.iter().find(|router| router.id == id) {
            None => refused(
                404,
                format!(
                    "failed to delete network router: failed to get network router: network router: {id} not found"
                ),
            ),
            Some(router) if router.network != network => refused(
                400,
                format!("failed to delete network router: router {id} is not part of the network {network}"),
            ),
            Some(_) => {
                self.routers.retain(|router| router.id != id);
                self.unproven_event();
                Ok(json!({}))
            }
        }
    }
}
