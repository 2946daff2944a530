//! Events, for tests of what an operator tells users.

use k8s_openapi::api::events::v1::Event;
use kube::{Api, Client, api::ListParams};

/// Reads the events about the objects of this name in a namespace, whatever their kind.
pub async fn events_about(client: &Client, namespace: &str, name: &str) -> Result<Vec<Event>, kube::Error> {
    let events = Api::<Event>::namespaced(client.clone(), namespace);
    let about = ListParams::default().fields(&format!("regarding.name={name}"));
    Ok(events.list(&about).await?.items)
}
