//! The tutorials and what follows them, followed word for word: their files are written, their commands are run in a shell, and their output is compared.

use konverge_openzro_testing::Double;

use crate::reader::{Reader, section, with_vault, with_zopp};

const ALL_IN_ONE: &str = include_str!("../../../../docs/tutorials/all-in-one.md");
const MANAGE: &str = include_str!("../../../../docs/tutorials/manage.md");
const PULL: &str = include_str!("../../../../docs/tutorials/pull.md");
const PULL_VAULT: &str = include_str!("../../../../docs/tutorials/pull-vault.md");
const PUSH: &str = include_str!("../../../../docs/tutorials/push.md");
const ROLL: &str = include_str!("../../../../docs/tutorials/roll.md");
const UNINSTALL: &str = include_str!("../../../../docs/how-to/uninstall.md");
const UPGRADE: &str = include_str!("../../../../docs/how-to/upgrade.md");
const VAULT_LOGIN: &str = include_str!("../../../../docs/how-to/vault-login.md");

#[tokio::test(flavor = "multi_thread")]
async fn the_tutorial_of_roll_and_the_upgrade_after_it_lead_to_their_end() {
    let mut reader = Reader::new().await;
    reader.follow(ROLL).await;
    let (upgrade, back) = UPGRADE.split_once("\n## Roll back\n").unwrap();
    assert!(upgrade.contains("   $ helm test konverge --namespace konverge-system\n"), "{upgrade}");
    reader.follow(upgrade).await;
    assert!(back.contains("`helm rollback konverge`"), "{back}");
    reader.run("helm rollback konverge --namespace konverge-system", &[]).await;
    reader.run("kubectl rollout status deployment/konverge-roll --namespace konverge-system", &[]).await;
    reader.run("kubectl konverge doctor", &["ok operator konverge-system/konverge-roll: 2 of 2 ready"]).await;
    reader.run("helm uninstall konverge --namespace konverge-system", &[]).await;
    reader.follow(section(UNINSTALL, "Remove every trace")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tutorial_of_manage_and_its_removal_lead_to_their_end() {
    let mut reader = Reader::new().await;
    let openzro = Double::start().await.unwrap();
    let token = openzro.account().tokens["admin"].clone();
    reader.write("token.txt", &token);
    reader.words.push(("https://openzro.example.com", openzro.url().to_owned()));
    reader.follow(MANAGE).await;

    // Objects that manage has written for, when manage is removed as its page says.
    for command in [
        "kubectl create namespace shop",
        "kubectl apply -f web.yaml",
        "kubectl wait --for=condition=Ready ozpolicy/web ozgroup/servers --namespace shop --timeout=60s",
    ] {
        reader.run(command, &[]).await;
    }
    let (removal, _) = section(UNINSTALL, "Manage").split_once("\nWithout Helm, ").unwrap();
    reader.follow(removal).await;
    reader.run("kubectl delete -f web.yaml --timeout=60s", &[]).await;
    let groups = format!("curl --silent --fail --header 'Authorization: Token {token}' {}/api/groups", openzro.url());
    reader.run(&format!("{groups} | grep --only-matching shop/servers"), &["shop/servers"]).await;
    reader.follow(section(UNINSTALL, "Remove every trace")).await;
}

/// The parts of the page about the login to Vault: before and after the operator runs.
fn login() -> (&'static str, &'static str) {
    VAULT_LOGIN.split_once("\n## 4. Check\n").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tutorial_of_pull_leads_to_its_end() {
    let mut reader = Reader::new().await;
    let _server = with_zopp(&mut reader).await;
    reader.follow(PULL).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tutorial_of_pull_from_vault_leads_to_its_end() {
    let mut reader = Reader::new().await;
    let _vault = with_vault(&mut reader).await;
    reader.follow(PULL_VAULT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tutorial_of_push_and_the_login_that_it_needs_lead_to_their_end() {
    let mut reader = Reader::new().await;
    let _vault = with_vault(&mut reader).await;
    let (login, check) = login();
    reader.follow(login).await;
    reader.follow(PUSH).await;
    // push runs now.
    reader.run("kubectl konverge doctor", &["ok operator konverge-system/konverge-push: 2 of 2 ready"]).await;
    assert!(check.contains("$ kubectl konverge doctor\n"), "{check}");

    // An object that push has written for, when push is removed as its page says.
    for command in [
        "kubectl create namespace shop",
        "kubectl create secret generic db --namespace shop --from-literal=password=three",
        "kubectl annotate secret db --namespace shop vault-sync.io/path=secret/data/shop/last",
    ] {
        reader.run(command, &[]).await;
    }
    reader.run("vault kv get secret/shop/last", &["password    three"]).await;
    let (_, uninstall) = UNINSTALL.split_once("\n## Push\n").unwrap();
    let (uninstall, _) = uninstall.split_once("\nWithout Helm:\n").unwrap();
    reader.follow(uninstall).await;
    reader.run("kubectl delete namespace shop --timeout=60s", &[]).await;
    reader.run("vault kv get secret/shop/last", &["password    three"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tutorial_of_all_in_one_leads_to_its_end() {
    let mut reader = Reader::new().await;
    let (_server, _vault) = (with_zopp(&mut reader).await, with_vault(&mut reader).await);
    let (credentials, _) = PULL.split_once("\n2. ").unwrap();
    reader.follow(credentials).await;
    reader.follow(login().0).await;
    // The reader changes the addresses in the file, as the page asks.
    reader.edit("deploy/konverge.yaml");
    reader.follow(ALL_IN_ONE).await;
}
