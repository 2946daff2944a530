//! The drop-in zopp-operator.
fn main() {}
