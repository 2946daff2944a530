//! New keys of a workspace: who gets them, who follows, and which server is refused with what it makes up.

use konverge_testkit::write_program;
use konverge_zopp_client::{
    Client, ClientConfig, Connection, EnvironmentName, EnvironmentReader, FetchError, Identity, ServerRecord, Trust,
    trust::WorkspaceMemory,
};
use konverge_zopp_crypto::{Kek, KeyLink, SigningSeed};
use konverge_zopp_proto::{
    GetWorkspaceKeysRequest, WorkspaceKeys,
    identity::{
        GetKeyChainRequest, GetKeyChainResponse, GetKeyStateRequest, GetKeyStateResponse, KeyHolder,
        KeyLink as WireLink, RotateWorkspaceKeyRequest, RotateWorkspaceKeyResponse,
    },
    secrets::{ReadEnvironmentRequest, ReadEnvironmentResponse},
};
use konverge_zopp_testing::LyingServer;
use tonic::Status;

use crate::{
    home::Home,
    lying_server::{config, exchange_key, lying_world, wrapped},
    world::World,
};

const GET_KEYS: &str = "/zopp.ZoppService/GetWorkspaceKeys";
const GET_CHAIN: &str = "/konverge.zopp.v1.Identity/GetKeyChain";
const GET_STATE: &str = "/konverge.zopp.v1.Identity/GetKeyState";
const ROTATE: &str = "/konverge.zopp.v1.Identity/RotateWorkspaceKey";
const READ: &str = "/konverge.zopp.secrets.v1.Secrets/ReadEnvironment";
const CHANGE: &str = "/konverge.zopp.secrets.v1.Secrets/ChangeSecrets";

/// Bob, who joined by Alice's invite and may write.
fn bob(world: &World, liar: &LyingServer) -> Home {
    let mut bob = world.other_home();
    bob.set("ZOPP_SERVER", &liar.url());
    let code = world.alice.ok("invite create --plain");
    bob.ok(&format!("join {} bob@example.com --principal phone", code.trim()));
    world.alice.ok("permission user-set --email bob@example.com --role write");
    bob
}

/// A service principal that may read: its ID and its home.
fn reading_robot(world: &World, liar: &LyingServer) -> (String, Home) {
    let (id, mut robot) = world.robot("robot");
    robot.set("ZOPP_SERVER", &liar.url());
    world.alice.ok(&format!("permission set --principal {id} --role read"));
    (id, robot)
}

fn fingerprint(home: &Home) -> String {
    home.ok("workspace fingerprint").trim().to_owned()
}

fn pinned(home: &Home, liar: &LyingServer) -> String {
    config(home)["servers"][liar.url()]["workspaces"]["acme"].as_str().unwrap().to_owned()
}

#[test]
fn all_devices_follow_a_new_key_and_the_former_one_opens_nothing() {
    let (world, liar) = lying_world();
    let (alice, bob) = (&world.alice, bob(&world, &liar));
    alice.ok("environment create staging");
    alice.ok("secret set A 1");
    let before = fingerprint(&bob);
    let old = GetKeys::keep(&liar, &bob);

    // Bob wrapped his key himself, so Alice's device has nothing but the server's word for it.
    let stderr = alice.fails("workspace rotate-key", 1);
    let of_bob = bob.ok("principal fingerprint").trim().to_owned();
    assert!(stderr.contains("phone (bob@example.com") && stderr.contains(&of_bob), "{stderr}");
    assert_eq!(pinned(alice, &liar), before, "nothing was changed");
    let answer = alice.json(&format!("workspace rotate-key --fingerprint {of_bob}"));
    assert_eq!((&answer["key"]["generation"], &answer["key"]["holders"]), (&2.into(), &2.into()));
    assert_eq!(answer["environments"], serde_json::json!(["acme/backend/dev", "acme/backend/staging"]));
    let after = pinned(alice, &liar);
    assert!(after != before && answer["key"]["fingerprint"] == after.as_str());

    let got = bob.run("secret get A");
    assert_eq!((got.code, got.stdout.as_slice()), (0, b"1\n".as_slice()), "{}", got.stderr);
    assert!(got.stderr.contains("was replaced") && got.stderr.contains(&after), "{}", got.stderr);
    assert_eq!(pinned(&bob, &liar), after);
    assert_eq!(bob.run("secret set B 2").stderr, "", "told once");
    assert_eq!(alice.ok("secret export"), "A=1\nB=2\n");

    // Known by now: no fingerprint is needed for a second time, and two generations are followed at once.
    for _ in 0..2 {
        alice.ok("workspace rotate-key");
    }
    assert_eq!(bob.ok("secret export"), "A=1\nB=2\n");
    // The former key, given again.
    old.give(&liar);
    let stderr = bob.fails("secret get A", 1);
    assert!(stderr.contains("another key of workspace 'acme'"), "{stderr}");
}

