//! A server that lies, or that somebody has taken over: it has the real database and answers what it likes.

use konverge_zopp_crypto::{Kek, SigningSeed, X25519Private, X25519Public};
use konverge_zopp_proto::{
    Empty, GetInviteRequest, GetPrincipalExportRequest, GetPrincipalExportResponse, GetPrincipalRequest,
    GetWorkspaceKeysRequest, InviteToken, JoinRequest, JoinResponse, Principal, WorkspaceKeys, WorkspaceList,
    identity::{GetKeySignatureRequest, GetKeySignatureResponse},
};
use konverge_zopp_testing::LyingServer;
use serde_json::Value;
use tonic::Status;

use crate::{home::Home, world::World};

const PROBE: &str = "/zopp.ZoppService/GetPrincipalExport";
const GET_KEYS: &str = "/zopp.ZoppService/GetWorkspaceKeys";
const GET_PRINCIPAL: &str = "/zopp.ZoppService/GetPrincipal";
const GET_SIGNATURE: &str = "/konverge.zopp.v1.Identity/GetKeySignature";
const GET_INVITE: &str = "/zopp.ZoppService/GetInvite";
const JOIN: &str = "/zopp.ZoppService/Join";
const LIST_WORKSPACES: &str = "/zopp.ZoppService/ListWorkspaces";

/// Alice's world, seen through a server that lies.
pub(crate) fn lying_world() -> (World, LyingServer) {
    let mut world = World::with_alice();
    let liar = world.server.liar();
    world.alice.set("ZOPP_SERVER", &liar.url());
    world.alice.ok("workspace create acme");
    world.alice.ok("project create backend -w acme");
    world.alice.ok("environment create dev -w acme -p backend");
    for (name, value) in [("WORKSPACE", "acme"), ("PROJECT", "backend"), ("ENVIRONMENT", "dev")] {
        world.alice.set(&format!("ZOPP_{name}"), value);
    }
    (world, liar)
}

/// The response by which the server pretends to be of the first generation.
fn claim_v1(liar: &LyingServer) {
    liar.lie(PROBE, |_: GetPrincipalExportRequest, _: Result<GetPrincipalExportResponse, Status>| {
        Err(Status::unimplemented(""))
    });
}

/// The server wraps a key of its own for the caller, whose public key it knows.
fn forge_key(liar: &LyingServer, recipient: X25519Public) {
    let forged = Kek::generate().unwrap();
    liar.lie(GET_KEYS, move |_: GetWorkspaceKeysRequest, answer: Result<WorkspaceKeys, Status>| {
        Ok(wrapped(&forged, &recipient, answer?.workspace_id, WorkspaceKeys::default().generation))
    });
}

/// The answer that gives the recipient this key, without a signature.
pub(crate) fn wrapped(kek: &Kek, recipient: &X25519Public, workspace_id: String, generation: u32) -> WorkspaceKeys {
    let wrapped = kek.wrap_for(recipient, &workspace_id).unwrap();
    WorkspaceKeys {
        workspace_id,
        ephemeral_pub: wrapped.ephemeral_public.to_bytes().to_vec(),
        kek_wrapped: wrapped.sealed.ciphertext,
        kek_nonce: wrapped.sealed.nonce.to_vec(),
        generation,
    }
}

pub(crate) fn config(home: &Home) -> Value {
    serde_json::from_slice(&std::fs::read(home.config_file()).unwrap()).unwrap()
}

pub(crate) fn exchange_key(home: &Home) -> X25519Public {
    let text = config(home)["principals"][0]["x25519_public_key"].as_str().unwrap().to_owned();
    X25519Public::from_slice(&hex::decode(text).unwrap()).unwrap()
}

pub(crate) fn forget_servers(home: &Home) {
    let mut content = config(home);
    content.as_object_mut().unwrap().remove("servers");
    home.write(".zopp/config.json", content.to_string());
}

#[test]
fn a_claim_to_be_of_the_first_generation_obtains_no_signature() {
    let (world, liar) = lying_world();
    forget_servers(&world.alice);
    liar.take_seen();
    claim_v1(&liar);
    let stderr = world.alice.fails("workspace list", 1);
    assert!(stderr.contains("--generation v1") && stderr.contains("ZOPP_GENERATION=v1"), "{stderr}");
    let seen = liar.take_seen();
    assert!(!seen.is_empty() && seen.iter().all(|call| !call.signed), "{seen:?}");
}

