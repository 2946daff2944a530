//! The reasons and annotations of this job, for the reference pages. Reasons of failed writes to the API server are the framework's.

use konverge_jobs::reference::{Annotation, Reason};

use crate::{annotations, expose::service, webhook::sidecar};

const ANY: &str = "any kind of openZro";
const NOTHING: &str = "Nothing: the operator retries.";
const BUG: &str = "Report it with the operator's log.";

const fn any(reason: &'static str, cause: &'static str, next: &'static str) -> Reason {
    Reason::on(ANY, reason, cause, next)
}

const fn exposed(name: &'static str, meaning: &'static str) -> Annotation {
    Annotation { name, on: "Service with `openzro.io/expose`", meaning, otherwise: "Reason `InvalidAnnotation`" }
}

/// Every reason of an event or a condition of this job.
pub const REASONS: &[Reason] = &[
    // Of the objects.
    any(
        "InvalidSpec",
        "The spec requests something that openZro cannot have. Nothing is written.",
        "Correct the field that the message names.",
    ),
    Reason::on(
        "`OZPolicy`",
        "Incomplete",
        "The policy has no sources, no destinations, no ports or no protocol, so nothing exists in openZro.",
        "Add what the message names, or nothing if another object adds it.",
    ),
    Reason::on(
        "`OZGroup`, `Group`",
        "Shared",
        "Another object stands for the group of this name. This one shares it.",
        "",
    ),
    any(
        "Dependency",
        "The object refers to another one that is missing or not ready.",
        "Create or repair the object that the message names.",
    ),
    Reason::on(
        "`OZSetupKey`",
        "SecretNotExists",
        "There is no Secret of the name in `secretKeyRef`.",
        "Create the Secret.",
    ),
    Reason::on(
        "`OZSetupKey`",
        "SecretKeyNotExists",
        "The Secret lacks the key in `secretKeyRef`.",
        "Add the key to the Secret, or correct the reference.",
    ),
    Reason::on(
        "`OZSetupKey`",
        "InvalidSetupKey",
        "The value in the Secret is no setup key, which is a UUID.",
        "Put the setup key into the Secret.",
    ),
    any(
        "InUse",
        "Something in openZro or in the cluster still refers to the item, so it cannot be deleted.",
        "Remove the reference that the message names.",
    ),
    any(
        "NotOurs",
        "The item or the Kubernetes object of this name belongs to another owner. It is left alone.",
        "Choose another name, or remove the other owner's object.",
    ),
    Reason::on(
        "`OZRoutingPeer`, `NetworkRouter`",
        "WaitingForPods",
        "The pods of the routing peers are not available yet.",
        "Nothing, or look at the pods of the Deployment that the message names.",
    ),
    Reason::on(
        "`OZRoutingPeer`, `NetworkRouter`",
        "NoDisruptionBudget",
        "The operator may not write PodDisruptionBudgets, so the routing peers have none.",
        "Apply the operator's role again.",
    ),
    Reason::on(
        "`SetupKey`, `OZSetupKey`",
        "Replaced",
        "No Secret held the key, or it was revoked or expired. The Secret has a new one.",
        "",
    ),
    Reason::on(
        "`SetupKey`, `OZSetupKey`",
        "KeyUnusable",
        "openZro returned a key that is no setup key.",
        "Check the version of the management server. The operator retries.",
    ),
    // Of the items in openZro.
    any("Created", "The operator created the item.", ""),
    any("Updated", "The item differed from its object. The operator corrected the fields that the message names.", ""),
    any("Deleted", "The operator deleted the item, because its object was deleted.", ""),
    any(
        "Adopted",
        "The operator took over an item that it had not made.",
        "Nothing, or set `konverge.dev/adopt: \"false\"` where this must not happen.",
    ),
    any("HandedOver", "Another object of the same item keeps it, because this one was deleted.", ""),
    any(
        "LeftBehind",
        "The object is gone, and its item stays in openZro. The message says why.",
        "Delete the item by hand, if nobody uses it.",
    ),
    any(
        "NameTaken",
        "openZro has an item of this name that the operator did not make.",
        "Choose another name, or set `konverge.dev/adopt` to take the item over.",
    ),
    any(
        "Ambiguous",
        "openZro has several items of this name.",
        "Rename all but one, or name the id in `konverge.dev/adopt`.",
    ),
    any(
        "Claimed",
        "Another object of the cluster has this item.",
        "Delete one of the two objects, or choose another name.",
    ),
    any(
        "NotFound",
        "There is no item with the id in `konverge.dev/adopt`, or openZro says that an item does not exist.",
        "Correct the id.",
    ),
    any(
        "ScopeChanged",
        "The object now belongs to another account or network, and an item cannot move.",
        "Restore the former value, or delete the object and create it again.",
    ),
    any("Contested", "Another client keeps changing the item back.", "Stop the other client, or pause the object."),
    any(
        "NoEffect",
        "openZro accepted an update, and the item still differs.",
        "Check the version of the management server.",
    ),
    any(
        "Settling",
        "The operator waits until openZro must show what it created.",
        "Nothing: the operator looks again.",
    ),
    any("Deleting", "The item or a child is being deleted.", "Nothing: the operator looks again."),
    any(
        "WaitingForReference",
        "A group, a network or a peer that the object names does not exist in openZro yet.",
        "Create what the message names, or nothing if another object creates it.",
    ),
    any("NetworkUnknown", "The network of the object is not known yet.", NOTHING),
    Reason::on(
        "`OZRoutingPeer`, `NetworkRouter`",
        "InOtherNetwork",
        "The group of peers has its router in another network.",
        "Choose another group of peers, or delete that router.",
    ),
    Reason::on(
        "`NetworkResource`",
        "InOtherZone",
        "A DNS record of this name exists in another zone.",
        "Delete that record, or choose another name.",
    ),
    any("DryRun", "`--dry-run`: the message says what would be written.", ""),
    any("NotShared", "Items of this kind cannot be shared.", BUG),
    any("NotBegun", "The operator has no client for items of this kind.", BUG),
    any("EndlessPlan", "The operator found no end of its steps.", BUG),
    // Of the management server.
    any(
        "NoAccount",
        "The namespace's account has no token, or openZro shows the token no account.",
        "Mount the token that the message names. It has to be that of a service user with the role admin.",
    ),
    any("SettingsOverwritten", "Another client changed the settings of the account at the same time.", NOTHING),
    any(
        "TokenRefused",
        "openZro refuses the token: it is wrong, expired or revoked.",
        "Put a new token into the Secret. No restart is needed.",
    ),
    any("PermissionDenied", "The service user of the token may not do it.", "Give the service user the role admin."),
    any(
        "CredentialUnusable",
        "The file with the token or a certificate cannot be read.",
        "Check the Secret and its mount.",
    ),
    any(
        "OpenZroUnreachable",
        "The management server does not answer.",
        "Check its address and the network. The operator retries.",
    ),
    any(
        "OpenZroTimeout",
        "The management server gave no complete response in time.",
        "Check its load and the network. The operator retries.",
    ),
    any("OpenZroPaused", "The request was not sent, because the management server failed a moment ago.", NOTHING),
    any(
        "OpenZroFailed",
        "The management server failed.",
        "Read its log. It responds in this way to an invalid address of a network resource, too.",
    ),
    any(
        "RateLimited",
        "The management server, or a proxy before it, limits requests.",
        "Lower `--requests-per-second`. The operator retries.",
    ),
    any("Rejected", "openZro does not accept the values.", "Correct the value that the message names."),
    any("AlreadyExists", "openZro has an item of this name already.", "Choose another name, or adopt the item."),
    any(
        "HiddenGroups",
        "The policy has several rules in openZro, and writing it back would remove source groups that openZro does not show.",
        "Set the sources of all rules.",
    ),
    any(
        "Unsupported",
        "This management server lacks a route that the kind needs.",
        "Use another version of the management server.",
    ),
    any(
        "InvalidAnswer",
        "The response is not that of the management API.",
        "Check the address, and proxies before it.",
    ),
    any("InvalidId", "An id contains characters that no id has.", "Correct the id that the message names."),
    // Of exposed Services and of the Gateway API.
    Reason::on(
        "Service",
        "InvalidAnnotation",
        "An annotation cannot be followed. The Service is exposed as before.",
        "Correct the annotation that the message names.",
    ),
    Reason::on(
        "Service",
        "UnusedAnnotation",
        "An annotation has no effect. The message says why.",
        "Remove the annotation, or add what it needs.",
    ),
    Reason::on(
        "Service, route",
        "ResourceNotOurs",
        "Another owner made an object with the name that the operator needs. It is left alone.",
        "Rename or delete that object.",
    ),
    Reason::on("`GatewayClass`, `Gateway`, route", "Accepted", "The object is served.", ""),
    Reason::on(
        "`GatewayClass`, `Gateway`",
        "InvalidParameters",
        "The object requests something that cannot be served.",
        "Correct what the message names.",
    ),
    Reason::on(
        "`Gateway`",
        "Pending",
        "The Gateway waits for its class or its `NetworkRouter`.",
        "Create what the message names.",
    ),
    Reason::on("`Gateway`", "Programmed", "Routes can use the Gateway.", ""),
    Reason::on("route", "ResolvedRefs", "The Services of the route exist.", ""),
    Reason::on(
        "route",
        "BackendNotFound",
        "A Service of the route is missing, or cannot be a resource.",
        "Create the Service, or correct the route.",
    ),
    Reason::on(
        "route",
        "UnsupportedValue",
        "A part of the route has no effect.",
        "Remove the part that the message names.",
    ),
];

