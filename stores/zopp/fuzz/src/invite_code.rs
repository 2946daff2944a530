//! An invite or a fingerprint that is understood has one written form.

use konverge_zopp_crypto::{Fingerprint, InviteSecret};

pub(crate) const SEEDS: &[&[u8]] = &[
    b"inv_5555555555555555555555555555555555555555555555555555555555555555",
    b"inv_ABCDEF",
    b"1c0f-1c0f-1c0f-1c0f-1c0f-1c0f-1c0f-1c0f-1c0f-77ab",
    b"1C0F1c0f1c0f1c0f1c0f1c0f1c0f1c0f1c0f77ab",
];

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(secret) = InviteSecret::from_code(text) {
        assert!(secret.to_code().as_str() == text.to_lowercase(), "a code has one form");
        let token = secret.token();
        assert!(token.len() == 64 && !text.contains(&token), "the token gives nothing away");
    }
    if let Ok(fingerprint) = text.parse::<Fingerprint>() {
        assert_eq!(fingerprint.to_string().parse(), Ok(fingerprint));
    }
}
