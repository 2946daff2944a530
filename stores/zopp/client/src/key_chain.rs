//! From the pinned key of a workspace to the one that the server gives: by the links that the principals signed who replaced it.

use std::collections::BTreeSet;

use konverge_zopp_crypto::{
    Fingerprint, Kek, KeyAdministrators, KeyLink, LinkError, Sealed, SigningPublic, SigningSeed,
};
use konverge_zopp_proto::identity as proto;

use crate::workspace_key::WorkspaceKey;

/// A chain of generations does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChainFault {
    /// The link to a generation is missing.
    #[error("gives no link to generation {0}")]
    Missing(u32),
    /// The link has fields of a wrong length.
    #[error("the link to generation {0} is malformed")]
    Malformed(u32),
    /// The link does not connect the keys, or is not by its signer.
    #[error("the link to generation {generation} does not hold: {source}")]
    Link {
        /// The generation to which it should lead.
        generation: u32,
        /// Why it does not.
        source: LinkError,
    },
    /// The principal that made the link is not an administrator of the key that it replaced.
    #[error(
        "principal {principal} with the fingerprint {fingerprint} made generation {generation}, and is not among the administrators of whom the \
         credentials know"
    )]
    NotAdministrator {
        /// The generation to which the link leads.
        generation: u32,
        /// The ID of the principal, as the server gives it.
        principal: String,
        /// The fingerprint of its public keys.
        fingerprint: Fingerprint,
    },
    /// The principal that made the link did not sign who may replace the new key.
    #[error("gives no administrators of generation {0} that its maker signed; an earlier zopp signs none")]
    NoAdministrators(u32),
}

/// Walks the links, the newest first, from `key` back to the pinned one. Returns the links on the way; `None` if the chain ends without the
/// pinned key. Each link must open with the key to which it leads, and be signed by the principal that it names. Whether that principal is a
/// known one is for the caller to find out.
///
/// # Errors
/// If a link on the way does not hold.
pub(crate) fn follow<'l>(
    key: &WorkspaceKey,
    links: &'l [proto::KeyLink],
    pinned: Fingerprint,
) -> Result<Option<Vec<&'l proto::KeyLink>>, ChainFault> {
    let mut generation = key.generation.unwrap_or(1);
    let mut walked = Vec::new();
    let mut former: Option<Kek> = None;
    while generation > 1 {
        let is_next = |link: &&proto::KeyLink| link.generation == generation;
        let link = links.iter().find(is_next).ok_or(ChainFault::Missing(generation))?;
        let step = parse(link).ok_or(ChainFault::Malformed(generation))?;
        let fault = |source| ChainFault::Link { generation, source };
        let signer =
            SigningPublic::from_slice(&link.signer_public_key).ok().ok_or(ChainFault::Malformed(generation))?;
        step.verify(&key.id, &signer, &link.signature).map_err(|error| fault(error.into()))?;
        let opened = step.open(&key.id, former.as_ref().unwrap_or(&key.kek)).map_err(fault)?;
        walked.push(link);
        if step.former == pinned {
            return Ok(Some(walked));
        }
        former = Some(opened);
        generation -= 1;
    }
    Ok(None)
}

fn parse(link: &proto::KeyLink) -> Option<KeyLink> {
    Some(KeyLink {
        generation: link.generation,
        former: Fingerprint::from_slice(&link.former_fingerprint)?,
        new: Fingerprint::from_slice(&link.fingerprint)?,
        sealed: Sealed { nonce: link.former_nonce.as_slice().try_into().ok()?, ciphertext: link.former_sealed.clone() },
    })
}

