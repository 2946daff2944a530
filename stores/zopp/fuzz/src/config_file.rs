//! A file that can be read is written so that it is read as the same.

use std::{fs, path::Path};

use konverge_zopp_client::config_file::{load, parse, save};

pub(crate) const SEEDS: &[&[u8]] = &[
    br#"{"principals":[{"id":"01890a5d-ac96-774b-bcce-b302099a8057","name":"laptop","user_id":null,"email":null,"private_key":"aa",
        "public_key":"bb","x25519_private_key":null,"x25519_public_key":null}],"current_principal":"laptop"}"#,
    br#"{"user_id":"u","email":"a@b.c","principals":[{"id":"1","name":"laptop","private_key":"aa","public_key":"bb"}]}"#,
    br#"{"principals":[],"servers":{"http://a:1":{"generation":"v2","workspaces":{"acme":"0000-0000-0000-0000-0000-0000-0000-0000-0000-0000"},
        "environments":{"a/b/c":{"environment_id":"e","serial":18446744073709551615}},"later":{"x":[1,2.5e300,null]}}},"other":true}"#,
    b"",
    b"[]",
];

pub(crate) fn run(bytes: &[u8]) {
    let parsed = match parse(bytes, Path::new("config.json")) {
        Ok(parsed) => parsed,
        Err(error) => {
            // The message names the file and the place. It never quotes a value, which may be a key.
            let text = error.to_string();
            assert!(text.contains("config.json") && text.len() < 4096, "{text}");
            return;
        }
    };
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (directory.path().join("first"), directory.path().join("second"));
    save(&first, &parsed).expect("what was read can be written");
    save(&second, &load(&first).expect("what was written can be read")).unwrap();
    assert!(fs::read(first).unwrap() == fs::read(second).unwrap(), "the written form is final");
}