/// The answer with somebody's wrapped key, kept to be given again later.
struct GetKeys(std::sync::Arc<std::sync::Mutex<Option<WorkspaceKeys>>>);

impl GetKeys {
    fn keep(liar: &LyingServer, home: &Home) -> Self {
        let kept = std::sync::Arc::new(std::sync::Mutex::new(None));
        let also = std::sync::Arc::clone(&kept);
        liar.lie(GET_KEYS, move |_: GetWorkspaceKeysRequest, answer: Result<WorkspaceKeys, Status>| {
            *also.lock().unwrap() = answer.as_ref().ok().cloned();
            answer
        });
        fingerprint(home);
        liar.tell_the_truth(GET_KEYS);
        Self(kept)
    }

    fn give(&self, liar: &LyingServer) {
        let keys = self.0.lock().unwrap().clone().unwrap();
        liar.lie(GET_KEYS, move |_: GetWorkspaceKeysRequest, _: Result<WorkspaceKeys, Status>| Ok(keys.clone()));
    }
}

/// The server gives a key of its own as generation 2, with this link to it.
fn forge_generation(liar: &LyingServer, home: &Home, link: impl Fn(&str, &Kek) -> WireLink + Send + Sync + 'static) {
    let (recipient, forged) = (exchange_key(home), std::sync::Arc::new(Kek::generate().unwrap()));
    let of_link = std::sync::Arc::clone(&forged);
    liar.lie(GET_KEYS, move |_: GetWorkspaceKeysRequest, answer: Result<WorkspaceKeys, Status>| {
        Ok(wrapped(&forged, &recipient, answer?.workspace_id, 2))
    });
    liar.lie(GET_CHAIN, move |_: GetKeyChainRequest, answer: Result<GetKeyChainResponse, Status>| {
        let workspace_id = answer?.workspace_id;
        let links = vec![link(&workspace_id, &of_link)];
        Ok(GetKeyChainResponse { workspace_id, links })
    });
}

fn wire(link: KeyLink, workspace_id: &str, signer: &SigningSeed) -> WireLink {
    WireLink {
        generation: link.generation,
        signature: link.sign(workspace_id, signer).to_vec(),
        former_fingerprint: link.former.to_bytes().to_vec(),
        fingerprint: link.new.to_bytes().to_vec(),
        former_nonce: link.sealed.nonce.to_vec(),
        former_sealed: link.sealed.ciphertext,
        signer_id: "0190a5d0-ac96-774b-bcce-b302099a8057".into(),
        signer_public_key: signer.public().to_bytes().to_vec(),
        ..WireLink::default()
    }
}

#[test]
fn a_generation_that_a_server_makes_up_is_refused() {
    let (world, liar) = lying_world();
    let alice = &world.alice;
    let before = pinned(alice, &liar);
    let refused = |reason: &str| {
        liar.take_seen();
        let stderr = alice.fails("secret set A 1", 1);
        assert!(stderr.contains(reason), "{stderr}");
        assert!(liar.take_seen().iter().all(|call| call.path != CHANGE), "nothing was sent");
        assert_eq!(pinned(alice, &liar), before);
    };
    // It does not know the former key, so it takes one of its own for it.
    let seed = SigningSeed::generate().unwrap();
    forge_generation(&liar, alice, move |id, new| {
        wire(KeyLink::new(id, 2, &Kek::generate().unwrap(), new).unwrap(), id, &seed)
    });
    refused("another key of workspace 'acme'");
    // It names the pinned one as the former key, which it cannot seal.
    let (seed, former) = (SigningSeed::generate().unwrap(), before.parse().unwrap());
    forge_generation(&liar, alice, move |id, new| {
        let link = KeyLink::new(id, 2, &Kek::generate().unwrap(), new).unwrap();
        wire(KeyLink { former, ..link }, id, &seed)
    });
    refused("names other keys than it connects");
    let seed = SigningSeed::generate().unwrap();
    forge_generation(&liar, alice, move |id, new| {
        let link = wire(KeyLink::new(id, 2, &Kek::generate().unwrap(), new).unwrap(), id, &seed);
        WireLink { signature: vec![0; 64], ..link }
    });
    refused("the link to generation 2 does not hold");
    liar.tell_the_truth(GET_KEYS);
    alice.ok("secret set A 1");
}

