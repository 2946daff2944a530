//! A start as the original's confines nobody, and says so. The test of push is in `bins/vault-sync-operator`.

use std::time::Duration;

use konverge_e2e::{Stage, binary};
use konverge_testkit::{Process, ProcessSpec, eventually};

const SOON: Duration = Duration::from_mins(1);

/// The beginning of each line about what is open.
const NO_RULE: [&str; 2] = ["no --allow rule: ", "no --allow-path rule: "];

/// A program, what its original needs, the rules of the platform, and what is open without them.
struct Start {
    program: &'static str,
    arguments: Vec<String>,
    rules: &'static [&'static str],
    open: &'static [&'static str],
}

impl Start {
    /// Starts the program. Returns what it has logged when it serves its health, which is after its settings.
    async fn logged(&self, stage: &Stage, rules: &[&str]) -> String {
        let kubeconfig = format!("--kubeconfig={}", stage.control_plane.kubeconfig().display());
        // Processes of one name share a log.
        let name = format!("{}-with-{}-rules", self.program, rules.len());
        let spec = ProcessSpec::new(&name, binary(self.program).unwrap());
        let spec = spec.args([kubeconfig]).args(&self.arguments).args(rules);
        let process = Process::start(stage.control_plane.run_directory(), spec).unwrap();
        let log = async || Some(process.logged()).filter(|log| log.contains("serving health"));
        let Ok(log) = eventually(SOON, log).await else { panic!("{}: {}", self.program, process.logged()) };
        log
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pull_roll_and_manage_print_what_their_originals_leave_open() {
    let stage = Stage::set().await.unwrap();
    let credentials = format!("--credentials={}", stage.credentials().display());
    let owned = |arguments: &[&str]| arguments.iter().map(|argument| (*argument).to_owned()).collect::<Vec<_>>();
    let starts = [
        Start {
            program: "zopp-operator",
            arguments: owned(&[&format!("--server={}", stage.server.url()), &credentials, "--health-addr=127.0.0.1:0"]),
            rules: &["--allow=*=*/{namespace}/*"],
            open: &["no --allow rule: an annotated Secret of any namespace can have every environment"],
        },
        Start {
            program: "vault-rollout-operator",
            arguments: owned(&["--vault-addr=http://127.0.0.1:9", "--bind-address=127.0.0.1:0"]),
            rules: &["--allow-path=*=secret/data/{namespace}/*"],
            open: &["no --allow-path rule: a VaultSyncStatus or VaultRollout of any namespace can name every secret"],
        },
        Start {
            program: "openzro-operator",
            arguments: owned(&[
                "--openzro-management-url=http://127.0.0.1:9",
                "--openzro-api-key=nbp_hunter2",
                "--enable-webhooks=false",
                "--health-probe-bind-address=127.0.0.1:0",
            ]),
            rules: &["--allow=*={namespace}/*"],
            open: &[
                "no --allow rule: the objects of every namespace may use every group, network and policy",
                "privileged containers, volumes, pod templates and images: the objects of every namespace may have",
            ],
        },
    ];
    for start in starts {
        let open = start.logged(&stage, &[]).await;
        for line in start.open {
            assert!(open.contains(line), "{}: {open}", start.program);
        }
        let confined = start.logged(&stage, start.rules).await;
        for line in start.open.iter().chain(&NO_RULE) {
            assert!(!confined.contains(line), "{}: {confined}", start.program);
        }
    }
}