/// Checks that each link, the newest first, is by an administrator of the key that it replaces. `administrators` are those of the oldest key. Returns
/// those of the newest one.
///
/// # Errors
/// If a link is by another principal, or without administrators that its maker signed.
pub(crate) fn check_makers(
    links: &[&proto::KeyLink],
    mut administrators: BTreeSet<Fingerprint>,
) -> Result<BTreeSet<Fingerprint>, ChainFault> {
    for link in links.iter().rev() {
        let generation = link.generation;
        let fingerprint = Fingerprint::of_principal(&link.signer_public_key, &link.signer_x25519_public_key);
        if !administrators.contains(&fingerprint) {
            return Err(ChainFault::NotAdministrator { generation, principal: link.signer_id.clone(), fingerprint });
        }
        administrators = signed_administrators(link).ok_or(ChainFault::NoAdministrators(generation))?;
    }
    Ok(administrators)
}

fn signed_administrators(link: &proto::KeyLink) -> Option<BTreeSet<Fingerprint>> {
    let prints = link.administrators.iter().map(|bytes| Fingerprint::from_slice(bytes));
    let key = Fingerprint::from_slice(&link.fingerprint)?;
    let list = KeyAdministrators { key, administrators: prints.collect::<Option<_>>()? };
    let signer = SigningPublic::from_slice(&link.signer_public_key).ok()?;
    list.verify(&signer, &link.administrators_signature).ok()?;
    Some(list.administrators)
}

