//! The demo, as a newcomer runs it.

use std::{path::Path, process::Stdio, time::Duration};

use konverge_e2e::binary;
use konverge_testkit::{KUBECONFIG_VARIABLE, RUN_VARIABLE, eventually};
use konverge_testkit_stores::VaultServer;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

/// On busy cores the stage takes some ten seconds to set.
const SOON: Duration = Duration::from_mins(2);

/// A demo that runs, with a folder for temporary files of its own.
pub(crate) struct Demo {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    said: String,
}

impl Demo {
    pub(crate) fn start(temporary: &Path, kubeconfig: Option<&Path>, arguments: &[&str]) -> Self {
        let mut command = Command::new(binary("demo").unwrap());
        command.args(arguments).env("TMPDIR", temporary).env_remove(KUBECONFIG_VARIABLE);
        // A run of its own: it is not to take away what these tests made.
        command.env_remove(RUN_VARIABLE);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        if let Some(path) = kubeconfig {
            command.env(KUBECONFIG_VARIABLE, path);
        }
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines, said: String::new() }
    }

    /// Reads on until a line has this; at the end of the output it is an error not to have been said.
    pub(crate) async fn says(&mut self, part: &str) {
        let found = tokio::time::timeout(SOON, async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                self.hears(&line);
                if line.contains(part) {
                    return true;
                }
            }
            false
        });
        assert!(found.await.is_ok_and(|found| found), "{part:?} is not in what it said:\n{}", self.said);
    }

    fn hears(&mut self, line: &str) {
        self.said.push_str(line);
        self.said.push('\n');
    }

    /// Sends a signal as `kill` does.
    pub(crate) async fn signal(&self, name: &str) {
        let pid = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-s", name, &pid]).status().await.unwrap().success());
    }

    /// Reads the rest and waits for the end: whether it says that all went well, and all that it said.
    pub(crate) async fn ends(mut self) -> (bool, String) {
        let end = tokio::time::timeout(SOON, async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                self.hears(&line);
            }
            self.child.wait().await.unwrap()
        });
        let status = end.await.unwrap();
        (status.success(), self.said)
    }

    /// Stops listening to it, as `cargo xtask demo | head` does, and waits for its end.
    pub(crate) async fn loses_its_listener(self) {
        let Self { mut child, lines, .. } = self;
        drop(lines);
        tokio::time::timeout(SOON, child.wait()).await.unwrap().unwrap();
    }

    /// Returns the rest of the line with this prefix.
    fn told(&self, beginning: &str) -> &str {
        self.said.lines().find_map(|line| line.trim().strip_prefix(beginning)).unwrap()
    }
}

/// Waits until no file and no process of a demo is left.
async fn nothing_is_left(temporary: &Path) {
    let folder = temporary.to_string_lossy().into_owned();
    let left = async || -> Vec<String> {
        let files = std::fs::read_dir(temporary).unwrap().map(|entry| entry.unwrap().path().display().to_string());
        let processes = Command::new("ps").args(["-eo", "pid=,ppid=,stat=,args="]).output().await.unwrap();
        let processes = String::from_utf8_lossy(&processes.stdout).into_owned();
        files.chain(processes.lines().filter(|line| line.contains(&folder)).map(str::to_owned)).collect()
    };
    let gone = eventually(Duration::from_secs(20), async || left().await.is_empty().then_some(())).await;
    assert!(gone.is_ok(), "left behind: {:#?}", left().await);
}

#[tokio::test]
async fn the_demo_tells_what_happened_and_leaves_nothing_behind() {
    let temporary = tempfile::tempdir().unwrap();
    let (succeeded, said) = Demo::start(temporary.path(), None, &[]).ends().await;
    assert!(succeeded, "{said}");
    assert!(said.contains("zopp.dev/environment: production"), "the manifest is shown: {said}");
    assert!(said.contains("exactly the environment's keys: DATABASE_URL"), "{said}");
    let steps: Vec<u64> = said
        .lines()
        .filter_map(|line| line.split("in the Secret ").nth(1)?.split_whitespace().next()?.parse().ok())
        .collect();
    assert_eq!(steps.len(), 4, "{said}");
    assert!(steps.iter().all(|&milliseconds| milliseconds < 1000), "well under a second: {steps:?}");
    assert!(said.contains("vault-sync.io/path: secret/data/demo-"), "the manifest is shown: {said}");
    let after = |line: &str, place: &str| line.split(place).nth(1)?.split_whitespace().next()?.parse::<u64>().ok();
    let steps: Vec<u64> = said.lines().filter_map(|line| after(line, "in Vault ")).collect();
    assert_eq!(steps.len(), 2, "{said}");
    assert!(steps.iter().all(|&milliseconds| milliseconds < 2000), "within two seconds: {steps:?}");
    // Content of a deleted object stays for 10 seconds, in case the object returns.
    let gone: Vec<u64> = said.lines().filter_map(|line| after(line, "gone from Vault ")).collect();
    assert!(matches!(gone[..], [milliseconds] if (10_000..15_000).contains(&milliseconds)), "{gone:?}");
    let versions: Vec<&str> = said.lines().filter_map(|line| line.split(": password and user, ").nth(1)).collect();
    assert_eq!(versions, ["version 1", "version 2"], "one version for each change: {said}");
    assert!(said.contains("roll.konverge.dev/on-change: "), "the manifest is shown: {said}");
    let rollouts: Vec<_> =
        said.lines().filter(|line| line.contains("rollout, ") || line.ends_with(" rollout")).collect();
    let expected = [
        "password changed     one rollout, ",
        "the same once more   no rollout",
        "operator started     one rollout",
        "version 2 in Vault   one rollout, ",
    ];
    let are_those = rollouts.iter().zip(expected).all(|(line, begins)| line.trim().starts_with(begins));
    assert!(rollouts.len() == expected.len() && are_those, "{said}");
    assert!(said.contains("kind: OZPolicy") && said.contains("The group Developers is as people made it."), "{said}");
    let steps: Vec<u64> = said
        .lines()
        .filter_map(|line| after(line, "in openZro ").or_else(|| after(line, "gone from openZro ")))
        .collect();
    assert_eq!(steps.len(), 4, "{said}");
    assert!(steps.iter().all(|&milliseconds| milliseconds < 5000), "within some intervals of a second: {steps:?}");
    nothing_is_left(temporary.path()).await;
}