#[test]
fn a_server_that_was_v2_never_becomes_v1() {
    let (world, liar) = lying_world();
    assert_eq!(config(&world.alice)["servers"][liar.url()]["generation"], "v2");
    liar.take_seen();
    claim_v1(&liar);
    world.alice.ok("workspace list");
    // Also not after an answer by which an upgraded server could be recognised.
    liar.lie(LIST_WORKSPACES, |_: Empty, _: Result<WorkspaceList, Status>| Err(Status::unauthenticated("no")));
    for _ in 0..2 {
        world.alice.fails("workspace list", 1);
    }
    let seen = liar.take_seen();
    assert!(seen.iter().all(|call| call.path == LIST_WORKSPACES && call.signed_request), "{seen:?}");
    assert_eq!(seen.len(), 3, "the generation is remembered, and not asked for: {seen:?}");
    let stderr = world.alice.fails("workspace list --generation v1", 1);
    assert!(stderr.contains("was of generation v2"), "{stderr}");
    assert_eq!(liar.take_seen(), []);
}

#[test]
fn the_first_generation_is_spoken_on_request_and_remembered_by_join() {
    let world = World::with_alice();
    let liar = world.server.liar();
    claim_v1(&liar);
    let mut home = world.server.home();
    home.set("ZOPP_SERVER", &liar.url());
    let join = format!("join {} bob@example.com --principal phone", world.server.invite());
    assert!(home.fails(&join, 1).contains("--generation v1"));
    home.ok(&format!("{join} --generation v1"));
    assert_eq!(config(&home)["servers"][liar.url()]["generation"], "v1");
    liar.take_seen();
    // The real server behind refuses such a signature; what counts here is that it is sent without being asked for again.
    home.fails("workspace list", 1);
    let seen = liar.take_seen();
    assert!(seen.len() == 1 && seen[0].signed && !seen[0].signed_request, "{seen:?}");
}

#[test]
fn a_forged_workspace_key_is_refused() {
    let (world, liar) = lying_world();
    let alice = &world.alice;
    let fingerprint = alice.ok("workspace fingerprint").trim().to_owned();
    assert_eq!(config(alice)["servers"][liar.url()]["workspaces"]["acme"], fingerprint.as_str());
    forge_key(&liar, exchange_key(alice));
    liar.take_seen();
    for line in [
        "secret set KEY value",
        "secret export",
        "run -- true",
        "environment create prod",
        "invite create",
        "principal create robot --service -w acme",
    ] {
        let stderr = alice.fails(line, 1);
        assert!(
            stderr.contains("another key of workspace 'acme'") && stderr.contains(&fingerprint),
            "{line}: {stderr}"
        );
        assert!(stderr.contains("Ask another member") && stderr.contains("--pin"), "{line}: {stderr}");
    }
    let writes = ["UpsertSecret", "CreateEnvironment", "CreateInvite", "Register"];
    let seen = liar.take_seen();
    assert!(seen.iter().all(|call| writes.iter().all(|write| !call.path.ends_with(write))), "{seen:?}");
    liar.tell_the_truth(GET_KEYS);
    alice.ok("secret set KEY value");
}

#[test]
fn an_invite_vouches_for_the_key() {
    let (world, liar) = lying_world();
    let code = world.alice.ok("invite create --plain --uses 2").trim().to_owned();
    let mut bob = world.other_home();
    bob.set("ZOPP_SERVER", &liar.url());
    // Without the key in the invite, the server would be free to give any key later.
    liar.lie(GET_INVITE, |_: GetInviteRequest, answer: Result<InviteToken, Status>| {
        Ok(InviteToken { kek_encrypted: Vec::new(), ..answer? })
    });
    let join = format!("join {code} bob@example.com --principal phone");
    assert!(bob.fails(&join, 1).contains("no workspace key with this invite"));
    liar.tell_the_truth(GET_INVITE);
    bob.ok(&join);
    let pinned = config(&bob)["servers"][liar.url()]["workspaces"]["acme"].clone();
    assert_eq!(pinned, world.alice.ok("workspace fingerprint").trim());
    // From the first command on.
    forge_key(&liar, exchange_key(&bob));
    assert!(bob.fails("secret list", 1).contains("PermissionDenied"), "no role yet");
    assert!(bob.fails("workspace fingerprint", 1).contains("another key of workspace 'acme'"));
}

