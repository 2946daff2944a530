//! A principal that moves to another device, with a lying server.

use std::sync::{Arc, Mutex};

use konverge_zopp_proto::{
    CreatePrincipalExportRequest, CreatePrincipalExportResponse, GetPrincipalExportRequest, GetPrincipalExportResponse,
};
use konverge_zopp_testing::LyingServer;
use tonic::Status;

use crate::{
    home::Home,
    lying_server::{config, lying_world},
    world::World,
};

const CREATE: &str = "/zopp.ZoppService/CreatePrincipalExport";
const GET: &str = "/zopp.ZoppService/GetPrincipalExport";
const CONSUME: &str = "/zopp.ZoppService/ConsumePrincipalExport";

/// Another device of Alice's, which has the code and the passphrase of an export.
fn tablet(world: &World, liar: &LyingServer, export: &str) -> Home {
    let exported = world.alice.json(export);
    let mut tablet = world.other_home();
    tablet.set("ZOPP_SERVER", &liar.url());
    tablet.set("ZOPP_EXPORT_CODE", exported["code"].as_str().unwrap());
    tablet.set("ZOPP_EXPORT_PASSPHRASE", exported["passphrase"].as_str().unwrap());
    tablet
}

/// Keeps what the server stores of the next export.
fn keep_export(liar: &LyingServer) -> Arc<Mutex<CreatePrincipalExportRequest>> {
    let kept: Arc<Mutex<CreatePrincipalExportRequest>> = Arc::default();
    let also = Arc::clone(&kept);
    liar.lie(
        CREATE,
        move |request: CreatePrincipalExportRequest, answer: Result<CreatePrincipalExportResponse, Status>| {
            *also.lock().unwrap() = request;
            answer
        },
    );
    kept
}

/// Gives this salt for the proof, and keeps the proofs that are sent.
fn give_salt(liar: &LyingServer, salt: Vec<u8>) -> Arc<Mutex<Vec<String>>> {
    let proofs: Arc<Mutex<Vec<String>>> = Arc::default();
    let also = Arc::clone(&proofs);
    liar.lie(GET, move |request: GetPrincipalExportRequest, answer: Result<GetPrincipalExportResponse, Status>| {
        if !request.token_hash.is_empty() {
            also.lock().unwrap().push(request.token_hash);
        }
        Ok(GetPrincipalExportResponse { verification_salt: salt.clone(), ..answer? })
    });
    proofs
}

#[test]
fn a_server_that_replaces_a_salt_gets_nothing_from_an_import() {
    let (world, liar) = lying_world();
    for choose in [
        (|stored: &CreatePrincipalExportRequest| stored.salt.clone()) as fn(&CreatePrincipalExportRequest) -> Vec<u8>,
        |_| vec![7; 16],
        |_| Vec::new(),
        |stored| [stored.verification_salt.as_slice(), stored.salt.as_slice()].concat(),
    ] {
        let stored = keep_export(&liar);
        let tablet = tablet(&world, &liar, "principal export laptop");
        let stored = stored.lock().unwrap().clone();
        assert_ne!(stored.salt, stored.verification_salt);
        let proofs = give_salt(&liar, choose(&stored));
        let stderr = tablet.fails("principal import", 1);
        assert!(stderr.contains("does not belong to this code, so nothing more was sent"), "{stderr}");
        assert!(proofs.lock().unwrap().is_empty());
        // A flag does not make the code one of the published format.
        assert_eq!(tablet.run("principal import --from-published-client").code, 2);
        assert!(proofs.lock().unwrap().is_empty() && !tablet.config_file().exists());
        liar.tell_the_truth(GET);
        tablet.ok("principal import");
        assert_eq!(config(&tablet)["principals"][0]["id"], config(&world.alice)["principals"][0]["id"]);
    }
}

/// The server knows the sent part of the code, the salts and the proof.
#[test]
fn the_server_never_sees_the_second_part_of_a_code() {
    let (world, liar) = lying_world();
    let stored = keep_export(&liar);
    let names: Arc<Mutex<Vec<String>>> = Arc::default();
    let also = Arc::clone(&names);
    liar.lie(GET, move |request: GetPrincipalExportRequest, answer: Result<GetPrincipalExportResponse, Status>| {
        also.lock().unwrap().extend([request.export_code, request.token_hash]);
        answer
    });
    let tablet = tablet(&world, &liar, "principal export laptop");
    tablet.ok("principal import");
    let names = names.lock().unwrap().clone();
    assert!(names[0].len() == 12 && names[0].starts_with("exp_"), "{names:?}");
    assert_eq!(names, [&names[0], "", &names[0], &stored.lock().unwrap().token_hash]);
    assert!(liar.take_seen().iter().any(|call| call.path == CONSUME));
}

