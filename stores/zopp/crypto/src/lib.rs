//! The zopp key hierarchy, envelopes and request signatures.
