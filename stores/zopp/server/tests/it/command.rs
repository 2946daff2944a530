//! The program as users run it: a process, its words, its signals.

use std::{
    net::TcpListener,
    path::Path,
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use konverge_zopp_crypto::SigningSeed;
use konverge_zopp_proto::zopp_service_client::ZoppServiceClient;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStderr},
    time::timeout,
};
use tonic::transport::Channel;

use crate::harness::{DEADLINE, Person, join_request};

const PROGRAM: &str = env!("CARGO_BIN_EXE_zopp-server");

/// Without a word about its database.
fn program(directory: &Path) -> Command {
    let mut command = Command::new(PROGRAM);
    command.current_dir(directory).env_clear();
    command
}

fn command(directory: &Path) -> Command {
    let mut command = program(directory);
    command.args(["--db", "zopp.db"]);
    command
}

fn run(directory: &Path, arguments: &[&str]) -> Output {
    command(directory).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// What a failed run said; it must have failed with a code, not by a signal.
fn complaint(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A running `serve`, killed when dropped.
struct Serving {
    child: Child,
    /// What it said before it served.
    first_words: String,
    log: Lines<BufReader<ChildStderr>>,
    client: ZoppServiceClient<Channel>,
}

impl Serving {
    async fn start(directory: &Path) -> Self {
        Self::start_as(command(directory)).await
    }

    async fn start_as(command: Command) -> Self {
        Self::start_at(command, "localhost:0").await
    }

    async fn start_at(command: Command, address: &str) -> Self {
        let mut command = tokio::process::Command::from(command);
        command.args(["serve", "--addr", address, "--health-addr", "127.0.0.1:0"]);
        let mut child = command.env("NO_COLOR", "1").stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut first_words = String::new();
        let serving = async {
            while let Some(line) = log.next_line().await.unwrap() {
                if let Some((_, rest)) = line.split_once("serving address=") {
                    return rest.split(' ').next().unwrap().to_owned();
                }
                first_words += &(line + "\n");
            }
            panic!("the server ended before it served");
        };
        let address = timeout(DEADLINE, serving).await.expect("the server serves");
        let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        Self { child, first_words, log, client: ZoppServiceClient::new(channel) }
    }

    fn signal(&self, name: &str) {
        let id = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    async fn join(&mut self, token: &str) -> Person {
        let seed = SigningSeed::generate().unwrap();
        let answer = self.client.join(join_request(token, "owner@example.com", &seed)).await.unwrap().into_inner();
        Person::new(answer.user_id, answer.principal_id, seed, self.client.clone())
    }
}

async fn set_up(owner: &mut Person) {
    owner.create_workspace("acme").await;
    let project = konverge_zopp_proto::CreateProjectRequest { workspace_name: "acme".into(), name: "backend".into() };
    owner.client.create_project(owner.sign("CreateProject", project)).await.unwrap();
    owner.create_environment("production").await.unwrap();
}

#[tokio::test]
async fn a_stop_signal_ends_it_within_a_second_even_with_an_open_watch() {
    for signal in ["TERM", "INT"] {
        let directory = tempfile::tempdir().unwrap();
        let token = stdout(&run(directory.path(), &["invite", "create", "--plain"]));
        let mut serving = Serving::start(directory.path()).await;
        let mut owner = serving.join(token.trim()).await;
        set_up(&mut owner).await;
        let mut stream = owner.watch(None).await.unwrap();

        let asked = Instant::now();
        serving.signal(signal);
        let status = timeout(DEADLINE, serving.child.wait()).await.expect("it ends").unwrap();
        assert!(asked.elapsed() < Duration::from_secs(1), "{signal}: {:?}", asked.elapsed());
        assert!(status.success(), "{signal}: {status}");
        stream.message().await.unwrap_err();
        let mut log = String::new();
        while let Some(line) = serving.log.next_line().await.unwrap() {
            log += &line;
        }
        assert!(log.contains("stopped"), "{log}");
    }
}

#[tokio::test]
async fn the_database_that_nobody_named_is_in_the_help_and_in_the_log() {
    let directory = tempfile::tempdir().unwrap();
    let help = stdout(&program(directory.path()).arg("--help").output().unwrap());
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("[default: zopp.db in the working directory, made when missing]"), "{help}");

    let serving = Serving::start_as(program(directory.path())).await;
    let path = directory.path().canonicalize().unwrap().join("zopp.db");
    let opened = format!("database opened path={}\n", path.display());
    assert!(path.exists() && serving.first_words.contains(&opened), "{}", serving.first_words);
}

#[tokio::test]
async fn open_registration_is_loud_at_each_start() {
    let directory = tempfile::tempdir().unwrap();
    let closed = Serving::start(directory.path()).await;
    assert!(!closed.first_words.contains("open-registration"), "{}", closed.first_words);
    drop(closed);
    let mut command = command(directory.path());
    command.env("ZOPP_OPEN_REGISTRATION", "true");
    let open = Serving::start_as(command).await;
    let warning = open.first_words.lines().find(|line| line.contains("--open-registration")).expect("a warning");
    assert!(warning.contains("WARN") && warning.contains("without an invite"), "{warning}");
}

#[tokio::test]
async fn a_port_for_other_machines_without_tls_is_warned_of_at_each_start() {
    let directory = tempfile::tempdir().unwrap();
    let here = Serving::start(directory.path()).await;
    assert!(!here.first_words.contains("without TLS"), "{}", here.first_words);
    drop(here);
    let open = Serving::start_at(command(directory.path()), "0.0.0.0:0").await;
    let warning = open.first_words.lines().find(|line| line.contains("without TLS")).expect("a warning");
    assert!(warning.contains("WARN") && warning.contains("--tls-cert"), "{warning}");
}

#[test]
fn the_operator_disables_and_removes_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let nobody = uuid::Uuid::now_v7().to_string();
    for verb in ["disable", "enable"] {
        let said = complaint(&run(directory.path(), &["principal", verb, &nobody]));
        assert!(said.contains(&nobody) && said.contains("principal list"), "{said}");
    }
    let said = complaint(&run(directory.path(), &["user", "remove", "nobody@example.com"]));
    assert!(said.contains("nobody@example.com"), "{said}");
    let listed = |max: &str| {
        stdout(&run(directory.path(), &["invite", "create", "--uses", max]));
        stdout(&run(directory.path(), &["invite", "list"]))
    };
    assert!(listed("2").contains("Uses:    0 of 2\n"));
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let token = stdout(&run(directory.path(), &["invite", "create", "--plain"]));
    let mut serving = Serving::start(directory.path()).await;
    let mut owner = serving.join(token.trim()).await;
    set_up(&mut owner).await;
    owner.set("A").await.unwrap();
    serving.signal("KILL");
    serving.child.wait().await.unwrap();

    let again = Serving::start(directory.path()).await;
    owner.client = again.client.clone();
    assert_eq!(owner.list().await.unwrap().version, 1);
}

#[test]
fn invites_are_made_listed_and_revoked_without_keeping_the_token() {
    let directory = tempfile::tempdir().unwrap();
    let plain = stdout(&run(directory.path(), &["invite", "create", "--plain", "--expires-hours", "1"]));
    let token = plain.trim();
    assert!(token.len() == 64 && token.bytes().all(|byte| byte.is_ascii_hexdigit()), "{plain:?}");
    let told = stdout(&run(directory.path(), &["invite", "create"]));
    assert!(told.contains("Token:") && told.contains("Expires:"), "{told}");

    let listed = stdout(&run(directory.path(), &["invite", "list"]));
    assert_eq!(listed.matches("Token:").count(), 2);
    assert!(!listed.contains(token), "{listed}");
    let name = listed.lines().next().unwrap().strip_prefix("Token:").unwrap().trim().to_owned();

    stdout(&run(directory.path(), &["invite", "revoke", token]));
    stdout(&run(directory.path(), &["invite", "revoke", &name]));
    assert!(stdout(&run(directory.path(), &["invite", "list"])).contains("No server invites"));
    assert!(complaint(&run(directory.path(), &["invite", "revoke", token])).contains("invite list"));
}

#[test]
fn what_hinders_the_start_is_named_with_the_next_step() {
    let directory = tempfile::tempdir().unwrap();
    let busy = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let taken = TcpListener::bind(busy).unwrap();
    std::fs::write(directory.path().join("notes.txt"), "no database, but long enough for a header ".repeat(50))
        .unwrap();
    std::fs::write(directory.path().join("cert.pem"), "nonsense").unwrap();
    let busy = taken.local_addr().unwrap().to_string();
    let free = ["--addr", "127.0.0.1:0", "--health-addr", "127.0.0.1:0"];
    let table: [(&[&str], &[&str]); 10] = [
        (&["--addr", &busy, "--health-addr", "127.0.0.1:0"], &[&busy, "--addr", "another port"]),
        (&["--addr", "127.0.0.1:0", "--health-addr", &busy], &[&busy, "--health-addr", "another port"]),
        (&["--addr", "no port"], &["no port", "host and a port"]),
        (&["--database-url", "postgres://user:hunter2@host/db"], &["SQLite only"]),
        (&["--database-url", "sqlite://missing.db", free[0], free[1], free[2], free[3]], &["missing.db", "check that"]),
        (
            &["--db", "no/such/directory/zopp.db", free[0], free[1], free[2], free[3]],
            &["no/such/directory", "check that"],
        ),
        (&["--db", "notes.txt", free[0], free[1], free[2], free[3]], &["notes.txt", "check that"]),
        (&["--tls-cert", "cert.pem"], &["--tls-key", "only --tls-cert"]),
        (&["--tls-cert", "cert.pem", "--tls-key", "cert.pem"], &["cannot be used", "PEM"]),
        (&["--tls-cert", "cert.pem", "--tls-key", "gone.pem"], &["gone.pem", "--tls-key"]),
    ];
    for (arguments, expected) in table {
        let mut command = Command::new(PROGRAM);
        command.current_dir(directory.path()).env_clear().arg("serve").args(arguments);
        let said = complaint(&command.output().unwrap());
        for part in expected {
            assert!(said.contains(part), "{arguments:?}: {part:?} is not in {said}");
        }
        assert!(!said.contains("hunter2"), "{said}");
    }
}
