//! No envelope opens as anything but what it was made for, even where the same 32 bytes are the key of all kinds.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail by panicking")]

use konverge_core::SecretValue;
use konverge_zopp_crypto::{
    Dek, EnvironmentName, Fingerprint, InviteSecret, Kek, KeyLink, LinkError, Manifest, ManifestError, OpenError,
    Protection, Sealed, X25519Private, manifest::Entries,
};
use proptest::prelude::*;

const KEY: [u8; 32] = [0x33; 32];
const NOT_AUTHENTIC: Option<OpenError> = Some(OpenError::NotAuthentic);

/// Where an envelope belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    workspace_id: String,
    name: EnvironmentName,
    key: String,
    generation: u32,
}

/// The kinds of envelope that are made under a key of 32 bytes.
const KINDS: [&str; 5] = ["invite", "data key", "value", "manifest", "former key"];

/// The link from the key to itself, with this envelope: nothing but the context is wrong with it.
fn link(place: &Place, sealed: Sealed) -> KeyLink {
    let print = Fingerprint::of_workspace(&place.workspace_id, &Kek::from_slice(&KEY).unwrap());
    KeyLink { generation: place.generation, former: print, new: print, sealed }
}

fn seal(kind: &str, place: &Place) -> Sealed {
    let (kek, dek) = (Kek::from_slice(&KEY).unwrap(), Dek::from_slice(&KEY).unwrap());
    match kind {
        "invite" => InviteSecret::from_slice(&KEY).unwrap().encrypt_kek(&kek, &place.workspace_id).unwrap(),
        "data key" => dek.wrap(&kek, &place.name).unwrap(),
        // As long as a key, so that only the context tells them apart.
        "value" => dek.encrypt(&place.name, &place.key, &SecretValue::new(KEY.to_vec())).unwrap(),
        "manifest" => {
            let manifest = Manifest {
                environment_id: String::new(),
                serial: 1,
                version: 1,
                protection: Protection::On,
                entries: Entries::new(),
            };
            manifest.seal(&dek, &place.name).unwrap()
        }
        _ => KeyLink::new(&place.workspace_id, place.generation, &kek, &kek).unwrap().sealed,
    }
}

/// The error of opening; `None` if it opens.
fn open(kind: &str, place: &Place, Sealed { nonce, ciphertext }: &Sealed) -> Option<OpenError> {
    let (kek, dek) = (Kek::from_slice(&KEY).unwrap(), Dek::from_slice(&KEY).unwrap());
    match kind {
        "invite" => InviteSecret::from_slice(&KEY).unwrap().decrypt_kek(nonce, ciphertext, &place.workspace_id).err(),
        "data key" => Dek::unwrap_with(&kek, nonce, ciphertext, &place.name).err(),
        "value" => dek.decrypt(&place.name, &place.key, nonce, ciphertext).err(),
        "manifest" => match Manifest::open(&dek, &place.name, nonce, ciphertext) {
            Ok(_) => None,
            Err(ManifestError::Open(error)) => Some(error),
            Err(ManifestError::Format) => panic!("opened, and was no manifest"),
        },
        _ => {
            match link(place, Sealed { nonce: *nonce, ciphertext: ciphertext.clone() }).open(&place.workspace_id, &kek)
            {
                Ok(_) => None,
                Err(LinkError::Open(error)) => Some(error),
                Err(error) => panic!("opened: {error}"),
            }
        }
    }
}

/// Names as servers accept them: without a colon, which would make contexts ambiguous. The words of other contexts are names like any other.
fn place() -> impl Strategy<Value = Place> {
    let name =
        || prop_oneof!["[^:\\x00]{1,12}", "workspace|environment|secret|invite|konverge-manifest|konverge-former-key"];
    let names = (name(), name(), name(), name(), name());
    (names, 2..4_u32).prop_map(|((workspace_id, workspace, project, environment, key), generation)| Place {
        workspace_id,
        name: EnvironmentName::new(workspace, project, environment),
        key,
        generation,
    })
}

proptest! {
    #[test]
    fn an_envelope_of_one_kind_opens_as_no_other(place in place()) {
        for made in KINDS {
            let sealed = seal(made, &place);
            for opened in KINDS {
                let expected = if made == opened { None } else { NOT_AUTHENTIC };
                prop_assert_eq!(open(opened, &place, &sealed), expected, "{} as {}", made, opened);
            }
        }
    }

    #[test]
    fn an_envelope_of_one_place_opens_in_no_other(one in place(), other in place()) {
        for kind in KINDS {
            let sealed = seal(kind, &one);
            let same = match kind {
                "invite" => one.workspace_id == other.workspace_id,
                "value" => one.name == other.name && one.key == other.key,
                "former key" => (&one.workspace_id, one.generation) == (&other.workspace_id, other.generation),
                _ => one.name == other.name,
            };
            prop_assert_eq!(open(kind, &other, &sealed).is_none(), same, "{}", kind);
        }
    }

    /// A wrapped workspace key against the other envelopes that a workspace key is in.
    #[test]
    fn a_wrap_is_for_one_recipient_in_one_workspace(place in place(), other in "[^:]{1,12}") {
        let recipient = X25519Private::generate().unwrap();
        let kek = Kek::from_slice(&KEY).unwrap();
        let wrapped = kek.wrap_for(&recipient.public(), &place.workspace_id).unwrap();
        let open = |recipient: &X25519Private, workspace_id: &str| {
            let Sealed { nonce, ciphertext } = &wrapped.sealed;
            Kek::unwrap_with(recipient, &wrapped.ephemeral_public.to_bytes(), nonce, ciphertext, workspace_id).err()
        };
        prop_assert_eq!(open(&recipient, &place.workspace_id), None);
        prop_assert_eq!(open(&X25519Private::generate().unwrap(), &place.workspace_id), NOT_AUTHENTIC);
        prop_assert_eq!(open(&recipient, &other).is_none(), other == place.workspace_id);
        // The context of an invite with this workspace's ID.
        prop_assert_eq!(open(&recipient, &format!("invite:workspace:{}", place.workspace_id)), NOT_AUTHENTIC);
    }

    #[test]
    fn any_altered_bit_is_noticed(place in place(), at: prop::sample::Index, bit in 0..8_u32) {
        for kind in KINDS {
            let mut sealed = seal(kind, &place);
            let length = sealed.nonce.len() + sealed.ciphertext.len();
            let at = at.index(length);
            match at.checked_sub(sealed.nonce.len()) {
                None => sealed.nonce[at] ^= 1 << bit,
                Some(at) => sealed.ciphertext[at] ^= 1 << bit,
            }
            prop_assert_eq!(open(kind, &place, &sealed), NOT_AUTHENTIC, "{} at {}", kind, at);
        }
    }
}
