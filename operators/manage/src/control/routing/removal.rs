//! A network is deleted only if nothing of others would go with it.

use std::collections::BTreeSet;

use konverge::{
    Object,
    apply::Writable,
    prelude::{Cleanup, Context, Error, Reason},
    remote::{Binding, Step},
};

use crate::{annotations, collections::Collections, control::pause::LOOK_AGAIN, reasons};

/// Waits while others have resources or routers in the network that an object is about to delete. Its own router is no reason to wait: `router` is its
/// binding, and `group` the id of the group of its peers.
pub(super) async fn others_inside<K: Object + Writable>(
    context: &Context<K>,
    collections: &Collections,
    network: &Binding,
    router: &Binding,
    group: Option<&str>,
) -> Result<Option<Cleanup>, Error> {
    let Step::Delete(item) = context.remote(&collections.networks).preview(network, None).await? else {
        return Ok(None);
    };
    let Some(networks) = collections.networks.remote() else { return Ok(None) };
    let (resources, routers) = networks.inside(&network.scope, item.id()).await?;
    let mut own: BTreeSet<String> = router.id.iter().cloned().collect();
    // The status may be lost. The record or the group still tells which router is the own one.
    if !routers.iter().all(|id| own.contains(id)) {
        if let Step::Delete(router) = context.remote(&collections.routers).preview(router, None).await? {
            own.insert(router.id().to_owned());
        }
        for id in &routers {
            let found = collections.routers.look_up(&network.scope, id).await?;
            own.extend(found.filter(|found| group.is_some_and(|group| found.is_of_group(group))).map(|_| id.clone()));
        }
    }
    let routers = routers.iter().filter(|id| !own.contains(*id)).count();
    Ok(waits_for(&network.name, resources, routers))
}

fn waits_for(network: &str, resources: usize, routers: usize) -> Option<Cleanup> {
    let counted = |count: usize, word: &str| match count {
        0 => None,
        1 => Some(format!("1 {word}")),
        count => Some(format!("{count} {word}s")),
    };
    let inside: Vec<_> = [counted(resources, "resource"), counted(routers, "router")].into_iter().flatten().collect();
    (!inside.is_empty()).then(|| {
        let message = format!(
            "the network {network} has {} that others made; delete them, or set the annotation {} to orphan",
            inside.join(" and "),
            annotations::DELETION
        );
        Cleanup::pending(LOOK_AGAIN, Reason::new(reasons::IN_USE), message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_with_anything_of_others_waits_and_says_for_what() {
        assert!(waits_for("prod", 0, 0).is_none());
        for (resources, routers, text) in [
            (1, 0, "the network prod has 1 resource that others made"),
            (0, 2, "the network prod has 2 routers that others made"),
            (3, 1, "the network prod has 3 resources and 1 router that others made"),
        ] {
            let Some(Cleanup::Pending { message, .. }) = waits_for("prod", resources, routers) else {
                panic!("{resources} {routers}")
            };
            assert!(message.starts_with(text), "{message}");
        }
    }
}
