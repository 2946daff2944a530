use std::time::Duration;

use konverge_testkit::{Process, ProcessError, ProcessSpec, RunDirectory, eventually};
use tokio::time::sleep;

const SOON: Duration = Duration::from_secs(30);

/// A process that runs logs something in a fraction of this time. No condition shows that a stopped process does nothing: only time does.
const QUIET: Duration = Duration::from_millis(500);

fn shell(name: &str, script: &str) -> ProcessSpec {
    ProcessSpec::new(name, "sh").args(["-c", script])
}

#[tokio::test]
async fn a_process_is_terminated_and_killed_and_started_again() {
    let run = RunDirectory::new().unwrap();
    let spec = shell("polite", "trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done");
    let mut process = Process::start(&run, spec).unwrap();
    let log = process.log();
    let is_up = || async { std::fs::read_to_string(&log).unwrap_or_default().contains("up") };
    process.ready("come up", SOON, is_up).await.unwrap();
    assert_eq!(process.terminate(SOON).await.unwrap().code(), Some(7));

    process.start_again().unwrap();
    assert!(process.status().is_none());
    process.kill();
    assert!(process.pid().is_none());
}

#[tokio::test]
async fn a_process_does_nothing_while_it_is_asleep_and_goes_on_when_it_is_woken() {
    let run = RunDirectory::new().unwrap();
    let mut process = Process::start(&run, shell("busy", "while :; do echo on; sleep 0.02; done")).unwrap();
    let said = || process.logged().len();
    let goes_on = async || {
        let before = said();
        eventually(SOON, || async { (said() > before).then_some(()) }).await.expect("it says more");
    };
    goes_on().await;
    process.suspend().unwrap();
    let before = said();
    sleep(QUIET).await;
    assert_eq!(said(), before, "it is asleep");
    process.wake().unwrap();
    goes_on().await;
    process.kill();
    for refused in [process.suspend(), process.wake()] {
        assert!(refused.unwrap_err().to_string().contains("busy does not run"));
    }
}

#[tokio::test]
async fn a_process_has_a_resident_set_while_it_runs() {
    let run = RunDirectory::new().unwrap();
    let mut process = Process::start(&run, shell("resting", "sleep 60")).unwrap();
    // Between fork and exec a process has next to nothing, and the kernel accounts pages by the batch.
    let resident = || async { process.resident().ok().filter(|bytes| (1e5..1e8).contains(bytes)) };
    eventually(SOON, resident).await.expect("a shell takes some hundred kilobytes and no gigabyte");
    process.kill();
    assert!(process.resident().unwrap_err().to_string().contains("resting does not run"));
}

#[tokio::test]
async fn a_process_that_ends_early_is_an_error_with_its_last_words() {
    let run = RunDirectory::new().unwrap();
    let mut process = Process::start(&run, shell("rude", "echo no space left >&2; exit 3")).unwrap();
    let error = process.ready("serve", SOON, || async { false }).await.unwrap_err();
    assert!(matches!(error, ProcessError::Ended { .. }));
    let said = error.to_string();
    assert!(said.contains("no space left") && said.contains("mend that"), "{said}");
}

#[tokio::test]
async fn a_process_that_somebody_killed_is_an_error_with_the_next_step() {
    let run = RunDirectory::new().unwrap();
    let mut process = Process::start(&run, shell("victim", "kill -9 $$")).unwrap();
    let said = process.ready("serve", SOON, || async { false }).await.unwrap_err().to_string();
    assert!(said.contains("victim ended") && said.contains("memory") && said.contains("dmesg"), "{said}");
}

#[tokio::test]
async fn a_process_that_is_too_slow_and_one_that_does_not_exist_are_named() {
    let run = RunDirectory::new().unwrap();
    let mut process = Process::start(&run, shell("slow", "sleep 60")).unwrap();
    let error = process.ready("serve", Duration::from_millis(50), || async { false }).await.unwrap_err();
    let said = error.to_string();
    assert!(said.contains("slow did not serve within") && said.contains("try again"), "{said}");

    let Err(error) = Process::start(&run, ProcessSpec::new("absent", "/nowhere/absent")) else { panic!("it started") };
    let said = error.to_string();
    assert!(said.contains("cannot start absent (/nowhere/absent)") && said.contains("mend the path"), "{said}");
}

#[test]
fn the_folder_of_a_run_goes_with_it() {
    let run = RunDirectory::new().unwrap();
    let path = run.path().to_owned();
    std::fs::write(run.log("server"), "said").unwrap();
    drop(run);
    assert!(!path.exists());
}

#[test]
#[ignore = "fails on purpose; the next test runs it"]
fn a_test_that_fails() {
    let run = RunDirectory::new().unwrap();
    std::fs::write(run.log("server"), "why it failed").unwrap();
    std::fs::write(run.path().join("server.key"), "not for keeping").unwrap();
    panic!("on purpose, in {}", run.path().display());
}

#[test]
fn the_logs_of_a_failed_test_outlive_it() {
    let temporary = tempfile::tempdir().unwrap();
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::a_test_that_fails", "--ignored", "--nocapture"])
        .env("TMPDIR", temporary.path())
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    let kept = said.lines().find_map(|line| line.strip_prefix("the logs of the servers are in ")).unwrap();
    assert_eq!(std::fs::read_to_string(format!("{kept}/server.log")).unwrap(), "why it failed");
    assert_eq!(std::fs::read_dir(kept).unwrap().count(), 1, "logs, and no keys");
    let left: Vec<_> = std::fs::read_dir(temporary.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["konverge-logs"], "the run's folder is gone");
}
