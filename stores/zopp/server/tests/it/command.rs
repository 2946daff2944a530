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

use crate::harness::{DEADLINE, Person, join_request, now, upsert};

const PROGRAM: &str = env!("CARGO_BIN_EXE_zopp-server");

/// Without a word about its database.
pub(crate) fn program(directory: &Path) -> Command {
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

pub(crate) fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The output of a failed run. The run must have failed with a code, not by a signal.
pub(crate) fn complaint(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A running `serve`, killed when dropped.
pub(crate) struct Serving {
    pub(crate) child: Child,
    /// Its output before it served.
    first_words: String,
    pub(crate) health_address: String,
    pub(crate) url: String,
    log: Lines<BufReader<ChildStderr>>,
    pub(crate) client: ZoppServiceClient<Channel>,
}

impl Serving {
    async fn start(directory: &Path) -> Self {
        Self::start_as(command(directory)).await
    }

    pub(crate) async fn start_as(command: Command) -> Self {
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
                    let (address, health) = rest.split_once(" health_address=").unwrap();
                    return (address.to_owned(), health.trim().to_owned());
                }
                first_words += &(line + "\n");
            }
            panic!("the server ended before it served");
        };
        let (address, health_address) = timeout(DEADLINE, serving).await.expect("the server serves");
        let url = format!("http://{address}");
        let channel = Channel::from_shared(url.clone()).unwrap().connect().await.unwrap();
        Self { child, first_words, health_address, url, log, client: ZoppServiceClient::new(channel) }
    }

    pub(crate) fn signal(&self, name: &str) {
        let id = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    pub(crate) async fn join(&mut self, token: &str) -> Person {
        let seed = SigningSeed::generate().unwrap();
        let answer = self.client.join(join_request(token, "owner@example.com", &seed)).await.unwrap().into_inner();
        Person::new(answer.user_id, answer.principal_id, seed, self.client.clone())
    }
}

pub(crate) async fn set_up(owner: &mut Person) {
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
    let opened = format!("database opened database={}\n", path.display());
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
async fn the_first_generation_is_served_on_request_and_loudly() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = command(directory.path());
    command.env("ZOPP_ALLOW_V1", "true").env("ZOPP_V1_MEMBER_ROLE", "read");
    let serving = Serving::start_as(command).await;
    let warning = serving.first_words.lines().find(|line| line.contains("--allow-v1")).expect("a warning");
    assert!(warning.contains("WARN") && warning.contains("the role read"), "{warning}");
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

#[tokio::test]
async fn a_database_file_that_others_can_read_is_warned_of_at_each_start() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let private = Serving::start(directory.path()).await;
    assert!(!private.first_words.contains("chmod"), "{}", private.first_words);
    drop(private);
    let file = directory.path().join("zopp.db");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let open = Serving::start(directory.path()).await;
    let warning = open.first_words.lines().find(|line| line.contains("chmod 600 zopp.db")).expect("a warning");
    assert!(warning.contains("WARN") && warning.contains("mode=644"), "{warning}");
}

/// A server in this directory, and the owner of a workspace in which secret `A` is.
async fn serve_with_a_secret(directory: &Path) -> (Serving, Person) {
    let token = stdout(&run(directory, &["invite", "create", "--plain"]));
    let mut serving = Serving::start(directory).await;
    let mut owner = serving.join(token.trim()).await;
    set_up(&mut owner).await;
    owner.set("A").await.unwrap();
    (serving, owner)
}

