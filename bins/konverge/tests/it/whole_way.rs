//! One process, from a value that is set in zopp to the rollout of what uses it.

use crate::stage::{Stage, until};

#[tokio::test(flavor = "multi_thread")]
async fn a_value_set_in_zopp_is_in_the_secret_then_in_vault_and_in_one_rollout() {
    let stage = Stage::set().await.unwrap();
    let scene = stage.scene("whole-way").await.unwrap();
    scene.set("one").await.unwrap();
    let mut running = scene.start(&scene.lines(false)).await.unwrap();
    until("pull fills the Secret", async || scene.is_pulled("one").await).await;
    scene.deploy().await.unwrap();
    until("push writes to Vault", async || scene.is_pushed("one").await).await;
    until("roll notes what the pods run with", async || scene.is_noted().await).await;
    assert!(!scene.is_stamped().await.unwrap(), "first sight rolls nothing");
    assert_eq!(scene.pushed().await.unwrap().unwrap().1, 1);

    scene.set("two").await.unwrap();
    until("the Secret has it", async || scene.is_pulled("two").await).await;
    until("Vault has it", async || scene.is_pushed("two").await).await;
    until("the Deployment rolls", async || scene.is_stamped().await).await;
    running.settled(&["pull", "push", "roll"]).await;
    let rolled = running.metric("roll", "konverge_roll_rollouts_total", "result=\"patched\"").await;
    assert!((rolled - 1.0).abs() < 0.5, "it rolls once: {rolled}");
    assert_eq!(scene.pushed().await.unwrap().unwrap().1, 2, "it is written once");

    let (status, checks) = running.get("/readyz?verbose").await;
    assert_eq!(status, 200, "{checks}");
    for check in ["pull/zopp-server", "pull/secrets-watch", "push/vault", "push/deployments-watch", "roll/digest-key"] {
        assert!(checks.contains(&format!("[+]{check} ok\n")), "{check} is not in {checks}");
        assert_eq!(running.get(&format!("/readyz/{check}")).await, (200, "ok".to_owned()));
    }
    let (status, checks) = running.get("/healthz?verbose").await;
    assert_eq!((status, checks.contains("[+]push/push ok\n")), (200, true), "{checks}");
    for (job, program) in
        [("pull", "zopp-operator"), ("push", "vault-sync-operator"), ("roll", "vault-rollout-operator")]
    {
        let (status, series) = running.get(&format!("/metrics/{job}")).await;
        assert_eq!(status, 200, "{series}");
        assert!(series.contains(&format!("konverge_build_info{{program=\"{program}\"")), "{series}");
        let runs = running.metric(job, "controller_runtime_reconcile_total", &format!("controller=\"{job}\"")).await;
        assert!(runs > 0.0, "{job} did nothing, by its metrics");
    }
    assert_eq!(running.get("/metrics").await.0, 404);
    let ended = running.process.terminate(crate::ending::IN_TIME).await.unwrap();
    assert!(ended.success(), "{ended}: {}", running.process.logged());
}
