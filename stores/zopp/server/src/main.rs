//! `zopp-server`.

fn main() {}
