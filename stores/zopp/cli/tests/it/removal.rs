//! A removal of a device or a member, with a server that keeps naming it.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use konverge_zopp_crypto::{SigningSeed, X25519Private};
use konverge_zopp_proto::{
    Empty, WorkspaceList,
    identity::{
        GetKeyStateRequest, GetKeyStateResponse, KeyHolder, RotateWorkspaceKeyRequest, RotateWorkspaceKeyResponse,
    },
};
use konverge_zopp_testing::LyingServer;
use tonic::Status;

use crate::{
    home::Home,
    lying_server::{config, lying_world},
    world::World,
};

const GET_STATE: &str = "/konverge.zopp.v1.Identity/GetKeyState";
const LIST_WORKSPACES: &str = "/zopp.ZoppService/ListWorkspaces";
const ROTATE: &str = "/konverge.zopp.v1.Identity/RotateWorkspaceKey";

/// A change of the server's answer about a holder.
type Alter = Box<dyn Fn(&mut KeyHolder) + Send + Sync>;

fn was_rotated(liar: &LyingServer) -> bool {
    liar.take_seen().iter().any(|call| call.path == ROTATE)
}

/// The server takes each new key for itself, and does not store it. Returns the IDs of the principals that would get it.
fn recipients_of_rotations(liar: &LyingServer) -> Arc<Mutex<Vec<String>>> {
    let getting = Arc::<Mutex<Vec<String>>>::default();
    let recorded = Arc::clone(&getting);
    liar.lie(ROTATE, move |request: RotateWorkspaceKeyRequest, _: Result<RotateWorkspaceKeyResponse, Status>| {
        recorded.lock().unwrap().extend(request.wraps.into_iter().map(|wrap| wrap.principal_id));
        Err(Status::internal("the key was kept"))
    });
    getting
}

/// Somebody who joined by an invite of Alice's, and whose device Alice's device knows.
fn member(world: &World, liar: &LyingServer, email: &str) -> Home {
    let mut member = world.other_home();
    member.set("ZOPP_SERVER", &liar.url());
    let code = world.alice.ok("invite create --plain");
    member.ok(&format!("join {} {email} --principal phone", code.trim()));
    let fingerprint = member.ok("principal fingerprint");
    world.alice.ok(&format!("workspace rotate-key --fingerprint {}", fingerprint.trim()));
    member
}

fn id_of(home: &Home, index: usize) -> String {
    config(home)["principals"][index]["id"].as_str().unwrap().to_owned()
}