#[test]
fn a_recipient_that_a_server_adds_gets_no_key() {
    let (world, liar) = lying_world();
    let alice = &world.alice;
    liar.lie(GET_STATE, |_: GetKeyStateRequest, answer: Result<GetKeyStateResponse, Status>| {
        let mut answer = answer?;
        let seed = SigningSeed::generate().unwrap();
        let own = KeyHolder {
            principal_id: "0190a5d0-ac96-774b-bcce-b302099a8057".into(),
            principal_name: "tablet".into(),
            user_email: Some("alice@example.com".into()),
            public_key: seed.public().to_bytes().to_vec(),
            x25519_public_key: konverge_zopp_crypto::X25519Private::generate().unwrap().public().to_bytes().to_vec(),
            ..answer.holders[0].clone()
        };
        answer.holders.push(own);
        Ok(answer)
    });
    liar.take_seen();
    let stderr = alice.fails("workspace rotate-key", 1);
    assert!(stderr.contains("tablet (alice@example.com"), "{stderr}");
    assert!(liar.take_seen().iter().all(|call| call.path != ROTATE), "nothing was sent");
}

#[test]
fn who_is_removed_loses_the_keys_and_the_others_read_on() {
    let (world, liar) = lying_world();
    let (alice, bob) = (&world.alice, bob(&world, &liar));
    let (robot_id, robot) = reading_robot(&world, &liar);
    alice.ok("secret set A 1");
    let invite = alice.ok("invite create --plain");
    let removed = alice.json("workspace remove-member bob@example.com");
    assert_eq!(removed["new_keys"]["key"]["generation"], 2);
    assert_eq!(removed["new_keys"]["environments"], serde_json::json!(["acme/backend/dev"]));
    assert!(bob.fails("secret get A", 1).contains("not found or access denied"));
    assert_eq!(robot.ok("secret get A"), "1\n", "Alice wrapped its key, so it is known");
    let stderr = world.other_home().fails(&format!("join {} eve@example.com --principal x", invite.trim()), 1);
    assert!(stderr.contains("invite not found"), "the invite carried the former key: {stderr}");

    let removed = alice.json(&format!("principal workspace-remove --principal {robot_id}"));
    assert_eq!(removed["new_keys"]["key"]["generation"], 3);
    let text = alice.ok("workspace rotate-key");
    assert!(text.contains("change the values that matter"), "{text}");
}

#[test]
fn a_removal_that_could_not_be_followed_by_new_keys_removes_nobody() {
    let (world, liar) = lying_world();
    let (alice, _bob) = (&world.alice, bob(&world, &liar));
    let carol = world.other_home();
    let code = alice.ok("invite create --plain");
    carol.ok(&format!("join {} carol@example.com --principal watch", code.trim()));
    let stderr = alice.fails("workspace remove-member carol@example.com", 1);
    assert!(
        stderr.contains("nothing was changed") && stderr.contains("phone") && stderr.contains("--keep-keys"),
        "{stderr}"
    );
    assert!(!stderr.contains("watch ("), "she is leaving: {stderr}");
    let removed = alice.ok("workspace remove-member carol@example.com --keep-keys");
    assert!(removed.contains("zopp workspace rotate-key -w acme"), "{removed}");
    alice.ok("workspace rotate-key --accept-recipients");
}

#[test]
fn a_principal_is_disabled_and_its_keys_are_replaced_on_request() {
    let (world, liar) = lying_world();
    let (alice, bob) = (&world.alice, bob(&world, &liar));
    let (robot_id, robot) = reading_robot(&world, &liar);
    alice.ok("secret set A 1");
    alice.ok("workspace create other");
    let line = format!("principal disable --principal {robot_id}");

    // A recipient that nobody vouches for holds up the keys, but not the cut.
    let stderr = alice.fails(&format!("{line} --rotate-keys"), 1);
    assert!(stderr.contains("nothing was changed") && stderr.contains("leave --rotate-keys out"), "{stderr}");
    assert_eq!(robot.ok("secret get A"), "1\n");
    let text = alice.ok(&line);
    assert!(text.contains("\n  zopp workspace rotate-key -w acme\n") && !text.contains("other"), "{text}");
    assert!(robot.fails("secret get A", 1).contains("disabled"));
    let before = fingerprint(alice);
    alice.ok(&format!("principal enable --principal {robot_id}"));

    let of_bob = bob.ok("principal fingerprint").trim().to_owned();
    let answer = alice.json(&format!("{line} --fingerprint {of_bob} --keep-keys-of other"));
    let replaced = &answer["new_keys"][0];
    assert_eq!(
        (replaced["workspace"].as_str(), &replaced["environments"][0]),
        (Some("acme"), &"acme/backend/dev".into())
    );
    assert_eq!((replaced["key"]["left_out"].as_u64(), &answer["former_keys"]), (Some(1), &serde_json::Value::Null));
    assert!(fingerprint(alice) != before && answer["new_keys"].as_array().unwrap().len() == 1, "{answer}");
    assert_eq!(bob.ok("secret get A"), "1\n");
    // The keys that it kept open nothing, also if it is let in again.
    alice.ok(&format!("principal enable --principal {robot_id}"));
    robot.fails("secret get A", 1);

    // A member's own device, whose keys are for an admin to replace.
    bob.ok("principal create tablet");
    let tablet = config(&bob)["principals"][1]["id"].as_str().unwrap().to_owned();
    let answer = bob.json(&format!("principal disable --principal {tablet}"));
    assert_eq!(answer["former_keys"], serde_json::json!(["acme"]));
    // Nobody replaces keys after having disabled itself.
    let own = config(&bob)["principals"][0]["id"].as_str().unwrap().to_owned();
    let stderr = bob.fails(&format!("principal disable --principal {own} --rotate-keys"), 1);
    assert!(stderr.contains("another device"), "{stderr}");
    assert_eq!(bob.ok("secret get A"), "1\n");
}

