use std::time::Duration;

use konverge_testkit::{Process, ProcessError, ProcessSpec, RunDirectory};

const SOON: Duration = Duration::from_secs(10);

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
async fn a_process_that_ends_early_is_an_error_with_its_last_words() {
    let run = RunDirectory::new().unwrap();
    let mut process = Process::start(&run, shell("rude", "echo no space left >&2; exit 3")).unwrap();
    let error = process.ready("serve", SOON, || async { false }).await.unwrap_err();
    assert!(matches!(error, ProcessError::Ended { .. }));
    assert!(error.to_string().contains("no space left"), "{error}");
}

#[tokio::test]
async fn a_process_that_is_too_slow_and_one_that_does_not_exist_are_named() {
    let run = RunDirectory::new().unwrap();
    let mut process = Process::start(&run, shell("slow", "sleep 60")).unwrap();
    let error = process.ready("serve", Duration::from_millis(50), || async { false }).await.unwrap_err();
    assert!(error.to_string().contains("slow did not serve within"), "{error}");

    let Err(error) = Process::start(&run, ProcessSpec::new("absent", "/nowhere/absent")) else { panic!("it started") };
    assert!(error.to_string().contains("cannot start absent (/nowhere/absent)"), "{error}");
}

#[test]
fn the_folder_of_a_run_goes_with_it() {
    let run = RunDirectory::new().unwrap();
    let path = run.path().to_owned();
    std::fs::write(run.log("server"), "said").unwrap();
    drop(run);
    assert!(!path.exists());
}
