//! The how-to guides, followed word for word.

use std::{fs, net::Ipv4Addr, path::PathBuf};

use konverge_openzro_testing::Double;
use rcgen::{CertificateParams, KeyPair, SanType};
use serde_json::{Value, json};

use crate::reader::{Reader, section, with_vault, with_zopp};

const GITOPS: &str = include_str!("../../../../docs/how-to/gitops.md");
const HIGH_AVAILABILITY: &str = include_str!("../../../../docs/how-to/high-availability.md");
const INSTALL: &str = include_str!("../../../../docs/install.md");
const MONITORING: &str = include_str!("../../../../docs/how-to/monitoring.md");
pub(crate) const PULL: &str = include_str!("../../../../docs/tutorials/pull.md");
pub(crate) const PUSH: &str = include_str!("../../../../docs/tutorials/push.md");
const ROLL: &str = include_str!("../../../../docs/tutorials/roll.md");
const TENANCY: &str = include_str!("../../../../docs/how-to/tenancy.md");
const UNDO: &str = include_str!("../../../../docs/how-to/undo-a-secret.md");
const UNINSTALL: &str = include_str!("../../../../docs/how-to/uninstall.md");
const VAULT_LOGIN: &str = include_str!("../../../../docs/how-to/vault-login.md");
const ZOPP_SERVER: &str = include_str!("../../../../docs/how-to/zopp-server.md");

/// The steps of a page from its first one up to this number, which is not among them.
pub(crate) fn steps_before(page: &'static str, number: u8) -> &'static str {
    page.split_once(&format!("\n{number}. ")).unwrap().0
}

/// The part of the page about the login to Vault that comes before the operator runs.
pub(crate) fn login() -> &'static str {
    VAULT_LOGIN.split_once("\n## 4. Check\n").unwrap().0
}

/// The same for push as the files in `deploy/` install it, under the names that the page gives.
pub(crate) fn login_of_files() -> String {
    let of_chart = "names=konverge-push bound_service_account_namespaces=konverge-system";
    let of_files = "names=vault-sync-operator-controller-manager \
                    bound_service_account_namespaces=vault-sync-operator-system";
    let login = login();
    assert!(login.contains(of_chart), "{login}");
    login.replace(of_chart, of_files)
}

/// A workload as it is in a repository.
const IN_REPOSITORY: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, annotations: {roll.konverge.dev/on-change: "true"}}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "registry.k8s.io/pause:3.10", envFrom: [{secretRef: {name: db}}]}]}
"#;

impl Reader {
    /// Installs roll without the minimum interval, which nobody wants to wait for here.
    async fn with_roll(&mut self) {
        for command in [
            "helm install konverge deploy/charts/konverge --namespace konverge-system --create-namespace \
             --set 'roll.extraArgs={--min-interval=0s}'",
            "kubectl rollout status deployment/konverge-roll --namespace konverge-system",
        ] {
            self.run(command, &[]).await;
        }
    }

    /// Makes the workload of a repository in a namespace, and waits until roll has recorded its baseline.
    async fn with_workload(&mut self, namespace: &str) {
        self.write("web.yaml", &IN_REPOSITORY.replace("namespace: shop", &format!("namespace: {namespace}")));
        for command in [
            format!("kubectl create secret generic db --namespace {namespace} --from-literal=password=one"),
            "kubectl apply -f web.yaml".to_owned(),
            format!("kubectl rollout status deployment/web --namespace {namespace}"),
        ] {
            self.run(&command, &[]).await;
        }
        let recorded =
            format!("kubectl get deployment web --namespace {namespace} --output jsonpath='{{.metadata.annotations}}'");
        self.run(&recorded, &["…roll.konverge.dev/record…"]).await;
    }

    /// Changes the Secret of the workload, and waits for the event of its rollout.
    async fn rolls(&mut self, namespace: &str, password: &str) {
        let before = self.template(namespace);
        let patch = format!(
            r#"kubectl patch secret db --namespace {namespace} --patch '{{"stringData":{{"password":"{password}"}}}}'"#
        );
        self.run(&patch, &[]).await;
        let stamp = format!(
            "kubectl get deployment web --namespace {namespace} --output jsonpath='{{.spec.template.metadata}}' | grep -vF '{before}'"
        );
        self.run(&stamp, &["…roll.konverge.dev/content…"]).await;
        self.run(&format!("kubectl rollout status deployment/web --namespace {namespace}"), &[]).await;
    }