#[test]
fn an_interrupted_rotation_is_resumed_and_a_principal_that_was_left_out_is_told() {
    let (world, liar) = lying_world();
    let (robot_id, robot) = reading_robot(&world, &liar);
    let alice = &world.alice;
    alice.ok("environment create staging");
    alice.ok("secret set A 1");
    alice.ok("secret set A 2 -e staging");
    // As if the program ended after the first environment.
    liar.lie(
        READ,
        |request: ReadEnvironmentRequest, answer: Result<ReadEnvironmentResponse, Status>| {
            if request.environment_name == "staging" { Err(Status::unavailable("gone")) } else { answer }
        },
    );
    let stderr = alice.fails(&format!("workspace rotate-key --without {robot_id}"), 1);
    assert!(stderr.contains("1 of 2 environments") && stderr.contains("--resume"), "{stderr}");
    liar.tell_the_truth(READ);
    let left = alice.json("workspace rotate-key --resume");
    assert_eq!(left, serde_json::json!({ "workspace": "acme", "environments": ["acme/backend/staging"] }));
    assert_eq!(alice.json("workspace rotate-key --resume")["environments"], serde_json::json!([]));
    assert_eq!(alice.ok("secret get A -e staging"), "2\n");
    let stderr = robot.fails("secret get A", 1);
    assert!(stderr.contains("not found or access denied") || stderr.contains("the key was replaced"), "{stderr}");
    alice.ok(&format!("workspace grant-principal-access --principal {robot_id}"));
    alice.ok(&format!("permission set --principal {robot_id} --role read"));
    assert_eq!(robot.ok("secret get A"), "1\n");
}

/// The server could keep the key of an environment for the removed member.
#[test]
fn an_environment_that_a_server_calls_replaced_gets_a_new_key() {
    let (world, liar) = lying_world();
    let (alice, _bob) = (&world.alice, bob(&world, &liar));
    let (robot, _) = reading_robot(&world, &liar);
    alice.ok("principal create tablet");
    let tablet = config(alice)["principals"].as_array().unwrap().last().unwrap()["id"].as_str().unwrap().to_owned();
    liar.lie(GET_STATE, |_: GetKeyStateRequest, answer: Result<GetKeyStateResponse, Status>| {
        let mut answer = answer?;
        let generation = answer.generation;
        answer.environments.iter_mut().for_each(|environment| environment.made_under = generation);
        Ok(answer)
    });
    let replaced = serde_json::json!(["acme/backend/dev"]);
    let removed = alice.json("workspace remove-member bob@example.com");
    assert_eq!(removed["new_keys"]["environments"], replaced);
    let removed = alice.json(&format!("principal workspace-remove --principal {robot}"));
    assert_eq!(removed["new_keys"]["environments"], replaced);
    let disabled = alice.json(&format!("principal disable --principal {tablet} --rotate-keys"));
    assert_eq!(disabled["new_keys"][0]["environments"], replaced);
    assert_eq!(alice.json("workspace rotate-key")["environments"], replaced);
    // Only an interrupted run asks the server, which can hide what is left.
    assert_eq!(alice.json("workspace rotate-key --resume")["environments"], serde_json::json!([]));
    liar.tell_the_truth(GET_STATE);
    assert_eq!(alice.json("workspace rotate-key --resume")["environments"], serde_json::json!([]), "none is left");
}

#[test]
fn what_was_made_of_the_former_key_is_refused() {
    let (world, liar) = lying_world();
    let alice = &world.alice;
    let old = GetKeys::keep(&liar, alice);
    alice.ok("workspace rotate-key");
    // As a command that read the key just before it was replaced.
    let mut content = config(alice);
    content["servers"] = serde_json::json!({});
    alice.write(".zopp/config.json", content.to_string());
    liar.lie(
        "/konverge.zopp.v1.Identity/GetKeySignature",
        |_: konverge_zopp_proto::identity::GetKeySignatureRequest,
         _: Result<konverge_zopp_proto::identity::GetKeySignatureResponse, Status>| {
            Err(Status::not_found("no signature"))
        },
    );
    old.give(&liar);
    for line in [
        "environment create prod",
        "invite create",
        "invite create --uses 1",
        "principal create robot --service -w acme",
    ] {
        let stderr = alice.fails(line, 1);
        assert!(stderr.contains("the workspace's key was replaced meanwhile"), "{line}: {stderr}");
    }
    assert_eq!(alice.json("environment list")["environments"].as_array().unwrap().len(), 1);
}

