//! The pages for users of other tools: their steps, followed word for word from a cluster in which that tool has worked.

use crate::{
    guides::{PULL, PUSH, login, login_of_files, steps_before},
    reader::{Reader, section, with_vault, with_zopp},
};

const EXTERNAL_SECRETS: &str = include_str!("../../../../docs/migrate/external-secrets.md");
const PUSH_SECRET: &str = include_str!("../../../../docs/migrate/eso-pushsecret.md");
const RELOADER: &str = include_str!("../../../../docs/migrate/reloader.md");
const VAULT_SECRETS_OPERATOR: &str = include_str!("../../../../docs/migrate/vault-secrets-operator.md");
const VAULT_SYNC_OPERATOR: &str = include_str!("../../../../docs/migrate/vault-sync-operator.md");
const VAULT_SYNC_STATUS: &str = include_str!("../../../../docs/migrate/vaultsyncstatus.md");
const WAVE: &str = include_str!("../../../../docs/migrate/wave.md");
const ZOPP_OPERATOR: &str = include_str!("../../../../docs/migrate/zopp-operator.md");

/// A request to Vault as its administrator.
const VAULT: &str = "curl --silent --fail --header \"X-Vault-Token: $VAULT_TOKEN\"";

/// Workloads with each form of Reloader's annotations, in the shape of the manifests that its own documentation shows.
const FOR_RELOADER: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop}
data: {colour: blue}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: texts, namespace: shop}
data: {greeting: hello}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: matched, namespace: shop, annotations: {reloader.stakater.com/match: "true"}}
data: {size: small}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: ignored, namespace: shop, annotations: {reloader.stakater.com/ignore: "true"}}
data: {noise: low}
---
apiVersion: v1
kind: Secret
metadata: {name: db, namespace: shop}
stringData: {password: one}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, annotations: {reloader.stakater.com/auto: "true"}}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - name: web
          image: registry.k8s.io/pause:3.10
          envFrom: [{configMapRef: {name: settings}}, {configMapRef: {name: ignored}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: worker, namespace: shop, annotations: {secret.reloader.stakater.com/reload: "db"}}
spec:
  selector: {matchLabels: {app: worker}}
  template:
    metadata: {labels: {app: worker}}
    spec: {containers: [{name: worker, image: "registry.k8s.io/pause:3.10", envFrom: [{secretRef: {name: db}}]}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: typed, namespace: shop, annotations: {secret.reloader.stakater.com/auto: "true"}}
spec:
  selector: {matchLabels: {app: typed}}
  template:
    metadata: {labels: {app: typed}}
    spec:
      containers:
        - name: typed
          image: registry.k8s.io/pause:3.10
          envFrom: [{configMapRef: {name: settings}}, {secretRef: {name: db}}]
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: excluding
  namespace: shop
  annotations: {reloader.stakater.com/auto: "true", configmaps.exclude.reloader.stakater.com/reload: "settings"}
spec:
  selector: {matchLabels: {app: excluding}}
  template:
    metadata: {labels: {app: excluding}}
    spec:
      containers:
        - name: excluding
          image: registry.k8s.io/pause:3.10
          envFrom: [{configMapRef: {name: settings}}, {secretRef: {name: db}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: untouched, namespace: shop, annotations: {reloader.stakater.com/auto: "false"}}
spec:
  selector: {matchLabels: {app: untouched}}
  template:
    metadata: {labels: {app: untouched}}
    spec: {containers: [{name: untouched, image: "registry.k8s.io/pause:3.10", envFrom: [{secretRef: {name: db}}]}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: named, namespace: shop, annotations: {configmap.reloader.stakater.com/reload: "texts,settings"}}
spec:
  serviceName: named
  selector: {matchLabels: {app: named}}
  template:
    metadata: {labels: {app: named}}
    spec: {containers: [{name: named, image: "registry.k8s.io/pause:3.10", envFrom: [{configMapRef: {name: settings}}]}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: searching, namespace: shop, annotations: {reloader.stakater.com/search: "true"}}
spec:
  selector: {matchLabels: {app: searching}}
  template:
    metadata: {labels: {app: searching}}
    spec:
      containers:
        - name: searching
          image: registry.k8s.io/pause:3.10
          envFrom: [{configMapRef: {name: settings}}, {configMapRef: {name: matched}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: reloader-reloader, namespace: reloader}
spec:
  selector: {matchLabels: {app: reloader}}
  template:
    metadata: {labels: {app: reloader}}
    spec: {containers: [{name: reloader, image: "ghcr.io/stakater/reloader:v1.4.12"}]}
"#;

/// A workload that uses the Secret `db`. The annotations and other metadata are to be filled in.
const WORKLOAD: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, METADATA}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "registry.k8s.io/pause:3.10", envFrom: [{secretRef: {name: db}}]}]}
"#;

/// The command that shows the revision of a pod template. The generation of a Deployment also counts changes of its annotations.
fn revision_of(workload: &str) -> String {
    let path = match workload.split_once('/') {
        Some(("deployment", _)) => r"{.metadata.annotations.deployment\.kubernetes\.io/revision}",
        _ => "{.metadata.generation}",
    };
    format!("kubectl get {workload} --namespace shop --output jsonpath='{path}'")
}

impl Reader {
    async fn run_all(&mut self, commands: &[&str]) {
        for command in commands {
            self.run(command, &[]).await;
        }
    }

    /// Applies a manifest.
    async fn has(&mut self, manifest: &str) {
        self.write("before.yaml", manifest);
        self.run("kubectl apply -f before.yaml", &[]).await;
    }

    /// Waits until the pod template of a workload has this revision: 1 until its first restart.
    async fn is_of_revision(&mut self, workload: &str, revision: &str) {
        self.run(&revision_of(workload), &[revision]).await;
    }

    /// Changes the value of the Secret `db`.
    async fn change_the_secret(&mut self) {
        let patch = r#"kubectl patch secret db --namespace shop --patch '{"stringData":{"password":"two"}}'"#;
        self.run(patch, &[]).await;
    }

    /// Waits until the content of the Secret `db` in Vault has the mark of push.
    async fn is_marked(&mut self) {
        let look = format!("kubectl get secret db --namespace shop && {VAULT} $VAULT_ADDR/v1/secret/metadata/shop/db");
        self.run(&look, &["…vault-sync.io/owner…"]).await;
    }

    /// Changes the value of the Secret `db`, and waits until the workload `web` is rolled for it.
    async fn rolls_for_the_secret(&mut self) {
        self.is_recorded().await;
        self.change_the_secret().await;
        self.is_rolled().await;
    }

    /// Waits until the workload `web` is rolled.
    async fn is_rolled(&mut self) {
        let events = "kubectl get events --namespace shop --field-selector reason=RolledOut";
        self.run(events, &["… Normal RolledOut deployment/web …"]).await;
    }

    /// Waits until roll has recorded its baseline of the workload `web`.
    async fn is_recorded(&mut self) {
        let look = "kubectl get deployment web --namespace shop --output jsonpath='{.metadata.annotations}'";
        self.run(look, &["…roll.konverge.dev/record…"]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn users_of_reloader_switch_as_the_page_says_and_exactly_their_workloads_restart() {
    let mut reader = Reader::new().await;
    reader.run_all(&["kubectl create namespace shop", "kubectl create namespace reloader"]).await;
    reader.has(FOR_RELOADER).await;
    for workload in ["deployment/web", "deployment/worker", "statefulset/named"] {
        reader.run(&format!("kubectl rollout status {workload} --namespace shop"), &[]).await;
    }
    let switch = section(RELOADER, "Switch");
    let flag = "{--reloader-annotations}";
    assert!(switch.contains(flag), "{switch}");
    // Nobody wants to wait for the minimum interval here.
    reader.follow(&switch.replace(flag, "{--reloader-annotations,--min-interval=0s}")).await;
    let all = [
        "deployment/web",
        "deployment/worker",
        "deployment/typed",
        "deployment/excluding",
        "deployment/untouched",
        "statefulset/named",
        "daemonset/searching",
    ];
    for workload in all {
        reader.is_of_revision(workload, "1").await;
    }
    for (change, restarted) in [
        (r#"configmap settings --patch '{"data":{"colour":"red"}}'"#, &["deployment/web", "statefulset/named"][..]),
        (r#"configmap ignored --patch '{"data":{"noise":"high"}}'"#, &[]),
        (
            r#"secret db --patch '{"stringData":{"password":"two"}}'"#,
            &["deployment/worker", "deployment/typed", "deployment/excluding"],
        ),
        (r#"configmap matched --patch '{"data":{"size":"large"}}'"#, &["daemonset/searching"]),
    ] {
        reader.run(&format!("kubectl patch --namespace shop {change}"), &[]).await;
        for workload in restarted {
            reader.is_of_revision(workload, "2").await;
        }
    }
    for workload in all {
        let once = if workload == "deployment/untouched" { "1" } else { "2" };
        let (_, revision) = reader.shell(&revision_of(workload));
        assert_eq!(revision, once, "{workload}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn users_of_wave_switch_as_the_page_says_and_what_it_left_holds_nothing_up() {
    let mut reader = Reader::new().await;
    reader
        .run_all(&[
            "kubectl create namespace shop",
            "kubectl create namespace wave",
            "kubectl create deployment wave --namespace wave --image=quay.io/wave-k8s/wave:v0.6.0",
            "kubectl create secret generic db --namespace shop --from-literal=password=one",
        ])
        .await;
    let of_wave =
        r#"annotations: {wave.pusher.com/update-on-config-change: "true"}, finalizers: [wave.pusher.com/finalizer]"#;
    reader.has(&WORKLOAD.replace("METADATA", of_wave)).await;
    let owner = r#"uid=$(kubectl get deployment web --namespace shop --output jsonpath='{.metadata.uid}')
        kubectl patch secret db --namespace shop --type merge --patch \
        '{"metadata":{"ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"web","uid":"'$uid'"}]}}'"#;
    reader.run(owner, &[]).await;
    reader.run("kubectl rollout status deployment/web --namespace shop", &[]).await;

    reader.follow(section(WAVE, "Look first")).await;
    reader.follow(section(WAVE, "Switch")).await;
    reader.is_of_revision("deployment/web", "1").await;
    reader.rolls_for_the_secret().await;
    reader.run("kubectl delete deployment web --namespace shop --timeout=60s", &[]).await;
    let (found, owners) =
        reader.shell("kubectl get secret db --namespace shop --output jsonpath='{.metadata.ownerReferences}'");
    assert!(found && owners.is_empty(), "{owners}");
}

#[tokio::test(flavor = "multi_thread")]
async fn users_of_the_zopp_operator_switch_as_the_page_says_and_their_secrets_are_followed() {
    let mut reader = Reader::new().await;
    let _server = with_zopp(&mut reader).await;
    reader.follow(steps_before(PULL, 2)).await;
    reader
        .run_all(&[
            "kubectl create namespace shop",
            "kubectl create namespace zopp",
            "kubectl create secret generic zopp-operator-credentials --namespace zopp --from-file=config.json=operator.json",
            "kubectl create deployment zopp-operator --namespace zopp --image=faiscadev/zopp-operator:0.1.1",
            "printf one | zopp secret set password - -w acme -p backend -e production",
        ])
        .await;
    // A key that was deleted in zopp after the original had written it.
    let of_the_original = r#"
apiVersion: v1
kind: Secret
metadata:
  name: db
  namespace: shop
  annotations:
    zopp.dev/sync: "true"
    zopp.dev/workspace: acme
    zopp.dev/project: backend
    zopp.dev/environment: production
"#;
    reader.has(of_the_original).await;
    let written = r#"kubectl patch secret db --namespace shop --field-manager=zopp-operator --patch '{"data":{"password":"b25l","former":"b25l"}}'"#;
    reader.run(written, &[]).await;
    reader.has(&WORKLOAD.replace("METADATA", r#"annotations: {zopp.dev/reload: "true"}"#)).await;

    reader.follow(section(ZOPP_OPERATOR, "Switch")).await;
    let keys = "kubectl get secret db --namespace shop --output jsonpath='{.data}'";
    reader.run(keys, &[r#"{"password":"b25l"}"#]).await;
    reader.is_recorded().await;
    reader.run("printf two | zopp secret set password - -w acme -p backend -e production", &[]).await;
    reader.run(keys, &[r#"{"password":"dHdv"}"#]).await;
    reader.is_rolled().await;
}

/// Installs pull, with a source `vault` in the namespace `shop`, and content in Vault. A token takes the place of the page's login by a service account, for
/// which Vault would have to reach the API server.
async fn with_source(reader: &mut Reader) {
    let install = "helm upgrade --install konverge deploy/charts/konverge --namespace konverge-system --create-namespace \
                   --set pull.enabled=true --set pull.secretSourcesOnly=true";
    let content = r#"{"data":{"user":"root","password":"one"}}"#;
    reader
        .run_all(&[
            install,
            "kubectl create namespace shop",
            "kubectl create secret generic vault --namespace shop --from-literal=token=$VAULT_TOKEN",
            &format!("{VAULT} --data '{content}' $VAULT_ADDR/v1/secret/data/shop/db"),
        ])
        .await;
    let vault = "{address: 'https://vault.example.com:8200', login: {token: {name: vault, key: token}}}";
    let source = format!(
        "{{apiVersion: konverge.dev/v1alpha1, kind: SecretSource, metadata: {{name: vault, namespace: shop}}, spec: {{vault: {vault}}}}}"
    );
    reader.has(&reader.filled_in(&source)).await;
}

/// Creates an object `db` of another operator, and the Secret that it has made and owns, with these keys.
async fn with_secret_of(reader: &mut Reader, group: &str, kind: &str, plural: &str, keys: &[&str]) {
    reader.with_kind(group, kind, plural).await;
    let object =
        format!("{{apiVersion: {group}/v1, kind: {kind}, metadata: {{name: db, namespace: shop}}, spec: {{}}}}");
    reader.has(&object).await;
    let uid = format!("$(kubectl get {plural} db --namespace shop --output jsonpath='{{.metadata.uid}}')");
    let owner = format!(
        r#"{{\"apiVersion\":\"{group}/v1\",\"kind\":\"{kind}\",\"name\":\"db\",\"uid\":\"{uid}\",\"controller\":true}}"#
    );
    let literals: Vec<_> = keys.iter().map(|key| format!("--from-literal={key}=one")).collect();
    let literals = literals.join(" ");
    reader
        .run_all(&[
            &format!("kubectl create secret generic db --namespace shop {literals}"),
            &format!(r#"kubectl patch secret db --namespace shop --patch "{{\"metadata\":{{\"ownerReferences\":[{owner}]}}}}""#),
        ])
        .await;
}

/// Reads the Secret `db`.
const SECRET_DB: &str = "kubectl get secret db --namespace shop --output jsonpath='{.data}'";

#[tokio::test(flavor = "multi_thread")]
async fn users_of_external_secrets_switch_as_the_page_says_and_the_secret_stays() {
    let mut reader = Reader::new().await;
    let _vault = with_vault(&mut reader).await;
    with_source(&mut reader).await;
    let keys = ["DB_USER", "DB_PASSWORD", "OLD_KEY"];
    with_secret_of(&mut reader, "external-secrets.io", "ExternalSecret", "externalsecrets", &keys).await;
    let uid = reader.shell("kubectl get secret db --namespace shop --output jsonpath='{.metadata.uid}'");

    reader.follow(section(EXTERNAL_SECRETS, "Switch")).await;
    // "root" is from Vault. The old key is gone by the page's last command.
    reader.run(SECRET_DB, &[r#"{"DB_PASSWORD":"b25l","DB_USER":"cm9vdA=="}"#]).await;
    let now = reader.shell("kubectl get secret db --namespace shop --output jsonpath='{.metadata.uid}'");
    assert_eq!(uid, now, "it is the same Secret");
}

#[tokio::test(flavor = "multi_thread")]
async fn users_of_vault_secrets_operator_switch_as_the_page_says_and_the_secret_stays() {
    let mut reader = Reader::new().await;
    let _vault = with_vault(&mut reader).await;
    with_source(&mut reader).await;
    let keys = ["user", "password", "_raw"];
    with_secret_of(&mut reader, "secrets.hashicorp.com", "VaultStaticSecret", "vaultstaticsecrets", &keys).await;
    reader.has(&WORKLOAD.replace("METADATA", "")).await;

    reader.follow(section(VAULT_SECRETS_OPERATOR, "Switch")).await;
    reader.run(SECRET_DB, &[r#"{"password":"b25l","user":"cm9vdA=="}"#]).await;
    reader.is_recorded().await;
    let content = r#"{"data":{"user":"root","password":"two"}}"#;
    reader.run(&format!("{VAULT} --data '{content}' $VAULT_ADDR/v1/secret/data/shop/db"), &[]).await;
    reader.is_rolled().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn users_of_push_secret_switch_as_the_page_says_and_vault_keeps_what_it_has() {
    let mut reader = Reader::new().await;
    let _vault = with_vault(&mut reader).await;
    reader.follow(login()).await;
    reader.with_kind("external-secrets.io", "PushSecret", "pushsecrets").await;
    let content = r#"{"data":{"password":"one"}}"#;
    let note = r#"{"custom_metadata":{"managed-by":"external-secrets"}}"#;
    reader
        .run_all(&[
            "kubectl create namespace shop",
            "kubectl create secret generic db --namespace shop --from-literal=password=one",
            "kubectl create secret generic api --namespace shop --from-literal=key=one",
            "kubectl label secret api --namespace shop team=payment",
            &format!("{VAULT} --data '{content}' $VAULT_ADDR/v1/secret/data/shop/db"),
            &format!("{VAULT} --data '{note}' $VAULT_ADDR/v1/secret/metadata/shop/db"),
        ])
        .await;
    let pushed = "{apiVersion: external-secrets.io/v1, kind: PushSecret, metadata: {name: db, namespace: shop}, spec: {deletionPolicy: Delete}}";
    reader.has(pushed).await;
    reader.follow(steps_before(PUSH, 2)).await;

    reader.follow(section(PUSH_SECRET, "Switch")).await;
    reader.is_marked().await;
    reader.run("vault kv get secret/shop/api", &["key    one"]).await;
    reader.change_the_secret().await;
    reader.run("vault kv get secret/shop/db", &["version    2", "password    two"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn users_of_vault_sync_operator_switch_as_the_page_says_and_vault_stays_as_it_is() {
    let mut reader = Reader::new().await;
    let _vault = with_vault(&mut reader).await;
    reader.follow(&login_of_files()).await;
    // The remains of the original: its Deployment, an object with its finalizer, and content without a mark.
    let content = r#"{"data":{"password":"one"}}"#;
    reader
        .run_all(&[
            "kubectl create namespace vault-sync-operator-system",
            "kubectl create deployment vault-sync-operator-controller-manager --namespace vault-sync-operator-system \
             --image=ghcr.io/danieldonoghue/vault-sync-operator:v1",
            "kubectl create namespace shop",
            "kubectl create secret generic db --namespace shop --from-literal=password=one",
            "kubectl annotate secret db --namespace shop vault-sync.io/path=secret/data/shop/db",
            r#"kubectl patch secret db --namespace shop --patch '{"metadata":{"finalizers":["vault-sync.io/finalizer"]}}'"#,
            &format!("{VAULT} --data '{content}' $VAULT_ADDR/v1/secret/data/shop/db"),
        ])
        .await;
    let switch = section(VAULT_SYNC_OPERATOR, "Switch");
    assert!(switch.contains("`--existing=adopt`"), "{switch}");
    reader.words.push(("--existing=refuse", "--existing=adopt".to_owned()));
    reader.edit("deploy/vault-sync-operator.yaml");
    reader.follow(switch).await;

    reader.is_marked().await;
    reader.run("vault kv get secret/shop/db", &["version    1", "password    one"]).await;
    reader.change_the_secret().await;
    reader.run("vault kv get secret/shop/db", &["version    2", "password    two"]).await;
}

/// The original's definition.
const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: vaultsyncstatus.stable.example.com}
spec:
  group: stable.example.com
  scope: Namespaced
  names: {kind: VaultSyncStatus, plural: vaultsyncstatus, singular: vaultsyncstatus, shortNames: [vss]}
  versions:
    - name: v1
      served: true
      storage: true
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              x-kubernetes-preserve-unknown-fields: true
              properties:
                deployName: {type: string}
                deployNamespace: {type: string}
                secretEngine: {type: string}
                secretPath: {type: string}
                timeStamp: {type: string}
            status: {type: object, x-kubernetes-preserve-unknown-fields: true}
";

#[tokio::test(flavor = "multi_thread")]
async fn users_of_vault_sync_status_switch_as_the_page_says_and_nothing_restarts_but_for_a_change() {
    let mut reader = Reader::new().await;
    let _vault = with_vault(&mut reader).await;
    reader.follow(login()).await;
    let write = |value: &str| {
        format!(r#"{VAULT} --data '{{"data":{{"password":"{value}"}}}}' $VAULT_ADDR/v1/secret/data/shop/web"#)
    };
    reader
        .run_all(&[
            "kubectl create namespace shop",
            "kubectl create deployment vault-operator --namespace default --image=aa047267/operator:latest",
            "kubectl create configmap vault-token-config --namespace default --from-literal=VAULT_TOKEN=token",
            // Where the page copies the token to.
            "kubectl create namespace vault-rollout-operator-system",
            "kubectl create secret generic db --namespace shop --from-literal=password=one",
            &write("one"),
        ])
        .await;
    reader.has(&WORKLOAD.replace("METADATA", "labels: {app: web}")).await;
    reader.has(DEFINITION).await;
    reader.run("kubectl get vaultsyncstatus --namespace shop", &[]).await;
    let (_, metadata) = reader.shell(&format!("{VAULT} $VAULT_ADDR/v1/secret/metadata/shop/web"));
    let (_, time) = metadata.split_once(r#""updated_time":""#).unwrap();
    let (time, _) = time.split_once('"').unwrap();
    let object = format!(
        "{{apiVersion: stable.example.com/v1, kind: VaultSyncStatus, metadata: {{name: web, namespace: shop, \
         finalizers: [kopf.zalando.org/KopfFinalizerMarker], annotations: {{kopf.zalando.org/last-handled-configuration: '{{}}'}}}}, \
         spec: {{deployName: web, deployNamespace: shop, secretEngine: secret, secretPath: shop/web, timeStamp: '{time}'}}}}"
    );
    reader.write("object.yaml", &object);
    reader.run("kubectl create -f object.yaml", &[]).await;

    reader.follow(section(VAULT_SYNC_STATUS, "Switch")).await;
    let (_, left) = reader.shell("kubectl get vaultsyncstatus web --namespace shop --output yaml");
    assert!(!left.contains("kopf"), "{left}");
    reader.is_of_revision("deployment/web", "1").await;
    reader.run(&write("two"), &[]).await;
    reader.is_of_revision("deployment/web", "2").await;
    reader.run("kubectl delete vaultsyncstatus web --namespace shop --timeout=60s", &[]).await;
}
