use proptest::prelude::*;

use super::*;
use crate::{envelope::seal_with_nonce, keys::KeyError};

const WORKSPACE_ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

fn name() -> EnvironmentName {
    EnvironmentName::new("acme", "backend", "production")
}

fn principal() -> X25519Private {
    X25519Private::from_slice(&[0x11; 32]).unwrap()
}

fn kek() -> Kek {
    Kek::from_slice(&[0x33; 32]).unwrap()
}

fn dek() -> Dek {
    Dek::from_slice(&[0x44; 32]).unwrap()
}

fn bytes(hexadecimal: &str) -> Vec<u8> {
    hex::decode(hexadecimal).unwrap()
}

#[test]
fn vector_shared_secret() {
    let ephemeral = X25519Private::from_slice(&[0x22; 32]).unwrap();
    let expected = "9e004098efc091d4ec2663b4e9f5cfd4d7064571690b4bea97ab146ab9f35056";
    assert_eq!(hex::encode(shared_secret(&ephemeral, &principal().public()).unwrap().as_slice()), expected);
    assert_eq!(hex::encode(shared_secret(&principal(), &ephemeral.public()).unwrap().as_slice()), expected);
}

#[test]
fn vector_wrapped_kek() {
    let wrapped =
        bytes("74913bfeb30fa39fc4aa1e4df876e31485a8e3b7ff66909697915771c6f9ce73fcda18513991367192369c9a5064e5c5");
    let ephemeral = X25519Private::from_slice(&[0x22; 32]).unwrap();
    let shared = shared_secret(&ephemeral, &principal().public()).unwrap();
    let sealed = seal_with_nonce(&shared, [1; 24], kek().expose(), &bind_kek(WORKSPACE_ID)).unwrap();
    assert_eq!(sealed.ciphertext, wrapped);
    let unwrapped =
        Kek::unwrap_with(&principal(), &ephemeral.public().to_bytes(), &[1; 24], &wrapped, WORKSPACE_ID).unwrap();
    assert_eq!(unwrapped.expose(), kek().expose());
}

#[test]
fn vector_wrapped_dek() {
    let wrapped =
        bytes("6ae5e07b6e09b49fecc77aa552f3c21ddb5a3fde0b88ea3c42dbd1a9654fe2445f5b99cec3a4434c8fa2816ce2924966");
    let sealed = seal_with_nonce(kek().expose(), [2; 24], dek().expose(), &name().bind_dek()).unwrap();
    assert_eq!(sealed.ciphertext, wrapped);
    assert_eq!(Dek::unwrap_with(&kek(), &[2; 24], &wrapped, &name()).unwrap().expose(), dek().expose());
}

#[test]
fn vector_secret() {
    let ciphertext = bytes("a8a03766f96bb549f19550083e88095ee05c4706dac66125093e531eeb");
    let sealed =
        seal_with_nonce(dek().expose(), [3; 24], b"postgres://db", &name().bind_value("DATABASE_URL")).unwrap();
    assert_eq!(sealed.ciphertext, ciphertext);
    let value = dek().decrypt(&name(), "DATABASE_URL", &[3; 24], &ciphertext).unwrap();
    assert_eq!(value.expose(), b"postgres://db");
}

#[test]
fn a_value_opens_under_its_own_names_only() {
    let sealed = dek().encrypt(&name(), "KEY", &SecretValue::new(b"value".to_vec())).unwrap();
    let open = |name: &EnvironmentName, key: &str| {
        dek().decrypt(name, key, &sealed.nonce, &sealed.ciphertext).map(|value| value.expose().to_vec())
    };
    assert_eq!(open(&name(), "KEY"), Ok(b"value".to_vec()));
    assert_eq!(open(&name(), "OTHER"), Err(OpenError::NotAuthentic));
    assert_eq!(open(&EnvironmentName::new("acme", "backend", "staging"), "KEY"), Err(OpenError::NotAuthentic));
    assert_eq!(open(&EnvironmentName::new("acme", "frontend", "production"), "KEY"), Err(OpenError::NotAuthentic));
    assert_eq!(open(&EnvironmentName::new("other", "backend", "production"), "KEY"), Err(OpenError::NotAuthentic));
}

