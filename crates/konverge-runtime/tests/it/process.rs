//! Signals, seen from outside: this test binary starts itself as the program that gets them.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use konverge_runtime::{Manager, Metrics};

/// Not a test by itself: the program under test, run only when the variable is set.
#[tokio::test]
async fn program() {
    let Ok(mode) = std::env::var(MODE) else { return };
    let mut manager = Manager::bind(([127, 0, 0, 1], 0).into(), Metrics::new("test", "0")).await.unwrap();
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

const MODE: &str = "KONVERGE_TEST_PROGRAM";

struct Program {
    child: tokio::process::Child,
    lines: tokio::io::Lines<tokio::io::BufReader<tokio::process::ChildStderr>>,
}

impl Program {
    fn start(mode: &str) -> Self {
        let mut command = tokio::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "process::program", "--nocapture"]).env(MODE, mode);
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).kill_on_drop(true).spawn().unwrap();
        let reader = tokio::io::BufReader::new(child.stderr.take().unwrap());
        Self { child, lines: tokio::io::AsyncBufReadExt::lines(reader) }
    }

    async fn says(&mut self, wanted: &str) {
        let heard = tokio::time::timeout(Duration::from_secs(20), async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                if line.contains(wanted) {
                    return true;
                }
            }
            false
        });
        assert_eq!(heard.await, Ok(true), "it never said {wanted:?}");
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
async fn a_second_signal_ends_it_at_once() {
    let mut program = Program::start("stubborn");
    program.says("running").await;
    program.signal("TERM");
    program.says("shutdown seen").await;
    program.signal("TERM");
    program.says("stopped at once by a second signal").await;
    assert_eq!(program.exit_code().await, Some(3));
}