    /// The metadata of the workload's pod template.
    fn template(&self, namespace: &str) -> String {
        let (found, shown) = self.shell(&format!(
            "kubectl get deployment web --namespace {namespace} --output jsonpath='{{.spec.template.metadata}}'"
        ));
        assert!(found, "{shown}");
        shown
    }

    /// A certificate for these names and for this machine, as PEM: certificate and key.
    fn certificate(names: &[String]) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(names).unwrap();
        parameters.subject_alt_names.push(SanType::IpAddress(Ipv4Addr::LOCALHOST.into()));
        (parameters.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    /// Makes the API server know the kinds of the Prometheus operator.
    async fn with_monitors(&mut self) {
        for (kind, plural) in [("ServiceMonitor", "servicemonitors"), ("PrometheusRule", "prometheusrules")] {
            self.with_kind("monitoring.coreos.com", kind, plural).await;
        }
    }

    /// Makes the API server know a kind of others, with any content.
    pub(crate) async fn with_kind(&mut self, group: &str, kind: &str, plural: &str) {
        let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.{group}") },
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": { "kind": kind, "plural": plural },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": schema }],
            },
        });
        self.write("kind.json", &definition.to_string());
        self.run("kubectl apply -f kind.json", &[]).await;
        self.run(&format!("kubectl get {plural}"), &[]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_to_monitoring_lets_prometheus_read_and_protects_its_token() {
    let mut reader = Reader::new().await;
    reader.follow(steps_before(ROLL, 2)).await;
    reader.with_monitors().await;
    let (scrape, _) = MONITORING.split_once("\nWithout the Prometheus operator, scrape").unwrap();
    reader.follow(scrape).await;
    let found = "kubectl get servicemonitors,prometheusrules -n konverge-system -l release=prometheus -o name";
    let expected =
        ["servicemonitor.monitoring.coreos.com/konverge-roll", "prometheusrule.monitoring.coreos.com/konverge-roll"];
    reader.run(found, &expected).await;

    reader.with_kind("cert-manager.io", "Certificate", "certificates").await;
    let protect = section(MONITORING, "Protect the token of Prometheus");
    let (request, give) = protect.split_once("\n2. ").unwrap();
    let ready = "   $ kubectl wait certificate/konverge-metrics --namespace konverge-system --for=condition=Ready\n";
    assert!(request.contains(ready), "{request}");
    reader.write("certificate.yaml", &file_of(request, "metrics-certificate.yaml"));
    reader.run("kubectl apply -f certificate.yaml", &[]).await;
    // Does the part of cert-manager for that object.
    let (_, requested) = reader.shell("kubectl get certificate konverge-metrics --namespace konverge-system -o json");
    let requested: Value = serde_json::from_str(&requested).unwrap();
    let names: Vec<String> = serde_json::from_value(requested["spec"]["dnsNames"].clone()).unwrap();
    let (certificate, key) = Reader::certificate(&names);
    reader.write("tls.crt", &certificate);
    reader.write("tls.key", &key);
    let name = requested["spec"]["secretName"].as_str().unwrap();
    reader
        .run(
            &format!(
                "kubectl create secret generic {name} --namespace konverge-system --type=kubernetes.io/tls \
                 --from-file=tls.crt --from-file=tls.key --from-file=ca.crt=tls.crt"
            ),
            &[],
        )
        .await;
    reader.follow(give).await;

    let (_, monitor) = reader.shell("kubectl get servicemonitor konverge-roll --namespace konverge-system -o json");
    let monitor: Value = serde_json::from_str(&monitor).unwrap();
    let endpoint = &monitor["spec"]["endpoints"][0];
    assert_eq!((&endpoint["scheme"], &endpoint["port"]), (&json!("https"), &json!("metrics")), "{endpoint}");
    let authority = &endpoint["tlsConfig"]["ca"]["secret"];
    assert_eq!(authority, &json!({ "name": name, "key": "ca.crt" }));
    let host = endpoint["tlsConfig"]["serverName"].as_str().unwrap();
    let address = reader.node.address("konverge-roll", "metrics").unwrap();
    for command in [
        "kubectl create namespace monitoring",
        "kubectl create serviceaccount prometheus --namespace monitoring",
        "kubectl create token prometheus --namespace monitoring > token",
    ] {
        reader.run(command, &[]).await;
    }
    let scrape = format!(
        "curl --silent --fail-with-body --cacert tls.crt --connect-to {host}:8443:{address} https://{host}:8443/metrics"
    );
    reader
        .run(&format!("{scrape} --header \"Authorization: Bearer $(cat token)\""), &["konverge_roll_workloads…"])
        .await;
    let (read, shown) = reader.shell(&scrape);
    assert!(!read && !shown.contains("konverge_roll_workloads"), "without a token: {shown}");
}

/// The content of a file of a page.
fn file_of(part: &str, name: &str) -> String {
    let found = crate::page::blocks(part).into_iter().find(|block| block.purpose == format!("file: {name}"));
    found.unwrap_or_else(|| panic!("no file {name}")).text
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_to_several_replicas_replaces_all_of_them_and_nothing_restarts() {
    let mut reader = Reader::new().await;
    reader.with_roll().await;
    reader.run("kubectl create namespace shop", &[]).await;
    reader.with_workload("shop").await;
    reader.rolls("shop", "two").await;
    let before = reader.template("shop");
    reader.follow(section(HIGH_AVAILABILITY, "Check")).await;
    assert_eq!(reader.template("shop"), before, "nothing restarts");
    reader.rolls("shop", "three").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_to_gitops_finds_no_difference_and_its_plain_manifests_work() {
    let mut reader = Reader::new().await;
    reader.run("kubectl create namespace konverge-system", &[]).await;
    let install = section(INSTALL, "Without Helm");
    let (_, plain) = install.split_once("<!-- elsewhere -->").unwrap();
    let quick = "--skip-tests";
    assert!(plain.contains(quick), "{plain}");
    reader.follow(&plain.replace(quick, "--skip-tests --set 'roll.extraArgs={--min-interval=0s}'")).await;
    reader.run("kubectl rollout status deployment/konverge-roll --namespace konverge-system", &[]).await;
    let (_, pods) = reader.shell("kubectl get pods --namespace konverge-system -o name");
    assert!(!pods.contains("test"), "{pods}");

    reader.run("kubectl create namespace shop", &[]).await;
    reader.with_workload("shop").await;
    reader.rolls("shop", "two").await;
    let before = reader.template("shop");
    reader.follow(section(GITOPS, "Check")).await;
    assert_eq!(reader.template("shop"), before, "nothing restarts");
}

#[test]
fn argo_cd_ignores_exactly_the_annotations_that_roll_writes_on_pod_templates() {
    let rules = section(GITOPS, "Argo CD with client-side apply");
    let block = crate::page::blocks(rules).remove(0).text;
    let spec: Value = serde_saphyr::from_str(&block).unwrap();
    let ignored: Vec<String> =
        serde_json::from_value(spec["spec"]["ignoreDifferences"][0]["jqPathExpressions"].clone()).unwrap();
    let written = {
        use konverge_roll::annotations::{RESTARTED_AT, STAMP, ZOPP_RESTARTED_AT};
        [STAMP, RESTARTED_AT, ZOPP_RESTARTED_AT].map(|name| format!(".spec.template.metadata.annotations.\"{name}\""))
    };
    assert_eq!(ignored, written);
    // The names of the field managers.
    for (job, manager) in [
        ("pull", konverge_pull::reconcile::FIELD_MANAGER),
        ("push", konverge_push::ledger::FIELD_MANAGER),
        ("roll", konverge_roll::writer::FIELD_MANAGER),
    ] {
        let row = GITOPS.lines().find(|line| line.starts_with(&format!("| {job} |"))).unwrap();
        assert!(row.ends_with(&format!("| `{manager}` |")), "{row}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_to_tenancy_sets_boundaries_that_hold() {
    let mut reader = Reader::new().await;
    let (_server, _vault) = (with_zopp(&mut reader).await, with_vault(&mut reader).await);
    reader.follow(login()).await;
    reader.follow(steps_before(PULL, 3)).await;
    reader.follow(steps_before(PUSH, 2)).await;
    reader.follow(section(TENANCY, "Set and check rules")).await;

    // The same in the namespace that the rules allow.
    for command in [
        "kubectl create namespace team-a",
        "kubectl create secret generic db --namespace team-a --from-literal=password=one",
        "kubectl annotate secret db --namespace team-a vault-sync.io/path=secret/data/shared/db",
        "kubectl create secret generic backend --namespace team-a",
        "kubectl annotate secret backend --namespace team-a zopp.dev/sync=true zopp.dev/workspace=acme \
         zopp.dev/project=backend zopp.dev/environment=production",
        "printf hello | zopp secret set GREETING - -w acme -p backend -e production",
    ] {
        reader.run(command, &[]).await;
    }
    reader.run("vault kv get secret/shared/db", &["password    one"]).await;
    reader.run("kubectl get secret backend --namespace team-a -o jsonpath='{.data.GREETING}'", &["aGVsbG8="]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_for_one_namespace_works_there_and_nowhere_else() {
    let mut reader = Reader::new().await;
    let only = section(TENANCY, "One namespace only");
    let watched = "--set roll.watchNamespace=team-a";
    assert!(only.contains(watched), "{only}");
    let quick = format!("{watched} --set 'roll.extraArgs={{--min-interval=0s}}'");
    reader.follow(&only.replace(watched, &quick)).await;
    reader.run("kubectl create namespace team-b", &[]).await;
    reader.write("other.yaml", &IN_REPOSITORY.replace("namespace: shop", "namespace: team-b"));
    reader.run("kubectl create secret generic db --namespace team-b --from-literal=password=one", &[]).await;
    reader.run("kubectl apply -f other.yaml", &[]).await;
    reader.with_workload("team-a").await;
    reader.rolls("team-a", "two").await;
    let (_, other) =
        reader.shell("kubectl get deployment web --namespace team-b --output jsonpath='{.metadata.annotations}'");
    assert!(!other.contains("roll.konverge.dev/record"), "{other}");
    let account = "system:serviceaccount:team-a-operators:team-a-konverge-roll";
    let (may, _) = reader.shell(&format!("kubectl auth can-i list secrets --namespace team-b --as {account}"));
    assert!(!may, "its role is that of one namespace");
    reader.run("helm uninstall team-a --namespace team-a-operators", &[]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_to_undo_a_change_of_a_secret_leads_to_its_end() {
    let mut reader = Reader::new().await;
    let _server = with_zopp(&mut reader).await;
    // The versions of the page: each change counts the version of the environment up by one.
    for version in 1..=17 {
        let key = if [12, 17].contains(&version) { "DATABASE_URL" } else { "OTHER" };
        reader.run(&format!("zopp secret set {key} value-{version} -w acme -p backend -e production"), &[]).await;
    }
    reader.follow(UNDO).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_the_installation_leads_to_a_release_that_passes_its_own_test() {
    let mut reader = Reader::new().await;
    reader.words.push(("REGISTRY/konverge", "konverge".to_owned()));
    let install = section(INSTALL, "2. Install the chart");
    assert!(install.contains("$ helm test konverge --namespace konverge-system\n"), "{install}");
    reader.follow(install).await;
    // The pod has ended with success, so Helm has deleted it. Its log is left.
    let log = fs::read_to_string(reader.plane.run_directory().path().join("konverge-test.log")).unwrap();
    assert!(log.starts_with("http://127.0.0.1:") && log.ends_with("/readyz is ready\n"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_helm_the_files_install_each_operator_and_are_removed_as_the_pages_say() {
    let mut reader = Reader::new().await;
    let (_server, _vault) = (with_zopp(&mut reader).await, with_vault(&mut reader).await);
    let openzro = Double::start().await.unwrap();
    reader.write("token.txt", &openzro.account().tokens["admin"]);
    reader.words.push(("https://openzro.example.com", openzro.url().to_owned()));
    reader.follow(steps_before(PULL, 2)).await;
    reader.follow(&login_of_files()).await;
    for file in ["deploy/zopp-operator.yaml", "deploy/vault-sync-operator.yaml", "deploy/openzro-operator.yaml"] {
        reader.edit(file);
    }
    let (files, _) =
        section(INSTALL, "Without Helm").split_once("\nFor the zopp server and for other settings").unwrap();
    reader.follow(files).await;

    for command in [
        "kubectl create namespace shop",
        "kubectl create secret generic db --namespace shop --from-literal=password=one",
        "kubectl annotate secret db --namespace shop vault-sync.io/path=secret/data/shop/db",
    ] {
        reader.run(command, &[]).await;
    }
    reader.run("vault kv get secret/shop/db", &["password    one"]).await;
    reader
        .run(
            "kubectl konverge doctor",
            &[
                "ok operator konverge-system/zopp-operator: 2 of 2 ready",
                "ok operator vault-sync-operator-system/vault-sync-operator-controller-manager: 2 of 2 ready",
                "ok operator vault-rollout-operator-system/vault-rollout-operator: 2 of 2 ready",
            ],
        )
        .await;

    reader.write(
        "group.yaml",
        "{apiVersion: openzro.io/v1, kind: OZGroup, metadata: {name: servers, namespace: shop}, spec: {name: shop/servers}}",
    );
    reader.run("kubectl apply -f group.yaml", &[]).await;
    reader.run("kubectl wait ozgroup/servers --namespace shop --for=condition=Ready", &[]).await;

    for job in ["Push", "Pull", "Roll", "Manage"] {
        let (_, removal) = section(UNINSTALL, job).split_once("Without Helm").unwrap();
        let (_, removal) = removal.split_once(":\n").unwrap();
        reader.follow(removal).await;
    }
    let (_, left) =
        reader.shell("kubectl get clusterroles,clusterrolebindings,deployments --all-namespaces --output name");
    for name in ["zopp-operator", "vault-sync-operator", "vault-rollout-operator", "openzro-operator"] {
        assert!(!left.contains(name), "{left}");
    }
    reader.run("kubectl delete namespace shop --timeout=60s", &[]).await;
    reader.run("vault kv get secret/shop/db", &["password    one"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_to_the_zopp_server_leads_from_tls_over_a_backup_to_its_restore() {
    let mut reader = Reader::new().await;
    let (certificate, key) = Reader::certificate(&["zopp.example.com".to_owned()]);
    reader.write("tls.crt", &certificate);
    reader.write("tls.key", &key);
    reader.write("ca.crt", &certificate);
    reader.follow(section(ZOPP_SERVER, "Install it with TLS")).await;

    // Its node has no kubelet that would execute a program in the pod.
    let data: PathBuf = reader.plane.run_directory().path().join("claims/konverge-system/konverge-server-data");
    let inside = "kubectl exec --namespace konverge-system deploy/konverge-server -- /usr/bin/zopp-server";
    let database = data.join("zopp.db");
    reader.words.push((inside, format!("zopp-server --database-url sqlite://{}", database.display())));
    let address = |reader: &Reader| format!("https://{}", reader.node.address("konverge-server", "grpc").unwrap());
    reader.words.push(("https://zopp.example.com", address(&reader)));
    reader.follow(section(ZOPP_SERVER, "The first user")).await;

    let zopp =
        |reader: &Reader, command: &str| format!("zopp --server {} --tls-ca-cert ca.crt {command}", address(reader));
    let place = "-w acme -p backend -e production";
    for command in [
        "workspace create acme",
        "project create backend -w acme",
        "environment create production -w acme -p backend",
        &format!("secret set GREETING hello {place}"),
    ] {
        let command = zopp(&reader, command);
        reader.run(&command, &[]).await;
    }
    reader.follow(section(ZOPP_SERVER, "Back up")).await;
    let later = zopp(&reader, &format!("secret set GREETING later {place}"));
    reader.run(&later, &[]).await;

    let (restore, accept) = section(ZOPP_SERVER, "Restore").split_once("\n4. ").unwrap();
    reader.follow(restore).await;
    // The pod has another address on this machine.
    let now = address(&reader);
    reader.words.retain(|(word, _)| *word != "https://zopp.example.com");
    reader.words.push(("https://zopp.example.com", now));
    reader.follow(accept).await;
    let get = zopp(&reader, &format!("secret get GREETING {place}"));
    reader.run(&get, &["hello"]).await;
    assert!(fs::exists(&database).unwrap(), "the old database stays");

    reader.with_monitors().await;
    reader.follow(section(ZOPP_SERVER, "Watch")).await;
    let found = "kubectl get configmaps,servicemonitors,prometheusrules --namespace konverge-system --output name";
    let expected = [
        "configmap/konverge-server-dashboard",
        "servicemonitor.monitoring.coreos.com/konverge-server",
        "prometheusrule.monitoring.coreos.com/konverge-server",
    ];
    reader.run(found, &expected).await;
    let metrics =
        format!("curl --silent --fail http://{}/metrics", reader.node.address("konverge-server", "http").unwrap());
    let shown =
        [r#"zopp_server_build_info{version="…"} 1"#, r#"zopp_server_certificate_reloads_total{result="error"} 0"#];
    for line in shown {
        reader.run(&metrics, &[line]).await;
    }
}
