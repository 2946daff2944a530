use super::*;
use crate::migrate::parts::tests::understood;

fn object(kind: &str, name: &str, namespace: Option<&str>, spec: &Value) -> (String, DynamicObject) {
    let metadata = json!({ "name": name, "namespace": namespace });
    (kind.to_owned(), serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap())
}

fn kind_of(kind: &str) -> Kind {
    ExternalSecrets.kinds().into_iter().find(|found| found.resource.kind == kind).unwrap()
}

/// Returns the effect on the last of these objects.
fn classified(objects: &[(String, DynamicObject)]) -> Migrated {
    let mut listed = Listed::default();
    for (kind, object) in objects {
        listed.add(&kind_of(kind), vec![object.clone()]);
    }
    let (kind, object) = objects.last().unwrap();
    ExternalSecrets.classify(&kind_of(kind), object, &listed).unwrap()
}

fn store(path: &str) -> (String, DynamicObject) {
    let vault = json!({ "server": "https://vault:8200", "path": path, "version": "v2", "auth": {} });
    object("SecretStore", "vault", Some("shop"), &json!({ "provider": { "vault": vault } }))
}

fn external(mut spec: Value) -> Migrated {
    spec["secretStoreRef"] = json!({ "name": "vault", "kind": "SecretStore" });
    classified(&[store("secret"), object("ExternalSecret", "db", Some("shop"), &spec)])
}

fn data(secret_key: &str, key: &str, property: &str) -> Value {
    json!({ "secretKey": secret_key, "remoteRef": { "key": key, "property": property } })
}

#[test]
fn entries_of_one_path_become_one_source() {
    let migrated = external(json!({
        "refreshInterval": "1h",
        "target": { "name": "db-secret", "creationPolicy": "Orphan", "template": {
            "type": "Opaque", "metadata": { "labels": { "a": "b" } },
            "data": { "URL": "pg://{{ .DB_USER }}@db" }, "mergePolicy": "Merge",
        } },
        "data": [
            data("DB_USER", "shop/db", "user"), data("password", "secret/data/shop/db", "password"),
            data("TOKEN", "shop/api", "token"),
        ],
        "dataFrom": [{ "extract": { "key": "shop/one" } }, { "extract": { "key": "shop/two", "version": "3" } }],
    }));
    assert_eq!(migrated.lost, Vec::<String>::new());
    let source = json!({ "name": "vault" });
    let expected = json!({
        "target": { "name": "db-secret", "type": "Opaque", "labels": { "a": "b" }, "deletionPolicy": "Retain", "adopt": true },
        "sources": [
            { "source": source, "from": "vault://secret/shop/db", "keys": ["password", "user"], "rename": { "table": { "user": "DB_USER" } } },
            { "source": source, "from": "vault://secret/shop/api", "keys": ["token"], "rename": { "table": { "token": "TOKEN" } } },
            { "source": source, "from": "vault://secret/shop/two?version=3" },
            { "source": source, "from": "vault://secret/shop/one" },
        ],
        "template": { "data": { "URL": "pg://${DB_USER}@db" }, "keepSourceKeys": true },
    });
    assert_eq!(understood(&migrated.manifests)["SecretPull/db"], expected);
}

#[test]
fn a_value_under_two_names_is_made_by_a_template() {
    for (spec, expected) in [
        (
            json!({ "data": [data("A", "db", "user"), data("B", "db", "user")] }),
            json!({ "data": { "B": "${A}" }, "keepSourceKeys": true }),
        ),
        (
            json!({ "data": [data("A", "db", "user")], "dataFrom": [{ "extract": { "key": "db" } }] }),
            json!({ "data": { "A": "${user}" }, "keepSourceKeys": true }),
        ),
    ] {
        let migrated = external(spec);
        assert_eq!(
            (migrated.lost.len(), &understood(&migrated.manifests)["SecretPull/db"]["template"]),
            (0, &expected)
        );
    }
}