#[tokio::test]
async fn a_backup_of_a_running_server_is_restored_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let (serving, mut owner) = serve_with_a_secret(directory.path()).await;
    let said = stdout(&run(directory.path(), &["backup", "copy.db"]));
    assert!(said.contains("rows written to copy.db"), "{said}");
    owner.set("B").await.unwrap();
    let said = complaint(&run(directory.path(), &["restore", "copy.db"]));
    assert!(said.contains("zopp.db exists already") && said.contains("move it away"), "{said}");
    assert!(complaint(&run(directory.path(), &["backup", "copy.db"])).contains("copy.db exists already"));
    drop(serving);

    // "--db" of later commands is another file.
    let elsewhere =
        |arguments: &[&str]| program(directory.path()).args(["--db", "new.db"]).args(arguments).output().unwrap();
    assert!(complaint(&elsewhere(&["backup", "other.db"])).contains("new.db"), "a backup makes no database");
    let said = stdout(&elsewhere(&["restore", "copy.db"]));
    assert!(said.contains("clients read again: 1\n") && said.contains("are lost"), "{said}");
    assert!(said.contains("zopp environment protect NAME --accept-changes"), "{said}");
    let mut command = program(directory.path());
    command.args(["--db", "new.db"]);
    let again = Serving::start_as(command).await;
    owner.client = again.client.clone();
    let list = owner.list().await.unwrap();
    let keys: Vec<&str> = list.secrets.iter().map(|secret| secret.key.as_str()).collect();
    assert_eq!(keys, ["A"]);
    let restored = list.version;
    // A client that had seen version 2 is sent to list again.
    let first = owner.watch(Some(2)).await.unwrap().message().await.unwrap().unwrap();
    let resync = konverge_zopp_proto::ResyncRequired { current_version: restored };
    assert_eq!(first.response, Some(konverge_zopp_proto::watch_secrets_response::Response::Resync(resync)));
    assert!(restored > 1_000_000, "{restored}");
    owner.set("C").await.unwrap();
    assert_eq!(owner.list().await.unwrap().version, restored + 1);
    let said = stdout(&elsewhere(&["restore", "--in-place"]));
    assert!(said.contains("clients read again: 1\n"), "{said}");
    assert!(owner.list().await.unwrap().version > restored + 1);
    // A captured change may be one that the restored database does not know any more.
    let captured = owner.sign_at("UpsertSecret", upsert("D"), now() - 20);
    let refused = owner.client.upsert_secret(captured).await.unwrap_err();
    assert!(refused.message().contains("before the server's database was restored"), "{refused}");
    owner.set("D").await.unwrap();
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
}

