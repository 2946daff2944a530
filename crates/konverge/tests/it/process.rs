//! Exit codes, seen from outside: this test binary starts itself as the program that ends.

use std::{
    collections::BTreeSet,
    fs,
    net::TcpListener,
    process::{ExitCode, Stdio},
};

use k8s_openapi::api::coordination::v1::Lease;
use konverge::{
    Operator, Part, Setup, StartError,
    admission::{Review, Validator, Verdict, Webhook, Webhooks},
    external::{Options, Polled, Source, SourceError},
    generate::Access,
    prelude::*,
};
use konverge_testkit::{eventually, free_port, http_get};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::stage::{LIMIT, Place, Probe, Prober, control_plane, own_control_plane};

const MODE: &str = "KONVERGE_TEST_MODE";
const ARGUMENTS: &str = "KONVERGE_TEST_ARGUMENTS";

/// A part that ends, or hangs, though nobody told it to.
struct Unruly(&'static str);

impl Part for Unruly {
    fn access(&self, _: &konverge::Home<'_>, _: &mut Access, _: &mut Access) {}

    fn install(self: Box<Self>, setup: &mut Setup) -> futures::future::BoxFuture<'_, Result<(), StartError>> {
        match self.0 {
            "ends" => setup.manager.task("unruly", std::future::ready(())),
            _ => setup.manager.stopping_task("unruly", std::future::pending()),
        }
        let shutdown = setup.manager.shutdown();
        setup.manager.task("heard", async move {
            shutdown.cancelled().await;
            eprintln!("heard the signal");
            std::future::pending::<()>().await;
        });
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A source outside the cluster that has nothing to tell.
struct Quiet;

impl Source for Quiet {
    type Item = String;

    fn name(&self) -> &'static str {
        "outside"
    }

    async fn poll(&mut self) -> Result<Polled<String>, SourceError> {
        Ok(Vec::new().into())
    }
}

struct Lenient;

impl Validator<Probe> for Lenient {
    type Error = std::convert::Infallible;

    async fn validate(&self, _: &Review<Probe>) -> Result<Verdict, Self::Error> {
        Ok(Verdict::allow())
    }
}

/// Not a test by itself: the program under test, run only when the variable is set.
#[test]
fn program() {
    let Ok(mode) = std::env::var(MODE) else { return };
    let operator = Operator::new("konverge-process", "0").controller(Controller::new(Prober::default()));
    let operator = match mode.as_str() {
        "plain" => operator,
        "all" => {
            let every_second = Options::every(Duration::from_secs(1));
            let controller = Controller::new(Prober::default());
            let woken = controller.watches_outside("outside", Quiet, every_second, |_, probes| probes.keys());
            let webhooks = Webhooks::new().validate(Webhook::of::<Probe>(), Lenient);
            Operator::new("konverge-process", "0").controller(woken).webhooks(webhooks)
        }
        "ends" => operator.part(Unruly("ends")),
        _ => operator.part(Unruly("hangs")),
    };
    let ended = operator.main_with(std::env::var(ARGUMENTS).unwrap().lines().map(ToOwned::to_owned));
    let code = (0..=u8::MAX).find(|code| ExitCode::from(*code) == ended).unwrap();
    std::process::exit(code.into());
}

struct Program {
    child: tokio::process::Child,
    lines: tokio::io::Lines<BufReader<tokio::process::ChildStderr>>,
}

impl Program {
    fn start(mode: &str, arguments: &[&str]) -> Self {
        let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "process::program", "--nocapture"]).env(MODE, mode);
        command.env(ARGUMENTS, [&["test"], arguments].concat().join("\n")).env("RUST_LOG", "info");
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).kill_on_drop(true).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, lines }
    }

    async fn says(&mut self, wanted: &str) {
        let heard = tokio::time::timeout(LIMIT, async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if line.contains(wanted) {
                    return true;
                }
            }
            false
        });
        assert_eq!(heard.await, Ok(true), "it never said {wanted:?}");
    }

    fn terminate(&self) {
        let process = self.child.id().unwrap().to_string();
        assert!(std::process::Command::new("kill").args(["-TERM", &process]).status().unwrap().success());
    }

    async fn exit_code(mut self) -> Option<i32> {
        // Its remaining output must not fill the pipe.
        let lines = tokio::spawn(async move { while let Ok(Some(_)) = self.lines.next_line().await {} });
        let code = tokio::time::timeout(LIMIT, self.child.wait()).await.unwrap().unwrap().code();
        lines.abort();
        code
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_04_each_end_has_an_exit_code_of_its_own() {
    let (place, cluster) = (Place::new().await, control_plane().await);
    let kubeconfig = cluster.kubeconfig().display().to_string();
    let common = ["--kubeconfig", &kubeconfig, "--namespace", &place.namespace, "--address=127.0.0.1:0"];
    let start = |mode, more: &[&str]| Program::start(mode, &[&common[..], more].concat());

    let mut stopped = start("plain", &[]);
    stopped.says("serving health and metrics").await;
    stopped.terminate();
    assert_eq!(stopped.exit_code().await, Some(0), "a signal");

    assert_eq!(
        Program::start("plain", &["--kubeconfig=/nowhere", "--address=127.0.0.1:0"]).exit_code().await,
        Some(1),
        "no kubeconfig"
    );
    assert_eq!(start("plain", &["--no-such-flag"]).exit_code().await, Some(2), "the command line");

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let metrics = format!("--address={}", taken.local_addr().unwrap());
    let busy = Program::start("plain", &["--kubeconfig", &kubeconfig, &metrics]);
    assert_eq!(busy.exit_code().await, Some(3), "a taken address");

    assert_eq!(start("ends", &[]).exit_code().await, Some(5), "a task that ended");

    let mut late = start("hangs", &["--grace-period=1"]);
    late.says("serving health and metrics").await;
    late.terminate();
    assert_eq!(late.exit_code().await, Some(6), "not in time");

    let mut twice = start("hangs", &[]);
    twice.says("serving health and metrics").await;
    twice.terminate();
    twice.says("heard the signal").await;
    twice.terminate();
    assert_eq!(twice.exit_code().await, Some(7), "a second signal");

    let namespace = format!("--lease-namespace={}", place.namespace);
    let mut leader = start("plain", &["--leader-election", &namespace]);
    leader.says("leading").await;
    let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime(k8s_openapi::jiff::Timestamp::now());
    let taken = json!({"spec": {"holderIdentity": "another", "acquireTime": now, "renewTime": now}});
    place.merge::<Lease>("konverge-process-leader", taken).await;
    assert_eq!(leader.exit_code().await, Some(4), "a lost lease");
}

/// Ports that a process listens at.
fn ports(process: u32) -> BTreeSet<u16> {
    let files = fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let opened: BTreeSet<String> =
        files.filter_map(|file| Some(fs::read_link(file.ok()?.path()).ok()?.display().to_string())).collect();
    let sockets = ["tcp", "tcp6"].map(|family| fs::read_to_string(format!("/proc/{process}/net/{family}")).unwrap());
    let listening = sockets.iter().flat_map(|text| text.lines()).filter_map(|line| {
        // Address and port in hexadecimal, the state (10 is listening), and far behind them the inode.
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_ours = fields.get(3) == Some(&"0A") && opened.contains(&format!("socket:[{}]", fields.get(9)?));
        is_ours.then(|| u16::from_str_radix(fields[1].rsplit(':').next()?, 16).ok()).flatten()
    });
    listening.collect()
}

/// A controller, a source that wakes it from outside, webhooks and a lease: one port beside that of the webhooks, and one signal ends it all.
#[tokio::test(flavor = "multi_thread")]
async fn row_27_one_port_beside_that_of_the_webhooks_and_one_signal_handler_for_all() {
    // The webhooks outlive the program, and every Probe of the cluster would be sent to them.
    let cluster = own_control_plane().await;
    let place = Place::on(&cluster).await;
    let kubeconfig = cluster.kubeconfig().display().to_string();
    let [health, webhooks] = [free_port().unwrap(), free_port().unwrap()];
    let (address, webhook_address) = (format!("127.0.0.1:{health}"), format!("127.0.0.1:{webhooks}"));
    let arguments = [
        format!("--kubeconfig={kubeconfig}"),
        format!("--namespace={}", place.namespace),
        format!("--address={address}"),
        format!("--webhook-address={webhook_address}"),
        format!("--webhook-url=https://{webhook_address}"),
        format!("--lease-namespace={}", place.namespace),
        "--leader-election".to_owned(),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut program = Program::start("all", &arguments);
    program.says("leading").await;
    let ready = eventually(LIMIT, || async {
        let (code, checks) = http_get(&address, "/readyz?verbose").await.ok()?;
        (code == 200).then_some(checks)
    });
    let checks = ready.await.unwrap();
    assert!(checks.contains("cache probes") && checks.contains("webhooks") && checks.contains("outside"), "{checks}");
    let (_, metrics) = http_get(&address, "/metrics").await.unwrap();
    for series in ["controller_runtime_max_concurrent_reconciles", "leader_election_master_status"] {
        assert!(metrics.contains(series), "{series} is not in\n{metrics}");
    }
    assert_eq!(ports(program.child.id().unwrap()), BTreeSet::from([health, webhooks]));
    program.terminate();
    assert_eq!(program.exit_code().await, Some(0));
    // The lease was given up, so the signal was heard by all that there is.
    let lease = place.api::<Lease>().get("konverge-process-leader").await.unwrap();
    assert_eq!(lease.spec.unwrap().holder_identity.as_deref(), Some(""));
    assert!(tokio::net::TcpStream::connect(&webhook_address).await.is_err());
}

/// While a replica ends, the API server still calls it until it has learned of another one.
#[tokio::test(flavor = "multi_thread")]
async fn webhooks_are_answered_for_a_while_after_sigterm_and_the_lease_is_free_at_once() {
    let cluster = own_control_plane().await;
    let place = Place::on(&cluster).await;
    let [health, webhooks] = [free_port().unwrap(), free_port().unwrap()];
    let (address, webhook_address) = (format!("127.0.0.1:{health}"), format!("127.0.0.1:{webhooks}"));
    let arguments = [
        format!("--kubeconfig={}", cluster.kubeconfig().display()),
        format!("--namespace={}", place.namespace),
        format!("--address={address}"),
        format!("--webhook-address={webhook_address}"),
        format!("--webhook-url=https://{webhook_address}"),
        "--webhook-drain=6".to_owned(),
        format!("--lease-namespace={}", place.namespace),
        "--leader-election".to_owned(),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut program = Program::start("all", &arguments);
    program.says("leading").await;
    let judged = async || {
        let probe = Probe::new("any", crate::stage::ProbeSpec { behave: "ok".to_owned() });
        let dry_run = kube::api::PostParams { dry_run: true, ..Default::default() };
        place.api::<Probe>().create(&dry_run, &probe).await
    };
    let count = async || {
        let (_, metrics) = http_get(&address, "/metrics").await.unwrap();
        let line = metrics.lines().find(|line| {
            line.starts_with("controller_runtime_webhook_requests_total{") && line.contains(r#"code="200""#)
        });
        line.and_then(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).unwrap_or_default()
    };
    eventually(LIMIT, async || (judged().await.is_ok() && count().await > 0).then_some(())).await.unwrap();

    program.terminate();
    let signalled = std::time::Instant::now();
    let unready = eventually(LIMIT, async || {
        let (code, _) = http_get(&address, "/readyz").await.unwrap();
        (code != 200).then_some(())
    });
    unready.await.unwrap();
    let before = count().await;
    let mut rounds = 0;
    while signalled.elapsed() < Duration::from_secs(4) {
        tokio::net::TcpStream::connect(&webhook_address).await.expect("the port is open");
        judged().await.expect("the webhook answers");
        rounds += 1;
    }
    assert!(rounds > 0 && count().await >= before + rounds, "they were answered by the webhook");
    let lease = place.api::<Lease>().get("konverge-process-leader").await.unwrap();
    assert_eq!(lease.spec.unwrap().holder_identity.as_deref(), Some(""), "the next leader need not wait");
    assert!(signalled.elapsed() < Duration::from_secs(6), "all that within the drain");
    assert_eq!(program.exit_code().await, Some(0));
    assert!(signalled.elapsed() >= Duration::from_secs(6), "{:?}", signalled.elapsed());
    assert!(tokio::net::TcpStream::connect(&webhook_address).await.is_err());
}
