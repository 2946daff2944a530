//! The tutorials and some guides, followed word for word: their files are written, their commands are run in a shell, and their output is compared.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command, sync::Arc, time::Duration};

use konverge_e2e::{Server, User, binary};
use konverge_openzro_testing::Double;
use konverge_testkit::{ControlPlane, Options, eventually};
use konverge_testkit_stores::{VaultOptions, VaultServer};
use kube::config::Kubeconfig;
use serde_json::json;
use tempfile::TempDir;

use crate::{
    helm::helm,
    node::Node,
    page::{blocks, shows},
};

const ALL_IN_ONE: &str = include_str!("../../../../docs/tutorials/all-in-one.md");
const MANAGE: &str = include_str!("../../../../docs/tutorials/manage.md");
const MONITORING: &str = include_str!("../../../../docs/how-to/monitoring.md");
const PULL: &str = include_str!("../../../../docs/tutorials/pull.md");
const PUSH: &str = include_str!("../../../../docs/tutorials/push.md");
const RELOADER: &str = include_str!("../../../../docs/migrate/reloader.md");
const ROLL: &str = include_str!("../../../../docs/tutorials/roll.md");
const UNDO: &str = include_str!("../../../../docs/how-to/undo-a-secret.md");
const UNINSTALL: &str = include_str!("../../../../docs/how-to/uninstall.md");
const UPGRADE: &str = include_str!("../../../../docs/how-to/upgrade.md");
const VAULT_LOGIN: &str = include_str!("../../../../docs/how-to/vault-login.md");

/// Far longer than a reader would wait.
const SOON: Duration = Duration::from_mins(2);

/// The beginnings of commands that only look, and are repeated until they show what the page shows.
const LOOKS: [&str; 5] = ["kubectl get ", "kubectl konverge ", "vault kv ", "kubectl wait ", "helm test "];

