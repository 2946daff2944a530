//! The zopp wire schema.
