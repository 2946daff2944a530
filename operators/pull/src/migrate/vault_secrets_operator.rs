//! The migration from Vault Secrets Operator.

use konverge_kubectl::{Kind, Listed, Migrated, Migration};
use kube::{ResourceExt, core::DynamicObject};
use serde::Deserialize;
use serde_json::{Value, json};

use super::parts::{Texts, kind, manifest, reference, spec, template, unread};

/// The group of the kinds of Vault Secrets Operator.
const GROUP: &str = "secrets.hashicorp.com";

/// The kinds with leases, which pull does not read.
const LEASED: [(&str, &str); 2] = [("VaultDynamicSecret", "dynamic secrets"), ("VaultPKISecret", "certificates")];

/// Moves users of Vault Secrets Operator.
pub struct VaultSecretsOperator;

impl Migration for VaultSecretsOperator {
    fn name(&self) -> &'static str {
        "vault-secrets-operator"
    }

    fn page(&self) -> &'static str {
        "docs/migrate/vault-secrets-operator.md"
    }

    fn kinds(&self) -> Vec<Kind> {
        let kinds = ["VaultConnection", "VaultAuth", "VaultStaticSecret"];
        kinds.into_iter().chain(LEASED.map(|(name, _)| name)).map(|name| kind(GROUP, "v1beta1", name, true)).collect()
    }

    fn classify(&self, kind: &Kind, object: &DynamicObject, listed: &Listed) -> Option<Migrated> {
        let migrated = match &*kind.resource.kind {
            // It is a part of what a VaultAuth becomes.
            "VaultConnection" => return None,
            "VaultAuth" => spec(object).map(|spec| of_auth(object, &spec, listed)),
            "VaultStaticSecret" => spec(object).map(|spec| of_static_secret(object, &spec)),
            leased => {
                let what = LEASED.iter().find(|(name, _)| *name == leased).map_or("leases", |(_, what)| what);
                Err(format!("pull has no {what}. Leave it to Vault Secrets Operator"))
            }
        };
        Some(migrated.unwrap_or_else(unread))
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Auth {
    vault_connection_ref: Option<String>,
    namespace: Option<String>,
    allowed_namespaces: Vec<String>,
    method: String,
    mount: Option<String>,
    kubernetes: Value,
    jwt: Value,
    app_role: Value,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Connection {
    address: String,
    ca_cert_secret_ref: Option<String>,
    skip_tls_verify: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StaticSecret {
    vault_auth_ref: Option<String>,
    namespace: Option<String>,
    mount: String,
    path: String,
    version: Option<u64>,
    destination: Destination,
    #[serde(default)]
    rollout_restart_targets: Vec<Target>,
    #[serde(default)]
    sync_config: Value,
}

#[derive(Deserialize)]
struct Target {
    kind: String,
    name: String,
}

#[derive(Deserialize)]
struct Destination {
    name: String,
    r#type: Option<String>,
    #[serde(default)]
    labels: Texts,
    #[serde(default)]
    annotations: Texts,
    #[serde(default)]
    transformation: Transformation,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Transformation {
    includes: Vec<String>,
    excludes: Vec<String>,
    templates: std::collections::BTreeMap<String, Text>,
    #[serde(rename = "transformationRefs")]
    others: Vec<Value>,
}

#[derive(Deserialize)]
struct Text {
    text: String,
}

/// The connection and the login where an object names none.
const DEFAULT: &str = "default";

fn of_auth(object: &DynamicObject, auth: &Auth, listed: &Listed) -> Migrated {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let mut lost = Vec::new();
    let (of, connection) = named(auth.vault_connection_ref.as_deref().unwrap_or(DEFAULT), &namespace);
    let connection = listed.find("VaultConnection", of, connection).map(spec::<Connection>);
    let connection =
        connection.unwrap_or_else(|| Err("its VaultConnection was not found. Write spec.vault.address".to_owned()));
    let Connection { address, ca_cert_secret_ref, skip_tls_verify } = connection.unwrap_or_else(|cause| {
        lost.push(cause);
        Connection::default()
    });
    if skip_tls_verify {
        lost.push("skipTLSVerify. Write the authority into spec.vault.caBundle".to_owned());
    }
    let mount = |default: &str| auth.mount.clone().filter(|mount| mount != default);
    let account = |of: &Value| json!({ "serviceAccount": of["serviceAccount"], "audiences": of["audiences"], "role": of["role"], "mount": mount(&auth.method) });
    let login = match &*auth.method {
        "kubernetes" => json!({ "kubernetes": account(&auth.kubernetes) }),
        "jwt" if auth.jwt["serviceAccount"].is_string() => json!({ "jwt": account(&auth.jwt) }),
        "appRole" => json!({ "appRole": {
            "roleId": auth.app_role["roleId"], "secretId": { "name": auth.app_role["secretRef"], "key": "id" }, "mount": mount("approle"),
        } }),
        // Without a login, the definition refuses the object and says so.
        method => {
            lost.push(format!("its login by {method} has no counterpart in this form. Write spec.vault.login"));
            Value::Null
        }
    };
    let ca_secret = ca_cert_secret_ref.map(|secret| json!({ "name": secret, "key": "ca.crt" }));
    let vault = json!({ "address": address, "namespace": auth.namespace, "caSecret": ca_secret, "login": login });
    let manifest = if auth.allowed_namespaces.is_empty() {
        manifest("SecretSource", Some(&namespace), &name, json!({ "vault": vault }))
    } else {
        let spec = json!({ "vault": vault, "namespaces": auth.allowed_namespaces, "credentialsNamespace": namespace });
        manifest("ClusterSecretSource", None, &name, spec)
    };
    let kind = manifest["kind"].as_str().unwrap_or_default();
    Migrated { becomes: vec![format!("a {kind} connects to {address}")], lost, manifests: vec![manifest] }
}

fn of_static_secret(object: &DynamicObject, secret: &StaticSecret) -> Migrated {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let StaticSecret { vault_auth_ref, namespace: vault_namespace, mount, path, version, destination, .. } = secret;
    let Destination { name: secret_name, r#type, labels, annotations, transformation } = destination;
    let mut lost = Vec::new();
    let from = reference(mount, path, version.map(|version| version.to_string()).as_deref());
    let mut becomes = vec![format!("a SecretPull makes the Secret {secret_name} of {from}")];
    if vault_namespace.is_some() {
        lost.push("namespace. The namespace of Vault is that of the source".to_owned());
    }
    if !transformation.others.is_empty() {
        lost.push("transformationRefs. Write the texts in spec.template.data".to_owned());
    }
    if !transformation.excludes.is_empty() {
        lost.push(format!("excludes ({}). Choose by keys", transformation.excludes.join(", ")));
    }
    if secret.sync_config["instantUpdates"] == true {
        lost.push(
            "syncConfig.instantUpdates. A change reaches the Secret within the interval of the source".to_owned(),
        );
    }
    let mut keys = Vec::new();
    for pattern in &transformation.includes {
        match literal(pattern) {
            Some(key) => keys.push(key),
            None => lost.push(format!("includes: the regular expression {pattern}. keys may have *")),
        }
    }
    let mut texts = Texts::new();
    for (key, Text { text }) in &transformation.templates {
        match template(text, ".Secrets.") {
            Ok(text) => drop(texts.insert(key.clone(), text)),
            Err(cause) => lost.push(format!("templates {key}: {cause}")),
        }
    }
    for Target { kind, name } in &secret.rollout_restart_targets {
        becomes.push(format!(
            "roll restarts {kind} {name} once it has the annotation roll.konverge.dev/on-change: \"true\""
        ));
    }
    let (of, source) = named(vault_auth_ref.as_deref().unwrap_or(DEFAULT), &namespace);
    let kind = (of != namespace).then_some("ClusterSecretSource");
    // There, templates add to the keys.
    let template = if texts.is_empty() { Value::Null } else { json!({ "data": texts, "keepSourceKeys": true }) };
    let spec = json!({
        "target": { "name": secret_name, "type": r#type, "labels": labels, "annotations": annotations, "adopt": true },
        "sources": [{ "source": { "kind": kind, "name": source }, "from": from, "keys": keys }],
        "template": template,
    });
    Migrated { becomes, lost, manifests: vec![manifest("SecretPull", Some(&namespace), &name, spec)] }
}

/// Returns the namespace and the name of an object that is named by either or by the name alone.
fn named<'a>(reference: &'a str, namespace: &'a str) -> (&'a str, &'a str) {
    reference.split_once('/').unwrap_or((namespace, reference))
}

/// Returns the key that a regular expression matches, if it is one key.
fn literal(pattern: &str) -> Option<String> {
    let key = pattern.strip_prefix('^').unwrap_or(pattern);
    let key = key.strip_suffix('$').unwrap_or(key).replace("\\.", ".");
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_literal = !key.is_empty() && key.bytes().all(is_plain) && pattern.starts_with('^') && pattern.ends_with('$');
    is_literal.then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migrate::parts::tests::understood;

    fn classified(objects: &[(&str, &str, Value)]) -> Migrated {
        let kind_of =
            |kind: &str| VaultSecretsOperator.kinds().into_iter().find(|found| found.resource.kind == kind).unwrap();
        let mut listed = Listed::default();
        let mut last = None;
        for (kind, name, spec) in objects {
            let object = json!({ "metadata": { "name": name, "namespace": "shop" }, "spec": spec });
            let object: DynamicObject = serde_json::from_value(object).unwrap();
            listed.add(&kind_of(kind), vec![object.clone()]);
            last = Some((kind_of(kind), object));
        }
        let (kind, object) = last.unwrap();
        VaultSecretsOperator.classify(&kind, &object, &listed).unwrap()
    }

    #[test]
    fn a_static_secret_becomes_a_secret_pull() {
        let migrated = classified(&[(
            "VaultStaticSecret",
            "db",
            json!({
                "vaultAuthRef": "vault", "mount": "secret", "type": "kv-v2", "path": "shop/db", "version": 3, "refreshAfter": "30s",
                "destination": { "name": "db", "create": true, "type": "Opaque", "transformation": {
                    "includes": ["^user$"], "templates": { "URL": { "text": "pg://{{ .Secrets.user }}" } }, "excludeRaw": true,
                } },
                "rolloutRestartTargets": [{ "kind": "Deployment", "name": "web" }],
            }),
        )]);
        assert_eq!(migrated.lost, Vec::<String>::new());
        assert!(migrated.becomes[1].contains("Deployment web"), "{:?}", migrated.becomes);
        let expected = json!({
            "target": { "name": "db", "type": "Opaque", "adopt": true },
            "sources": [{ "source": { "name": "vault" }, "from": "vault://secret/shop/db?version=3", "keys": ["user"] }],
            "template": { "data": { "URL": "pg://${user}" }, "keepSourceKeys": true },
        });
        assert_eq!(understood(&migrated.manifests)["SecretPull/db"], expected);
    }

    #[test]
    fn what_pull_lacks_is_named() {
        let of = |path: &str, value: Value| {
            let mut spec =
                json!({ "mount": "secret", "path": "db", "destination": { "name": "db", "transformation": {} } });
            match path.split_once('.') {
                None => spec[path] = value,
                Some((one, two)) => spec[one]["transformation"][two] = value,
            }
            classified(&[("VaultStaticSecret", "db", spec)])
        };
        for (path, value, part) in [
            ("namespace", json!("team"), "that of the source"),
            ("syncConfig", json!({ "instantUpdates": true }), "instantUpdates"),
            ("destination.includes", json!(["^DB_.*"]), "the regular expression"),
            ("destination.excludes", json!(["x"]), "excludes (x)"),
            ("destination.transformationRefs", json!([{}]), "transformationRefs"),
            ("destination.templates", json!({ "x": { "text": "{{ len .Secrets }}" } }), "templates x"),
        ] {
            let migrated = of(path, value);
            assert!(migrated.lost.len() == 1 && migrated.lost[0].contains(part), "{path}: {:?}", migrated.lost);
            understood(&migrated.manifests);
        }
        let leased = classified(&[("VaultDynamicSecret", "db", json!({}))]);
        assert!(leased.manifests.is_empty() && leased.lost[0].contains("no dynamic secrets"), "{leased:?}");
    }

    #[test]
    fn a_login_and_its_connection_become_a_source() {
        let connection = json!({ "address": "https://vault:8200", "caCertSecretRef": "ca" });
        let auth = |mut spec: Value| {
            spec["vaultConnectionRef"] = "main".into();
            classified(&[("VaultConnection", "main", connection.clone()), ("VaultAuth", "vault", spec)])
        };
        for (spec, login) in [
            (
                json!({ "method": "kubernetes", "mount": "k8s", "kubernetes": { "role": "r", "serviceAccount": "app" } }),
                json!({ "kubernetes": { "serviceAccount": "app", "role": "r", "mount": "k8s" } }),
            ),
            (
                json!({ "method": "jwt", "mount": "jwt", "jwt": { "role": "r", "serviceAccount": "app", "audiences": ["vault"] } }),
                json!({ "jwt": { "serviceAccount": "app", "role": "r", "audiences": ["vault"] } }),
            ),
            (
                json!({ "method": "appRole", "mount": "approle", "appRole": { "roleId": "id", "secretRef": "s" } }),
                json!({ "appRole": { "roleId": "id", "secretId": { "name": "s", "key": "id" } } }),
            ),
        ] {
            let migrated = auth(spec);
            assert_eq!(migrated.lost, Vec::<String>::new());
            let vault = &understood(&migrated.manifests)["SecretSource/vault"]["vault"];
            assert_eq!((&vault["login"], &vault["caSecret"]), (&login, &json!({ "name": "ca", "key": "ca.crt" })));
        }
        let of_cluster = auth(json!({
            "method": "kubernetes", "kubernetes": { "role": "r", "serviceAccount": "app" }, "allowedNamespaces": ["*"],
        }));
        let spec = &understood(&of_cluster.manifests)["ClusterSecretSource/vault"];
        assert_eq!((&spec["namespaces"], &spec["credentialsNamespace"]), (&json!(["*"]), &json!("shop")));
        assert!(auth(json!({ "method": "aws" })).lost[0].contains("login by aws"));
        let alone = classified(&[(
            "VaultAuth",
            "vault",
            json!({ "method": "kubernetes", "kubernetes": { "role": "r", "serviceAccount": "app" } }),
        )]);
        assert!(alone.lost[0].contains("VaultConnection was not found"), "{alone:?}");
    }
}