#[test]
fn a_workspace_that_changes_during_a_rotation_is_read_again() {
    let (world, liar) = lying_world();
    let alice = &world.alice;
    let attempts = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = std::sync::Arc::clone(&attempts);
    liar.lie(ROTATE, move |_: RotateWorkspaceKeyRequest, answer: Result<RotateWorkspaceKeyResponse, Status>| {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        answer
    });
    let state = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    liar.lie(GET_STATE, move |_: GetKeyStateRequest, answer: Result<GetKeyStateResponse, Status>| {
        let mut answer = answer?;
        // Once without the environment.
        if state.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0 {
            answer.environments.clear();
        }
        Ok(answer)
    });
    let rotated = alice.json("workspace rotate-key");
    assert_eq!(rotated["key"]["generation"], 2);
    assert_eq!(attempts.load(std::sync::atomic::Ordering::Relaxed), 2);
}

#[test]
fn keys_that_nobody_known_signed_are_refused_where_signatures_are_required() {
    let (world, liar) = lying_world();
    let (alice, mut bob) = (&world.alice, bob(&world, &liar));
    alice.ok("secret set A 1");
    let before = fingerprint(&bob);
    let forget = |home: &Home| {
        let mut content = config(home);
        content["servers"] = serde_json::json!({});
        home.write(".zopp/config.json", content.to_string());
    };
    bob.set("ZOPP_REQUIRE_SIGNED_KEYS", "1");
    assert_eq!(bob.ok("secret get A"), "1\n", "it is pinned");
    forget(&bob);
    assert_eq!(bob.ok("secret get A"), "1\n", "he signed his own wrap when he joined");
    // A service whose key Alice wrapped, and whose file knows nothing of her.
    let (_, robot) = reading_robot(&world, &liar);
    forget(&robot);
    let stderr = robot.fails("--require-signed-keys secret get A", 1);
    assert!(stderr.contains("--require-signed-keys demands") && stderr.contains("--pin <fingerprint>"), "{stderr}");
    robot.ok(&format!("workspace fingerprint --pin {before}"));
    assert_eq!(robot.ok("--require-signed-keys secret get A"), "1\n");
    // A replaced key, by somebody unknown.
    alice.ok("workspace rotate-key --accept-recipients");
    let stderr = robot.fails("--require-signed-keys secret get A", 1);
    assert!(stderr.contains("--require-signed-keys demands"), "{stderr}");
    assert_eq!(robot.ok("secret get A"), "1\n", "followed without the flag");
    // The same as the operator asks: what it writes into Kubernetes stays as it is.
    forget(&robot);
    let fetched = tokio::runtime::Runtime::new().unwrap().block_on(async {
        let config = ClientConfig { require_signed_keys: Some(true), ..ClientConfig::new(liar.url()) };
        let identity = Identity::from_file(&robot.config_file(), None).unwrap();
        let client = Client::new(Connection::new(&config).unwrap(), identity);
        EnvironmentReader::new(client, EnvironmentName::new("acme", "backend", "dev")).fetch().await
    });
    assert!(matches!(fetched, Err(FetchError::ForgedKey { .. })), "{:?}", fetched.map(|_| ()));
}

