//! Groups.

use serde_json::{Value, json};

use super::{
    AccountState, Outcome, Refusal,
    body::{Body, null_if_empty},
    refused,
};

pub(super) struct Group {
    pub(super) id: String,
    pub(super) name: String,
    /// Id and type.
    pub(super) resources: Vec<(String, String)>,
}

impl Group {
    pub(super) fn new(id: String, name: &str) -> Self {
        Self { id, name: name.to_owned(), resources: Vec::new() }
    }

    pub(super) fn shown(&self) -> Value {
        let resources = self.resources.iter().map(|(id, kind)| json!({ "id": id, "type": kind })).collect();
        json!({ "id": self.id, "name": self.name, "issued": "api", "peers": null, "peers_count": 0,
            "resources": null_if_empty(resources), "resources_count": self.resources.len() })
    }

    /// As other objects show it.
    pub(super) fn minimum(&self) -> Value {
        json!({ "id": self.id, "name": self.name, "peers_count": 0, "resources_count": self.resources.len() })
    }
}

/// Name and resources of a request.
fn content(body: &Body) -> Result<(String, Vec<(String, String)>), Refusal> {
    body.only(&["name", "peers", "resources", "id", "issued", "peers_count", "resources_count"])?;
    let name = body.text("name")?;
    let peers = body.texts("peers")?.unwrap_or_default();
    let mut resources = Vec::new();
    for resource in body.list("resources")?.unwrap_or_default() {
        let resource = Body::of(&resource)?;
        resources.push((resource.text("id")?, resource.text("type")?));
    }
    if name.is_empty() {
        return refused(422, "group name shouldn't be empty");
    }
    if let Some(peer) = peers.first() {
        return refused(422, format!("peer with id \"{peer}\" not found"));
    }
    Ok((name, resources))
}

fn missing<T>(status: u16, id: &str) -> Result<T, Refusal> {
    refused(status, format!("group: {id} not found"))
}

impl AccountState {
    pub(super) fn group(&self, id: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.id == id)
    }

    pub(super) fn create_group(&mut self, body: &Body, id: String) -> Outcome {
        let (name, resources) = content(body)?;
        if self.groups.iter().any(|group| group.name == name) {
            // The server writes all messages with a small letter, and this name with them.
            let name = if name == "All" { "all".to_owned() } else { name };
            return refused(409, format!("group with name {name} already exists"));
        }
        let group = Group { id, name, resources };
        let shown = group.shown();
        self.event("group.add", &group.id);
        self.groups.push(group);
        Ok(shown)
    }

    pub(super) fn get_group(&self, id: &str) -> Outcome {
        self.group(id).map_or_else(|| missing(404, id), |group| Ok(group.shown()))
    }

    pub(super) fn put_group(&mut self, id: &str, body: &Body) -> Outcome {
        let Some(group) = self.groups.iter_mut().find(|group| group.id == id) else { return missing(404, id) };
        if group.name == "All" {
            return refused(422, "updating group all is not allowed");
        }
        let (name, resources) = content(body)?;
        group.name = name;
        let same = group.resources == resources;
        group.resources = resources;
        let shown = group.shown();
        // A new name makes no event.
        if !same {
            self.unproven_event();
        }
        Ok(shown)
    }

    pub(super) fn delete_group(&mut self, id: &str) -> Outcome {
        let Some(group) = self.group(id) else { return missing(400, id) };
        if group.name == "All" {
            return refused(400, "deleting group ALL is not allowed");
        }
        if let Some(link) = self.link(group) {
            return refused(400, format!("group has been linked to {link}"));
        }
        self.groups.retain(|group| group.id != id);
        self.event("group.delete", id);
        Ok(json!({}))
    }

    /// The objects that keep a group from deletion.
    fn link(&self, group: &Group) -> Option<String> {
        let id = group.id.as_str();
        let resource = || group.resources.first().map(|(id, _)| format!("network resource: {id}"));
        let policy = || {
            let named = self.policies.iter().find(|policy| policy.names_group(id));
            named.map(|policy| format!("policy: {}", policy.name))
        };
        let key = || {
            let named = self.setup_keys.iter().find(|key| key.auto_groups.iter().any(|group| group == id));
            named.map(|key| format!("setup key: {}", key.name))
        };
        let router = || {
            let routers = &mut self.routers.iter();
            let named = routers.find(|router| router.peer_groups.iter().flatten().any(|group| group == id));
            named.map(|router| format!("network router: {}", router.id))
        };
        resource().or_else(policy).or_else(key).or_else(router)
    }
}