/// The response to a join, with any name of the workspace.
fn rename_joined(liar: &LyingServer, name: &'static str) {
    liar.lie(JOIN, move |_: JoinRequest, answer: Result<JoinResponse, Status>| {
        let mut answer = answer?;
        name.clone_into(&mut answer.workspaces[0].name);
        Ok(answer)
    });
}

#[test]
fn a_joined_workspace_is_pinned_under_the_name_in_the_code() {
    let (world, liar) = lying_world();
    let mut bob = world.other_home();
    bob.set("ZOPP_SERVER", &liar.url());
    bob.ok(&format!("join {} bob@example.com --principal phone", world.server.invite()));
    bob.ok("workspace create private");
    let private = config(&bob)["servers"][liar.url()]["workspaces"]["private"].clone();
    // Names that this device knows, and that it does not.
    for (number, name) in ["private", "payments"].into_iter().enumerate() {
        rename_joined(&liar, name);
        let code = world.alice.ok("invite create --plain").trim().to_owned();
        let stderr = bob.fails(&format!("join {code} bob@example.com --principal p{number}"), 1);
        assert!(stderr.contains(&format!("calls the workspace '{name}'")), "{stderr}");
        let pins = config(&bob)["servers"][liar.url()]["workspaces"].clone();
        assert_eq!(pins, serde_json::json!({ "private": private }));
    }
    liar.tell_the_truth(JOIN);
    let code = world.alice.ok("invite create --plain").trim().to_owned();
    bob.ok(&format!("join {code} bob@example.com --principal right"));
    let pin = config(&bob)["servers"][liar.url()]["workspaces"]["acme"].clone();
    assert_eq!(pin, world.alice.ok("workspace fingerprint").trim());
}

/// The creator of an invite chooses the name in its code.
#[test]
fn an_invite_replaces_no_pin() {
    let (world, liar) = lying_world();
    let mut bob = world.other_home();
    bob.set("ZOPP_SERVER", &liar.url());
    let code = || world.alice.ok("invite create --plain").trim().to_owned();
    bob.ok(&format!("join {} bob@example.com --principal phone", code()));
    let pinned = config(&bob)["servers"][liar.url()]["workspaces"]["acme"].clone();
    world.alice.ok("workspace delete acme --even-if-not-empty");
    world.alice.ok("workspace create acme");
    let fingerprint = world.alice.ok("workspace fingerprint").trim().to_owned();
    let joined = bob.run(&format!("join {} bob@example.com --principal again", code()));
    assert!(joined.code == 0 && joined.stderr.contains(&format!("--pin {fingerprint}")), "{}", joined.stderr);
    assert_eq!(config(&bob)["servers"][liar.url()]["workspaces"]["acme"], pinned);
    assert!(bob.fails("workspace fingerprint", 1).contains("another key of workspace 'acme'"));
    bob.ok(&format!("workspace fingerprint --pin {fingerprint}"));
    assert_eq!(bob.ok("workspace fingerprint").trim(), fingerprint);
}

/// The server keeps back by whom it was wrapped.
fn keep_signature_back(liar: &LyingServer) {
    liar.lie(GET_SIGNATURE, |_: GetKeySignatureRequest, _: Result<GetKeySignatureResponse, Status>| {
        Err(Status::not_found("no signature"))
    });
}

