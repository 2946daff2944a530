//! All collections of the account, each with one list for all objects.

use konverge::remote::Remotes;

use crate::remote::{Groups, Networks, Policies, Records, Resources, Routers, SetupKeys};

/// The items of the account, by collection. Clones share them.
#[derive(Clone, Default)]
pub struct Collections {
    /// Groups.
    pub groups: Remotes<Groups>,
    /// Policies.
    pub policies: Remotes<Policies>,
    /// Setup keys.
    pub setup_keys: Remotes<SetupKeys>,
    /// Networks.
    pub networks: Remotes<Networks>,
    /// Routers of networks.
    pub routers: Remotes<Routers>,
    /// Resources of networks.
    pub resources: Remotes<Resources>,
    /// DNS records.
    pub records: Remotes<Records>,
}
