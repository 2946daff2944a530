//! Protected environments: what a server that keeps keys back or gives old values is refused with, and how stock clients fit in.

use konverge_core::SecretValue;
use konverge_zopp_client::{Client, ClientConfig, Connection, EnvironmentName, Identity, Trust};
use konverge_zopp_proto::{
    DeleteSecretRequest, ListSecretsRequest, UpsertSecretRequest,
    secrets::{
        ChangeSecretsRequest, ChangeSecretsResponse, ReadEnvironmentRequest, ReadEnvironmentResponse, ReadSecretRequest,
    },
};
use konverge_zopp_testing::LyingServer;
use tonic::Status;

use crate::{
    home::Home,
    lying_server::{config, forget_servers, lying_world},
    world::World,
};

const READ_ENVIRONMENT: &str = "/konverge.zopp.secrets.v1.Secrets/ReadEnvironment";
const READ_SECRET: &str = "/konverge.zopp.secrets.v1.Secrets/ReadSecret";
const CHANGE: &str = "/konverge.zopp.secrets.v1.Secrets/ChangeSecrets";

type Answer = Result<ReadEnvironmentResponse, Status>;

/// Every command that reads the environment.
const READERS: [&str; 4] = ["secret list", "secret export", "run -- true", "secret get A"];

/// Both calls that read are answered with what `alter` makes of the real answer.
fn lie(liar: &LyingServer, alter: impl Fn(Answer) -> Answer + Clone + Send + Sync + 'static) {
    let also = alter.clone();
    liar.lie(READ_ENVIRONMENT, move |_: ReadEnvironmentRequest, answer: Answer| alter(answer));
    liar.lie(READ_SECRET, move |_: ReadSecretRequest, answer: Answer| also(answer));
}

fn tell_the_truth(liar: &LyingServer) {
    liar.tell_the_truth(READ_ENVIRONMENT);
    liar.tell_the_truth(READ_SECRET);
}

/// All readers refuse for this reason, and so does a writer, which sends nothing.
#[track_caller]
fn all_refuse(liar: &LyingServer, home: &Home, reason: &str) {
    liar.take_seen();
    for line in READERS.into_iter().chain(["secret set C 3", "secret delete B"]) {
        let stderr = home.fails(line, 1);
        assert!(stderr.contains(reason), "{line}: {stderr}");
        assert!(stderr.contains("zopp environment protect"), "{line}: {stderr}");
    }
    let seen = liar.take_seen();
    assert!(seen.iter().all(|call| call.path != CHANGE && !call.path.ends_with("UpsertSecret")), "{seen:?}");
}

/// A client of the person's that makes the contract's calls only, as stock ones do.
struct Stock {
    runtime: tokio::runtime::Runtime,
    client: Client,
    name: EnvironmentName,
}

impl Stock {
    fn of(home: &Home, server: &str) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let client = runtime.block_on(async {
            let config = ClientConfig { trust: Trust::default(), ..ClientConfig::new(server) };
            let identity = Identity::from_file(&home.config_file(), None).unwrap();
            Client::new(Connection::new(&config).unwrap(), identity)
        });
        Self { runtime, client, name: EnvironmentName::new("acme", "backend", "dev") }
    }

    fn set(&self, key: &str, value: &str) {
        self.runtime.block_on(async {
            let dek = self.client.environment_key(&self.name).await.unwrap();
            let sealed = dek.encrypt(&self.name, key, &SecretValue::new(value.as_bytes().to_vec())).unwrap();
            let request = UpsertSecretRequest {
                workspace_name: "acme".into(),
                project_name: "backend".into(),
                environment_name: "dev".into(),
                key: key.into(),
                nonce: sealed.nonce.to_vec(),
                ciphertext: sealed.ciphertext,
            };
            self.client.upsert_secret(request).await.unwrap();
        });
    }

    fn delete(&self, key: &str) {
        let request = DeleteSecretRequest {
            workspace_name: "acme".into(),
            project_name: "backend".into(),
            environment_name: "dev".into(),
            key: key.into(),
        };
        self.runtime.block_on(self.client.delete_secret(request)).unwrap();
    }

    fn keys(&self) -> Vec<String> {
        let request = ListSecretsRequest {
            workspace_name: "acme".into(),
            project_name: "backend".into(),
            environment_name: "dev".into(),
        };
        let list = self.runtime.block_on(self.client.list_secrets(request)).unwrap();
        list.secrets.into_iter().map(|secret| secret.key).collect()
    }
}

/// With keys A and B.
fn filled_world() -> (World, LyingServer) {
    let (world, liar) = lying_world();
    world.alice.ok("secret set A 1");
    world.alice.ok("secret set B 2");
    (world, liar)
}