/// A container mounts the configuration read-only. Root can write anywhere, so the commands run as another user if the tests run as
/// root.
#[test]
fn a_read_only_configuration_checks_pins_and_does_not_save_them() {
    use std::{
        fs::{self, Permissions},
        os::unix::{fs::PermissionsExt, process::CommandExt},
        path::Path,
    };
    const NOBODY: u32 = 65534;
    let world = World::new();
    let alice = &world.alice;
    alice.ok("secret set K v");
    let (id, robot) = world.robot("ci");
    alice.ok(&format!("permission set --principal {id} --role read"));
    let program = robot.path("zopp-copy");
    write_program(&program, fs::File::open(env!("CARGO_BIN_EXE_zopp")).unwrap()).unwrap();
    let folder = robot.path("");
    let is_root = rustix::process::geteuid().is_root();
    let close = |path: &Path, mode: u32| {
        if is_root {
            std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    let robot = robot.with_program(&program);
    let zopp = |line: &str| {
        let mut command = robot.command(line);
        if is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        let output = command.output().unwrap();
        let [stdout, stderr] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        (output.status.code(), stdout, stderr)
    };
    let file = robot.config_file();
    close(&file, 0o400);
    close(file.parent().unwrap(), 0o555);
    close(&folder, 0o555);
    let before = fs::read(&file).unwrap();
    let is_warned = |stderr: &str| stderr.contains("Warning: new pins of ") && stderr.contains("Permission denied");

    for (round, has_new_pins) in [("before the rotation", false), ("after the rotation", true)] {
        for line in ["run -- printenv K", "secret get K", "secret export"] {
            let (code, stdout, stderr) = zopp(line);
            assert_eq!(code, Some(0), "{round}: {line}: {stderr}");
            assert!(stdout == "v\n" || stdout == "K=v\n", "{round}: {line}: {stdout}");
            assert_eq!(is_warned(&stderr), has_new_pins, "{round}: {line}: {stderr}");
        }
        alice.ok("workspace rotate-key --accept-recipients");
    }
    assert_eq!(fs::read(&file).unwrap(), before);
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(file.parent().unwrap(), Permissions::from_mode(0o755)).unwrap();
}

/// Bob as in [`bob`], but an administrator.
fn bob_as_administrator(world: &World, liar: &LyingServer) -> Home {
    let bob = bob(world, liar);
    set_role(world, "admin");
    bob
}

fn set_role(world: &World, role: &str) {
    world.alice.ok(&format!("permission user-set --email bob@example.com --role {role}"));
}

fn of_principal(home: &Home) -> String {
    home.ok("principal fingerprint").trim().to_owned()
}

/// The fingerprints of the administrators that the file of a service names.
fn administrators(robot: &Home, liar: &LyingServer) -> Vec<String> {
    let list = config(robot)["servers"][liar.url()]["administrators"]["acme"].clone();
    serde_json::from_value(list).unwrap_or_default()
}

fn sorted<const N: usize>(mut prints: [&str; N]) -> [&str; N] {
    prints.sort_unstable();
    prints
}

/// The error of an operator that has the file `content` and remembers the key `known` of generation 4. `None` if it can read.
fn refusal_after_restart(
    robot: &Home,
    liar: &LyingServer,
    content: &serde_json::Value,
    known: &str,
) -> Option<FetchError> {
    let server = content["servers"][liar.url()].clone();
    let record: ServerRecord = serde_json::from_value(server).unwrap();
    let memory = WorkspaceMemory {
        root: record.workspaces["acme"],
        fingerprint: known.parse().unwrap(),
        generation: 4,
        is_first_use: false,
    };
    let trust = Trust::new(record);
    trust.recall_workspace("acme", memory);
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let config = ClientConfig { trust, ..ClientConfig::new(liar.url()) };
        let identity = Identity::from_file(&robot.config_file(), None).unwrap();
        let client = Client::new(Connection::new(&config).unwrap(), identity);
        EnvironmentReader::new(client, EnvironmentName::new("acme", "backend", "dev")).fetch().await.err()
    })
}

#[test]
fn a_service_follows_the_administrators_and_refuses_one_who_was_removed() {
    let (world, liar) = lying_world();
    let (alice, bob) = (&world.alice, bob_as_administrator(&world, &liar));
    alice.ok("secret set A 1");
    let [of_alice, of_bob] = [alice, &bob].map(of_principal);
    // Nobody but the server says that this is Bob, so the file does not name him.
    let (_, robot) = reading_robot(&world, &liar);
    assert_eq!(administrators(&robot, &liar), [of_alice.as_str()]);
    let as_made = config(&robot);

    let shown = alice.run(&format!("workspace rotate-key --fingerprint {of_bob}")).stderr;
    assert!(shown.contains(&format!("{of_bob}, administrator)")), "{shown}");
    assert_eq!(robot.ok("--require-signed-keys secret get A"), "1\n");
    assert_eq!(administrators(&robot, &liar), sorted([&of_alice, &of_bob]), "those of the link");
    bob.ok("workspace rotate-key --accept-recipients");
    assert_eq!(robot.ok("secret get A"), "1\n", "by the administrator that the link named");
    set_role(&world, "write");
    alice.ok("workspace rotate-key");
    assert_eq!(robot.ok("secret get A"), "1\n");
    assert_eq!(administrators(&robot, &liar), [of_alice], "he is no administrator any more");
    robot.write(".zopp/config.json", as_made.to_string());
    assert_eq!(robot.ok("secret get A"), "1\n", "all three replacements at once");
    let (before, known) = (config(&robot), pinned(&robot, &liar));
    assert!(refusal_after_restart(&robot, &liar, &as_made, &known).is_none());

    // The server lets him replace the key all the same.
    set_role(&world, "admin");
    bob.ok("workspace rotate-key --accept-recipients");
    for flags in ["", "--require-signed-keys "] {
        let stderr = robot.fails(&format!("{flags}secret get A"), 1);
        assert!(stderr.contains("made generation 5") && stderr.contains("not among the administrators"), "{stderr}");
        assert!(stderr.contains("workspace fingerprint -w acme --pin <fingerprint>"), "{stderr}");
        assert_eq!(config(&robot), before);
    }
    // An operator knows the newest key by the cluster, and the administrators only by its file, which still is the first one.
    let refused = || {
        let refusal = refusal_after_restart(&robot, &liar, &as_made, &known);
        assert!(matches!(refusal, Some(FetchError::ForgedKey { .. })), "{refusal:?}");
    };
    refused();
    // The server keeps back the list without him.
    liar.lie(GET_CHAIN, |_: GetKeyChainRequest, answer: Result<GetKeyChainResponse, Status>| {
        let mut answer = answer?;
        let link = answer.links.iter_mut().find(|link| link.generation == 4).unwrap();
        (link.administrators, link.administrators_signature) = (Vec::new(), Vec::new());
        Ok(answer)
    });
    refused();
    robot.write(".zopp/config.json", as_made.to_string());
    let stderr = robot.fails("secret get A", 1);
    assert!(stderr.contains("no administrators of generation 4"), "{stderr}");
}

