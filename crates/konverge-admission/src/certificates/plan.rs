//! The next step for self-made certificates: a pure function of the present state and the time.
//!
//! An API server must know an authority before it meets a certificate of it, and every replica must have left an authority before
//! it is forgotten. So the authority changes in three steps with the overlap between them: it is made and made known; the
//! certificate is signed by it; the one before is forgotten. Where the times stand is read from the certificates themselves, so
//! any replica may take the next step, after any pause.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use konverge_runtime::tls::Validity;

/// The times of self-made certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lifetimes {
    /// Of a certificate authority; 365 days. It is followed by the next after two thirds.
    pub authority: Duration,
    /// Of the certificate that is served; 30 days. It is renewed after two thirds.
    pub certificate: Duration,
    /// Between the steps in which one authority follows another; one day. By far longer than [`look_every`](Self::look_every), so
    /// that all replicas have seen one step before the next.
    pub overlap: Duration,
    /// How often a replica looks at the Secret and at what it has to keep in the cluster; one minute.
    pub look_every: Duration,
    /// How far certificates begin in the past, for clocks that are behind; 5 minutes.
    pub backdating: Duration,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self {
            authority: Duration::from_secs(365 * 24 * 3600),
            certificate: Duration::from_secs(30 * 24 * 3600),
            overlap: Duration::from_secs(86_400),
            look_every: Duration::from_secs(60),
            backdating: Duration::from_secs(300),
        }
    }
}

konverge_core::with!(Lifetimes);

/// The present state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Facts {
    /// The newest first.
    pub(super) authorities: Vec<Validity>,
    pub(super) certificate: Validity,
    /// Which of the authorities signed the certificate.
    pub(super) signer: Option<usize>,
    /// Whether the certificate is for the names that callers use.
    pub(super) names_fit: bool,
    /// Whether everything that has to know the newest authority was seen to know it.
    pub(super) known: bool,
}

/// The next step. Each is one write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Nothing,
    NewAuthority,
    NewCertificate,
    ForgetOldAuthorities,
}

/// The next step.
pub(super) fn next(facts: &Facts, lifetimes: &Lifetimes, now: Timestamp) -> Step {
    let Some(newest) = facts.authorities.first() else { return Step::NewAuthority };
    let age = |validity: &Validity| age(validity, lifetimes, now);
    let overlap = seconds(lifetimes.overlap);
    if newest.is_due(now) {
        return Step::NewAuthority;
    }
    let certificate_ended = facts.certificate.ends.as_second() - now.as_second() <= length(&facts.certificate) / 10;
    let unusable = facts.signer.is_none() || !facts.names_fit || certificate_ended;
    if unusable {
        return Step::NewCertificate;
    }
    if facts.signer != Some(0) {
        // Until the new authority is known, the certificate's own renewal waits: it would be signed by what nobody knows.
        let change = facts.known && age(newest) >= overlap;
        return if change { Step::NewCertificate } else { Step::Nothing };
    }
    if facts.certificate.is_due(now) {
        return Step::NewCertificate;
    }
    let old = facts.authorities.len() > 1;
    if old && age(&facts.certificate) >= overlap { Step::ForgetOldAuthorities } else { Step::Nothing }
}

/// How long ago it was made.
fn age(validity: &Validity, lifetimes: &Lifetimes, now: Timestamp) -> i64 {
    now.as_second() - validity.begins.as_second() - seconds(lifetimes.backdating)
}

fn length(validity: &Validity) -> i64 {
    validity.ends.as_second() - validity.begins.as_second()
}

