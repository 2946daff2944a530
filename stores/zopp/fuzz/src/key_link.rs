//! The link between two keys of a workspace holds as it was made or not at all, after any change to it.

use std::sync::LazyLock;

use konverge_zopp_crypto::{Fingerprint, Kek, KeyLink, LinkError, OpenError, Sealed, SigningSeed};

/// Laid over the fields of a link, one after the other. Zeros leave it as it is.
pub(crate) const SEEDS: &[&[u8]] = &[&[], &[0; 8], &[1], &[0, 0, 0, 0, 1], &[0; 200], &[0xff; 40]];

const WORKSPACE_ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

struct Signed {
    former: Kek,
    new: Kek,
    seed: SigningSeed,
    link: KeyLink,
    signature: Vec<u8>,
}

static SIGNED: LazyLock<Signed> = LazyLock::new(|| {
    let (former, new) = (Kek::from_slice(&[0x33; 32]).unwrap(), Kek::from_slice(&[0x44; 32]).unwrap());
    let seed = SigningSeed::from_slice(&[0x55; 32]).unwrap();
    let link = KeyLink::new(WORKSPACE_ID, 2, &former, &new).unwrap();
    let signature = link.sign(WORKSPACE_ID, &seed).to_vec();
    Signed { former, new, seed, link, signature }
});

pub(crate) fn run(mask: &[u8]) {
    let Signed { former, new, seed, link, signature } = &*SIGNED;
    let mut mask = mask.iter().copied();
    let mut altered =
        |bytes: &[u8]| -> Vec<u8> { bytes.iter().map(|byte| byte ^ mask.next().unwrap_or_default()).collect() };
    let generation = altered(&link.generation.to_le_bytes());
    let [former_print, new_print] = [link.former, link.new].map(|print| altered(&print.to_bytes()));
    let (nonce, ciphertext, signed) =
        (altered(&link.sealed.nonce), altered(&link.sealed.ciphertext), altered(signature));
    let given = KeyLink {
        generation: u32::from_le_bytes(generation.as_slice().try_into().unwrap()),
        former: Fingerprint::from_slice(&former_print).unwrap(),
        new: Fingerprint::from_slice(&new_print).unwrap(),
        sealed: Sealed { nonce: nonce.as_slice().try_into().unwrap(), ciphertext },
    };
    let is_signed = given.verify(WORKSPACE_ID, &seed.public(), &signed).is_ok();
    assert_eq!(is_signed, given == *link && signed == *signature);
    let opened = given.open(WORKSPACE_ID, new).map(|opened| opened.expose() == former.expose());
    let expected = if (given.generation, &given.sealed) != (link.generation, &link.sealed) {
        Err(LinkError::Open(OpenError::NotAuthentic))
    } else if given == *link {
        Ok(true)
    } else {
        Err(LinkError::OtherKeys)
    };
    assert_eq!(opened, expected);
    // Not for another workspace, and not with the former key.
    assert!(given.open("other", new).is_err() && given.open(WORKSPACE_ID, former).is_err());
    assert!(given.verify("other", &seed.public(), &signed).is_err());
}