#[test]
fn an_administrator_whom_nobody_known_named_is_refused() {
    let (world, liar) = lying_world();
    let (alice, bob) = (&world.alice, bob_as_administrator(&world, &liar));
    alice.ok("secret set A 1");
    let [of_alice, of_bob] = [alice, &bob].map(of_principal);
    let (_, robot) = reading_robot(&world, &liar);
    let file = robot.path("told.json");
    let told = alice.run(&format!("principal create told --service --credentials-file {}", file.display())).stderr;
    assert!(told.contains(&format!("(fingerprint {of_alice})")), "{told}");
    assert!(told.contains("does not know the administrator phone") && told.contains(&of_bob), "{told}");

    bob.ok("workspace rotate-key --accept-recipients");
    let as_made = config(&robot);
    let stderr = robot.fails("secret get A", 1);
    assert!(stderr.contains("made generation 2") && stderr.contains(&of_bob), "{stderr}");
    assert_eq!(config(&robot), as_made);
    assert_eq!(robot.ok("--require-signed-keys=false secret get A"), "1\n", "the choice of the user");
    assert_eq!(administrators(&robot, &liar), [of_alice.as_str()], "his link names nobody");
    robot.write(".zopp/config.json", as_made.to_string());
    let key = fingerprint(&bob);
    robot.ok(&format!("workspace fingerprint --pin {key}"));
    assert_eq!(robot.ok("secret get A"), "1\n");
    alice.ok(&format!("workspace rotate-key --fingerprint {of_bob}"));
    bob.ok("workspace rotate-key --accept-recipients");
    assert_eq!(robot.ok("secret get A"), "1\n", "Alice has named him");
}

#[test]
fn an_administrator_that_a_server_makes_up_is_not_believed() {
    let (world, liar) = lying_world();
    let alice = &world.alice;
    alice.ok("secret set A 1");
    let stranger = SigningSeed::generate().unwrap();
    let public_key = stranger.public().to_bytes().to_vec();
    liar.lie(GET_STATE, move |_: GetKeyStateRequest, answer: Result<GetKeyStateResponse, Status>| {
        let mut answer = answer?;
        assert!(answer.holders[0].administrator, "Alice is one");
        let made_up = KeyHolder {
            principal_id: "0190a5d0-ac96-774b-bcce-b302099a8057".into(),
            principal_name: "tablet".into(),
            public_key: public_key.clone(),
            x25519_public_key: Vec::new(),
            ..answer.holders[0].clone()
        };
        answer.holders.push(made_up);
        Ok(answer)
    });
    let (_, robot) = reading_robot(&world, &liar);
    assert_eq!(administrators(&robot, &liar), [of_principal(alice)]);
    liar.tell_the_truth(GET_STATE);
    alice.ok("workspace rotate-key");
    assert_eq!(robot.ok("secret get A"), "1\n");
}

/// A service without the list follows each key that a holder of the former one made.
#[test]
fn a_server_that_hides_the_administrators_is_refused_or_warned_of() {
    let (world, liar) = lying_world();
    let alice = &world.alice;
    liar.lie(GET_STATE, |_: GetKeyStateRequest, _: Result<GetKeyStateResponse, Status>| Err(Status::unimplemented("")));
    let create = |name: &str| {
        let file = alice.path(&format!("{name}.json"));
        format!("principal create {name} --service --credentials-file {}", file.display())
    };
    liar.take_seen();
    let stderr = alice.fails(&create("refused"), 1);
    assert!(stderr.contains("cannot find out the administrators") && stderr.contains("it may lie"), "{stderr}");
    assert!(liar.take_seen().iter().all(|call| !call.path.ends_with("Register")), "no service was created");
    // A device that never saw a call of Konverge's own cannot tell an earlier or stock server from a lie.
    let mut content = config(alice);
    content["servers"][liar.url()].as_object_mut().unwrap().remove("environments");
    alice.write(".zopp/config.json", content.to_string());
    let created = alice.run(&create("warned"));
    assert!(
        created.code == 0 && created.stderr.contains("names no administrators of workspace 'acme'"),
        "{}",
        created.stderr
    );
}

