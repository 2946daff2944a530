//! Values: those of the chart zopp 0.1.1, and those that make no sense.

use std::fs;

use serde_json::{Value, json};

use crate::{EVERYTHING, Objects, arguments, chart, container, object, objects, render};

/// Each value of the chart zopp 0.1.1, with one that is not its default.
fn of_the_original() -> Value {
    let resources = json!({ "limits": { "memory": "300Mi" } });
    json!({
        "nameOverride": "", "fullnameOverride": "zopp", "imagePullSecrets": [{ "name": "registry" }],
        "podAnnotations": { "team": "one" }, "podSecurityContext": { "fsGroup": 1000 }, "securityContext": { "runAsUser": 1000 },
        "rbac": { "create": true, "clusterWide": true },
        "serviceAccount": { "create": true, "annotations": { "a": "b" }, "name": "shared" },
        "server": {
            "enabled": true, "replicaCount": 1,
            "image": { "repository": "registry/zopp-server", "pullPolicy": "Always", "tag": "1" },
            "service": { "type": "NodePort", "grpcPort": 50052, "httpPort": 8081 },
            "database": {
                "type": "sqlite",
                "sqlite": {
                    "path": "/data/other.db",
                    "persistence": { "enabled": true, "storageClass": "fast", "accessMode": "ReadWriteOnce", "size": "2Gi" },
                },
                "postgres": { "url": "", "existingSecret": "", "existingSecretKey": "DATABASE_URL" },
            },
            "events": { "backend": "memory", "databaseUrl": "", "existingSecret": "", "existingSecretKey": "EVENTS_DATABASE_URL" },
            "tls": { "enabled": true, "existingSecret": "", "cert": "C", "key": "K", "clientCA": "A" },
            "resources": resources, "nodeSelector": { "disk": "ssd" }, "tolerations": [{ "key": "a" }], "affinity": {},
        },
        "operator": {
            "enabled": true, "replicaCount": 1,
            "image": { "repository": "registry/zopp-operator", "pullPolicy": "Always", "tag": "2" },
            "server": { "address": "zopp.example.com:50051", "tls": { "enabled": false, "existingSecret": "ca" } },
            "credentials": {
                "existingSecret": "",
                "principal": {
                    "id": "i", "name": "n", "publicKey": "p", "x25519PublicKey": "x", "privateKey": "s", "x25519PrivateKey": "t",
                },
            },
            "watchNamespace": "shop", "healthCheck": { "port": 8090 },
            "resources": resources, "nodeSelector": {}, "tolerations": [], "affinity": {},
        },
    })
}

#[test]
fn the_values_of_the_chart_zopp_are_taken_and_heeded() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("values.yaml");
    fs::write(&file, of_the_original().to_string()).unwrap();
    let defaults = chart().join("values-zopp.yaml");
    let rendered = objects(&render(&[], &[defaults.to_str().unwrap(), file.to_str().unwrap()]).unwrap());

    let operator = container(&rendered, "zopp-operator");
    let given = arguments(operator);
    for expected in [
        "--server=https://zopp.example.com:50051",
        "--namespace=shop",
        "--health-probe-bind-address=0.0.0.0:8090",
        "--tls-ca-cert=/etc/zopp-tls/ca.crt",
    ] {
        assert!(given.iter().any(|argument| argument == expected), "{expected}: {given:?}");
    }
    assert_eq!(operator["image"], "registry/zopp-operator:2");
    assert_eq!(operator["envFrom"][0]["secretRef"]["name"], "zopp-operator-credentials");
    assert_eq!(object(&rendered, "Secret", "zopp-operator-credentials")["stringData"]["ZOPP_X25519_PRIVATE_KEY"], "t");
    assert_eq!(object(&rendered, "ServiceAccount", "shared")["metadata"]["annotations"]["a"], "b");

    let server = container(&rendered, "zopp-server");
    assert_eq!(server["env"][0]["value"], "sqlite:///data/other.db?mode=rwc");
    assert_eq!((&server["image"], &server["imagePullPolicy"]), (&json!("registry/zopp-server:1"), &json!("Always")));
    assert!(arguments(server).contains(&"--tls-client-ca=/etc/zopp/tls/ca.crt".to_owned()));
    assert_eq!(server["securityContext"]["runAsUser"], 1000);
    assert_eq!(server["securityContext"]["readOnlyRootFilesystem"], true, "a default that was not named stays");
    assert_eq!(object(&rendered, "Secret", "zopp-server-tls")["stringData"]["tls.key"], "K");
    let claim = object(&rendered, "PersistentVolumeClaim", "zopp-server-data");
    assert_eq!(
        (&claim["spec"]["storageClassName"], &claim["spec"]["resources"]["requests"]["storage"]),
        (&json!("fast"), &json!("2Gi"))
    );
    let service = object(&rendered, "Service", "zopp-server");
    assert_eq!((&service["spec"]["type"], &service["spec"]["ports"][0]["port"]), (&json!("NodePort"), &json!(50052)));
    assert!(!rendered.contains_key(&("Deployment".to_owned(), "zopp-roll".to_owned())), "the chart zopp has no roll");
}