#[tokio::test]
async fn a_demo_that_is_kept_can_be_played_with_and_goes_with_ctrl_c() {
    let temporary = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(temporary.path(), None, &["--keep"]);
    demo.says("Ctrl-C takes everything down").await;
    // The lines that it prints are run as they stand; a shell that is not interactive needs to be told to look at aliases.
    let exports: Vec<&str> = demo.said.lines().map(str::trim).filter(|line| line.starts_with("export ")).collect();
    let before = format!("{}\nshopt -s expand_aliases\nalias {}", exports.join("\n"), demo.told("alias "));
    let shell = async |line: &str| {
        let script = format!("{before}\n{line}");
        let output = Command::new("bash").args(["-ec", &script]).output().await.unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let get = format!("kubectl get secret{}", demo.told("kubectl get secret"));
    let keys = async || -> Vec<String> {
        let secret: serde_json::Value = serde_json::from_str(&shell(&get.replace("-o yaml", "-o json")).await).unwrap();
        secret["data"].as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(keys().await, ["DATABASE_URL"]);
    assert!(shell("zopp secret list").await.contains("DATABASE_URL"));
    shell("zopp secret set GREETING hello").await;
    let both = async || (keys().await == ["DATABASE_URL", "GREETING"]).then_some(());
    eventually(Duration::from_secs(20), both).await.unwrap();

    let vault = VaultServer::program().unwrap();
    let vault = vault.file_name().and_then(|name| name.to_str()).unwrap();
    // Of a longer name the system knows only the beginning.
    for name in
        ["etcd", "zopp-server", &vault[..vault.len().min(15)], "vault-sync-oper", "vault-rollout-o", "openzro-operato"]
    {
        kill(demo.child.id().unwrap(), name).await;
        demo.says("all run again").await;
    }
    let patch = format!("kubectl patch secret{}", demo.told("kubectl patch secret"));
    let curl = format!("curl -sfH{}", demo.told("curl -sH"));
    shell(&patch).await;
    let follows = async || shell(&curl).await.contains("\"password\":\"three\"").then_some(());
    eventually(SOON, follows).await.unwrap();
    // Without the operator's finalizers nothing would be deleted, so this is about an operator that was started again.
    shell("kubectl delete ozpolicy ssh --timeout=60s").await;
    let policies = demo.told("curl -sH \"Authorization: ");
    assert_eq!(shell(&format!("curl -sfH \"Authorization: {policies}")).await.trim(), "[]");
    shell("zopp secret delete GREETING").await;
    eventually(SOON, async || (keys().await == ["DATABASE_URL"]).then_some(())).await.unwrap();

    demo.signal("INT").await;
    let (succeeded, said) = demo.ends().await;
    assert!(succeeded && said.contains("Everything is taken down"), "{said}");
    nothing_is_left(temporary.path()).await;
}

/// Kills a process that the demo started, as its last lines say.
async fn kill(demo: u32, name: &str) {
    let parent = demo.to_string();
    let killed = Command::new("pkill").args(["-9", "-P", &parent, "-x", name]).status().await.unwrap();
    assert!(killed.success(), "there is no {name} to kill");
}

#[tokio::test]
async fn what_is_killed_during_a_demo_is_started_again_and_it_ends_in_the_same_state() {
    let temporary = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(temporary.path(), None, &[]);
    let pid = demo.child.id().unwrap();
    demo.says("zopp-operator is ready").await;
    for name in ["kube-apiserver", "zopp-operator", "zopp-server"] {
        kill(pid, name).await;
        demo.says(&format!("{name} has ended (signal: 9 (SIGKILL)); it is started again")).await;
        demo.says("all run again").await;
    }
    let (succeeded, said) = demo.ends().await;
    assert!(succeeded && said.contains("exactly the environment's keys: DATABASE_URL"), "{said}");
    nothing_is_left(temporary.path()).await;
}

#[tokio::test]
async fn a_demo_that_is_killed_leaves_nothing_behind() {
    for moment in ["Setting the stage", "the stage is set", "is ready, under", "zopp secret set DATABASE_URL"] {
        let temporary = tempfile::tempdir().unwrap();
        let mut demo = Demo::start(temporary.path(), None, &[]);
        demo.says(moment).await;
        demo.signal("KILL").await;
        assert!(!demo.ends().await.0);
        nothing_is_left(temporary.path()).await;
    }
}