/// The principal that wrapped the key, or replaced it, is pinned, and this device removed it since.
#[test]
fn a_removed_principal_vouches_for_no_key() {
    let (world, liar) = lying_world();
    let alice = &world.alice;
    alice.ok("secret set A 1");
    let (_, robot) = reading_robot(&world, &liar);
    let laptop = config(alice)["principals"][0].clone();
    let id = laptop["id"].as_str().unwrap();
    let key = fingerprint(alice);
    let remembers = |revoked: serde_json::Value, workspaces: serde_json::Value| {
        let mut content = config(&robot);
        let principals = serde_json::json!({ id: of_principal(alice) });
        content["servers"] = serde_json::json!({
            liar.url(): { "generation": "v2", "principals": principals, "revoked": revoked, "workspaces": workspaces },
        });
        robot.write(".zopp/config.json", content.to_string());
    };
    let get = "--require-signed-keys secret get A";
    let removals = [
        serde_json::json!({ id: { "everywhere": true } }),
        serde_json::json!({ id: { "workspaces": ["acme"] } }),
        serde_json::json!({ "another-id": { "everywhere": true, "public_keys": [laptop["x25519_public_key"]] } }),
    ];
    let nobody = serde_json::json!({});
    let elsewhere = serde_json::json!({ id: { "workspaces": ["other"] } });
    for (what, workspaces) in [("the wrap", serde_json::json!({})), ("the link", serde_json::json!({ "acme": key }))] {
        if what == "the link" {
            alice.ok("workspace rotate-key");
        }
        for revoked in &removals {
            remembers(revoked.clone(), workspaces.clone());
            let stderr = robot.fails(get, 1);
            assert!(stderr.contains("--require-signed-keys demands"), "{what}: {revoked}: {stderr}");
        }
        for revoked in [&nobody, &elsewhere] {
            remembers(revoked.clone(), workspaces.clone());
            assert_eq!(robot.ok(get), "1\n", "{what}: {revoked}");
        }
    }
}

#[test]
fn a_file_without_administrators_works_as_before() {
    let (world, liar) = lying_world();
    let (alice, bob) = (&world.alice, bob_as_administrator(&world, &liar));
    alice.ok("secret set A 1");
    // An earlier server does not tell who may replace the key.
    liar.lie(GET_STATE, |_: GetKeyStateRequest, answer: Result<GetKeyStateResponse, Status>| {
        let mut answer = answer?;
        answer.holders.iter_mut().for_each(|holder| holder.administrator = false);
        Ok(answer)
    });
    let file = world.alice.path("robot.json");
    let created = alice.run(&format!("principal create robot --service --credentials-file {}", file.display()));
    assert!(created.stderr.contains("names no administrators of workspace 'acme'"), "{}", created.stderr);
    let mut robot = world.other_home();
    robot.write(".zopp/config.json", std::fs::read_to_string(&file).unwrap());
    robot.set("ZOPP_SERVER", &liar.url());
    let id = config(&robot)["principals"][0]["id"].as_str().unwrap().to_owned();
    alice.ok(&format!("permission set --principal {id} --role read"));
    assert_eq!(administrators(&robot, &liar), [""; 0]);

    let as_made = config(&robot);
    // It also refuses requests with fields that it does not know, because it verifies the signature over those that it knows.
    liar.lie(ROTATE, |request: RotateWorkspaceKeyRequest, answer: Result<RotateWorkspaceKeyResponse, Status>| {
        let link = request.link.unwrap();
        assert!(link.administrators.is_empty() && link.administrators_signature.is_empty());
        answer
    });
    let rotated = bob.run("workspace rotate-key --accept-recipients");
    assert!(rotated.code == 0 && rotated.stderr.contains("comes without them"), "{}", rotated.stderr);
    let stderr = robot.fails("--require-signed-keys secret get A", 1);
    assert!(stderr.contains("--require-signed-keys demands"), "{stderr}");
    assert_eq!(robot.ok("secret get A"), "1\n");
    assert_eq!(administrators(&robot, &liar), [""; 0]);
    // With the flag, the service follows the principal that made it.
    alice.ok("workspace rotate-key --accept-recipients");
    assert_eq!(robot.ok("--require-signed-keys secret get A"), "1\n");
    robot.write(".zopp/config.json", as_made.to_string());
    robot.fails("--require-signed-keys secret get A", 1);
}
