//! The collections of the API, and the place of one object in them.

use std::fmt;

use url::Url;

/// A list of the API.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Collection {
    /// Groups of peers and resources.
    Groups,
    /// Access policies.
    Policies,
    /// Posture checks, which policies refer to.
    PostureChecks,
    /// Setup keys.
    SetupKeys,
    /// Networks.
    Networks,
    /// The resources of one network.
    Resources {
        /// The network's id.
        network: String,
    },
    /// The resources of all networks. They do not say which network they belong to; [`types::Network`](crate::types::Network) does.
    AllResources,
    /// The routers of one network.
    Routers {
        /// The network's id.
        network: String,
    },
    /// The routers of all networks. They do not say which network they belong to; [`types::Network`](crate::types::Network) does.
    AllRouters,
    /// DNS zones, with their records.
    Zones,
    /// The records of one DNS zone.
    Records {
        /// The zone's id.
        zone: String,
    },
    /// The account of the token: a list of one.
    Accounts,
    /// Users and service users.
    Users,
    /// The personal access tokens of one user.
    Tokens {
        /// The user's id.
        user: String,
    },
    /// Peers.
    Peers,
    /// The peers that one peer can reach.
    AccessiblePeers {
        /// The peer's id.
        peer: String,
    },
    /// Audit events, the newest first.
    AuditEvents,
}

/// One object of a collection.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Its collection. The collections of all networks have no places.
    pub collection: Collection,
    /// Its id.
    pub id: String,
}

/// An id that no path can carry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{id:?} is not the id of an object: it must not be empty, `.`, `..`, too long, or contain slashes or control characters"
)]
pub struct InvalidId {
    /// Its beginning.
    id: String,
}

/// The longest id. Those of the server have 20 characters, and those of users come from an identity provider.
const LONGEST_ID: usize = 256;

impl Collection {
    /// The place of an object in it.
    pub fn place(&self, id: impl Into<String>) -> Place {
        Place { collection: self.clone(), id: id.into() }
    }

    /// The word for one of its objects.
    pub fn noun(&self) -> &'static str {
        match self {
            Self::Groups => "group",
            Self::Policies => "policy",
            Self::PostureChecks => "posture check",
            Self::SetupKeys => "setup key",
            Self::Networks => "network",
            Self::Resources { .. } | Self::AllResources => "network resource",
            Self::Routers { .. } | Self::AllRouters => "network router",
            Self::Zones => "DNS zone",
            Self::Records { .. } => "DNS record",
            Self::Accounts => "account",
            Self::Users => "user",
            Self::Tokens { .. } => "personal access token",
            Self::Peers | Self::AccessiblePeers { .. } => "peer",
            Self::AuditEvents => "audit event",
        }
    }

    /// The route without ids.
    pub fn route(&self) -> &'static str {
        match self {
            Self::Groups => "/groups",
            Self::Policies => "/policies",
            Self::PostureChecks => "/posture-checks",
            Self::SetupKeys => "/setup-keys",
            Self::Networks => "/networks",
            Self::Resources { .. } => "/networks/{id}/resources",
            Self::AllResources => "/networks/resources",
            Self::Routers { .. } => "/networks/{id}/routers",
            Self::AllRouters => "/networks/routers",
            Self::Zones => "/dns/zones",
            Self::Records { .. } => "/dns/zones/{id}/records",
            Self::Accounts => "/accounts",
            Self::Users => "/users",
            Self::Tokens { .. } => "/users/{id}/tokens",
            Self::Peers => "/peers",
            Self::AccessiblePeers { .. } => "/peers/{id}/accessible-peers",
            Self::AuditEvents => "/events/audit",
        }
    }

    fn parent(&self) -> Option<&str> {
        match self {
            Self::Resources { network: id }
            | Self::Routers { network: id }
            | Self::Records { zone: id }
            | Self::Tokens { user: id }
            | Self::AccessiblePeers { peer: id } => Some(id),
            _ => None,
        }
    }

    pub(crate) fn url(&self, base: &Url, id: Option<&str>) -> Result<Url, InvalidId> {
        let mut url = base.clone();
        let route = self.route().split('/').skip(1);
        let ids = self.parent().into_iter().chain(id);
        for id in ids {
            // To slashes and long paths the server answers with a redirect or another page that looks like an outage.
            let is_foreign = |letter: char| letter == '/' || letter.is_control();
            if id.is_empty() || id == "." || id == ".." || id.len() > LONGEST_ID || id.contains(is_foreign) {
                return Err(InvalidId { id: id.chars().take(LONGEST_ID).collect() });
            }
        }
        // An address with a host always has segments.
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty();
            for segment in route {
                segments.push(if segment == "{id}" { self.parent().unwrap_or_default() } else { segment });
            }
            segments.extend(id);
        }
        Ok(url)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.collection.noun(), self.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_objects() {
        let base = Url::parse("https://oz.example/x/api/").unwrap();
        let url = |collection: Collection, id| collection.url(&base, id).map(String::from);
        let resources = |network: &str| Collection::Resources { network: network.to_owned() };
        assert_eq!(url(Collection::Groups, None).unwrap(), "https://oz.example/x/api/groups");
        assert_eq!(url(resources("n"), Some("r")).unwrap(), "https://oz.example/x/api/networks/n/resources/r");
        assert_eq!(url(Collection::Zones, Some("a?b#c")).unwrap(), "https://oz.example/x/api/dns/zones/a%3Fb%23c");
        let long = "x".repeat(300);
        for bad in ["", ".", "..", "a\nb", "../groups", "a/b", &long] {
            assert!(url(Collection::Groups, Some(bad)).is_err() && url(resources(bad), Some("r")).is_err(), "{bad:?}");
        }
    }
}