#[test]
fn what_pull_lacks_is_named() {
    let good = || json!([data("A", "db", "user")]);
    let entry = |name: &str, value: Value| {
        let mut entry = data("A", "db", "user");
        entry["remoteRef"][name] = value;
        json!({ "data": [data("B", "db", "b"), entry] })
    };
    for (spec, part) in [
        (json!({ "data": good(), "dataFrom": [{ "find": { "name": { "regexp": ".*" } } }] }), "by name or tag"),
        (json!({ "data": good(), "dataFrom": [{ "extract": { "key": "db2" }, "rewrite": [{}] }] }), "a rewrite"),
        (json!({ "data": good(), "target": { "immutable": true } }), "immutable"),
        (json!({ "data": good(), "target": { "deletionPolicy": "Delete" } }), "deletionPolicy: Delete"),
        (json!({ "data": good(), "refreshPolicy": "CreatedOnce" }), "refreshPolicy: CreatedOnce"),
        (json!({ "data": good(), "target": { "template": { "data": { "x": "{{ .A | b64enc }}" } } } }), "b64enc"),
        (json!({ "data": good(), "target": { "template": { "templateFrom": [{}] } } }), "templateFrom"),
        (entry("decodingStrategy", "Base64".into()), "decodingStrategy: Base64"),
        (entry("property", Value::Null), "as JSON"),
        (entry("property", "a.b".into()), "a part of a value"),
        (
            json!({ "data": [data("A", "db", "user"), { "secretKey": "B", "remoteRef": { "key": "x", "property": "y" }, "sourceRef": { "storeRef": { "name": "none" } } }] }),
            "SecretStore none: it was not found",
        ),
    ] {
        let migrated = external(spec.clone());
        assert!(migrated.lost.len() == 1 && migrated.lost[0].contains(part), "{spec}: {:?}", migrated.lost);
        understood(&migrated.manifests);
    }
    let nothing = external(json!({ "dataFrom": [{ "find": {} }] }));
    assert!(nothing.manifests.is_empty() && nothing.lost.len() == 2, "{nothing:?}");
}

#[test]
fn a_store_becomes_a_source() {
    let provider = |auth: &Value| {
        json!({ "provider": { "vault": {
            "server": "https://vault:8200", "path": "secret", "namespace": "team", "caBundle": "UEVN",
            "caProvider": { "type": "Secret", "name": "ca", "key": "ca.crt", "namespace": "pki" }, "auth": auth,
        } } })
    };
    for (auth, login) in [
        (
            json!({ "kubernetes": { "mountPath": "kubernetes", "role": "r", "serviceAccountRef": { "name": "app", "audiences": ["vault"] } } }),
            json!({ "kubernetes": { "serviceAccount": "app", "audiences": ["vault"], "role": "r" } }),
        ),
        (
            json!({ "appRole": { "path": "other", "roleId": "id", "secretRef": { "name": "s", "key": "k" } } }),
            json!({ "appRole": { "roleId": "id", "secretId": { "name": "s", "key": "k" }, "mount": "other" } }),
        ),
        (
            json!({ "jwt": { "path": "jwt", "role": "r", "kubernetesServiceAccountToken": { "serviceAccountRef": { "name": "app" } } } }),
            json!({ "jwt": { "serviceAccount": "app", "role": "r" } }),
        ),
        (
            json!({ "cert": { "clientCert": { "name": "c", "key": "tls.crt" } } }),
            json!({ "certificate": { "secret": "c" } }),
        ),
        (
            json!({ "tokenSecretRef": { "name": "t", "key": "token" } }),
            json!({ "token": { "name": "t", "key": "token" } }),
        ),
    ] {
        let migrated = classified(&[object("SecretStore", "vault", Some("shop"), &provider(&auth))]);
        assert_eq!(migrated.lost, Vec::<String>::new());
        let vault = &understood(&migrated.manifests)["SecretSource/vault"]["vault"];
        assert_eq!(
            (&vault["login"], &vault["caBundle"], &vault["caSecret"]["name"]),
            (&login, &json!("PEM"), &json!("ca"))
        );
    }
    let token = json!({ "tokenSecretRef": { "name": "t", "key": "token", "namespace": "vault" } });
    let mut of_cluster = provider(&token);
    of_cluster["conditions"] =
        json!([{ "namespaces": ["shop"] }, { "namespaceSelector": { "matchLabels": { "a": "b" } } }]);
    let migrated = classified(&[object("ClusterSecretStore", "vault", None, &of_cluster)]);
    let spec = &understood(&migrated.manifests)["ClusterSecretSource/vault"];
    assert_eq!((&spec["namespaces"], &spec["credentialsNamespace"]), (&json!(["shop"]), &json!("vault")));
    assert_eq!(spec["namespaceSelector"], json!({ "matchLabels": { "a": "b" } }));

    for (spec, part) in [
        (json!({ "provider": { "aws": {} } }), "its provider is aws"),
        (provider(&json!({ "iam": {} })), "login by iam"),
        (provider(&json!({})), "names no login"),
    ] {
        let migrated = classified(&[object("SecretStore", "vault", Some("shop"), &spec)]);
        assert!(migrated.lost.len() == 1 && migrated.lost[0].contains(part), "{:?}", migrated.lost);
    }
}