#[test]
fn the_published_format_is_read_and_written_on_request_only() {
    let (world, liar) = lying_world();
    let export = "principal export laptop --for-published-client";
    let warned = world.alice.run(export);
    assert!(warned.code == 0 && warned.stderr.contains("learns both private keys"), "{}", warned.stderr);
    let tablet = tablet(&world, &liar, export);
    liar.take_seen();
    let stderr = tablet.fails("principal import", 2);
    assert!(stderr.contains("--from-published-client") && stderr.contains("both private keys"), "{stderr}");
    assert_eq!(liar.take_seen(), [], "nothing is sent");
    tablet.ok("principal import --from-published-client");
    assert_eq!(config(&tablet)["principals"][0]["id"], config(&world.alice)["principals"][0]["id"]);
}

#[test]
fn equal_salts_of_a_published_export_are_refused() {
    let (world, liar) = lying_world();
    let stored = keep_export(&liar);
    let tablet = tablet(&world, &liar, "principal export laptop --for-published-client");
    let stored = stored.lock().unwrap().clone();
    liar.lie(GET, move |_: GetPrincipalExportRequest, _: Result<GetPrincipalExportResponse, Status>| {
        let CreatePrincipalExportRequest { encrypted_data, salt, nonce, expires_at, .. } = stored.clone();
        let verification_salt = salt.clone();
        Ok(GetPrincipalExportResponse {
            export_id: "x".into(),
            verification_salt,
            encrypted_data,
            salt,
            nonce,
            expires_at,
        })
    });
    let stderr = tablet.fails("principal import --from-published-client", 1);
    assert!(stderr.contains("one salt for the proof and for the key") && stderr.contains("--rotate-keys"), "{stderr}");
    assert!(!tablet.config_file().exists(), "nothing is imported");
}

/// Whatever the server answers to the proof, it may have made the key of it.
#[test]
fn every_failure_after_a_published_proof_says_that_the_keys_may_be_known() {
    type Lie = fn(&mut GetPrincipalExportResponse) -> Result<(), Status>;

    let (world, liar) = lying_world();
    let tablet = tablet(&world, &liar, "principal export laptop --for-published-client");
    let lies: [(&str, Lie); 6] = [
        ("refused", |_| Err(Status::permission_denied("wrong passphrase"))),
        ("gone", |_| Err(Status::unavailable("gone"))),
        ("damaged", |export| {
            export.encrypted_data.pop();
            Ok(())
        }),
        ("another salt of the proof", |export| {
            export.verification_salt[0] ^= 1;
            Ok(())
        }),
        ("a short salt", |export| {
            export.salt.pop();
            Ok(())
        }),
        ("equal salts", |export| {
            export.salt.clone_from(&export.verification_salt);
            Ok(())
        }),
    ];
    let told = |home: &Home, what: &str| {
        let stderr = home.fails("principal import --from-published-client", 1);
        let is_told = stderr.contains("may know both private keys") && stderr.contains("zopp principal disable");
        assert!(is_told && stderr.contains("Nothing was imported"), "{what}: {stderr}");
    };
    for (what, lie) in lies {
        liar.lie(GET, move |request: GetPrincipalExportRequest, answer: Result<GetPrincipalExportResponse, Status>| {
            let mut answer = answer?;
            if !request.token_hash.is_empty() {
                lie(&mut answer)?;
            }
            Ok(answer)
        });
        told(&tablet, what);
    }
    // Before the proof is sent, the server knows nothing.
    liar.lie(GET, |_: GetPrincipalExportRequest, _: Result<GetPrincipalExportResponse, Status>| {
        Err(Status::unavailable("gone"))
    });
    let stderr = tablet.fails("principal import --from-published-client", 1);
    assert!(!stderr.contains("both private keys"), "{stderr}");
    // The device has the principal already.
    liar.tell_the_truth(GET);
    tablet.write(".zopp/config.json", config(&world.alice).to_string());
    told(&tablet, "nothing to save");
}

#[test]
fn a_weak_passphrase_is_refused_on_export() {
    let (mut world, liar) = lying_world();
    for weak in [
        "secret",
        "hunter2",
        "password1234",
        "passwordpasswordpassword",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "qwertyuiopasdfghjklzxcvbnm",
        "2026-11-28",
    ] {
        world.alice.set("ZOPP_EXPORT_PASSPHRASE", weak);
        for flag in ["", " --for-published-client"] {
            liar.take_seen();
            let stderr = world.alice.fails(&format!("principal export laptop{flag}"), 2);
            assert!(stderr.contains("is weak") && !stderr.contains(weak), "{stderr}");
            assert_eq!(liar.take_seen(), [], "nothing is sent");
        }
    }
    for strong in ["six words that nobody else knows", "9f8c2d7be1a04c5f96d3e8b7a1c0d2f4", "Vq3-kX9z_Lm7Tr2#Wd5p"] {
        world.alice.set("ZOPP_EXPORT_PASSPHRASE", strong);
        world.alice.ok("principal export laptop");
    }
}
