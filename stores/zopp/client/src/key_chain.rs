//! From the pinned key of a workspace to the one that the server gives: by the links that the principals signed who replaced it.

use konverge_zopp_crypto::{Fingerprint, Kek, KeyLink, LinkError, Sealed, SigningPublic};
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

/// The link as it goes over the wire, signed.
pub(crate) fn to_wire(link: KeyLink, signature: [u8; 64]) -> proto::KeyLink {
    proto::KeyLink {
        generation: link.generation,
        former_fingerprint: link.former.to_bytes().to_vec(),
        fingerprint: link.new.to_bytes().to_vec(),
        former_nonce: link.sealed.nonce.to_vec(),
        former_sealed: link.sealed.ciphertext,
        signature: signature.to_vec(),
        ..proto::KeyLink::default()
    }
}

#[cfg(test)]
mod tests {
    use konverge_zopp_crypto::SigningSeed;

    use super::*;

    /// A key of generation `count`, the links to it, and the fingerprints of all generations.
    fn chain(count: u32) -> (WorkspaceKey, Vec<proto::KeyLink>, Vec<Fingerprint>) {
        let seed = SigningSeed::generate().unwrap();
        let mut kek = Kek::generate().unwrap();
        let (mut links, mut prints) = (Vec::new(), vec![Fingerprint::of_workspace("w", &kek)]);
        for generation in 2..=count {
            let new = Kek::generate().unwrap();
            let link = KeyLink::new("w", generation, &kek, &new).unwrap();
            let signature = link.sign("w", &seed);
            prints.push(link.new);
            let signer_public_key = seed.public().to_bytes().to_vec();
            links.insert(0, proto::KeyLink { signer_public_key, ..to_wire(link, signature) });
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
}
