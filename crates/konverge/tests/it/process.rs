//! Exit codes, seen from outside: this test binary starts itself as the program that ends.

use std::{
    net::TcpListener,
    process::{ExitCode, Stdio},
};

use k8s_openapi::api::coordination::v1::Lease;
use konverge::{Operator, Part, Setup, StartError, generate::Access, prelude::*};
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::stage::{LIMIT, Place, Prober, control_plane};

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

/// Not a test by itself: the program under test, run only when the variable is set.
#[test]
fn program() {
    let Ok(mode) = std::env::var(MODE) else { return };
    let operator = Operator::new("konverge-process", "0").controller(Controller::new(Prober::default()));
    let operator = match mode.as_str() {
        "plain" => operator,
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
        // What it still says must not fill the pipe.
        let lines = tokio::spawn(async move { while let Ok(Some(_)) = self.lines.next_line().await {} });
        let code = tokio::time::timeout(LIMIT, self.child.wait()).await.unwrap().unwrap().code();
        lines.abort();
        code
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn row_4_each_end_has_an_exit_code_of_its_own() {
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
