//! A reader at a terminal, who follows the docs word for word: writes their files, runs their commands in a shell, and compares the output.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command, sync::Arc, time::Duration};

use konverge_e2e::{Server, User, binary};
use konverge_testkit::{ControlPlane, Options, eventually};
use konverge_testkit_stores::{VaultOptions, VaultServer};
use kube::config::Kubeconfig;
use tempfile::TempDir;

use crate::{
    helm::helm,
    node::Node,
    page::{blocks, shows},
};

/// Far longer than a reader would wait.
pub(crate) const SOON: Duration = Duration::from_mins(2);

/// The beginnings of commands that only look, and are repeated until they show what the page shows.
const LOOKS: [&str; 6] =
    ["kubectl get ", "kubectl konverge ", "kubectl diff ", "vault kv ", "kubectl wait ", "helm test "];

/// A section of a page.
pub(crate) fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let (_, part) = page.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no section {heading}"));
    part.split_once("\n## ").map_or(part, |(part, _)| part)
}

/// A reader at a terminal, with a cluster of their own. Its node runs the programs that the chart installs.
pub(crate) struct Reader {
    // In the order in which they are to end.
    pub(crate) node: Node,
    pub(crate) plane: Arc<ControlPlane>,
    folder: TempDir,
    /// The text that the reader writes instead of a word of the page.
    pub(crate) words: Vec<(&'static str, String)>,
    pub(crate) variables: Vec<(&'static str, String)>,
}

impl Reader {
    pub(crate) async fn new() -> Self {
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
            ("helm", helm().unwrap()),
            ("konverge", env!("CARGO_BIN_EXE_konverge").into()),
            ("kubectl", plane.kubectl().unwrap().to_owned()),
            ("kubectl-konverge", binary("kubectl-konverge").unwrap()),
            ("vault", root.join("bins/konverge/tests/shipped/vault.sh")),
            ("openzro-operator", binary("openzro-operator").unwrap()),
            ("zopp", binary("zopp").unwrap()),
            ("zopp-server", binary("zopp-server").unwrap()),
        ] {
            symlink(path, programs.join(name)).unwrap();
        }
        let home = folder.path().to_str().unwrap().to_owned();
        Self { node, plane, folder, words: Vec::new(), variables: vec![("HOME", home)] }
    }

    /// Writes the files of a part of a page and runs its commands, in their order.
    pub(crate) async fn follow(&mut self, part: &str) {
        let mut count = 0;
        for block in blocks(part) {
            if let Some(file) = block.purpose.strip_prefix("file: ") {
                self.write(file, &self.filled_in(&block.text));
            } else if block.purpose.starts_with("apply") {
                self.write("block.yaml", &self.filled_in(&block.text));
                self.run("kubectl apply -f block.yaml", &[]).await;
            } else if !["runs until it is stopped", "elsewhere"].contains(&block.purpose.as_str()) {
                assert!(block.is_commands, "no file is named for {:?}", block.text);
                for (command, lines) in block.commands() {
                    self.run(&self.filled_in(&command), &lines).await;
                    count += 1;
                }
            }
        }
        assert!(count > 0, "{part}");
    }

    /// Runs a command until it succeeds and shows these lines; once, if it changes something.
    pub(crate) async fn run(&mut self, command: &str, lines: &[&str]) {
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
        // Without a kubelet, a pod is gone before its processes.
        if [" --for=delete", "kubectl rollout status "].iter().any(|end| command.contains(end)) {
            self.node.catch_up().await;
        }
        // The page names the id by this word.
        if let Some((_, rest)) = output.split_once("(ID: ") {
            self.words.push(("PRINCIPAL-ID", rest.split(')').next().unwrap().to_owned()));
        }
    }

    /// Runs a command in the reader's folder. Returns whether it succeeded, and its output.
    pub(crate) fn shell(&self, command: &str) -> (bool, String) {
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", self.folder.path().join("bin").display());
        let mut bash = Command::new("bash");
        bash.args(["-o", "pipefail", "-ec", command]).current_dir(self.folder.path()).env_clear();
        bash.env("PATH", path).env("KUBECONFIG", self.plane.kubeconfig()).envs(self.variables.iter().cloned());
        let output = bash.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text.into_owned())
    }

    /// Writes a file into the reader's folder.
    pub(crate) fn write(&self, file: &str, content: &str) {
        fs::write(self.folder.path().join(file), content).unwrap();
    }

    /// Changes a file as the page asks its reader to.
    pub(crate) fn edit(&self, file: &str) {
        let before = fs::read_to_string(self.folder.path().join(file)).unwrap();
        let after = self.filled_in(&before);
        assert_ne!(before, after, "{file} has nothing to change");
        self.write(file, &after);
    }

    /// A text of a page as the reader writes it.
    pub(crate) fn filled_in(&self, text: &str) -> String {
        self.words.iter().fold(text.to_owned(), |text, (word, meant)| text.replace(word, meant))
    }
}

/// Gives a reader what a tutorial asks for: a zopp server with an environment that they may administer.
pub(crate) async fn with_zopp(reader: &mut Reader) -> Server {
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
pub(crate) async fn with_vault(reader: &mut Reader) -> VaultServer {
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
