//! The demo, as a newcomer runs it.

use std::process::Stdio;

use konverge_e2e::binary;
use tokio::process::Command;

#[tokio::test]
async fn the_demo_tells_what_happened_and_leaves_nothing_behind() {
    let output = Command::new(binary("demo").unwrap()).stdin(Stdio::null()).output().await.unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("exactly the environment's keys: DATABASE_URL"), "{said}");
    let steps: Vec<u64> = said
        .lines()
        .filter_map(|line| line.split("in the Secret ").nth(1)?.split_whitespace().next()?.parse().ok())
        .collect();
    assert_eq!(steps.len(), 4, "{said}");
    assert!(steps.iter().all(|&milliseconds| milliseconds < 1000), "well under a second: {steps:?}");
}