/// A reader at a terminal, with a cluster of their own. Its node runs the programs that the chart installs.
struct Reader {
    // In the order in which they are to end.
    _node: Node,
    plane: Arc<ControlPlane>,
    folder: TempDir,
    /// The text that the reader writes instead of a word of the page.
    words: Vec<(&'static str, String)>,
    variables: Vec<(&'static str, String)>,
}

impl Reader {
    async fn new() -> Self {
        let options = Options::ours().with(|options| {
            options.controller_manager = true;
            options.kubectl = true;
        });
        let plane = Arc::new(ControlPlane::start(options).await.unwrap());
        let node = Node::start(plane.clone(), plane.admin_client().await.unwrap());
        let folder = tempfile::tempdir().unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
        let copied = Command::new("cp").arg("-r").arg(root.join("deploy")).arg(folder.path()).status().unwrap();
        assert!(copied.success());
        let programs = folder.path().join("bin");
        fs::create_dir(&programs).unwrap();
        for (name, path) in [
            ("helm", helm()),
            ("kubectl", plane.kubectl().unwrap().to_owned()),
            ("kubectl-konverge", binary("kubectl-konverge").unwrap()),
            ("vault", root.join("bins/konverge/tests/shipped/vault.sh")),
            ("zopp", binary("zopp").unwrap()),
        ] {
            symlink(path, programs.join(name)).unwrap();
        }
        let home = folder.path().to_str().unwrap().to_owned();
        Self { _node: node, plane, folder, words: Vec::new(), variables: vec![("HOME", home)] }
    }

    /// Writes the files of a part of a page and runs its commands, in their order.
    async fn follow(&mut self, part: &str) {
        let mut count = 0;
        for block in blocks(part) {
            if let Some(file) = block.purpose.strip_prefix("file: ") {
                fs::write(self.folder.path().join(file), self.filled_in(&block.text)).unwrap();
            } else if block.purpose.starts_with("apply") {
                fs::write(self.folder.path().join("block.yaml"), self.filled_in(&block.text)).unwrap();
                self.run("kubectl apply -f block.yaml", &[]).await;
            } else if block.purpose != "runs until it is stopped" {
                assert!(block.is_commands, "no file is named for {:?}", block.text);
                for (command, lines) in block.commands() {
                    self.run(&self.filled_in(&command), &lines).await;
                    count += 1;
                }
            }
        }
        assert!(count > 1, "{part}");
    }

    /// Runs a command until it succeeds and shows these lines; once, if it changes something.
    async fn run(&mut self, command: &str, lines: &[&str]) {
        let mut said = (false, String::new());
        let looks = LOOKS.iter().any(|look| command.starts_with(look));
        let done = eventually(SOON, || {
            said = self.shell(command);
            std::future::ready((!looks || said.0 && shows(&said.1, lines)).then_some(()))
        });
        let _ = done.await;
        let (succeeded, output) = said;
        let logs = self.plane.run_directory().path().display();
        assert!(succeeded, "{command} failed:\n{output}\nLogs are in {logs}.");
        assert!(shows(&output, lines), "{command} said:\n{output}\nThe page shows:\n{}", lines.join("\n"));
        // The page names the id by this word.
        if let Some((_, rest)) = output.split_once("(ID: ") {
            self.words.push(("PRINCIPAL-ID", rest.split(')').next().unwrap().to_owned()));
        }
    }

    fn shell(&self, command: &str) -> (bool, String) {
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", self.folder.path().join("bin").display());
        let mut bash = Command::new("bash");
        bash.args(["-o", "pipefail", "-ec", command]).current_dir(self.folder.path()).env_clear();
        bash.env("PATH", path).env("KUBECONFIG", self.plane.kubeconfig()).envs(self.variables.iter().cloned());
        let output = bash.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text.into_owned())
    }

    /// Changes a file as the page asks its reader to.
    fn edit(&self, file: &str) {
        let path = self.folder.path().join(file);
        let before = fs::read_to_string(&path).unwrap();
        let after = self.filled_in(&before);
        assert_ne!(before, after, "{file} has nothing to change");
        fs::write(path, after).unwrap();
    }

    fn filled_in(&self, text: &str) -> String {
        self.words.iter().fold(text.to_owned(), |text, (word, meant)| text.replace(word, meant))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tutorial_of_roll_and_the_upgrade_after_it_lead_to_their_end() {
    let mut reader = Reader::new().await;
    reader.follow(ROLL).await;
    let (upgrade, back) = UPGRADE.split_once("\n## Roll back\n").unwrap();
    // The pod of `helm test` asks Services by their names, which the node of these tests does not resolve.
    let helm_test = "   $ helm test konverge --namespace konverge-system\n";
    assert!(upgrade.contains(helm_test), "{upgrade}");
    reader.follow(&upgrade.replace(helm_test, "")).await;
    assert!(back.contains("`helm rollback konverge`"), "{back}");
    reader.run("helm rollback konverge --namespace konverge-system", &[]).await;
    reader.run("kubectl rollout status deployment/konverge-roll --namespace konverge-system", &[]).await;
    reader.run("kubectl konverge doctor", &["ok operator konverge-system/konverge-roll: 2 of 2 ready"]).await;
    reader.run("helm uninstall konverge --namespace konverge-system", &[]).await;
    reader.follow(part_of_uninstall("Remove every trace")).await;
}

/// A section of the page about uninstalling.
fn part_of_uninstall(heading: &str) -> &'static str {
    let (_, part) = UNINSTALL.split_once(&format!("\n## {heading}\n")).unwrap();
    part.split_once("\n## ").map_or(part, |(part, _)| part)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tutorial_of_manage_and_its_removal_lead_to_their_end() {
    let mut reader = Reader::new().await;
    let openzro = Double::start().await.unwrap();
    let token = openzro.account().tokens["admin"].clone();
    fs::write(reader.folder.path().join("token.txt"), &token).unwrap();
    reader.words.push(("https://openzro.example.com", openzro.url().to_owned()));
    reader.follow(MANAGE).await;

    // Objects that manage has written for, when manage is removed as its page says.
    for command in [
        "kubectl create namespace shop",
        "kubectl apply -f web.yaml",
        "kubectl wait --for=condition=Ready ozpolicy/web ozgroup/servers --namespace shop --timeout=60s",
    ] {
        reader.run(command, &[]).await;
    }
    reader.follow(part_of_uninstall("Manage")).await;
    reader.run("kubectl delete -f web.yaml --timeout=60s", &[]).await;
    let groups = format!("curl --silent --fail --header 'Authorization: Token {token}' {}/api/groups", openzro.url());
    reader.run(&format!("{groups} | grep --only-matching Servers"), &["Servers"]).await;
    reader.follow(part_of_uninstall("Remove every trace")).await;
}

/// Workloads as users of Reloader have them: one that names nothing, and one that names its sources.
const FOR_RELOADER: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: shop}
data: {colour: blue}
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
    spec: {containers: [{name: web, image: "registry.k8s.io/pause:3.10", envFrom: [{configMapRef: {name: settings}}]}]}
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
metadata: {name: reloader-reloader, namespace: reloader}
spec:
  selector: {matchLabels: {app: reloader}}
  template:
    metadata: {labels: {app: reloader}}
    spec: {containers: [{name: reloader, image: "ghcr.io/stakater/reloader:v1.4.12"}]}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn users_of_reloader_switch_as_the_page_says_and_their_workloads_restart() {
    let mut reader = Reader::new().await;
    fs::write(reader.folder.path().join("reloader.yaml"), FOR_RELOADER).unwrap();
    for command in [
        "kubectl create namespace shop",
        "kubectl create namespace reloader",
        "kubectl apply -f reloader.yaml",
        "kubectl rollout status deployment/web --namespace shop",
        "kubectl rollout status deployment/worker --namespace shop",
    ] {
        reader.run(command, &[]).await;
    }
    let (_, switch) = RELOADER.split_once("\n## Switch\n").unwrap();
    let (switch, _) = switch.split_once("\n## Annotations\n").unwrap();
    reader.follow(switch).await;
    for (name, change) in [
        ("web", r#"kubectl patch configmap settings --namespace shop --patch '{"data":{"colour":"red"}}'"#),
        ("worker", r#"kubectl patch secret db --namespace shop --patch '{"stringData":{"password":"two"}}'"#),
    ] {
        reader.run(change, &[]).await;
        let events = "kubectl get events --namespace shop --field-selector reason=RolledOut";
        let shown = format!("… Normal RolledOut deployment/{name} …");
        reader.run(events, &[&shown]).await;
    }
}

/// The kinds of the Prometheus operator, as far as the API server has to know them.
const KINDS_OF_PROMETHEUS: [(&str, &str); 2] =
    [("ServiceMonitor", "servicemonitors"), ("PrometheusRule", "prometheusrules")];

#[tokio::test(flavor = "multi_thread")]
async fn the_guide_to_monitoring_lets_prometheus_read() {
    let mut reader = Reader::new().await;
    let (install, _) = ROLL.split_once("\n2. ").unwrap();
    reader.follow(install).await;
    for (kind, plural) in KINDS_OF_PROMETHEUS {
        let schema = json!({ "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } });
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": { "name": format!("{plural}.monitoring.coreos.com") },
            "spec": {
                "group": "monitoring.coreos.com",
                "scope": "Namespaced",
                "names": { "kind": kind, "plural": plural },
                "versions": [{ "name": "v1", "served": true, "storage": true, "schema": schema }],
            },
        });
        fs::write(reader.folder.path().join("kind.json"), definition.to_string()).unwrap();
        reader.run("kubectl apply -f kind.json", &[]).await;
        reader.run(&format!("kubectl get {plural}"), &[]).await;
    }
    let (scrape, _) = MONITORING.split_once("\nWithout the Prometheus operator, scrape").unwrap();
    reader.follow(scrape).await;
    let found = "kubectl get servicemonitors,prometheusrules -n konverge-system -l release=prometheus -o name";
    let expected =
        ["servicemonitor.monitoring.coreos.com/konverge-roll", "prometheusrule.monitoring.coreos.com/konverge-roll"];
    reader.run(found, &expected).await;
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

/// Gives a reader what a tutorial asks for: a zopp server with an environment that they may administer.
async fn with_zopp(reader: &mut Reader) -> Server {
    let run = reader.plane.run_directory().clone();
    let server = Server::start(&run).await.unwrap();
    let user = User::new(run.path().join("home"), server.url()).unwrap();
    let invite = server.invite().await.unwrap();
    user.zopp(["join", &invite, "alice@example.com", "--principal", "laptop"]).await.unwrap();
    user.zopp(["workspace", "create", "acme"]).await.unwrap();
    user.zopp(["project", "create", "backend", "-w", "acme"]).await.unwrap();
    user.create_environment("acme/backend/production").await.unwrap();
    reader.variables.retain(|(name, _)| *name != "HOME");
    reader.variables.push(("HOME", user.home().to_str().unwrap().to_owned()));
    reader.variables.push(("ZOPP_SERVER", server.url()));
    reader.words.push(("https://zopp.example.com", server.url()));
    server
}

/// The same for Vault, with a KV engine at `secret/`.
async fn with_vault(reader: &mut Reader) -> VaultServer {
    let vault = VaultServer::start(VaultOptions::default()).await.unwrap();
    vault.mount_kv("secret", 2).await.unwrap();
    reader.variables.push(("VAULT_ADDR", vault.address().to_owned()));
    reader.variables.push(("VAULT_TOKEN", vault.root_token().to_owned()));
    let kubeconfig = Kubeconfig::read_from(reader.plane.kubeconfig()).unwrap();
    let server = kubeconfig.clusters[0].cluster.as_ref().unwrap().server.clone().unwrap();
    reader.words.push(("https://API-SERVER:6443", server));
    reader.words.push(("https://vault.example.com:8200", vault.address().to_owned()));
    vault
}

/// The parts of the page about the login to Vault: before and after the operator runs.
fn login() -> (&'static str, &'static str) {
    VAULT_LOGIN.split_once("\n## 4. Check\n").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tutorial_of_pull_leads_to_its_end() {
    let mut reader = Reader::new().await;
    let _server = with_zopp(&mut reader).await;
    reader.follow(PULL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tutorial_of_push_and_the_login_that_it_needs_lead_to_their_end() {
    let mut reader = Reader::new().await;
    let _vault = with_vault(&mut reader).await;
    let (login, check) = login();
    reader.follow(login).await;
    reader.follow(PUSH).await;
    // push runs now.
    reader.run("kubectl konverge doctor", &["ok operator konverge-system/konverge-push: 2 of 2 ready"]).await;
    assert!(check.contains("$ kubectl konverge doctor\n"), "{check}");

    // An object that push has written for, when push is removed as its page says.
    for command in [
        "kubectl create namespace shop",
        "kubectl create secret generic db --namespace shop --from-literal=password=three",
        "kubectl annotate secret db --namespace shop vault-sync.io/path=secret/data/shop/last",
    ] {
        reader.run(command, &[]).await;
    }
    reader.run("vault kv get secret/shop/last", &["password    three"]).await;
    let (_, uninstall) = UNINSTALL.split_once("\n## Push\n").unwrap();
    let (uninstall, _) = uninstall.split_once("\nWithout Helm:\n").unwrap();
    reader.follow(uninstall).await;
    reader.run("kubectl delete namespace shop --timeout=60s", &[]).await;
    reader.run("vault kv get secret/shop/last", &["password    three"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tutorial_of_all_in_one_leads_to_its_end() {
    let mut reader = Reader::new().await;
    let (_server, _vault) = (with_zopp(&mut reader).await, with_vault(&mut reader).await);
    let (credentials, _) = PULL.split_once("\n2. ").unwrap();
    reader.follow(credentials).await;
    reader.follow(login().0).await;
    // The reader changes the addresses in the file, as the page asks.
    reader.edit("deploy/konverge.yaml");
    reader.follow(ALL_IN_ONE).await;
}