const POSTGRES: [&str; 3] = ["server.enabled=true", "server.replicaCount=2", "server.database.type=postgres"];

/// The variables of the server's container, by name.
fn variables(rendered: &Objects) -> Value {
    let listed = container(rendered, "release-konverge-server")["env"].as_array().unwrap();
    let value = |one: &Value| {
        [&one["value"], &one["valueFrom"]["secretKeyRef"]].into_iter().find(|value| !value.is_null()).cloned()
    };
    listed.iter().map(|one| (one["name"].as_str().unwrap().to_owned(), value(one).unwrap())).collect()
}

#[test]
fn several_servers_share_a_postgresql_whose_address_is_in_a_secret() {
    let url = "postgres://zopp:word@db.example.com:6432/zopp?sslmode=verify-full";
    let given = format!("server.database.postgres.url={url}");
    let rendered = objects(&render(&[&POSTGRES[..], &[&given]].concat(), &[]).unwrap());
    let deployment = object(&rendered, "Deployment", "release-konverge-server");
    assert_eq!((&deployment["spec"]["replicas"], &deployment["spec"]["strategy"]), (&json!(2), &Value::Null));
    let expected = json!({
        "DATABASE_URL": { "name": "release-konverge-server-database", "key": "DATABASE_URL" },
        "ZOPP_EVENTS_BACKEND": "auto",
    });
    assert_eq!(variables(&rendered), expected);
    let secret = object(&rendered, "Secret", "release-konverge-server-database");
    assert_eq!(secret["stringData"], json!({ "DATABASE_URL": url }));
    assert!(!deployment.to_string().contains("word"), "{deployment}");
    assert!(!rendered.keys().any(|(kind, _)| kind == "PersistentVolumeClaim"), "{:?}", rendered.keys());
    assert!(rendered.contains_key(&("PodDisruptionBudget".to_owned(), "release-konverge-server".to_owned())));
    let ports = &object(&rendered, "NetworkPolicy", "release-konverge-server")["spec"]["egress"][1]["ports"];
    assert!(ports.as_array().unwrap().iter().any(|port| port["port"] == 6432), "{ports}");
}

#[test]
fn addresses_of_databases_can_be_in_secrets_of_ones_own() {
    let own = [
        "server.database.postgres.existingSecret=db",
        "server.database.postgres.existingSecretKey=url",
        "server.events.backend=postgres",
        "server.events.existingSecret=events",
    ];
    let rendered = objects(&render(&[&POSTGRES[..], &own].concat(), &[]).unwrap());
    let expected = json!({
        "DATABASE_URL": { "name": "db", "key": "url" },
        "ZOPP_EVENTS_BACKEND": "postgres",
        "ZOPP_EVENTS_DATABASE_URL": { "name": "events", "key": "EVENTS_DATABASE_URL" },
    });
    assert_eq!(variables(&rendered), expected);
    assert!(!rendered.keys().any(|(kind, _)| kind == "Secret"), "{:?}", rendered.keys());
}

