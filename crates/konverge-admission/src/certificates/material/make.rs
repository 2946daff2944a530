//! Making authorities and certificates.

use std::time::Duration;

use jiff::Timestamp;
use konverge_runtime::tls::Validity;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SerialNumber,
};
use zeroize::Zeroizing;

use super::{
    super::plan::{Lifetimes, seconds},
    MaterialError, der,
};

/// An authority and its key.
pub(super) fn new_authority(
    lifetimes: &Lifetimes,
    now: Timestamp,
) -> Result<(String, Zeroizing<String>), MaterialError> {
    let serial: u128 = rand::random();
    let ends = now.as_second().saturating_add(seconds(lifetimes.authority));
    let mut parameters = parameters(Vec::new(), serial, lifetimes, now, ends)?;
    parameters.distinguished_name.push(DnType::CommonName, format!("konverge webhooks {serial:032x}"));
    // It signs servers and no further authorities.
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate()?;
    let certificate = parameters.self_signed(&key)?.pem().replace('\r', "");
    Ok((certificate, Zeroizing::new(key.serialize_pem())))
}

/// A certificate for these names, signed by the authority, and its key.
pub(super) fn new_certificate(
    authority: &str,
    authority_key: &str,
    names: &[String],
    lifetimes: &Lifetimes,
    now: Timestamp,
) -> Result<(String, Zeroizing<String>), MaterialError> {
    let issuer = Issuer::from_ca_cert_pem(authority, KeyPair::from_pem(authority_key)?)?;
    // No longer than what vouches for it.
    let ends = now.as_second().saturating_add(seconds(lifetimes.certificate));
    let ends = ends.min(Validity::of(&der(authority)?)?.ends.as_second());
    let mut parameters = parameters(names.to_vec(), rand::random(), lifetimes, now, ends)?;
    // A common name holds 64 characters, and nobody has looked at it for years.
    parameters.distinguished_name.push(DnType::CommonName, "konverge webhooks");
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    parameters.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate()?;
    let certificate = parameters.signed_by(&key, &issuer)?.pem().replace('\r', "");
    Ok((certificate, Zeroizing::new(key.serialize_pem())))
}

fn parameters(
    names: Vec<String>,
    serial: u128,
    lifetimes: &Lifetimes,
    now: Timestamp,
    ends: i64,
) -> Result<CertificateParams, MaterialError> {
    let mut parameters = CertificateParams::new(names)?;
    parameters.distinguished_name = rcgen::DistinguishedName::new();
    // Positive and of at most 20 bytes, as the standard wants it.
    parameters.serial_number = Some(SerialNumber::from_slice(&(serial >> 1).to_be_bytes()));
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let at = |second: i64| epoch + Duration::from_secs(u64::try_from(second).unwrap_or_default());
    parameters.not_before = at(now.as_second() - seconds(lifetimes.backdating));
    parameters.not_after = at(ends);
    Ok(parameters)
}