pub(super) fn seconds(duration: Duration) -> i64 {
    SignedDuration::try_from(duration).map_or(i64::MAX, |duration| duration.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 3600;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn made(second: i64, lifetime: Duration) -> Validity {
        let begins = second - seconds(Lifetimes::default().backdating);
        Validity { begins: at(begins), ends: at(second + seconds(lifetime)) }
    }

    /// Days of the authorities and of the certificate, signer.
    fn facts(authorities: &[i64], certificate: i64, signer: usize) -> Facts {
        let lifetimes = Lifetimes::default();
        Facts {
            authorities: authorities.iter().map(|day| made(day * DAY, lifetimes.authority)).collect(),
            certificate: made(certificate * DAY, lifetimes.certificate),
            signer: Some(signer),
            names_fit: true,
            known: true,
        }
    }

    #[test]
    fn each_step_has_its_time() {
        let base = 10_000;
        let fresh = facts(&[base], base, 0);
        let unknown = |facts: Facts| Facts { known: false, ..facts };
        let table = [
            ("fresh", fresh.clone(), base, Step::Nothing),
            ("no authority", Facts { authorities: vec![], ..fresh.clone() }, base, Step::NewAuthority),
            ("other names", Facts { names_fit: false, ..fresh.clone() }, base, Step::NewCertificate),
            ("signed by nobody", Facts { signer: None, ..fresh.clone() }, base, Step::NewCertificate),
            ("before two thirds", fresh.clone(), base + 19, Step::Nothing),
            ("at two thirds", fresh.clone(), base + 21, Step::NewCertificate),
            ("renewal needs no knowledge of what is known", unknown(fresh), base + 21, Step::NewCertificate),
            ("the authority at two thirds", facts(&[base - 244], base, 0), base, Step::NewAuthority),
            ("a new one is not used at once", facts(&[base, base - 244], base - 5, 1), base, Step::Nothing),
            ("but after the overlap", facts(&[base - 1, base - 244], base - 5, 1), base, Step::NewCertificate),
            ("if it is known", unknown(facts(&[base - 2, base - 244], base - 5, 1)), base, Step::Nothing),
            (
                "or nothing else is left",
                unknown(facts(&[base - 2, base - 244], base - 28, 1)),
                base,
                Step::NewCertificate,
            ),
            ("the old one stays for the overlap", facts(&[base - 2, base - 244], base, 0), base, Step::Nothing),
            ("and goes", facts(&[base - 2, base - 244], base - 1, 0), base, Step::ForgetOldAuthorities),
            ("a certificate renewal in a change waits", facts(&[base, base - 244], base - 21, 1), base, Step::Nothing),
        ];
        for (what, facts, day, step) in table {
            assert_eq!(next(&facts, &Lifetimes::default(), at(day * DAY)), step, "{what}");
        }
    }

    /// Ten years in steps of an hour, in which everything is made known at once. The certificate has never expired, and a replica
    /// that looked a minute ago always has an authority for it.
    #[test]
    fn in_ten_years_the_certificate_is_never_invalid() {
        let lifetimes = Lifetimes::default();
        let mut seen = [0; 3];
        let mut authorities = vec![(0, made(0, lifetimes.authority))];
        let mut certificate = (0, made(0, lifetimes.certificate));
        let mut next_id = 1;
        for hour in 0..10 * 365 * 24 {
            let now = hour * 3600;
            let bundle_before: Vec<i32> = authorities.iter().map(|(id, _)| *id).collect();
            let facts = Facts {
                authorities: authorities.iter().map(|(_, validity)| *validity).collect(),
                certificate: certificate.1,
                signer: authorities.iter().position(|(id, _)| *id == certificate.0),
                names_fit: true,
                known: true,
            };
            match next(&facts, &lifetimes, at(now)) {
                Step::Nothing => {}
                Step::NewAuthority => {
                    authorities.insert(0, (next_id, made(now, lifetimes.authority)));
                    next_id += 1;
                    seen[0] += 1;
                }
                Step::NewCertificate => {
                    certificate = (authorities[0].0, made(now, lifetimes.certificate));
                    seen[1] += 1;
                }
                Step::ForgetOldAuthorities => {
                    authorities.truncate(1);
                    seen[2] += 1;
                }
            }
            assert!(certificate.1.holds(at(now)).is_ok(), "hour {hour}");
            assert!(bundle_before.contains(&certificate.0), "hour {hour}: signed by what nobody knows yet");
            let signer = authorities.iter().find(|(id, _)| *id == certificate.0).expect("it is still known");
            assert!(signer.1.holds(at(now)).is_ok() && authorities.len() <= 2, "hour {hour}");
        }
        assert_eq!(seen[0], seen[2], "as many authorities came as went");
        assert!(seen[0] >= 14 && seen[1] >= 150, "{seen:?}");
    }
}
