//! Stores of External Secrets, and the sources that take their place.

use k8s_openapi::ByteString;
use konverge_kubectl::Migrated;
use kube::{ResourceExt, core::DynamicObject};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::migrate::parts::{manifest, reference, spec, unread};

/// The mount where a store names none.
const DEFAULT_MOUNT: &str = "secret";

#[derive(Deserialize)]
struct Spec {
    provider: serde_json::Map<String, Value>,
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    namespaces: Vec<String>,
    namespace_selector: Option<Value>,
    namespace_regexes: Vec<String>,
}

/// A store in Vault.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Store {
    server: String,
    path: Option<String>,
    namespace: Option<String>,
    ca_bundle: Option<String>,
    ca_provider: Option<Value>,
    #[serde(default)]
    auth: serde_json::Map<String, Value>,
}

impl Store {
    /// Reads a store.
    ///
    /// # Errors
    /// Why pull cannot read it.
    pub(super) fn read(object: &DynamicObject) -> Result<Self, String> {
        Self::of(&spec::<Spec>(object)?)
    }

    fn of(Spec { provider, .. }: &Spec) -> Result<Self, String> {
        let Some(vault) = provider.get("vault") else {
            let provider = provider.keys().next().map_or("none", String::as_str);
            return Err(format!("its provider is {provider}, and pull reads Vault, OpenBao and zopp"));
        };
        serde_json::from_value(vault.clone()).map_err(|error| format!("its spec cannot be read: {error}"))
    }

    /// Returns the reference to a secret, whose key may begin with the mount, with and without `data/`.
    pub(super) fn reference(&self, key: &str, version: Option<&str>) -> String {
        let mount = self.path.as_deref().unwrap_or(DEFAULT_MOUNT).trim_matches('/');
        let key = key.trim_start_matches('/');
        let key = key.strip_prefix(mount).and_then(|rest| rest.strip_prefix('/')).unwrap_or(key);
        reference(mount, key.strip_prefix("data/").unwrap_or(key), version)
    }
}

/// The effect of a migration on a store.
pub(super) fn migrated(kind: &str, object: &DynamicObject) -> Migrated {
    let read = spec::<Spec>(object).and_then(|spec| Ok((Store::of(&spec)?, spec.conditions)));
    let (store, conditions) = match read {
        Ok(read) => read,
        Err(cause) => return unread(cause),
    };
    let is_of_cluster = kind == "ClusterSecretStore";
    let mut lost = Vec::new();
    // Without a login, the definition refuses the object and says so.
    let login = login(&store.auth).unwrap_or_else(|cause| {
        lost.push(cause);
        Value::Null
    });
    let ca_secret = ca_secret(store.ca_provider.as_ref(), &mut lost);
    // There, the bundle is in base64.
    let ca_bundle = store.ca_bundle.as_ref().map(|text| {
        let decoded = serde_json::from_value::<ByteString>(text.as_str().into()).ok();
        decoded.and_then(|bytes| String::from_utf8(bytes.0).ok()).unwrap_or_else(|| text.clone())
    });
    let vault = json!({
        "address": store.server, "namespace": store.namespace, "caBundle": ca_bundle, "caSecret": ca_secret, "login": login,
    });
    let mut spec = json!({ "vault": vault });
    let namespace = object.namespace();
    let ours = if is_of_cluster {
        admitted(&conditions, &mut spec, &mut lost);
        let of_credentials = Value::Object(store.auth.clone());
        let namespace = find_namespace(&of_credentials).or_else(|| find_namespace(store.ca_provider.as_ref()?));
        spec["credentialsNamespace"] = namespace.unwrap_or("external-secrets").into();
        "ClusterSecretSource"
    } else {
        "SecretSource"
    };
    let becomes = vec![format!("a {ours} connects to {}", store.server)];
    Migrated { becomes, lost, manifests: vec![manifest(ours, namespace.as_deref(), &object.name_any(), spec)] }
}

/// Writes who may use a store of the cluster.
fn admitted(conditions: &[Condition], spec: &mut Value, lost: &mut Vec<String>) {
    let mut namespaces = Vec::new();
    for Condition { namespaces: named, namespace_selector, namespace_regexes } in conditions {
        namespaces.extend(named.iter().cloned());
        if let Some(selector) = namespace_selector {
            if spec.get("namespaceSelector").is_some() || selector.get("matchExpressions").is_some() {
                lost.push("conditions: pull has one selector, of labels and their values".to_owned());
            } else {
                spec["namespaceSelector"] = selector.clone();
            }
        }
        for regex in namespace_regexes {
            lost.push(format!("conditions: the regular expression {regex}. Names of namespaces may have *"));
        }
    }
    if conditions.is_empty() {
        namespaces.push("*".to_owned());
    }
    spec["namespaces"] = namespaces.into();
}

/// Returns the login.
///
/// # Errors
/// Why pull has none like it.
fn login(auth: &serde_json::Map<String, Value>) -> Result<Value, String> {
    let Some((method, login)) = auth.iter().find(|(name, value)| *name != "namespace" && value.is_object()) else {
        return Err("it names no login. Write spec.vault.login".to_owned());
    };
    let key = |of: &Value| json!({ "name": of["name"], "key": of["key"] });
    match method.as_str() {
        "kubernetes" if login["serviceAccountRef"].is_object() => {
            let account = &login["serviceAccountRef"];
            Ok(json!({ "kubernetes": {
                "serviceAccount": account["name"], "audiences": account["audiences"], "role": login["role"],
                "mount": not(&login["mountPath"], "kubernetes"),
            } }))
        }
        "jwt" if login["kubernetesServiceAccountToken"].is_object() => {
            let token = &login["kubernetesServiceAccountToken"];
            let account = &token["serviceAccountRef"];
            let audiences = if token["audiences"].is_array() { &token["audiences"] } else { &account["audiences"] };
            Ok(json!({ "jwt": {
                "serviceAccount": account["name"], "audiences": audiences, "role": login["role"],
                "mount": not(&login["path"], "jwt"),
            } }))
        }
        "appRole" if login["roleId"].is_string() => Ok(json!({ "appRole": {
            "roleId": login["roleId"], "secretId": key(&login["secretRef"]), "mount": not(&login["path"], "approle"),
        } })),
        "cert" if login["clientCert"]["name"].is_string() => Ok(json!({ "certificate": {
            "secret": login["clientCert"]["name"], "mount": not(&login["path"], "cert"),
        } })),
        "tokenSecretRef" => Ok(json!({ "token": key(login) })),
        _ => Err(format!("its login by {method} has no counterpart in this form. Write spec.vault.login")),
    }
}

/// Returns the value unless it is the default.
fn not(value: &Value, default: &str) -> Value {
    if value == default { Value::Null } else { value.clone() }
}

fn ca_secret(provider: Option<&Value>, lost: &mut Vec<String>) -> Value {
    let Some(provider) = provider else { return Value::Null };
    if provider["type"] == "Secret" {
        return json!({ "name": provider["name"], "key": provider["key"] });
    }
    lost.push("caProvider is a ConfigMap. Put the authority into caBundle or a Secret".to_owned());
    Value::Null
}

/// Returns the first namespace that a part of the login names.
fn find_namespace(value: &Value) -> Option<&str> {
    let members = value.as_object()?;
    members.get("namespace").and_then(Value::as_str).or_else(|| members.values().find_map(find_namespace))
}