/// The ways in which the server goes on naming a holder that was removed.
fn lies() -> [(&'static str, Alter); 5] {
    let attacker = X25519Private::generate().unwrap().public().to_bytes().to_vec();
    let signing = || SigningSeed::generate().unwrap().public().to_bytes().to_vec();
    [
        ("as before", Box::new(|_| {})),
        ("with another key", Box::new(move |holder| holder.x25519_public_key.clone_from(&attacker))),
        ("under another id", Box::new(|holder| holder.principal_id = "0190a5d0-ac96-774b-bcce-b302099a8057".into())),
        (
            "as a service with the same exchange key",
            Box::new(move |holder| {
                holder.principal_id = "0190a5d0-ac96-774b-bcce-b302099a8058".into();
                holder.public_key = signing();
                holder.user_email = None;
            }),
        ),
        ("as alice's", Box::new(|holder| holder.user_email = Some("alice@example.com".into()))),
    ]
}

/// The server goes on naming a holder with this ID, as `alter` makes it, once the database does not name it as an enabled one any more.
fn keep_naming(liar: &LyingServer, id: String, alter: impl Fn(&mut KeyHolder) + Send + Sync + 'static) {
    let kept: Mutex<Option<KeyHolder>> = Mutex::default();
    liar.lie(GET_STATE, move |_: GetKeyStateRequest, answer: Result<GetKeyStateResponse, Status>| {
        let mut answer = answer?;
        let mut kept = kept.lock().unwrap();
        match answer.holders.iter().position(|holder| holder.principal_id == id) {
            Some(position) if !answer.holders[position].disabled => *kept = Some(answer.holders[position].clone()),
            position => {
                if let Some(position) = position {
                    answer.holders.remove(position);
                }
                if let Some(mut holder) = kept.clone() {
                    alter(&mut holder);
                    answer.holders.push(holder);
                }
            }
        }
        Ok(answer)
    });
}

#[test]
fn a_disabled_device_that_the_server_still_names_gets_no_key() {
    let (world, liar) = lying_world();
    let alice = &world.alice;
    alice.ok("principal create tablet");
    let tablet = id_of(alice, 1);
    keep_naming(&liar, tablet.clone(), |_| {});
    liar.take_seen();
    let stderr = alice.fails(&format!("principal disable --principal {tablet} --rotate-keys"), 1);
    assert!(stderr.contains("principal 'tablet' was disabled, but") && stderr.contains(&tablet), "{stderr}");
    assert!(stderr.contains("was not replaced") && stderr.contains("--without"), "{stderr}");
    assert!(!was_rotated(&liar));
    // Nor in a later command, which has nothing but the file of this device.
    let line = "workspace rotate-key --accept-recipients --output json";
    let rotated = alice.run(line);
    assert!(rotated.stderr.contains("which this device disabled or removed). It gets no key"), "{}", rotated.stderr);
    let rotated: serde_json::Value = serde_json::from_str(&rotated.succeeded(line)).unwrap();
    assert_eq!((&rotated["key"]["left_out"], &rotated["key"]["holders"]), (&1.into(), &1.into()));
    assert_eq!(config(alice)["servers"][liar.url()]["revoked"][&tablet]["everywhere"], true);
    // A person lets it in again.
    liar.tell_the_truth(GET_STATE);
    alice.ok(&format!("principal enable --principal {tablet}"));
    assert_eq!(config(alice)["servers"][liar.url()].get("revoked"), None);
}

#[test]
fn a_disabled_device_that_the_server_hides_is_no_success() {
    let (world, liar) = lying_world();
    let alice = &world.alice;
    alice.ok("workspace create other");
    alice.ok("principal create tablet");
    let tablet = id_of(alice, 1);
    let (hidden, everywhere) = (tablet.clone(), Arc::new(AtomicBool::new(true)));
    let hides = Arc::clone(&everywhere);
    liar.lie(GET_STATE, move |request: GetKeyStateRequest, answer: Result<GetKeyStateResponse, Status>| {
        let mut answer = answer?;
        if request.workspace_name == "other" || hides.load(Ordering::SeqCst) {
            answer.holders.retain(|holder| holder.principal_id != hidden);
        }
        Ok(answer)
    });
    let line = format!("principal disable --principal {tablet} --rotate-keys");
    let hidden = alice.run(&line);
    assert_eq!(hidden.code, 1);
    let stderr = hidden.stderr;
    assert!(stderr.contains("was disabled, but no key was replaced") && stderr.contains("rotate-key -w"), "{stderr}");
    alice.ok(&format!("principal enable --principal {tablet}"));
    everywhere.store(false, Ordering::SeqCst);
    let text = alice.ok(&format!("{line} --keep-keys-of other"));
    assert!(text.contains("Workspace 'acme' has a new key") && text.contains("which stay: other"), "{text}");
}

/// The server names the device in a workspace that does not matter.
#[test]
fn a_key_that_stays_on_the_servers_word_is_no_success() {
    type Lie = fn(&LyingServer);

    let (world, liar) = lying_world();
    let alice = &world.alice;
    alice.ok("workspace create dummy");
    let lies: [(&str, Lie); 3] = [
        ("not_named", |liar| {
            liar.lie(GET_STATE, |request: GetKeyStateRequest, answer: Result<GetKeyStateResponse, Status>| {
                let mut answer = answer?;
                if request.workspace_name == "acme" {
                    answer.holders.retain(|holder| holder.principal_name == "laptop");
                }
                Ok(answer)
            });
        }),
        ("not_listed", |liar| {
            liar.lie(LIST_WORKSPACES, |_: Empty, answer: Result<WorkspaceList, Status>| {
                let mut answer = answer?;
                answer.workspaces.retain(|workspace| workspace.name != "acme");
                Ok(answer)
            });
        }),
        ("former_keys", |liar| {
            liar.lie(GET_STATE, |request: GetKeyStateRequest, answer: Result<GetKeyStateResponse, Status>| {
                if request.workspace_name == "acme" { Err(Status::permission_denied("no")) } else { answer }
            });
        }),
    ];
    for (field, lie) in lies {
        alice.ok(&format!("principal create {field}"));
        let device = config(alice)["principals"].as_array().unwrap().last().unwrap()["id"].as_str().unwrap().to_owned();
        lie(&liar);
        let line = format!("--output json principal disable --principal {device} --rotate-keys");
        let disabled = alice.run(&line);
        assert_eq!(disabled.code, 1, "{field}: {}", disabled.stderr);
        assert!(
            disabled.stderr.starts_with("Error: ") || disabled.stderr.contains("\nError: "),
            "{field}: {}",
            disabled.stderr
        );
        assert!(
            disabled.stderr.contains("some keys that it may know were not replaced")
                && disabled.stderr.contains("acme"),
            "{field}: {}",
            disabled.stderr
        );
        let answer: serde_json::Value = serde_json::from_slice(&disabled.stdout).unwrap();
        assert_eq!(answer[field], serde_json::json!(["acme"]), "{field}: {answer}");
        assert_eq!(answer["new_keys"][0]["workspace"], "dummy", "{field}: {answer}");
        alice.ok(&format!("principal enable --principal {device}"));
        alice.ok(&format!("workspace grant-principal-access -w dummy --principal {device}"));
        let kept = alice.json(&format!("principal disable --principal {device} --keep-keys-of acme"));
        assert_eq!(kept[field], serde_json::json!(["acme"]), "a person said so: {kept}");
        for call in [GET_STATE, LIST_WORKSPACES] {
            liar.tell_the_truth(call);
        }
    }
}

/// A lying server could claim not to know how keys are replaced.
#[test]
fn a_server_that_replaces_no_keys_needs_the_consent_of_a_person() {
    let (world, liar) = lying_world();
    let alice = &world.alice;
    let bob = member(&world, &liar, "bob@example.com");
    let phone = id_of(&bob, 0);
    liar.lie(GET_STATE, |_: GetKeyStateRequest, _: Result<GetKeyStateResponse, Status>| Err(Status::unimplemented("")));
    liar.take_seen();
    let lines = [
        format!("principal workspace-remove --principal {phone}"),
        "workspace remove-member bob@example.com".to_owned(),
    ];
    for line in &lines {
        let stderr = alice.fails(line, 1);
        assert!(stderr.contains("nothing was changed") && stderr.contains("--keep-keys"), "{line}: {stderr}");
        assert!(stderr.contains("does not know how keys are replaced"), "{line}: {stderr}");
    }
    let seen = liar.take_seen();
    assert!(seen.iter().all(|call| !call.path.contains("/Remove")), "{seen:?}");
    for line in &lines {
        let removed = alice.run(&format!("{line} --keep-keys"));
        let told = String::from_utf8_lossy(&removed.stdout).into_owned() + &removed.stderr;
        assert!(removed.code == 0 && told.contains("The keys are the former ones"), "{line}: {told}");
    }
}

#[test]
fn a_removed_member_that_the_server_still_names_gets_no_key() {
    let (world, liar) = lying_world();
    let alice = &world.alice;
    alice.ok("secret set A 1");
    for (number, (what, alter)) in lies().into_iter().enumerate() {
        let email = format!("bob{number}@example.com");
        let bob = member(&world, &liar, &email);
        let before = config(alice)["servers"][liar.url()]["workspaces"]["acme"].clone();
        keep_naming(&liar, id_of(&bob, 0), alter);
        liar.take_seen();
        let stderr = alice.fails(&format!("workspace remove-member {email} --accept-recipients"), 1);
        assert!(
            stderr.contains(&format!("{email} was removed, but")) && stderr.contains("still names"),
            "{what}: {stderr}"
        );
        assert!(!was_rotated(&liar), "{what}");
        assert_eq!(config(alice)["servers"][liar.url()]["workspaces"]["acme"], before, "{what}");
        liar.tell_the_truth(GET_STATE);
        alice.ok("workspace rotate-key");
        assert_eq!(alice.ok("secret get A"), "1\n");
        bob.fails("secret get A", 1);
    }
}

#[test]
fn a_removed_principal_that_the_server_still_names_gets_no_key() {
    let (world, liar) = lying_world();
    let alice = &world.alice;
    alice.ok("secret set A 1");
    for (number, (what, alter)) in lies().into_iter().enumerate() {
        let bob = member(&world, &liar, &format!("bob{number}@example.com"));
        let phone = id_of(&bob, 0);
        keep_naming(&liar, phone.clone(), alter);
        liar.take_seen();
        let stderr = alice.fails(&format!("principal workspace-remove --principal {phone} --accept-recipients"), 1);
        assert!(
            stderr.contains(&format!("principal {phone} was removed, but")) && stderr.contains("still names"),
            "{what}: {stderr}"
        );
        assert!(!was_rotated(&liar), "{what}");
        assert_eq!(
            config(alice)["servers"][liar.url()]["revoked"][&phone]["workspaces"],
            serde_json::json!(["acme"]),
            "{what}"
        );
        liar.tell_the_truth(GET_STATE);
        alice.ok("workspace rotate-key");
        bob.fails("secret get A", 1);
    }
}

/// The server keeps the principal out of its list until it is removed, and then gives its key to another principal.
#[test]
fn the_key_of_a_removed_principal_that_the_server_hid_gets_no_new_key() {
    let (world, liar) = lying_world();
    let alice = &world.alice;
    let bob = member(&world, &liar, "bob@example.com");
    let phone = id_of(&bob, 0);
    let (hidden, kept) = (phone.clone(), Mutex::<Option<KeyHolder>>::default());
    let is_gone = Arc::new(AtomicBool::new(false));
    let shows = Arc::clone(&is_gone);
    liar.lie(GET_STATE, move |_: GetKeyStateRequest, answer: Result<GetKeyStateResponse, Status>| {
        let mut answer = answer?;
        let mut kept = kept.lock().unwrap();
        let before = kept.take();
        *kept = answer.holders.iter().find(|holder| holder.principal_id == hidden).cloned().or(before);
        answer.holders.retain(|holder| holder.principal_id != hidden);
        if let Some(holder) = kept.clone().filter(|_| shows.load(Ordering::SeqCst)) {
            answer.holders.push(KeyHolder {
                principal_id: "0190a5d0-ac96-774b-bcce-b302099a8059".into(),
                public_key: SigningSeed::generate().unwrap().public().to_bytes().to_vec(),
                user_email: None,
                ..holder
            });
        }
        Ok(answer)
    });
    let line = format!("principal workspace-remove --principal {phone}");
    alice.ok(&line);
    is_gone.store(true, Ordering::SeqCst);
    let getting = recipients_of_rotations(&liar);
    let stderr = alice.fails("workspace rotate-key --accept-recipients", 1);
    assert!(stderr.contains("which this device disabled or removed). It gets no key"), "{stderr}");
    assert_eq!(*getting.lock().unwrap(), [id_of(alice, 0)]);
}

#[test]
fn a_user_who_removed_itself_and_whom_the_server_still_names_gets_no_key() {
    let (world, liar) = lying_world();
    let alice = &world.alice;
    alice.ok("secret set A 1");
    for (number, (what, alter)) in lies().into_iter().enumerate() {
        let email = format!("bob{number}@example.com");
        let bob = member(&world, &liar, &email);
        keep_naming(&liar, id_of(&bob, 0), alter);
        alice.ok("workspace rotate-key");
        let removed = bob.json(&format!("user remove {email}"));
        liar.take_seen();
        let line = format!("workspace remove-member {email}");
        let stderr = alice.fails(&format!("{line} --accept-recipients"), 1);
        let is_refused =
            stderr.contains(&format!("{email} is no member any more, but")) && stderr.contains("still names");
        let is_refused_before =
            stderr.contains("nothing was changed") && stderr.contains("has a key of a leaving principal");
        assert!(is_refused || is_refused_before, "{what}: {stderr}");
        assert!(!was_rotated(&liar), "{what}");
        liar.tell_the_truth(GET_STATE);
        let replaced = alice.json(&line);
        assert_eq!(
            (&replaced["keys_removed"], &replaced["new_keys"]["key"]["holders"]),
            (&0.into(), &1.into()),
            "{what}"
        );
        assert_eq!(alice.ok("secret get A"), "1\n");
        bob.fails("secret get A", 1);
        assert_eq!(removed["former_keys"], serde_json::json!(["acme"]));
    }
    // Of somebody whom this device does not know, there is nothing to replace.
    let stderr = alice.fails("workspace remove-member nobody@example.com", 1);
    assert!(stderr.contains("is no member of workspace") && stderr.contains("rotate-key"), "{stderr}");
}

/// Two people share a device, and one of them removes the own user.
#[test]
fn a_device_gives_no_key_to_the_user_who_removed_itself_on_it() {
    let (world, liar) = lying_world();
    let alice = &world.alice;
    let code = alice.ok("invite create --plain");
    alice.ok(&format!("join {} bob@example.com --principal phone", code.trim()));
    let phone = id_of(alice, 1);
    keep_naming(&liar, phone.clone(), |_| {});
    alice.ok("principal use laptop");
    alice.ok("workspace rotate-key --accept-recipients");
    alice.ok("principal use phone");
    let text = alice.ok("user remove bob@example.com");
    alice.ok("principal use laptop");
    let getting = recipients_of_rotations(&liar);
    let stderr = alice.fails("workspace rotate-key --accept-recipients", 1);
    assert!(stderr.contains("which this device disabled or removed). It gets no key"), "{stderr}");
    assert_eq!(*getting.lock().unwrap(), [id_of(alice, 0)]);
    assert_eq!(config(alice)["servers"][liar.url()]["revoked"][&phone]["everywhere"], true);
    assert!(text.ends_with("replaces them:\n  zopp workspace remove-member bob@example.com -w acme\n"), "{text}");
}

/// Before the removal, and from then on.
#[test]
fn a_members_device_that_the_server_calls_another_users_leaves_with_the_member() {
    let (world, liar) = lying_world();
    let alice = &world.alice;
    let bob = member(&world, &liar, "bob@example.com");
    let id = id_of(&bob, 0);
    liar.lie(GET_STATE, move |_: GetKeyStateRequest, answer: Result<GetKeyStateResponse, Status>| {
        let mut answer = answer?;
        for holder in answer.holders.iter_mut().filter(|holder| holder.principal_id == id) {
            holder.user_email = Some("alice@example.com".into());
        }
        Ok(answer)
    });
    let removed = alice.run("workspace remove-member bob@example.com");
    assert!(removed.code == 0 && !removed.stderr.contains(&id_of(&bob, 0)), "{}", removed.stderr);
    assert_eq!(
        config(alice)["servers"][liar.url()]["revoked"][id_of(&bob, 0)]["workspaces"],
        serde_json::json!(["acme"])
    );
}

/// A leaving member could have given access to a device of its own, and vouch for it.
#[test]
fn a_removed_member_vouches_for_nobody() {
    let (world, liar) = lying_world();
    let alice = &world.alice;
    let bob = member(&world, &liar, "bob@example.com");
    alice.ok("permission user-set --email bob@example.com --role admin");
    let line = "principal create mole --service -w acme --credentials-file mole.json";
    let mole = bob.json(line)["id"].as_str().unwrap().to_owned();
    let stderr = alice.fails("workspace remove-member bob@example.com", 1);
    assert!(stderr.contains("nothing was changed") && stderr.contains(&mole), "{stderr}");
    let removed = alice.json(&format!("workspace remove-member bob@example.com --without {mole}"));
    assert_eq!(removed["new_keys"]["key"]["left_out"], 1);
}

#[test]
fn a_holder_that_is_named_after_a_removal_only_gets_no_key() {
    let (world, liar) = lying_world();
    let alice = &world.alice;
    let (bob, carol) = (member(&world, &liar, "bob@example.com"), member(&world, &liar, "carol@example.com"));
    let (hidden, leaving) = (id_of(&bob, 0), id_of(&carol, 0));
    // Bob's known device is hidden for as long as Carol's is there.
    liar.lie(GET_STATE, move |_: GetKeyStateRequest, answer: Result<GetKeyStateResponse, Status>| {
        let mut answer = answer?;
        if answer.holders.iter().any(|holder| holder.principal_id == leaving) {
            answer.holders.retain(|holder| holder.principal_id != hidden);
        }
        Ok(answer)
    });
    liar.take_seen();
    let stderr = alice.fails("workspace remove-member carol@example.com", 1);
    assert!(stderr.contains("or has begun to name") && stderr.contains(&id_of(&bob, 0)), "{stderr}");
    assert!(!was_rotated(&liar));
}

#[test]
fn the_recipients_are_shown_before_a_key_is_replaced() {
    let (world, liar) = lying_world();
    let bob = member(&world, &liar, "bob@example.com");
    let shown = world.alice.run("workspace rotate-key").stderr;
    for home in [&world.alice, &bob] {
        let fingerprint = home.ok("principal fingerprint");
        assert!(shown.contains(&id_of(home, 0)) && shown.contains(fingerprint.trim()), "{shown}");
    }
    let shown = world.alice.run("workspace remove-member bob@example.com").stderr;
    assert!(shown.contains("is for:") && !shown.contains("bob@example.com,"), "{shown}");
}
