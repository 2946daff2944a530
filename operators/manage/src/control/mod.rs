//! The controllers: one per kind, for both versions of the API the same code.

use sha2::{Digest, Sha256};

mod deadline;
mod group;
mod network_resource;
mod pause;
mod policy;
mod references;
mod resource;
mod router_group;
mod routing;
mod setup_key;

pub(crate) use group::{GroupObject, binding as group_binding};
pub use group::{group, oz_group};
pub use network_resource::network_resource;
pub(crate) use network_resource::{Wanted, bindings as network_resource_bindings, wanted as network_resource_items};
pub use policy::oz_policy;
pub(crate) use policy::plan as policy_plan;
pub use resource::oz_resource;
pub(crate) use resource::{Referenced, names_policies, plan as resource_plan};
pub(crate) use router_group::router_group;
pub use routing::{network_router, oz_routing_peer};
pub(crate) use routing::{peer_plan, router_plan};
pub use setup_key::{oz_setup_key, setup_key};
pub(crate) use setup_key::{plan_of_oz_setup_key, plan_of_setup_key, seconds};

/// A short digest of a text, for names. Eight digits of SHA-256.
pub(crate) fn short_digest(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().take(4).fold(String::new(), |text, byte| format!("{text}{byte:02x}"))
}

/// The maximum length of a label value.
const LONGEST_LABEL: usize = 63;

/// Returns the label value for a name. A longer name is shortened and gets a digest.
fn label_value(name: &str) -> String {
    if name.len() <= LONGEST_LABEL {
        return name.to_owned();
    }
    // Names of objects are ASCII.
    let short: String = name.chars().take(LONGEST_LABEL - 9).collect();
    format!("{}-{}", short.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric()), short_digest(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_has_the_name_or_a_short_form_that_no_other_name_has() {
        let (long, other) = (format!("{}a", "x".repeat(63)), format!("{}b", "x".repeat(63)));
        assert_eq!(label_value(&"x".repeat(63)), "x".repeat(63));
        assert_eq!(label_value(&long).len(), 63);
        assert_ne!(label_value(&long), label_value(&other));
        let dotted = format!("{}.{}", "x".repeat(53), "y".repeat(20));
        assert!(!label_value(&dotted).contains(".-"));
    }
}
