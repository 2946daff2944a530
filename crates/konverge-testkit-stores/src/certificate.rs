//! Server certificates for tests, also wrong ones.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

/// The properties of a server's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certificate {
    /// Nothing that is wrong.
    Good,
    /// That it ended years ago.
    Expired,
    /// The name of another server.
    OfAnother,
}

/// Makes a certificate authority.
pub(crate) fn authority(name: &str) -> Result<CertifiedIssuer<'static, KeyPair>, rcgen::Error> {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    CertifiedIssuer::self_signed(parameters, KeyPair::generate()?)
}

/// Makes the certificate and key, in PEM, of a server on this machine.
pub(crate) fn server(
    authority: &CertifiedIssuer<'static, KeyPair>,
    says: Certificate,
) -> Result<(String, String), rcgen::Error> {
    let names = match says {
        Certificate::Good | Certificate::Expired => vec!["localhost".to_owned(), "127.0.0.1".to_owned()],
        Certificate::OfAnother => vec!["another.example".to_owned()],
    };
    let mut server = CertificateParams::new(names)?;
    if says == Certificate::Expired {
        server.not_after = date_time_ymd(2020, 1, 1);
    }
    server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    Ok((server.signed_by(&key, authority)?.pem(), key.serialize_pem()))
}
