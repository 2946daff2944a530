use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use konverge_testkit::eventually;

/// The numbers of the processes that have the folder in their command line.
fn processes_of(folder: &Path) -> Vec<String> {
    let folder = folder.to_string_lossy().into_owned();
    let list = Command::new("ps").args(["-eo", "pid=,args="]).output().unwrap();
    let list = String::from_utf8_lossy(&list.stdout).into_owned();
    list.lines().filter(|line| line.contains(&folder)).map(str::to_owned).collect()
}

#[tokio::test]
async fn nothing_outlives_a_killed_test_process() {
    let mut process =
        Command::new(env!("CARGO_BIN_EXE_konverge-control-plane")).arg("up").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let export = lines.next().unwrap().unwrap();
    let kubeconfig = Path::new(export.strip_prefix("export KUBECONFIG=").unwrap());
    let folder = kubeconfig.parent().unwrap();
    assert!(processes_of(folder).len() >= 3, "etcd, API server and guard: {:?}", processes_of(folder));

    process.kill().unwrap();
    process.wait().unwrap();
    let gone = || async { (processes_of(folder).is_empty() && !folder.exists()).then_some(()) };
    eventually(Duration::from_secs(20), gone).await.unwrap();
}
