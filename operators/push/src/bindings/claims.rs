//! The claims of this cluster's objects to locations and to keys of locations: the first object that claims one has it.
//!
//! In engines with versions, the mark in Vault decides, and the claim is known sooner. In engines without marks, the claim alone decides.

use konverge_core::claims;

use crate::{object::ObjectRef, record::Written};

/// The objects that hold a location, or a [key](key_of) of one, or wait for it.
pub(super) type Claims = claims::Claims<ObjectRef, String, Share>;

/// How much of a location an object claims.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// All of it.
    Whole,
    /// Some keys of it, each of which is claimed [by itself](key_of). Others may have other keys.
    Keys,
}

impl Share {
    /// The share of a recorded location.
    pub(crate) fn of(written: &Written) -> Self {
        if written.keys.is_some() { Self::Keys } else { Self::Whole }
    }
}

impl claims::Share for Share {
    fn is_compatible(self, other: Self) -> bool {
        (self, other) == (Self::Keys, Self::Keys)
    }
}

/// The name of one key of a location among claims.
pub fn key_of(location: &str, key: &str) -> String {
    // No path has a control character in it.
    format!("{location}\n{key}")
}

/// Returns the location of a claim, which may be for one of its keys.
pub(super) fn location_of(claimed: &str) -> &str {
    claimed.split_once('\n').map_or(claimed, |(location, _)| location)
}
