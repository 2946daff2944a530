//! Signals, seen from outside: this test binary starts itself as the program that gets them.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use konverge_runtime::{
    Manager, ManagerGroup, Metrics,
    http_server::Listen,
    telemetry::{self, LogFormat},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpSocket,
};

/// Not a test by itself: the program under test, run only when the variable is set.
#[tokio::test]
async fn program() {
    let Ok(mode) = std::env::var(MODE) else { return };
    if mode == "group" {
        std::process::exit(group().await);
    }
    let mut manager = Manager::bind(([127, 0, 0, 1], 0).into(), Metrics::new("test", "0")).await.unwrap();
    if mode == "logging" {
        manager.log_filter(telemetry::init(LogFormat::Text).unwrap());
        let address = manager.address();
        manager.task("ticks", async move {
            loop {
                eprintln!("listening on {address}");
                tracing::debug!("a fine line");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
    }
    if mode == "stubborn" {
        manager.stopping_task("stubborn", std::future::pending());
    }
    let shutdown = manager.shutdown();
    tokio::spawn(async move {
        shutdown.cancelled().await;
        eprintln!("shutdown seen");
    });
    manager.task("announce", async {
        eprintln!("running");
        std::future::pending::<()>().await;
    });
    let code = match manager.run().await {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{error}");
            3
        }
    };
    std::process::exit(code);
}

/// Two jobs, of which one is in no hurry to end.
async fn group() -> i32 {
    telemetry::init(LogFormat::Text).unwrap();
    let mut group = ManagerGroup::listen(Listen::Nowhere).await.unwrap();
    for name in ["pull", "push"] {
        let mut manager = Manager::listen(Listen::Nowhere, Metrics::new(name, "0")).await.unwrap();
        manager.task("announce", async {
            tracing::info!("begins");
            std::future::pending::<()>().await;
        });
        if name == "push" {
            let stop = manager.stop_tasks();
            manager.stopping_task("tidy", async move {
                stop.cancelled().await;
                tokio::time::sleep(Duration::from_millis(100)).await;
                tracing::info!("tidied");
            });
        }
        group.job(name, manager);
    }
    i32::from(group.run().await.is_err())
}

const MODE: &str = "KONVERGE_TEST_PROGRAM";

struct Program {
    child: tokio::process::Child,
    lines: tokio::io::Lines<tokio::io::BufReader<tokio::process::ChildStderr>>,
}

impl Program {
    fn start(mode: &str) -> Self {
        let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "process::program", "--nocapture"]).env(MODE, mode).env("RUST_LOG", "info");
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).kill_on_drop(true).spawn().unwrap();
        let reader = tokio::io::BufReader::new(child.stderr.take().unwrap());
        Self { child, lines: tokio::io::AsyncBufReadExt::lines(reader) }
    }

    /// Waits for a line with this in it, and tells the lines on the way to it and the line.
    async fn says(&mut self, wanted: &str) -> (Vec<String>, String) {
        let heard = tokio::time::timeout(Duration::from_secs(20), async {
            let mut before = Vec::new();
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if line.contains(wanted) {
                    return Some((before, line));
                }
                before.push(line);
            }
            None
        });
        heard.await.ok().flatten().unwrap_or_else(|| panic!("it never said {wanted:?}"))
    }

    fn signal(&self, name: &str) {
        let process = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &process]).status().unwrap().success());
    }

    async fn exit_code(&mut self) -> Option<i32> {
        tokio::time::timeout(Duration::from_secs(20), self.child.wait()).await.unwrap().unwrap().code()
    }
}

#[tokio::test]
async fn sigterm_and_sigint_end_it_cleanly() {
    for signal in ["TERM", "INT"] {
        let mut program = Program::start("plain");
        program.says("running").await;
        program.signal(signal);
        assert_eq!(program.exit_code().await, Some(0), "{signal}");
    }
}

#[tokio::test]
async fn a_signal_ends_all_jobs_cleanly_and_log_lines_say_of_which_they_are() {
    let mut program = Program::start("group");
    let (before, line) = program.says("begins").await;
    let (between, other) = program.says("begins").await;
    let mut begun = [line, other];
    begun.sort_by_key(|line| line.contains("job{name=push}"));
    assert!(
        begun[0].contains("job{name=pull}") && begun[1].contains("job{name=push}"),
        "{before:?} {begun:?} {between:?}"
    );
    program.signal("TERM");
    let (_, tidied) = program.says("tidied").await;
    assert!(tidied.contains("job{name=push}"), "{tidied}");
    assert_eq!(program.exit_code().await, Some(0));
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let mut program = Program::start("stubborn");
    program.says("running").await;
    program.signal("TERM");
    program.says("shutdown seen").await;
    program.signal("TERM");
    program.says("stopped at once by a signal").await;
    assert_eq!(program.exit_code().await, Some(3));
}

/// Status and body, for one who comes from `from`.
async fn ask_log(from: &str, address: &str, method: &str, filter: &str) -> (u16, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(format!("{from}:0").parse().unwrap()).unwrap();
    let mut stream = socket.connect(address.parse().unwrap()).await.unwrap();
    let request = format!(
        "{method} /debug/log HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{filter}",
        filter.len()
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[tokio::test]
async fn row_36_the_log_becomes_finer_and_coarser_while_it_runs_and_only_from_here() {
    let mut program = Program::start("logging");
    let (_, line) = program.says("listening on ").await;
    let address = line.rsplit(' ').next().unwrap().to_owned();
    let here = "127.0.0.1";
    assert_eq!(ask_log(here, &address, "GET", "").await, (200, "info\n".to_owned()));
    // Another address of the loopback network is that of a proxy within the pod.
    for method in ["GET", "PUT", "DELETE"] {
        assert_eq!(ask_log("127.0.0.6", &address, method, "debug").await.0, 403, "{method}");
    }
    let (status, why) = ask_log(here, &address, "PUT", "konverge=loud").await;
    assert_eq!((status, why.contains("is no filter")), (400, true), "{why}");
    assert_eq!(ask_log(here, &address, "PUT", &"a".repeat(5000)).await.0, 413);

    assert_eq!(ask_log(here, &address, "PUT", "info,it=debug").await.0, 200);
    let (before, _) = program.says("the log filter was changed").await;
    assert!(!before.iter().any(|line| line.contains("a fine line")), "{before:#?}");
    program.says("a fine line").await;
    assert_eq!(ask_log(here, &address, "DELETE", "").await, (200, "info\n".to_owned()));
    program.says("the log filter was changed").await;
    for _ in 0..5 {
        let (_, line) = program.says(" ").await;
        assert!(!line.contains("a fine line"), "{line}");
    }
    program.signal("TERM");
    assert_eq!(program.exit_code().await, Some(0));
}