/// The link as it goes over the wire, signed by the principal that replaced the key. The administrators of the new key are signed beside it, if they are
/// given.
pub(crate) fn to_wire(
    link: KeyLink,
    administrators: Option<BTreeSet<Fingerprint>>,
    workspace_id: &str,
    seed: &SigningSeed,
) -> proto::KeyLink {
    let signature = link.sign(workspace_id, seed).to_vec();
    let list = administrators.map(|administrators| KeyAdministrators { key: link.new, administrators });
    let administrators_signature = list.as_ref().map(|list| list.sign(seed).to_vec()).unwrap_or_default();
    let administrators = list.into_iter().flat_map(|list| list.administrators);
    proto::KeyLink {
        generation: link.generation,
        former_fingerprint: link.former.to_bytes().to_vec(),
        fingerprint: link.new.to_bytes().to_vec(),
        former_nonce: link.sealed.nonce.to_vec(),
        former_sealed: link.sealed.ciphertext,
        signature,
        administrators: administrators.map(|print| print.to_bytes().to_vec()).collect(),
        administrators_signature,
        ..proto::KeyLink::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key of generation `count`, the links to it, and the fingerprints of all generations.
    fn chain(count: u32) -> (WorkspaceKey, Vec<proto::KeyLink>, Vec<Fingerprint>) {
        let seed = SigningSeed::generate().unwrap();
        let mut kek = Kek::generate().unwrap();
        let (mut links, mut prints) = (Vec::new(), vec![Fingerprint::of_workspace("w", &kek)]);
        for generation in 2..=count {
            let new = Kek::generate().unwrap();
            let link = KeyLink::new("w", generation, &kek, &new).unwrap();
            prints.push(link.new);
            let signer_public_key = seed.public().to_bytes().to_vec();
            links.insert(0, proto::KeyLink { signer_public_key, ..to_wire(link, None, "w", &seed) });
            kek = new;
        }
        (WorkspaceKey { id: "w".into(), kek, generation: Some(count) }, links, prints)
    }

    #[test]
    fn each_former_generation_is_found_and_no_other_key() {
        let (key, links, prints) = chain(4);
        for (steps, pinned) in prints.iter().rev().enumerate().skip(1) {
            assert_eq!(follow(&key, &links, *pinned).unwrap().unwrap().len(), steps);
        }
        let other = Fingerprint::of_principal(b"", b"");
        assert_eq!(follow(&key, &links, other), Ok(None));
        assert_eq!(follow(&chain(1).0, &[], other), Ok(None));
    }

    #[test]
    fn a_chain_with_a_gap_or_a_forged_link_does_not_hold() {
        let (key, links, prints) = chain(4);
        let first = prints[0];
        let mut gap = links.clone();
        gap.remove(1);
        assert_eq!(follow(&key, &gap, first), Err(ChainFault::Missing(3)));
        let (_, of_others, _) = chain(4);
        for index in 0..3 {
            let mut forged = links.clone();
            forged[index] = of_others[index].clone();
            let generation = forged[index].generation;
            let fault = follow(&key, &forged, first).unwrap_err();
            assert!(matches!(fault, ChainFault::Link { generation: of, .. } if of == generation), "{fault:?}");
            let mut unsigned = links.clone();
            unsigned[index].signature[0] ^= 1;
            assert!(follow(&key, &unsigned, first).is_err());
            let mut cut = links.clone();
            cut[index].former_nonce.pop();
            assert_eq!(follow(&key, &cut, first), Err(ChainFault::Malformed(generation)));
        }
    }

    /// A link to a generation by a principal, with the administrators of the new key.
    fn link(generation: u32, maker: &SigningSeed, administrators: &[&SigningSeed]) -> proto::KeyLink {
        let (former, new) = (Kek::generate().unwrap(), Kek::generate().unwrap());
        let link = KeyLink::new("w", generation, &former, &new).unwrap();
        let signer_public_key = maker.public().to_bytes().to_vec();
        proto::KeyLink { signer_public_key, ..to_wire(link, Some(prints(administrators)), "w", maker) }
    }

    fn prints(seeds: &[&SigningSeed]) -> BTreeSet<Fingerprint> {
        seeds.iter().map(|seed| Fingerprint::of_principal(&seed.public().to_bytes(), &[])).collect()
    }

    #[test]
    fn each_link_is_by_an_administrator_of_the_key_before() {
        let [alice, bob, eve] = [(); 3].map(|()| SigningSeed::generate().unwrap());
        let both = [&alice, &bob];
        let refused = |generation, maker| {
            let fingerprint = *prints(&[maker]).first().unwrap();
            Err(ChainFault::NotAdministrator { generation, principal: String::new(), fingerprint })
        };
        let bare = |link| proto::KeyLink { administrators: Vec::new(), administrators_signature: Vec::new(), ..link };
        let of_eve = || link(3, &eve, &[&eve]);
        let foreign = |list: proto::KeyLink| proto::KeyLink {
            administrators: list.administrators,
            administrators_signature: list.administrators_signature,
            ..link(2, &alice, &[&alice])
        };
        let relabelled = |other: &SigningSeed| proto::KeyLink {
            signer_public_key: other.public().to_bytes().to_vec(),
            ..link(2, &eve, &[&eve])
        };
        // From the administrators of generation 1: Alice.
        for (what, oldest_first, expected) in [
            ("no link", vec![], Ok(prints(&[&alice]))),
            ("an administrator of the first key", vec![link(2, &alice, &both)], Ok(prints(&both))),
            ("one whom the link before named", vec![link(2, &alice, &both), link(3, &bob, &both)], Ok(prints(&both))),
            ("one whom nobody named", vec![link(2, &bob, &both)], refused(2, &bob)),
            (
                "one whom the link before no longer names",
                vec![link(2, &alice, &both), link(3, &alice, &[&alice]), link(4, &bob, &both)],
                refused(4, &bob),
            ),
            ("a stranger who names a known one", vec![link(2, &eve, &[&alice])], refused(2, &eve)),
            ("no list", vec![bare(link(2, &alice, &both))], Err(ChainFault::NoAdministrators(2))),
            (
                "a list that was left out, for a later link",
                vec![bare(link(2, &alice, &[&alice])), of_eve()],
                Err(ChainFault::NoAdministrators(2)),
            ),
            ("the list of another key", vec![foreign(link(2, &alice, &both))], Err(ChainFault::NoAdministrators(2))),
            ("the list of another maker", vec![foreign(link(2, &eve, &both))], Err(ChainFault::NoAdministrators(2))),
            ("a maker that another one is said to be", vec![relabelled(&alice)], Err(ChainFault::NoAdministrators(2))),
        ] {
            let links: Vec<_> = oldest_first.iter().rev().collect();
            assert_eq!(check_makers(&links, prints(&[&alice])), expected, "{what}");
        }
    }
}
