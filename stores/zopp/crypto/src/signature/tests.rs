use proptest::prelude::*;

use super::*;

const TIMESTAMP: i64 = 1_700_000_000;
const ENVIRONMENT: &str = "0a0461636d6512076261636b656e641a0a70726f64756374696f6e";

fn seed() -> SigningSeed {
    SigningSeed::from_slice(&(0..32).collect::<Vec<u8>>()).unwrap()
}

#[track_caller]
fn check_vector(rpc: &str, body: &str, hash: &str, signature: &str) {
    let method = format!("/zopp.ZoppService/{rpc}");
    let body = hex::decode(body).unwrap();
    let signed = sign(Profile::V2, &seed(), &method, &body, TIMESTAMP);
    assert_eq!(signed.request_hash_hex().as_deref(), Some(hash));
    assert_eq!(signed.signature_hex(), signature);
    assert_eq!(verify(Profile::V2, &seed().public(), &method, &body, &signed), Ok(()));
    let parsed = Signed::parse(&TIMESTAMP.to_string(), &signature.to_uppercase(), Some(hash)).unwrap();
    assert_eq!(parsed, signed);
    assert_eq!(parsed.profile(), Profile::V2);
}

#[test]
fn vector_list_secrets() {
    check_vector(
        "ListSecrets",
        ENVIRONMENT,
        "8c3ff68087f66c134c40fe2234bc48405f736f23078a3d5865cb66e2bff7a6c4",
        "7a16cfef37aa7430376eca232c4fe53b7bd7b2dfc62e3e9a615380037a52470db34f2ad7e96d7b9e78087e0c5a9f7f1f02631f3ab715776dabb131fc3f137801",
    );
}

#[test]
fn vector_list_workspaces() {
    check_vector(
        "ListWorkspaces",
        "",
        "4f62ca18b18fe3fef993b3cf08730b453df03fbf9a905fb4fd25fb66dc466b4e",
        "56531d0c6cc6790d492b60533f892caecbaf25f88da1469fe35162095ccef19c43d0a1d320f43efa86efb65e8d85dee13f25459f56a645bd56d690f15e4ca107",
    );
}

#[test]
fn vector_watch_secrets() {
    check_vector(
        "WatchSecrets",
        &format!("{ENVIRONMENT}2000"),
        "0dac00dc75b9119402622a6aab69ce361a17a98049566aa77144f03d80ed3090",
        "6a3ebe22a90f5e22d2940cecd9bbe4b28d68027f649b1161d8f8789201e8dbc71c094495faa37f25394e46f50cda1cf0d7d25e7ad868bd24a0868a864a1e5c09",
    );
}

#[test]
fn vector_set_workspace_permission() {
    check_vector(
        "SetWorkspacePermission",
        "0a0461636d65122430313839306135642d616339362d373734622d626363652d6233303230393961383035371803",
        "54515647a96218f9f1663f499a9756029ef6fc776e620f7e255fa8199a857e47",
        "eff191eabd5952894617df7f582070b1065ffd65032c2d661130aa4f6b1b3f12f2ce377ca32a290b5b7442bce294329aef3805be24434ae5b591544a70878a0b",
    );
}

#[test]
fn vector_first_generation() {
    let signed = sign(Profile::V1, &seed(), "/zopp.ZoppService/Anything", b"any", TIMESTAMP);
    assert_eq!(
        signed.signature_hex(),
        "cf650eab0694c4657d36f704cc967c748920ae610c5890b2a8ff14df308c9109a31366a2d747dd3e561c0e74eb4a65b7b49d95f4604b19911c17dc0c57098409"
    );
    assert_eq!(signed.request_hash, None);
    assert_eq!(signed.profile(), Profile::V1);
    let public = seed().public();
    assert_eq!(verify(Profile::V1, &public, "/another", b"other", &signed), Ok(()));
    assert_eq!(verify(Profile::V2, &public, "/another", b"other", &signed), Err(VerifyError::MissingRequestHash));
}

#[test]
fn every_part_is_covered() {
    let (method, body) = ("/zopp.ZoppService/GetSecret", b"body".as_slice());
    let public = seed().public();
    let signed = sign(Profile::V2, &seed(), method, body, TIMESTAMP);
    let check = |method: &str, body: &[u8], signed: &Signed| verify(Profile::V2, &public, method, body, signed);

    assert_eq!(check("/zopp.ZoppService/Other", body, &signed), Err(VerifyError::RequestHashMismatch));
    assert_eq!(check(method, b"bodi", &signed), Err(VerifyError::RequestHashMismatch));
    let later = Signed { timestamp: TIMESTAMP + 1, ..signed.clone() };
    assert_eq!(check(method, body, &later), Err(VerifyError::BadSignature));
    let stranger = SigningSeed::generate().unwrap().public();
    assert_eq!(verify(Profile::V2, &stranger, method, body, &signed), Err(VerifyError::BadSignature));
}

#[test]
fn the_window_is_closed_at_both_ends() {
    assert_eq!(check_age(1_000, 1_060), Ok(()));
    assert_eq!(check_age(1_000, 1_061), Err(AgeError::TooOld));
    assert_eq!(check_age(1_030, 1_000), Ok(()));
    assert_eq!(check_age(1_031, 1_000), Err(AgeError::TooNew));
    assert_eq!(check_age(i64::MIN, i64::MAX), Err(AgeError::TooOld));
    assert_eq!(check_age(i64::MAX, i64::MIN), Err(AgeError::TooNew));
}

proptest! {
    #[test]
    fn any_metadata_is_an_answer_not_a_panic(timestamp in ".*", signature in ".*", hash in proptest::option::of(".*")) {
        let _ = Signed::parse(&timestamp, &signature, hash.as_deref());
    }

    #[test]
    fn no_random_signature_passes(bytes: [u8; 32], more: [u8; 32], hash: bool) {
        let mut signature = [0; 64];
        signature[..32].copy_from_slice(&bytes);
        signature[32..].copy_from_slice(&more);
        let signed = Signed { timestamp: 0, signature, request_hash: hash.then(|| request_hash("/m", b"b")) };
        prop_assert!(verify(signed.profile(), &seed().public(), "/m", b"b", &signed).is_err());
    }
}

#[test]
fn a_key_proof_is_for_one_key_one_call_and_one_content() {
    let (seed, other) = (SigningSeed::generate().unwrap(), SigningSeed::generate().unwrap());
    let proof = prove_key(&seed, "/s/Join", b"body");
    assert_eq!(verify_key_proof(&seed.public(), "/s/Join", b"body", &proof), Ok(()));
    assert_eq!(verify_key_proof(&other.public(), "/s/Join", b"body", &proof), Err(VerifyError::BadSignature));
    assert_eq!(verify_key_proof(&seed.public(), "/s/Register", b"body", &proof), Err(VerifyError::BadSignature));
    assert_eq!(verify_key_proof(&seed.public(), "/s/Join", b"bode", &proof), Err(VerifyError::BadSignature));
    let request = sign(Profile::V2, &seed, "/s/Join", b"body", 0);
    assert_eq!(
        verify_key_proof(&seed.public(), "/s/Join", b"body", &request.signature),
        Err(VerifyError::BadSignature),
        "a captured request proves nothing"
    );
}
