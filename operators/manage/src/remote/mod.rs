//! The collections of the account as the framework sees them: the calls, and how to read and compare an item.

mod address;
mod group;
mod network;
mod policy;
mod record;
mod resource;
mod router;
mod setup_key;

pub use address::{address_type, canonical};
pub use group::{GroupItem, Groups};
pub use network::{DesiredNetwork, NetworkItem, Networks};
pub use policy::{DesiredPolicy, Destination, Policies, PolicyItem, Ports};
pub use record::{DesiredRecord, RecordItem, Records};
pub use resource::{DesiredResource, ResourceItem, Resources};
pub use router::{DesiredRouter, RouterItem, Routers};
pub use setup_key::{DesiredSetupKey, SetupKeyItem, SetupKeys};

use konverge::remote::Mark;

/// The text by which the original marks networks and resources that it made.
pub const ORIGINAL_DESCRIPTION: &str = "Created by openzro-operator";

/// A text for people with the mark at its end.
fn marked(text: &str, mark: &Mark) -> String {
    if text.is_empty() { mark.to_string() } else { format!("{text} {mark}") }
}

/// Names the fields whose values differ.
fn differing(fields: impl IntoIterator<Item = (&'static str, bool)>) -> Vec<&'static str> {
    fields.into_iter().filter(|(_, is_same)| !is_same).map(|(name, _)| name).collect()
}
