//! Every reason of an event or a condition of this job, each with its cause and its next step for the reference page.
//!
//! Most reasons without a name come from the plan of remote objects (`konverge-remote`) and from the client of openZro. Reasons of failed writes to
//! the API server are the framework's.

const ANY: &str = "any kind of openZro";
const ROUTING: &str = "`OZRoutingPeer`, `NetworkRouter`";
const KEYS: &str = "`SetupKey`, `OZSetupKey`";
const GATEWAY: &str = "`GatewayClass`, `Gateway`";

const RETRIED: &str = "Nothing: the operator retries.";
const BUG: &str = "Report it with the operator's log.";

konverge_jobs::reasons! {
    // Of the objects.
    /// The spec requests something that openZro cannot have. Nothing is written.
    INVALID_SPEC = "InvalidSpec" on ANY, next: "Correct the field that the message names.";
    /// No `--allow` rule lets the namespace use a name in openZro. Nothing is written.
    NOT_ALLOWED = "NotAllowed" on ANY, next: "Choose another name, or ask the operator's administrators for the rule that the message shows.";
    /// The object requests what `--allow-privileged-routing` or `--privileged-namespace` has to permit. Nothing is written.
    PRIVILEGE_NOT_ALLOWED = "PrivilegeNotAllowed" on ROUTING,
        next: "Remove the fields that the message names, or ask the operator's administrators for the flag.";
    /// The policy has no sources, no destinations, no ports or no protocol, so nothing exists in openZro.
    INCOMPLETE = "Incomplete" on "`OZPolicy`", next: "Add what the message names, or nothing if another object adds it.";
    /// Another object stands for the group of this name. This one shares it.
    SHARED = "Shared" on "`OZGroup`, `Group`";
    /// The object refers to another one that is missing or not ready.
    DEPENDENCY = "Dependency" on ANY, next: "Create or repair the object that the message names.";
    /// There is no Secret of the name in `secretKeyRef`.
    SECRET_NOT_EXISTS = "SecretNotExists" on "`OZSetupKey`", next: "Create the Secret.";
    /// The Secret lacks the key in `secretKeyRef`.
    SECRET_KEY_NOT_EXISTS = "SecretKeyNotExists" on "`OZSetupKey`", next: "Add the key to the Secret, or correct the reference.";
    /// The value in the Secret is no setup key, which is a UUID.
    INVALID_SETUP_KEY = "InvalidSetupKey" on "`OZSetupKey`", next: "Put the setup key into the Secret.";
    /// Something in openZro or in the cluster still refers to the item, so it cannot be deleted.
    IN_USE = "InUse" on ANY, next: "Remove the reference that the message names.";
    /// The item or the Kubernetes object of this name belongs to another owner. It is left alone.
    NOT_OURS = "NotOurs" on ANY, next: "Choose another name, or remove the other owner's object.";
    /// The pods of the routing peers are not available yet.
    WAITING_FOR_PODS = "WaitingForPods" on ROUTING, next: "Nothing, or look at the pods of the Deployment that the message names.";
    /// The operator may not write PodDisruptionBudgets, so the routing peers have none.
    NO_DISRUPTION_BUDGET = "NoDisruptionBudget" on ROUTING, next: "Apply the operator's role again.";
    /// Somebody else made the PodDisruptionBudget with the name of the routing peers' Deployment. It is left alone.
    DISRUPTION_BUDGET_NOT_OURS = "DisruptionBudgetNotOurs" on ROUTING,
        next: "Nothing, or rename that object, so that the operator makes its own.";
    /// No Secret held the key, or it was revoked or expired. The Secret has a new one.
    REPLACED = "Replaced" on KEYS;
    /// openZro returned a key that is no setup key.
    KEY_UNUSABLE = "KeyUnusable" on KEYS, next: "Check the version of the management server. The operator retries.";
    // Of the items in openZro.
    /// The operator created the item.
    "Created" on ANY;
    /// The item differed from its object. The operator corrected the fields that the message names.
    "Updated" on ANY;
    /// The operator deleted the item, because its object was deleted.
    "Deleted" on ANY;
    /// The operator took over an item that it had not made.
    "Adopted" on ANY, next: "Nothing, or set `konverge.dev/adopt: \"false\"` where this must not happen.";
    /// More objects are being deleted than the operator deletes in openZro without approval. Those of the namespace wait until that changes.
    DELETIONS_STOPPED = "DeletionsStopped" on ANY,
        next: "Run `kubectl konverge approve`, or keep the items with `konverge.dev/deletion: orphan` if the deletions were a mistake.";
    /// Another object of the same item keeps it, because this one was deleted.
    "HandedOver" on ANY;
    /// The object is gone, and its item stays in openZro. The message says why.
    LEFT_BEHIND = "LeftBehind" on ANY, next: "Delete the item by hand, if nobody uses it.";
    /// openZro has an item of this name that the operator did not make.
    "NameTaken" on ANY, next: "Choose another name, or set `konverge.dev/adopt` to take the item over.";
    /// openZro has several items of this name.
    "Ambiguous" on ANY, next: "Rename all but one, or name the id in `konverge.dev/adopt`.";
    /// Another object of the cluster has this item.
    CLAIMED = "Claimed" on ANY, next: "Delete one of the two objects, or choose another name.";
    /// There is no item with the id in `konverge.dev/adopt`, or openZro says that an item does not exist.
    "NotFound" on ANY, next: "Correct the id.";
    /// The object now belongs to another account or network, and an item cannot move.
    "ScopeChanged" on ANY, next: "Restore the former value, or delete the object and create it again.";
    /// Another client keeps changing the item back.
    "Contested" on ANY, next: "Stop the other client, or pause the object.";
    /// openZro accepted an update, and the item still differs.
    "NoEffect" on ANY, next: "Check the version of the management server.";
    /// The operator waits until openZro must show what it created.
    "Settling" on ANY, next: "Nothing: the operator looks again.";
    /// The item or a child is being deleted.
    DELETING = "Deleting" on ANY, next: "Nothing: the operator looks again.";
    /// A group, a network or a peer that the object names does not exist in openZro yet.
    WAITING_FOR_REFERENCE = "WaitingForReference" on ANY, next: "Create what the message names, or nothing if another object creates it.";
    /// The network of the object is not known yet.
    NETWORK_UNKNOWN = "NetworkUnknown" on ANY, next: RETRIED;
    /// The group of peers has its router in another network.
    IN_OTHER_NETWORK = "InOtherNetwork" on ROUTING, next: "Choose another group of peers, or delete that router.";
    /// A DNS record of this name exists in another zone.
    IN_OTHER_ZONE = "InOtherZone" on "`NetworkResource`", next: "Delete that record, or choose another name.";
    /// `--dry-run`: the message says what would be written.
    DRY_RUN = "DryRun" on ANY;
    /// Items of this kind cannot be shared.
    "NotShared" on ANY, next: BUG;
    /// The operator has no client for items of this kind.
    "NotBegun" on ANY, next: BUG;
    /// The operator found no end of its steps.
    "EndlessPlan" on ANY, next: BUG;
    // Of the management server.
    /// The namespace's account has no token, or openZro shows the token no account.
    NO_ACCOUNT = "NoAccount" on ANY,
        next: "Mount the token that the message names. It has to be that of a service user with the role admin.";
    /// Another client changed the settings of the account at the same time.
    SETTINGS_OVERWRITTEN = "SettingsOverwritten" on ANY, next: RETRIED;
    /// openZro refuses the token: it is wrong, expired or revoked.
    "TokenRefused" on ANY, next: "Put a new token into the Secret. No restart is needed.";
    /// The service user of the token may not do it.
    PERMISSION_DENIED = "PermissionDenied" on ANY, next: "Give the service user the role admin.";
    /// The file with the token or a certificate cannot be read.
    "CredentialUnusable" on ANY, next: "Check the Secret and its mount.";
    /// The management server does not answer.
    "OpenZroUnreachable" on ANY, next: "Check its address and the network. The operator retries.";
    /// The management server gave no complete response in time.
    "OpenZroTimeout" on ANY, next: "Check its load and the network. The operator retries.";
    /// The request was not sent, because the management server failed a moment ago.
    "OpenZroPaused" on ANY, next: RETRIED;
    /// The management server failed.
    "OpenZroFailed" on ANY,
        next: "Read its log. It responds in this way to an invalid address of a network resource, too.";
    /// The management server, or a proxy before it, limits requests.
    "RateLimited" on ANY, next: "Lower `--requests-per-second`. The operator retries.";
    /// openZro does not accept the values.
    "Rejected" on ANY, next: "Correct the value that the message names.";
    /// openZro has an item of this name already.
    "AlreadyExists" on ANY, next: "Choose another name, or adopt the item.";
    /// The policy has several rules in openZro, and writing it back would remove source groups that openZro does not show.
    "HiddenGroups" on ANY, next: "Set the sources of all rules.";
    /// This management server lacks a route that the kind needs.
    UNSUPPORTED = "Unsupported" on ANY, next: "Use another version of the management server.";
    /// The response is not that of the management API.
    "InvalidAnswer" on ANY, next: "Check the address, and proxies before it.";
    /// An id contains characters that no id has.
    "InvalidId" on ANY, next: "Correct the id that the message names.";
    // Of exposed Services and of the Gateway API.
    /// An annotation cannot be followed. The Service is exposed as before.
    INVALID_ANNOTATION = "InvalidAnnotation" on "Service", next: "Correct the annotation that the message names.";
    /// An annotation has no effect. The message says why.
    UNUSED_ANNOTATION = "UnusedAnnotation" on "Service", next: "Remove the annotation, or add what it needs.";
    /// Another owner made an object with the name that the operator needs. It is left alone.
    RESOURCE_NOT_OURS = "ResourceNotOurs" on "Service, route", next: "Rename or delete that object.";
    /// The object is served.
    ACCEPTED = "Accepted" on "`GatewayClass`, `Gateway`, route";
    /// The object requests something that cannot be served.
    INVALID_PARAMETERS = "InvalidParameters" on GATEWAY, next: "Correct what the message names.";
    /// The Gateway waits for its class or its `NetworkRouter`.
    PENDING = "Pending" on "`Gateway`", next: "Create what the message names.";
    /// Routes can use the Gateway.
    PROGRAMMED = "Programmed" on "`Gateway`";
    /// The Services of the route exist.
    RESOLVED_REFS = "ResolvedRefs" on "route";
    /// A Service of the route is missing, or cannot be a resource.
    BACKEND_NOT_FOUND = "BackendNotFound" on "route", next: "Create the Service, or correct the route.";
    /// A part of the route has no effect.
    UNSUPPORTED_VALUE = "UnsupportedValue" on "route", next: "Remove the part that the message names.";
}

#[cfg(test)]
mod tests {
    use konverge::apply::conditions::Reason;

    use super::*;

    #[test]
    fn every_reason_is_a_word_that_conditions_take_and_is_there_once() {
        let known: Vec<_> = REASONS.iter().map(|entry| entry.reason).collect();
        for (number, reason) in known.iter().enumerate() {
            assert!(Reason::parse(reason).is_ok(), "{reason}");
            assert!(!known[..number].contains(reason), "{reason} is there twice");
        }
    }
}
