//! A message that is understood has one encoding: that is what a signature covers.

use std::sync::LazyLock;

use konverge_zopp_testing::{CallTypes, calls};

pub(crate) const SEEDS: &[&[u8]] = &[
    b"\x0a\x04acme\x12\x07backend\x1a\x0aproduction",
    b"\x0a\x04acme\x12\x07backend\x1a\x0aproduction\x20\x00",
    b"\x0a\x04acme\x12\x2401890a5d-ac96-774b-bcce-b302099a8057\x18\x03",
    b"\x0a\x02\x08\x07",
    b"\x12\x07\x08\x02\x12\x01K\x18\x08",
    b"\x0a\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
];

static CALLS: LazyLock<Vec<CallTypes>> = LazyLock::new(calls);

pub(crate) fn run(bytes: &[u8]) {
    for call in CALLS.iter() {
        for canonical in [call.request, call.answer] {
            if let Some(once) = canonical(bytes) {
                // Texts that are not UTF-8 and fields that are unknown are refused or left out, so it never grows beyond what was given but for
                // the encoding of numbers.
                let twice = canonical(&once).expect("what was encoded can be decoded");
                assert!(once == twice, "{}: {once:02x?} {twice:02x?}", call.path);
            }
        }
    }
}
