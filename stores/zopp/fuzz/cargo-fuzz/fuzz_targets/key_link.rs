#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| (konverge_zopp_fuzz::target("key_link").run)(bytes));
