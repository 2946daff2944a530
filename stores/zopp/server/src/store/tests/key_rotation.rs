//! A workspace's key is replaced for all of its holders and environments, or for nobody.

use super::*;

on_both! {
    a_key_is_replaced_for_all_or_for_nobody,
    a_rotation_for_others_than_there_are_is_outdated,
}

fn wrap(byte: u8) -> KeyWrap {
    KeyWrap {
        ephemeral_pub: vec![byte; 32],
        kek_wrapped: vec![byte; 48],
        kek_nonce: vec![byte; 24],
        signature: Some(vec![byte; 64]),
        signer_id: Some("signer".into()),
    }
}

/// To the generation after the expected one, with fingerprints that tell the generations.
pub(super) fn rotation(expected_generation: u32, holders: &[&str], environments: &[&str]) -> KeyRotation {
    let print = |generation: u32| vec![u8::try_from(generation).unwrap(); 20];
    KeyRotation {
        expected_generation,
        link: KeyLinkRow {
            generation: expected_generation + 1,
            former_fingerprint: print(expected_generation),
            fingerprint: print(expected_generation + 1),
            former_nonce: vec![1; 24],
            former_sealed: vec![1; 48],
            signature: vec![1; 64],
            signer_id: "signer".into(),
            signer_name: "laptop".into(),
            signer_public_key: vec![1; 32],
            signer_x25519_public_key: Vec::new(),
            created_at: 7,
            administrators: Some(vec![6; 40]),
            administrators_signature: Some(vec![6; 64]),
        },
        wraps: holders.iter().map(|id| ((*id).to_owned(), wrap(9))).collect(),
        left_out: Vec::new(),
        environments: environments.iter().map(|id| ((*id).to_owned(), vec![9; 48], vec![9; 24])).collect(),
    }
}

async fn a_key_is_replaced_for_all_or_for_nobody(database: Database) {
    let store = database.open().await;
    let (workspace_id, environment_id) = environment(&store).await;
    let audit = row(Action::WorkspaceRotateKey);
    let before = store.key_state(&workspace_id).await.unwrap().unwrap();
    assert_eq!((before.generation, before.holders.len(), before.environments.len()), (1, 1, 1));
    let holder = before.holders[0].id.clone();
    let workspace_ids = [workspace_id.clone()];
    let with_key = |token: &'static str, key: Option<&'static [u8]>| NewInvite {
        token,
        workspace_ids: &workspace_ids,
        expires_at: clock::now() + 3600,
        kek_encrypted: key,
        kek_nonce: key,
        max_uses: None,
    };
    store.create_invite(&with_key("with", Some(&[1; 48])), None).await.unwrap();
    store.create_invite(&with_key("without", None), None).await.unwrap();
    let tag = store.environment_state(&environment_id, Wanted::All, None).await.unwrap().unwrap().tag;

    let rotated = store.rotate_key(&workspace_id, &rotation(1, &[&holder], &[&environment_id]), &audit).await.unwrap();
    assert_eq!(rotated, Rotated::Done { invites: 1 });
    let after = store.key_state(&workspace_id).await.unwrap().unwrap();
    assert_eq!((after.generation, after.holders[0].kek_wrapped.as_slice()), (2, [9; 48].as_slice()));
    assert_eq!(
        (after.environments[0].dek_wrapped.as_slice(), after.environments[0].made_under),
        ([9; 48].as_slice(), 1)
    );
    assert!(store.invite("with").await.unwrap().is_none() && store.invite("without").await.unwrap().is_some());
    let state = store.environment_state(&environment_id, Wanted::All, None).await.unwrap().unwrap();
    assert_eq!(state.version, 0, "nobody's values changed");
    assert_ne!(state.tag, tag, "a change for the former key comes too late");

    // A new key of the environment is of the new generation, and so is a new environment.
    let change = SecretsChange {
        expected_tag: Some(state.tag),
        expected_version: None,
        set: Vec::new(),
        delete: Vec::new(),
        manifest: None,
        new_dek: Some((vec![8; 48], vec![8; 24])),
        rollback_to: None,
    };
    store.change_secrets(&workspace_id, &environment_id, &change, &row(Action::SecretUpdate)).await.unwrap();
    assert_eq!(store.key_state(&workspace_id).await.unwrap().unwrap().environments[0].made_under, 2);

    let rotated = store.rotate_key(&workspace_id, &rotation(2, &[&holder], &[&environment_id]), &audit).await.unwrap();
    assert_eq!(rotated, Rotated::Done { invites: 0 });
    let chain = store.key_chain(&workspace_id).await.unwrap();
    assert_eq!(chain.iter().map(|link| link.generation).collect::<Vec<_>>(), [3, 2]);
    assert_eq!(chain[1], rotation(1, &[], &[]).link);
}

async fn a_rotation_for_others_than_there_are_is_outdated(database: Database) {
    let store = database.open().await;
    let (workspace_id, environment_id) = environment(&store).await;
    let audit = row(Action::WorkspaceRotateKey);
    let before = store.key_state(&workspace_id).await.unwrap().unwrap();
    let (holder, environment_id) = (before.holders[0].id.as_str(), environment_id.as_str());
    let mut left_out = rotation(1, &[holder], &[environment_id]);
    left_out.left_out.push("stranger".into());
    let mut broken = rotation(1, &[holder], &[environment_id]);
    for (what, outdated) in [
        ("of another generation", rotation(2, &[holder], &[environment_id])),
        ("without a holder", rotation(1, &[], &[environment_id])),
        ("with a stranger", rotation(1, &[holder, "stranger"], &[environment_id])),
        ("twice for a holder", rotation(1, &[holder, holder], &[environment_id])),
        ("with a stranger left out", left_out),
        ("without an environment", rotation(1, &[holder], &[])),
        ("with another environment", rotation(1, &[holder], &[environment_id, "other"])),
    ] {
        let rotated = store.rotate_key(&workspace_id, &outdated, &audit).await.unwrap();
        assert_eq!(rotated, Rotated::Outdated, "{what}");
        assert_eq!(store.key_state(&workspace_id).await.unwrap().unwrap(), before, "{what}");
    }
    store.rotate_key(&workspace_id, &rotation(1, &[holder], &[environment_id]), &audit).await.unwrap();
    broken.expected_generation = 2;
    broken.link.generation = 3;
    broken.link.former_fingerprint = vec![7; 20];
    assert_eq!(store.rotate_key(&workspace_id, &broken, &audit).await.unwrap(), Rotated::Broken);
    store.set_principal_disabled(None, holder, true, true, &row(Action::PrincipalDisable)).await.unwrap().unwrap();
    let disabled = store.rotate_key(&workspace_id, &rotation(2, &[holder], &[environment_id]), &audit).await.unwrap();
    assert_eq!(disabled, Rotated::Disabled);
}