#[test]
fn an_invite_to_the_server_is_for_one_person_and_a_day_by_default() {
    let directory = tempfile::tempdir().unwrap();
    let earliest = now() + 24 * 3600;
    for (options, uses) in
        [(&[][..], "0 of 1\n"), (&["--uses", "2"][..], "0 of 2\n"), (&["--uses", "unlimited"][..], "0\n")]
    {
        let token = stdout(&run(directory.path(), &[&["invite", "create", "--plain"], options].concat()));
        let listed = stdout(&run(directory.path(), &["invite", "list"]));
        assert!(listed.contains(&format!("Uses:    {uses}")), "{options:?}: {listed}");
        let expires = listed.lines().find_map(|line| line.strip_prefix("Expires: ")).unwrap();
        let expires: jiff::Timestamp = expires.parse().unwrap();
        assert!((earliest..=now() + 24 * 3600).contains(&expires.as_second()), "{options:?}: {listed}");
        stdout(&run(directory.path(), &["invite", "revoke", token.trim()]));
    }
    for uses in ["0", "-1", "many"] {
        let refused = run(directory.path(), &["invite", "create", &format!("--uses={uses}")]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(refused.status.code() == Some(2) && said.contains("or \"unlimited\", is expected"), "{said}");
    }
}

#[tokio::test]
async fn what_was_acknowledged_is_there_after_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let (mut serving, mut owner) = serve_with_a_secret(directory.path()).await;
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
    let table: [(&[&str], &[&str]); 12] = [
        (&["--addr", &busy, "--health-addr", "127.0.0.1:0"], &[&busy, "--addr", "another port"]),
        (&["--addr", "127.0.0.1:0", "--health-addr", &busy], &[&busy, "--health-addr", "another port"]),
        (&["--addr", "no port"], &["no port", "host and a port"]),
        (
            &["--database-url", "postgres://user:hunter2@127.0.0.1:1/db", free[0], free[1], free[2], free[3]],
            &["cannot connect", "127.0.0.1:1/db", "PostgreSQL runs"],
        ),
        (
            &[
                "--db",
                "zopp.db",
                "--events-database-url",
                "postgres://user:hunter2@127.0.0.1:1/db",
                free[0],
                free[1],
                free[2],
                free[3],
            ],
            &["127.0.0.1:1/db", "--events-database-url", "--events-backend memory"],
        ),
        (&["--db", "zopp.db", "--events-backend", "postgres"], &["--events-database-url postgres://"]),
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

#[tokio::test]
async fn log_lines_are_json_on_request() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = tokio::process::Command::from(command(directory.path()))
        .args(["serve", "--addr", "127.0.0.1:0", "--health-addr", "127.0.0.1:0", "--log-format", "json"])
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    let serving = async {
        while let Some(line) = log.next_line().await.unwrap() {
            let line: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if line["fields"]["message"] == "serving" {
                return line;
            }
        }
        panic!("the server ended before it served");
    };
    let line = timeout(DEADLINE, serving).await.expect("the server serves");
    assert_eq!(line["level"], "INFO");
    assert!(line["fields"]["address"].as_str().unwrap().starts_with("127.0.0.1:"), "{line}");
}

#[tokio::test]
async fn init_prints_one_line_that_lets_one_person_in() {
    let directory = tempfile::tempdir().unwrap();
    let line = stdout(&run(directory.path(), &["init", "--server", "https://zopp.example.com", "--email", "a@b.c"]));
    assert_eq!(line.lines().count(), 1, "{line}");
    let token = line.strip_prefix("echo ").and_then(|rest| rest.split(' ').next()).unwrap();
    assert_eq!(line, format!("echo {token} | zopp --server https://zopp.example.com join - a@b.c\n"));
    let mut serving = Serving::start(directory.path()).await;
    serving.join(token).await;
    let second = join_request(token, "second@example.com", &SigningSeed::generate().unwrap());
    serving.client.join(second).await.expect_err("the line is for one person");
}

#[tokio::test]
async fn the_doctor_names_what_is_wrong_and_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let free = ["--addr", "127.0.0.1:0", "--health-addr", "127.0.0.1:0"];
    let doctor = |more: &[&str]| run(directory.path(), &[&["doctor"], &free[..], more].concat());
    let said = stdout(&doctor(&[]));
    assert!(said.contains("warning  database: ") && said.contains("does not exist"), "{said}");
    assert!(!directory.path().join("zopp.db").exists());

    stdout(&run(directory.path(), &["invite", "create"]));
    let said = stdout(&doctor(&["--open-registration"]));
    assert!(said.contains("ok       database: /") && said.contains("/zopp.db can be opened and answers"), "{said}");
    assert!(said.contains("ok       database file: zopp.db has mode 600"), "{said}");
    assert!(said.contains("warning  registration: --open-registration"), "{said}");
    assert!(said.contains("core dumps are off"), "{said}");

    std::fs::write(directory.path().join("bad.pem"), "nonsense").unwrap();
    let output = doctor(&["--tls-cert", "bad.pem", "--tls-key", "bad.pem"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains("problem  TLS: bad.pem (--tls-cert) cannot be used"), "{said}");

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let busy = taken.local_addr().unwrap().to_string();
    let output = run(directory.path(), &["doctor", "--addr", &busy, "--health-addr", "127.0.0.1:0"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains(&format!("problem  --addr: cannot listen on {busy}")), "{said}");
}

/// Of this machine, that a crash leaves a core; of the server, that it does not.
#[tokio::test]
async fn a_crash_leaves_no_keys_behind() {
    use std::os::unix::process::ExitStatusExt;
    let directory = tempfile::tempdir().unwrap();
    let mut shell = Command::new("sh");
    shell.current_dir(directory.path()).args(["-c", "ulimit -c unlimited; kill -ABRT $$"]);
    let control = shell.status().unwrap();
    let mut serve = Command::new("sh");
    serve.current_dir(directory.path()).env_clear().args([
        "-c",
        r#"ulimit -c unlimited; exec "$0" --db zopp.db "$@""#,
        PROGRAM,
    ]);
    let mut serving = Serving::start_as(serve).await;
    serving.signal("ABRT");
    let status = timeout(DEADLINE, serving.child.wait()).await.expect("it ends").unwrap();
    assert_eq!(status.signal(), Some(6), "{status}");
    assert!(!status.core_dumped(), "a server's memory was written to disk; control: {control}");
}
