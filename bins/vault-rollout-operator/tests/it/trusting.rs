//! TLS to Vault: another authority, a certificate that has ended, one of another server. Nothing that such a server says counts, and all goes
//! on by itself when it is mended (A3, F35; I3).

use std::path::Path;

use konverge_roll::trigger::TriggerKind::{self, VaultRollout, VaultSyncStatus};
use konverge_testkit_stores::{Certificate, VaultOptions, VaultStorage};

use crate::{
    stage::{Running, Stage, until},
    vault::Vault,
    view::View,
};

/// The requesting object, with the Deployment that it names, which has the same name.
const ASKED: [(TriggerKind, &str); 2] = [(VaultSyncStatus, "web"), (VaultRollout, "api")];

/// The secret that both are asked for.
const PATH: &str = "app";

struct World {
    view: View,
    vault: Vault,
    operator: Running,
}

impl World {
    async fn new(stage: &Stage, authorities: &Path) -> Self {
        let view = stage.view("trusting").await;
        let vault = Vault::start(VaultOptions { storage: VaultStorage::File, tls: true }).await;
        std::fs::write(authorities, vault.server.authority().unwrap()).unwrap();
        vault.write(PATH, "1").await;
        view.secret("unchanged", "1").await.unwrap();
        for (kind, name) in ASKED {
            view.workload("Deployment", name, "unchanged", serde_json::json!({})).await.unwrap();
            view.asks(kind, name, PATH).await.unwrap();
        }
        let (spec, address) = vault.operator(stage.kubeconfig(), &view.namespace);
        let operator = stage.start_as(spec.env("VAULT_CACERT", authorities), address).await;
        Self { view, vault, operator }
    }

    /// Vault ends, and is there again with the certificate that it has now.
    async fn restart_vault(&mut self) {
        self.vault.server.kill();
        self.vault.server.start_again().await.unwrap();
        self.vault.server.unseal().await.unwrap();
    }

    async fn in_sync(&self, rollouts: usize) {
        for (kind, name) in ASKED {
            self.view.rolled(name, rollouts).await;
            let what = format!("{name} is in sync");
            until(&what, async || Ok(self.view.says(kind, name, "InSync").await?.is_some())).await;
        }
    }

    /// A version that only a server can tell of that is not trusted rolls nothing, and what the pods run with is not forgotten.
    async fn is_not_trusted(&self, rollouts: usize, part: &str) {
        let mut before = Vec::new();
        for (kind, name) in ASKED {
            until(&format!("{name} is told that {part}"), async || {
                let told = self.view.says(kind, name, "VaultUnavailable").await?;
                Ok(told.is_some_and(|told| told.contains(part) && told.contains("Nothing is rolled")))
            })
            .await;
            before.push(self.view.seen("Deployment", name).await.unwrap());
        }
        self.vault.write(PATH, part).await;
        let asked = async || self.operator.metric("konverge_roll_vault_questions_total", "").await;
        let until_now = asked().await;
        // Both objects name one secret, and the operator asks for it again once it has the answer. So the third question proves two answers.
        until("the operator has two answers from after the write", async || Ok(asked().await >= until_now + 3.0)).await;
        self.operator.settled().await;
        for ((kind, name), before) in ASKED.into_iter().zip(before) {
            assert_eq!(self.view.seen("Deployment", name).await.unwrap(), before, "{part}");
            assert!(self.view.is_rolled(name, rollouts).await.unwrap(), "{name}: {part}");
            assert!(self.view.says(kind, name, "VaultUnavailable").await.unwrap().is_some(), "{name}: {part}");
        }
        let status = self.view.status(VaultSyncStatus, "web").await.unwrap();
        assert_eq!(status["baseline"][0]["version"], rollouts + 1, "{part}: {status}");
        assert_eq!(status["vault_sync"]["SyncStatus"], "Error", "{part}: {status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a3_f35_a_vault_that_cannot_prove_its_name_rolls_nothing_and_all_goes_on_by_itself() {
    let stage = Stage::shared().await;
    let folder = stage.plane.run_directory().path().join("trusting");
    std::fs::create_dir(&folder).unwrap();
    let authorities = folder.join("ca.crt");
    let mut world = World::new(stage, &authorities).await;
    world.in_sync(0).await;
    let process = world.operator.process.pid();

    world.vault.server.rotate_authority().unwrap();
    world.restart_vault().await;
    world.is_not_trusted(0, "invalid peer certificate").await;
    std::fs::write(&authorities, world.vault.server.authority().unwrap()).unwrap();
    world.in_sync(1).await;

    for (rollouts, (says, part)) in
        [(Certificate::Expired, "expired"), (Certificate::OfAnother, "not valid for name")].into_iter().enumerate()
    {
        world.vault.server.certify(says).unwrap();
        world.restart_vault().await;
        world.is_not_trusted(rollouts + 1, part).await;
        world.vault.server.certify(Certificate::Good).unwrap();
        world.restart_vault().await;
        world.in_sync(rollouts + 2).await;
    }
    assert_eq!((world.operator.process.status(), world.operator.process.pid()), (None, process), "it has not ended");
    world.operator.settled().await;
    world.in_sync(3).await;
}