#[test]
fn a_key_that_this_device_wrapped_itself_is_known_by_its_signature() {
    let (world, liar) = lying_world();
    let alice = &world.alice;
    let fingerprint = alice.ok("workspace fingerprint").trim().to_owned();
    // As a stock client leaves the file.
    forget_servers(alice);
    let first = alice.run("secret set KEY value");
    assert_eq!((first.code, first.stderr.as_str()), (0, ""), "nothing is believed at first sight");
    assert_eq!(config(alice)["servers"][liar.url()]["workspaces"]["acme"], fingerprint.as_str());

    forget_servers(alice);
    forge_key(&liar, exchange_key(alice));
    let stderr = alice.fails("secret set KEY value", 1);
    assert!(stderr.contains("a signature that is not by principal"), "{stderr}");
    // By a key of its own, in the name of the principal.
    let (seed, recipient) = (SigningSeed::generate().unwrap(), exchange_key(alice));
    let forged = Kek::generate().unwrap();
    let id = world.alice.json("principal current")["id"].as_str().unwrap().to_owned();
    let workspace_id = alice.json("workspace list")["workspaces"][0]["id"].as_str().unwrap().to_owned();
    let wrapped = forged.wrap_for(&recipient, &workspace_id).unwrap();
    let signature = wrapped.sign(&seed, &recipient, &workspace_id);
    let keys = WorkspaceKeys {
        workspace_id,
        ephemeral_pub: wrapped.ephemeral_public.to_bytes().to_vec(),
        kek_wrapped: wrapped.sealed.ciphertext,
        kek_nonce: wrapped.sealed.nonce.to_vec(),
        ..WorkspaceKeys::default()
    };
    liar.lie(GET_KEYS, move |_: GetWorkspaceKeysRequest, _: Result<WorkspaceKeys, Status>| Ok(keys.clone()));
    let public_key = seed.public().to_bytes().to_vec();
    liar.lie(GET_SIGNATURE, move |_: GetKeySignatureRequest, answer: Result<GetKeySignatureResponse, Status>| {
        let (public_key, signature) = (public_key.clone(), signature.to_vec());
        Ok(GetKeySignatureResponse { public_key, signature, ..answer? })
    });
    let mut content = config(alice);
    let pin = serde_json::json!({ "principals": { id: alice.ok("principal fingerprint").trim() } });
    content["servers"] = serde_json::json!({ liar.url(): pin });
    alice.write(".zopp/config.json", content.to_string());
    let stderr = alice.fails("secret set KEY value", 1);
    assert!(stderr.contains("another key of principal"), "{stderr}");
}

#[test]
fn a_key_that_a_known_principal_wrapped_is_not_believed_at_first_sight() {
    let (world, liar) = lying_world();
    let (id, mut robot) = world.robot("robot");
    robot.set("ZOPP_SERVER", &liar.url());
    let grant = format!("permission set --principal {id} --role write");
    world.alice.ok(&grant);
    world.alice.ok("secret set KEY value");
    let laptop = world.alice.json("principal current")["id"].as_str().unwrap().to_owned();
    let pin = serde_json::json!({ "principals": { laptop: world.alice.ok("principal fingerprint").trim() } });
    let mut content = config(&robot);
    content["servers"][liar.url()] = pin;
    robot.write(".zopp/config.json", content.to_string());
    let got = robot.run("secret get KEY");
    assert_eq!(
        (got.stdout.as_slice(), got.stderr.as_str()),
        (b"value\n".as_slice(), ""),
        "nothing is believed at first sight"
    );
}

#[test]
fn the_first_key_that_a_device_sees_is_told_and_another_is_accepted_by_hand_only() {
    let (world, liar) = lying_world();
    let alice = &world.alice;
    let fingerprint = alice.ok("workspace fingerprint").trim().to_owned();
    keep_signature_back(&liar);
    forget_servers(alice);
    let first = alice.run("secret set KEY value");
    assert!(first.stderr.contains("for the first time") && first.stderr.contains(&fingerprint), "{}", first.stderr);
    assert_eq!(alice.run("secret get KEY").stderr, "", "told once");

    forge_key(&liar, exchange_key(alice));
    let stderr = alice.fails("workspace fingerprint", 1);
    let forged = stderr.split("--pin ").nth(1).unwrap().trim().to_owned();
    let pinned = alice.run(&format!("workspace fingerprint --pin {forged}"));
    assert!(pinned.code == 0 && pinned.stderr.contains(&fingerprint), "the old one is told: {}", pinned.stderr);
    assert_eq!(alice.ok("workspace fingerprint").trim(), forged);
    liar.tell_the_truth(GET_KEYS);
    alice.fails("secret get KEY", 1);
    alice.ok(&format!("workspace fingerprint --pin {fingerprint}"));
    assert_eq!(alice.ok("secret get KEY"), "value\n");
}

#[test]
fn a_credentials_file_carries_the_pin() {
    let (world, liar) = lying_world();
    let file = world.alice.path("robot.json");
    let line = format!("principal create robot --service --credentials-file {} --credentials-only", file.display());
    world.alice.ok(&line);
    let content: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let server = &content["servers"][liar.url()];
    assert_eq!(server["generation"], "v2");
    assert_eq!(server["workspaces"]["acme"], world.alice.ok("workspace fingerprint").trim());
}