/// Every annotation that this job reads or writes.
pub const ANNOTATIONS: &[Annotation] = &[
    Annotation {
        name: annotations::ADOPT,
        on: ANY,
        meaning: "`true`: adopt an item of the name. `false`: never. Any other value: adopt the item with this id.",
        otherwise: "",
    },
    Annotation {
        name: annotations::DELETION,
        on: ANY,
        meaning: "`orphan`: when the object is deleted, the item stays and the object goes at once. `delete`: the item is deleted, even if it was adopted.",
        otherwise: "counts as absent",
    },
    Annotation {
        name: annotations::ACCOUNT,
        on: "`OZPolicy`",
        meaning: "The namespace whose account the policy is for.",
        otherwise: "Reason `NoAccount`",
    },
    Annotation {
        name: "konverge.dev/paused",
        on: ANY,
        meaning: "`true`: the object is left alone, except for its deletion.",
        otherwise: "counts as absent",
    },
    Annotation {
        name: "konverge.dev/reconcile-at",
        on: ANY,
        meaning: "Each new value makes the operator look at the object at once.",
        otherwise: "",
    },
    Annotation {
        name: "konverge.dev/remote",
        on: ANY,
        meaning: "Written by the operator: its record of the item in openZro.",
        otherwise: "",
    },
    Annotation {
        name: sidecar::SETUP_KEY,
        on: "pod",
        meaning: "The `OZSetupKey` with which a sidecar of the pod joins openZro.",
        otherwise: "the pod is refused",
    },
    Annotation {
        name: sidecar::INIT_SIDECAR,
        on: "pod with `openzro.io/setup-key`",
        meaning: "`true`: the sidecar is an init container that keeps running.",
        otherwise: "counts as absent",
    },
    Annotation {
        name: sidecar::EXTRA_DNS_LABELS,
        on: "pod with `openzro.io/setup-key`",
        meaning: "Further DNS labels of the peer, separated by commas.",
        otherwise: "",
    },
    Annotation {
        name: service::EXPOSE,
        on: "Service",
        meaning: "Exposes the Service, unless the value is `false`, `no`, `off` or `0`.",
        otherwise: "",
    },
    exposed(service::GROUPS, "Groups of the resource, separated by commas."),
    exposed(service::RESOURCE_NAME, "The display name of the resource."),
    exposed(service::POLICY, "Names of `OZPolicy` objects, separated by commas."),
    exposed(service::POLICY_PORTS, "Ports of the Service that the policies allow, separated by commas."),
    exposed(service::POLICY_PROTOCOL, "`tcp` or `udp`; both if absent."),
    exposed(service::POLICY_SOURCE_GROUPS, "Source groups of generated policies, separated by commas."),
    exposed(
        service::POLICY_NAME,
        "Display names of generated policies, as `policy:Display name`, separated by commas.",
    ),
];

#[cfg(test)]
mod tests {
    use konverge::Reasons;

    use super::*;
    use crate::{expose, reasons::Why};

    #[test]
    fn every_declared_reason_has_an_entry() {
        let known: Vec<_> = REASONS.iter().map(|entry| entry.reason).collect();
        let declared =
            [Why::ALL, expose::controller::ExposeReason::ALL, expose::gateway::controllers::GatewayReason::ALL]
                .concat();
        for (reason, _) in declared {
            assert!(known.contains(&reason), "{reason}");
        }
        for (number, reason) in known.iter().enumerate() {
            assert!(!known[..number].contains(reason), "{reason} is there twice");
        }
    }
}
