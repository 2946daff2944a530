//! An envelope opens as it was made or not at all, after any change to it.

use std::sync::LazyLock;

use konverge_zopp_crypto::{
    Dek, EnvironmentName, InviteSecret, Kek, KeyLink, LinkError, Manifest, OpenError, Protection, Sealed, WrappedKek,
    X25519Private, manifest::Entries,
};

/// The first byte chooses the envelope, the others are laid over its bytes, from the nonce on. Zeros leave it as it is.
pub(crate) const SEEDS: &[&[u8]] = &[&[0], &[1, 0, 0, 1], &[2, 0xff], &[3; 80], &[4, 0], &[5, 0, 1], &[1; 200]];

const WORKSPACE_ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const KEY: &str = "KEY";

struct Envelopes {
    principal: X25519Private,
    secret: InviteSecret,
    kek: Kek,
    dek: Dek,
    wrapped_kek: WrappedKek,
    invited: Sealed,
    wrapped_dek: Sealed,
    value: Sealed,
    manifest: Sealed,
    /// From the key to itself: the same key as that of the others.
    link: KeyLink,
}

fn name() -> EnvironmentName {
    EnvironmentName::new("acme", "backend", "production")
}

static ENVELOPES: LazyLock<Envelopes> = LazyLock::new(|| {
    let principal = X25519Private::from_slice(&[0x11; 32]).unwrap();
    let secret = InviteSecret::from_slice(&[0x55; 32]).unwrap();
    let (kek, dek) = (Kek::from_slice(&[0x33; 32]).unwrap(), Dek::from_slice(&[0x44; 32]).unwrap());
    let manifest = Manifest {
        environment_id: "e".to_owned(),
        serial: 1,
        version: 1,
        protection: Protection::On,
        entries: Entries::new(),
    };
    Envelopes {
        wrapped_kek: kek.wrap_for(&principal.public(), WORKSPACE_ID).unwrap(),
        invited: secret.encrypt_kek(&kek, WORKSPACE_ID).unwrap(),
        wrapped_dek: dek.wrap(&kek, &name()).unwrap(),
        value: dek.encrypt(&name(), KEY, &"value".to_owned().into()).unwrap(),
        manifest: manifest.seal(&dek, &name()).unwrap(),
        link: KeyLink::new(WORKSPACE_ID, 2, &kek, &kek).unwrap(),
        principal,
        secret,
        kek,
        dek,
    }
});

pub(crate) fn run(bytes: &[u8]) {
    let Some((kind, mask)) = bytes.split_first() else { return };
    let Envelopes { principal, secret, kek, dek, wrapped_kek, invited, wrapped_dek, value, manifest, link } =
        &*ENVELOPES;
    let kind = kind % 6;
    let sealed = [&wrapped_kek.sealed, invited, wrapped_dek, value, manifest, &link.sealed][usize::from(kind)];
    let whole: Vec<u8> = sealed.nonce.iter().chain(&sealed.ciphertext).copied().collect();
    // A mask that is longer than the envelope makes it longer.
    let length = whole.len().max(mask.len());
    let at = |bytes: &[u8], index: usize| bytes.get(index).copied().unwrap_or_default();
    let altered: Vec<u8> = (0..length).map(|index| at(&whole, index) ^ at(mask, index)).collect();
    let (nonce, ciphertext) = altered.split_at(sealed.nonce.len());
    let opened = match kind {
        0 => Kek::unwrap_with(principal, &wrapped_kek.ephemeral_public.to_bytes(), nonce, ciphertext, WORKSPACE_ID)
            .map(|opened| opened.expose() == kek.expose()),
        1 => secret.decrypt_kek(nonce, ciphertext, WORKSPACE_ID).map(|opened| opened.expose() == kek.expose()),
        2 => Dek::unwrap_with(kek, nonce, ciphertext, &name()).map(|opened| opened.expose() == dek.expose()),
        3 => dek.decrypt(&name(), KEY, nonce, ciphertext).map(|opened| opened.expose() == b"value"),
        4 => Manifest::open(dek, &name(), nonce, ciphertext)
            .map(|opened| opened.serial == 1)
            .map_err(|_| OpenError::NotAuthentic),
        _ => {
            let sealed = Sealed { nonce: nonce.try_into().unwrap(), ciphertext: ciphertext.to_vec() };
            match (KeyLink { sealed, ..link.clone() }).open(WORKSPACE_ID, kek) {
                Ok(opened) => Ok(opened.expose() == kek.expose()),
                Err(LinkError::Open(error)) => Err(error),
                Err(error) => panic!("it opened: {error}"),
            }
        }
    };
    if altered == whole {
        assert_eq!(opened, Ok(true), "{kind}");
    } else {
        assert_eq!(opened, Err(OpenError::NotAuthentic), "{kind}");
    }
    // The same bytes as anything else: as a nonce, as a public key, cut off.
    assert!(dek.decrypt(&name(), KEY, mask, &whole).is_err());
    assert!(Kek::unwrap_with(principal, mask, &sealed.nonce, &sealed.ciphertext, WORKSPACE_ID).is_err());
    let cut = &sealed.ciphertext[..mask.len().min(sealed.ciphertext.len() - 1)];
    assert!(dek.decrypt(&name(), KEY, &sealed.nonce, cut).is_err());
}