/// The answer by which the server shows the environment today.
fn current_state(world: &World, liar: &LyingServer) -> ReadEnvironmentResponse {
    let answers = std::sync::Arc::new(std::sync::Mutex::new(None));
    let kept = std::sync::Arc::clone(&answers);
    liar.lie(READ_ENVIRONMENT, move |_: ReadEnvironmentRequest, answer: Answer| {
        *kept.lock().unwrap() = answer.as_ref().ok().cloned();
        answer
    });
    world.alice.ok("secret export");
    liar.tell_the_truth(READ_ENVIRONMENT);
    answers.lock().unwrap().take().unwrap()
}

#[test]
fn a_key_that_is_left_out_is_missed() {
    let (world, liar) = filled_world();
    lie(&liar, |answer| {
        let mut answer = answer?;
        answer.secrets.retain(|secret| secret.key != "A");
        Ok(answer)
    });
    all_refuse(&liar, &world.alice, r#"left out: "A""#);
    tell_the_truth(&liar);
    assert_eq!(world.alice.ok("secret get A"), "1\n");
}

#[test]
fn an_old_ciphertext_is_refused() {
    let (world, liar) = filled_world();
    let old = std::sync::Arc::new(std::sync::Mutex::new(None));
    let kept = std::sync::Arc::clone(&old);
    liar.lie(READ_SECRET, move |_: ReadSecretRequest, answer: Answer| {
        let answer = answer?;
        *kept.lock().unwrap() = answer.secrets.first().cloned();
        Ok(answer)
    });
    assert_eq!(world.alice.ok("secret get A"), "1\n");
    let old = old.lock().unwrap().take().unwrap();
    world.alice.ok("secret set A new");
    lie(&liar, move |answer| {
        let mut answer = answer?;
        for secret in answer.secrets.iter_mut().filter(|secret| secret.key == "A") {
            *secret = old.clone();
        }
        Ok(answer)
    });
    all_refuse(&liar, &world.alice, r#"another value: "A""#);
}

#[test]
fn an_older_state_with_its_own_manifest_is_refused() {
    let (world, liar) = filled_world();
    let old = current_state(&world, &liar);
    world.alice.ok("secret set B new");
    lie(&liar, move |_| Ok(old.clone()));
    all_refuse(&liar, &world.alice, "an older state than it gave before");
    assert_eq!(config(&world.alice)["servers"][liar.url()]["environments"]["acme/backend/dev"]["serial"], 4);
}

#[test]
fn changes_that_no_manifest_shows_are_refused() {
    let (world, liar) = filled_world();
    // So that an omission looks like a stock client's deletion.
    lie(&liar, |answer| {
        let mut answer = answer?;
        answer.version += 1;
        answer.secrets.retain(|secret| secret.key != "A");
        Ok(answer)
    });
    all_refuse(&liar, &world.alice, "changes were made that no manifest shows");
}

#[test]
fn a_manifest_that_was_there_does_not_vanish() {
    let (world, liar) = filled_world();
    lie(&liar, |answer| Ok(ReadEnvironmentResponse { manifest: None, ..answer? }));
    all_refuse(&liar, &world.alice, "no manifest of an environment that had one");
    lie(&liar, |_| Err(Status::unimplemented("")));
    for line in READERS.into_iter().chain(["secret set C 3", "secret delete B"]) {
        let stderr = world.alice.fails(line, 1);
        assert!(stderr.contains("no manifest of an environment that had one"), "{line}: {stderr}");
    }
}

#[test]
fn a_stock_client_goes_on_working_and_its_changes_wait_for_a_member() {
    let (world, liar) = filled_world();
    let stock = Stock::of(&world.alice, &liar.url());
    stock.set("S", "stock");
    stock.delete("B");
    assert_eq!(stock.keys(), ["A", "S"], "it is not hindered");
    all_refuse(&liar, &world.alice, "changes were made that no manifest shows");
    let stderr = world.alice.fails("environment protect dev", 1);
    assert!(stderr.contains(r#"left out: "B"; added: "S""#) && stderr.contains("--accept-changes"), "{stderr}");
    let accepted = world.alice.json("environment protect dev --accept-changes");
    assert_eq!(accepted["accepted"], serde_json::json!(["B", "S"]));
    assert_eq!(world.alice.ok("secret get S"), "stock\n");
    world.alice.ok("secret set B again");
    assert_eq!(world.alice.ok("secret export"), "A=1\nB=again\nS=stock\n");
    assert!(world.alice.ok("environment protect dev").contains("protected (3 keys"));
}

#[test]
fn where_stock_clients_are_meant_to_write_protection_is_off() {
    let (world, liar) = filled_world();
    world.alice.ok("environment protect dev --off");
    let stock = Stock::of(&world.alice, &liar.url());
    stock.set("S", "stock");
    assert_eq!(world.alice.ok("secret get S"), "stock\n");
    world.alice.ok("secret set C 3");
    assert_eq!(stock.keys(), ["A", "B", "C", "S"]);
    // The server cannot turn it off by itself: that takes a manifest.
    world.alice.ok("environment protect dev");
    stock.delete("S");
    all_refuse(&liar, &world.alice, "changes were made that no manifest shows");
}

#[test]
fn an_environment_can_be_made_without_protection() {
    let (world, liar) = lying_world();
    world.alice.ok("environment create shared --unprotected");
    world.alice.ok("secret set A 1 -e shared");
    lie(&liar, |answer| {
        let mut answer = answer?;
        answer.secrets.clear();
        Ok(answer)
    });
    assert_eq!(world.alice.ok("secret list -e shared"), "No secrets found\n", "nothing shows that there is one");
    tell_the_truth(&liar);
    world.alice.ok("environment protect shared");
    lie(&liar, |answer| {
        let mut answer = answer?;
        answer.secrets.clear();
        Ok(answer)
    });
    assert!(world.alice.fails("secret list -e shared", 1).contains(r#"left out: "A""#));
}

#[test]
fn an_environment_that_is_made_anew_is_read_and_the_former_one_is_not() {
    let (world, liar) = filled_world();
    let old = current_state(&world, &liar);
    world.alice.ok("environment delete dev");
    world.alice.ok("environment create dev");
    world.alice.ok("secret set N new");
    assert_eq!(world.alice.ok("secret export"), "N=new\n");
    lie(&liar, move |_| Ok(old.clone()));
    all_refuse(&liar, &world.alice, "an older state than it gave before");
}

#[test]
fn a_device_that_sees_the_environment_for_the_first_time_holds_it_to_the_manifest() {
    let (world, liar) = filled_world();
    forget_servers(&world.alice);
    lie(&liar, |answer| {
        let mut answer = answer?;
        answer.secrets.retain(|secret| secret.key != "A");
        Ok(answer)
    });
    all_refuse(&liar, &world.alice, r#"left out: "A""#);
}

#[test]
fn writers_at_the_same_time_lose_nothing_and_leave_a_manifest_of_everything() {
    let (world, _liar) = lying_world();
    std::thread::scope(|scope| {
        for number in 0..6 {
            let alice = &world.alice;
            scope.spawn(move || alice.ok(&format!("secret set KEY_{number} {number}")));
        }
    });
    let exported = world.alice.ok("secret export");
    assert_eq!(exported.lines().count(), 6, "{exported}");
}

#[test]
fn an_import_is_one_change_and_a_change_that_never_fits_ends() {
    let (world, liar) = lying_world();
    let lines: Vec<_> = (0..200).map(|number| format!("KEY_{number}=value_{number}")).collect();
    let text = lines.join("\n");
    liar.take_seen();
    world.alice.ok_with_stdin("secret import", text.as_bytes());
    let changes = liar.take_seen().into_iter().filter(|call| call.path == CHANGE).count();
    assert_eq!(changes, 1);
    assert_eq!(world.alice.json("secret list")["version"], 1);
    liar.lie(CHANGE, |_: ChangeSecretsRequest, _: Result<ChangeSecretsResponse, Status>| {
        Err(Status::aborted("never the expected version"))
    });
    assert!(world.alice.fails("secret set A 2", 1).contains("changed by others at the same time"));
}

#[test]
fn a_new_key_opens_the_same_values_and_the_former_state_is_refused() {
    let (world, liar) = filled_world();
    let old = current_state(&world, &liar);
    let wrapped = || world.alice.json("environment get dev")["dek_wrapped"].as_str().unwrap().to_owned();
    let before = wrapped();
    assert_eq!(world.alice.json("environment rotate-key dev")["values"], 2);
    assert_ne!(wrapped(), before);
    assert_eq!(world.alice.ok("secret export"), "A=1\nB=2\n");
    world.alice.ok("secret set C 3");
    let stock = Stock::of(&world.alice, &liar.url());
    assert_eq!(stock.keys(), ["A", "B", "C"]);
    lie(&liar, move |_| Ok(old.clone()));
    all_refuse(&liar, &world.alice, "an older state than it gave before");
}

#[test]
fn an_empty_and_an_unprotected_environment_get_a_new_key_as_well() {
    let (world, liar) = lying_world();
    world.alice.ok("environment rotate-key dev");
    world.alice.ok("secret set A 1");
    world.alice.ok("environment protect dev --off");
    world.alice.ok("environment rotate-key dev");
    Stock::of(&world.alice, &liar.url()).set("S", "stock");
    assert_eq!(world.alice.ok("secret export"), "A=1\nS=stock\n");
    world.alice.ok("environment create shared --unprotected");
    world.alice.ok("secret set A 1 -e shared");
    world.alice.ok("environment rotate-key shared");
    assert_eq!(world.alice.ok("secret get A -e shared"), "1\n");
}