#[test]
fn a_substituted_recipient_gets_no_key() {
    let (world, liar) = lying_world();
    let alice = &world.alice;
    let mut bob = world.other_home();
    bob.set("ZOPP_SERVER", &liar.url());
    bob.ok(&format!("join {} bob@example.com --principal phone", world.server.invite()));
    let (id, fingerprint) = (bob.json("principal current")["id"].clone(), bob.ok("principal fingerprint"));
    let (id, fingerprint) = (id.as_str().unwrap(), fingerprint.trim());
    let own = X25519Private::generate().unwrap().public().to_bytes().to_vec();
    let substitute = move || {
        let own = own.clone();
        move |_: GetPrincipalRequest, answer: Result<Principal, Status>| {
            Ok(Principal { x25519_public_key: own.clone(), ..answer? })
        }
    };
    let grant = format!("workspace grant-principal-access --principal {id}");
    let sent =
        |liar: &LyingServer| liar.take_seen().iter().any(|call| call.path.ends_with("GrantPrincipalWorkspaceAccess"));

    // With the fingerprint that Bob reads out.
    liar.lie(GET_PRINCIPAL, substitute());
    let stderr = alice.fails(&format!("{grant} --fingerprint {fingerprint}"), 1);
    assert!(stderr.contains("you require") && stderr.contains(fingerprint), "{stderr}");
    assert!(!sent(&liar));

    // Without one, once it is pinned.
    liar.tell_the_truth(GET_PRINCIPAL);
    let granted = alice.run(&format!("{grant} --fingerprint {fingerprint}"));
    assert!(granted.code == 0 && granted.stderr.contains(fingerprint) && sent(&liar), "{}", granted.stderr);
    assert_eq!(config(alice)["servers"][liar.url()]["principals"][id], fingerprint);
    liar.lie(GET_PRINCIPAL, substitute());
    let stderr = alice.fails(&grant, 1);
    assert!(stderr.contains("another key of principal") && stderr.contains(fingerprint), "{stderr}");
    assert!(!sent(&liar));
}

#[test]
fn a_principal_made_on_this_device_is_pinned_from_the_start() {
    let (world, liar) = lying_world();
    let (id, _robot) = world.robot("robot");
    let own = X25519Private::generate().unwrap().public().to_bytes().to_vec();
    liar.lie(GET_PRINCIPAL, move |_: GetPrincipalRequest, answer: Result<Principal, Status>| {
        Ok(Principal { x25519_public_key: own.clone(), ..answer? })
    });
    let stderr = world.alice.fails(&format!("workspace grant-principal-access --principal {id}"), 1);
    assert!(stderr.contains("another key of principal"), "{stderr}");
}

#[test]
fn what_the_server_says_does_not_control_the_terminal() {
    let (world, liar) = lying_world();
    liar.lie(LIST_WORKSPACES, |_: Empty, _: Result<WorkspaceList, Status>| {
        Err(Status::internal("\u{1b}]0;owned\u{7}\u{9b}2J\nError: type your passphrase"))
    });
    let stderr = world.alice.fails("workspace list", 1);
    assert!(!stderr.contains(['\u{1b}', '\u{7}', '\u{9b}']), "{stderr:?}");
    assert_eq!(stderr.lines().count(), 1, "{stderr:?}");
}

#[test]
fn a_name_that_the_encryption_takes_for_another_is_refused() {
    let (world, liar) = lying_world();
    liar.take_seen();
    // Names that the original's server accepts: for the encryption, project "backend:x" with "dev" equals "backend" with "x:dev".
    for line in ["secret set KEY value -p backend:x", "secret export -p backend:x", "secret set KEY value -w acme:x"] {
        let stderr = world.alice.fails(line, 1);
        assert!(stderr.contains("ambiguous") || stderr.contains("another environment's"), "{line}: {stderr}");
    }
    let stderr = world.alice.fails("environment create dev -p backend:x", 1);
    assert!(stderr.contains("another environment's"), "{stderr}");
    assert_eq!(liar.take_seen(), [], "nothing is sent");
}

#[test]
fn an_address_beyond_the_machine_without_tls_is_warned_of() {
    let (mut world, _liar) = lying_world();
    let here = world.alice.run("workspace list");
    assert!(!here.stderr.contains("TLS"), "{}", here.stderr);
    // A block for documentation: nobody answers there.
    world.alice.set("ZOPP_SERVER", "http://192.0.2.1:50051");
    let stderr = world.alice.fails("workspace list --timeout 1", 1);
    assert!(stderr.starts_with("Warning: http://192.0.2.1:50051 is another machine and does not use TLS"), "{stderr}");
}