#[test]
fn credentials_are_a_file_or_variables() {
    for (layout, has_file) in [("auto", true), ("file", true), ("env", false)] {
        let set = format!("pull.credentials.layout={layout}");
        let rendered = objects(&render(&[&EVERYTHING[..], &[&set]].concat(), &[]).unwrap());
        let container = container(&rendered, "release-konverge-operator");
        let given = arguments(container);
        assert_eq!(given.contains(&"--credentials=/etc/zopp/config.json".to_owned()), has_file, "{layout}: {given:?}");
        assert_eq!(container["envFrom"].is_null(), has_file, "{layout}");
        assert_eq!(container["volumeMounts"].is_array(), has_file, "{layout}");
    }
}

#[test]
fn the_key_of_a_workspace_is_pinned_or_believed_on_request_and_for_switchers() {
    let switcher = chart().join("values-zopp.yaml");
    let switcher = [switcher.to_str().unwrap()];
    let address = "pull.server.address=https://zopp.example.com";
    let pin = format!("acme={}", ["0011-2233-4455-6677"; 4].join("-"));
    let pinned = format!("pull.workspaceFingerprints.{pin}");
    for (sets, files, name, flags) in [
        (&["pull.enabled=true", address][..], &[][..], "release-konverge-operator", &["--trust-first-key=false"][..]),
        (
            &["pull.enabled=true", address, "pull.trustFirstKey=true"],
            &[],
            "release-konverge-operator",
            &["--trust-first-key=true"],
        ),
        (
            &["pull.enabled=true", address, &pinned],
            &[],
            "release-konverge-operator",
            &["--trust-first-key=false", &format!("--workspace-fingerprint={pin}")],
        ),
        (&[], &switcher, "release-konverge-operator", &["--trust-first-key=true"]),
        (&["operator.trustFirstKey=false"], &switcher, "release-konverge-operator", &["--trust-first-key=false"]),
    ] {
        let given = arguments(container(&objects(&render(sets, files).unwrap()), name));
        let about = |argument: &&String| argument.contains("first-key") || argument.contains("fingerprint");
        let mut found: Vec<_> = given.iter().filter(about).collect();
        found.sort();
        assert_eq!(found, flags, "{sets:?}");
    }
}

#[test]
fn a_value_that_makes_no_sense_is_refused_with_the_next_step() {
    for (sets, parts) in [
        (&["rol.enabled=true"][..], &["rol"][..]),
        (&["roll.replicas=3"], &["replicas"]),
        (&["roll.kinds={pods}"], &["kinds"]),
        (&["image.digest=sha256:1"], &["digest"]),
        (&["pull.enabled=true"], &["pull.server.address is required unless server.enabled"]),
        (&["pull.workspaceFingerprints.acme=1"], &["workspaceFingerprints"]),
        (&["push.enabled=true"], &["push.vault.address is required"]),
        (&["server.enabled=true", "server.replicaCount=2"], &["server.replicaCount must be 1 with SQLite"]),
        (&["server.enabled=true", "server.database.type=mysql"], &["database/type", "'postgres'"]),
        (&["server.enabled=true", "server.database.type=postgres"], &["server.database.postgres.url is required"]),
        (&["server.enabled=true", "server.events.backend=postgres"], &["server.events.existingSecret is required"]),
        (
            &[
                "server.enabled=true",
                "server.replicaCount=2",
                "server.database.type=postgres",
                "server.database.postgres.existingSecret=db",
                "server.events.backend=memory",
            ],
            &["watchers miss the changes"],
        ),
        (
            &["server.enabled=true", "server.tls.enabled=true"],
            &["server.tls.cert or server.tls.existingSecret is required"],
        ),
        (&["rbac.clusterWide=false"], &["roll.watchNamespace is required where rbac.clusterWide is false"]),
        (
            &["operator.enabled=true", "server.enabled=true", "operator.credentials.principal.id=a"],
            &["needs all of id, name"],
        ),
    ] {
        let told = render(sets, &[]).unwrap_err();
        assert!(parts.iter().all(|part| told.contains(part)), "{sets:?}: {told}");
    }
}
