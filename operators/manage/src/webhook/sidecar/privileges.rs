//! The fields of a profile that the objects of a namespace may set only with the permission of the platform.

use serde_json::{Value, json};

use super::container::NET_ADMIN;
use crate::api::v1alpha1::ContainerOverride;

/// The variables of a sidecar that decide neither which server and which account it joins, nor what it runs, reads and trusts. The client and the
/// libraries that it uses read too many others to name them.
const HARMLESS: [&str; 3] = ["OZ_HOSTNAME", "OZ_LOG_LEVEL", "TZ"];
/// The name of all other variables in messages.
const OTHERS: &str = "spec.containerOverride.env with another variable than OZ_HOSTNAME, OZ_LOG_LEVEL and TZ";

/// Returns the fields that change the program of a sidecar or extend its privileges.
pub(super) fn privileges(change: &ContainerOverride) -> Vec<String> {
    let has_secret = |variable: &Value| variable["valueFrom"]["secretKeyRef"].is_object();
    let image = (!change.image.is_empty()).then(|| "spec.containerOverride.image".to_owned());
    let env = change.env.iter().any(has_secret).then(|| "spec.containerOverride.env from a Secret".to_owned());
    let is_harmless = |variable: &Value| variable["name"].as_str().is_some_and(|name| HARMLESS.contains(&name));
    let others = (!change.env.iter().all(is_harmless)).then(|| OTHERS.to_owned());
    let context = change.security_context.as_ref().and_then(Value::as_object).into_iter().flatten();
    let extensions = context.filter(|(field, value)| !is_restriction(field, value));
    let extensions = extensions.map(|(field, _)| format!("spec.containerOverride.securityContext.{field}"));
    image.into_iter().chain(env).chain(others).chain(extensions).collect()
}

/// Returns `true` if a field of a security context takes privileges from the sidecar, or gives it only those that it has without the field.
fn is_restriction(field: &str, value: &Value) -> bool {
    match field {
        // Removes the field of the operator's own context, which only adds NET_ADMIN.
        _ if value.is_null() => true,
        "allowPrivilegeEscalation" | "privileged" => *value == false,
        "readOnlyRootFilesystem" | "runAsNonRoot" => *value == true,
        "runAsGroup" | "runAsUser" => value.as_i64().is_some_and(|id| id > 0),
        "appArmorProfile" | "seccompProfile" => *value == json!({ "type": "RuntimeDefault" }),
        "capabilities" => value.as_object().is_some_and(|lists| {
            let adds_nothing = |list: &str, names: &Value| {
                let mut names = names.as_array().into_iter().flatten();
                list == "drop" || (list == "add" && names.all(|name| name == NET_ADMIN))
            };
            lists.iter().all(|(list, names)| adds_nothing(list, names))
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_security_context_that_only_restricts_needs_no_permission() {
        for (context, extensions) in [
            (json!(null), &[][..]),
            (json!({}), &[]),
            (json!({ "capabilities": { "drop": ["ALL"] } }), &[]),
            (json!({ "capabilities": { "add": ["NET_ADMIN"], "drop": ["ALL"] } }), &[]),
            (json!({ "capabilities": null, "runAsNonRoot": true, "runAsUser": 1000, "runAsGroup": 1000 }), &[]),
            (json!({ "capabilities": { "add": [] }, "allowPrivilegeEscalation": false, "privileged": false }), &[]),
            (json!({ "readOnlyRootFilesystem": true, "seccompProfile": { "type": "RuntimeDefault" } }), &[]),
            (json!({ "capabilities": { "add": ["NET_ADMIN", "SYS_ADMIN"] } }), &["capabilities"]),
            (json!({ "capabilities": { "other": [] } }), &["capabilities"]),
            (json!({ "privileged": true, "runAsNonRoot": true }), &["privileged"]),
            (json!({ "allowPrivilegeEscalation": true, "runAsUser": 0 }), &["allowPrivilegeEscalation", "runAsUser"]),
            (json!({ "runAsNonRoot": false }), &["runAsNonRoot"]),
            (json!({ "seccompProfile": { "type": "Unconfined" } }), &["seccompProfile"]),
            (json!({ "seccompProfile": { "type": "Localhost", "localhostProfile": "p" } }), &["seccompProfile"]),
            (json!({ "procMount": "Unmasked" }), &["procMount"]),
            (json!({ "seLinuxOptions": { "type": "spc_t" } }), &["seLinuxOptions"]),
        ] {
            let change = ContainerOverride { security_context: Some(context.clone()), ..ContainerOverride::default() };
            let expected: Vec<_> =
                extensions.iter().map(|field| format!("spec.containerOverride.securityContext.{field}")).collect();
            assert_eq!(privileges(&change), expected, "{context}");
        }
    }
}