#[test]
fn wrapped_keys_of_another_length_are_errors() {
    let short = seal(kek().expose(), &[1; 31], &name().bind_dek()).unwrap();
    assert_eq!(
        Dek::unwrap_with(&kek(), &short.nonce, &short.ciphertext, &name()).err(),
        Some(OpenError::WrappedKey(KeyError::Length { found: 31 }))
    );
    let ephemeral = X25519Private::generate().unwrap();
    let shared = shared_secret(&ephemeral, &principal().public()).unwrap();
    let long = seal(&shared, &[1; 33], &bind_kek(WORKSPACE_ID)).unwrap();
    assert_eq!(
        Kek::unwrap_with(&principal(), &ephemeral.public().to_bytes(), &long.nonce, &long.ciphertext, WORKSPACE_ID)
            .err(),
        Some(OpenError::WrappedKey(KeyError::Length { found: 33 }))
    );
}

#[test]
fn low_order_public_keys_are_refused() {
    let weak = X25519Public::from_slice(&[0; 32]).unwrap();
    assert!(matches!(kek().wrap_for(&weak, WORKSPACE_ID), Err(SealError::WeakPublicKey)));
    assert_eq!(
        Kek::unwrap_with(&principal(), &[0; 32], &[1; 24], &[0; 48], WORKSPACE_ID).err(),
        Some(OpenError::WeakPublicKey)
    );
}

proptest! {
    #[test]
    fn the_whole_way_down_round_trips(
        workspace in ".*", project in ".*", environment in ".*", key in ".*", plaintext: Vec<u8>,
    ) {
        let name = EnvironmentName::new(workspace, project, environment);
        let (principal, kek, dek) =
            (X25519Private::generate().unwrap(), Kek::generate().unwrap(), Dek::generate().unwrap());
        let wrapped_kek = kek.wrap_for(&principal.public(), WORKSPACE_ID).unwrap();
        let wrapped_dek = dek.wrap(&kek, &name).unwrap();
        let sealed = dek.encrypt(&name, &key, &SecretValue::new(plaintext.clone())).unwrap();

        let kek = Kek::unwrap_with(
            &principal,
            &wrapped_kek.ephemeral_public.to_bytes(),
            &wrapped_kek.sealed.nonce,
            &wrapped_kek.sealed.ciphertext,
            WORKSPACE_ID,
        ).unwrap();
        let dek = Dek::unwrap_with(&kek, &wrapped_dek.nonce, &wrapped_dek.ciphertext, &name).unwrap();
        let value = dek.decrypt(&name, &key, &sealed.nonce, &sealed.ciphertext).unwrap();
        prop_assert_eq!(value.expose(), plaintext.as_slice());
    }

    #[test]
    fn a_stranger_opens_nothing(workspace_id in "[a-z]{1,8}") {
        let wrapped = kek().wrap_for(&principal().public(), &workspace_id).unwrap();
        let open = |private: &X25519Private, id: &str| Kek::unwrap_with(
            private,
            &wrapped.ephemeral_public.to_bytes(),
            &wrapped.sealed.nonce,
            &wrapped.sealed.ciphertext,
            id,
        ).err();
        prop_assert_eq!(open(&principal(), &workspace_id), None);
        prop_assert_eq!(open(&X25519Private::generate().unwrap(), &workspace_id), Some(OpenError::NotAuthentic));
        prop_assert_eq!(open(&principal(), "0"), Some(OpenError::NotAuthentic));
    }

    #[test]
    fn any_bytes_from_the_wire_are_an_error_not_a_panic(a: Vec<u8>, b: Vec<u8>, c: Vec<u8>) {
        prop_assert!(Kek::unwrap_with(&principal(), &a, &b, &c, WORKSPACE_ID).is_err());
        prop_assert!(Dek::unwrap_with(&kek(), &a, &b, &name()).is_err());
        prop_assert!(dek().decrypt(&name(), "KEY", &a, &b).is_err());
    }
}
