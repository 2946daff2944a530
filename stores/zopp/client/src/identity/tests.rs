use super::*;

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const SEED: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
const PUBLIC: &str = "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8";
const X25519_SCALAR: &str = "1111111111111111111111111111111111111111111111111111111111111111";
const X25519_PUBLIC: &str = "7b4e909bbe7ffe44c465a220037d608ee35897d31ef972f07f74892cb0f73f13";

fn variables(change: &'static str, value: Option<&'static str>) -> Result<Option<Identity>, CredentialsError> {
    Identity::from_environment(|variable| {
        let good = match variable {
            PRINCIPAL_ID => ID,
            PRINCIPAL_NAME => "operator",
            PRIVATE_KEY => SEED,
            PUBLIC_KEY => PUBLIC,
            X25519_PRIVATE_KEY => X25519_SCALAR,
            X25519_PUBLIC_KEY => X25519_PUBLIC,
            _ => return None,
        };
        if variable == change { value.map(str::to_owned) } else { Some(good.to_owned()) }
    })
}

/// The error's text, after checking that it gives no key away.
#[track_caller]
fn refused(result: Result<Option<Identity>, CredentialsError>) -> String {
    let text = result.err().unwrap().to_string();
    for secret in [SEED, X25519_SCALAR] {
        assert!(!text.contains(&secret[..16]), "{text}");
    }
    text
}

#[test]
fn six_variables_make_an_identity() {
    let identity = variables("none", None).unwrap().unwrap();
    assert_eq!((identity.principal_id(), identity.name()), (ID, "operator"));
    assert_eq!(identity.email(), None);
    assert!(identity.exchange_key().is_some());
}

#[test]
fn without_the_id_the_variables_do_not_count() {
    assert!(variables(PRINCIPAL_ID, None).unwrap().is_none());
    assert!(variables(PRINCIPAL_ID, Some("")).unwrap().is_none(), "an empty variable counts as unset");
}

#[test]
fn each_variable_is_needed_and_named() {
    for variable in [PRINCIPAL_NAME, PRIVATE_KEY, PUBLIC_KEY, X25519_PRIVATE_KEY, X25519_PUBLIC_KEY] {
        for value in [None, Some("")] {
            assert!(
                refused(variables(variable, value)).contains(&format!("{PRINCIPAL_ID} is set but {variable} is not"))
            );
        }
    }
}

#[test]
fn malformed_variables_are_named() {
    assert_eq!(refused(variables(PRINCIPAL_ID, Some("operator"))), "ZOPP_PRINCIPAL_ID: not a UUID");
    assert_eq!(
        refused(variables(PRIVATE_KEY, Some(&SEED[2..]))),
        "ZOPP_PRIVATE_KEY: 31 bytes long instead of 32; 64 hexadecimal digits are expected"
    );
    assert_eq!(
        refused(variables(X25519_PRIVATE_KEY, Some("AAECAwQFBgcICQ=="))),
        "ZOPP_X25519_PRIVATE_KEY: not hexadecimal; 64 hexadecimal digits are expected"
    );
    assert!(refused(variables(PUBLIC_KEY, Some(X25519_PUBLIC))).starts_with("ZOPP_PUBLIC_KEY: does not belong"));
    assert!(refused(variables(X25519_PUBLIC_KEY, Some(PUBLIC))).starts_with("ZOPP_X25519_PUBLIC_KEY: does not belong"));
}

fn file(content: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.json");
    std::fs::write(&path, content).unwrap();
    (directory, path)
}

fn principal(name: &str, private_key: &str) -> String {
    format!(
        r#"{{"id":"{ID}","name":"{name}","private_key":"{private_key}","public_key":"{PUBLIC}",
            "x25519_private_key":"{X25519_SCALAR}","x25519_public_key":"{X25519_PUBLIC}"}}"#
    )
}

#[test]
fn the_current_principal_is_taken_or_the_first_or_the_one_named() {
    let (_directory, path) = file(&format!(
        r#"{{"principals":[{},{}],"current_principal":"second"}}"#,
        principal("first", SEED),
        principal("second", SEED)
    ));
    assert_eq!(Identity::from_file(&path, None).ok().unwrap().name(), "second");
    assert_eq!(Identity::from_file(&path, Some("first")).ok().unwrap().name(), "first");
    let error = Identity::from_file(&path, Some("third")).err().unwrap().to_string();
    assert_eq!(error, format!("principal \"third\" not found in {}; it has first, second", path.display()));

    let (_directory, path) = file(&format!(r#"{{"principals":[{}]}}"#, principal("only", SEED)));
    assert_eq!(Identity::from_file(&path, None).ok().unwrap().name(), "only");
}

#[test]
fn a_broken_principal_is_named_and_does_not_break_the_others() {
    let (_directory, path) = file(&format!(
        r#"{{"principals":[{},{}],"current_principal":"good"}}"#,
        principal("broken", &SEED[..62]),
        principal("good", SEED)
    ));
    assert!(Identity::from_file(&path, None).is_ok());
    let error = Identity::from_file(&path, Some("broken")).err().unwrap().to_string();
    assert_eq!(
        error,
        format!(
            "{}: principals[0].private_key: 31 bytes long instead of 32; 64 hexadecimal digits are expected",
            path.display()
        )
    );
}

#[test]
fn a_file_without_principals_says_what_to_run() {
    let (_directory, path) = file(r#"{"principals":[],"current_principal":null}"#);
    let error = Identity::from_file(&path, None).err().unwrap().to_string();
    assert!(error.contains("zopp join"), "{error}");
}

#[test]
fn a_missing_current_principal_is_an_error() {
    let (_directory, path) =
        file(&format!(r#"{{"principals":[{}],"current_principal":"gone"}}"#, principal("only", SEED)));
    let error = Identity::from_file(&path, None).err().unwrap().to_string();
    assert!(error.contains("\"gone\""), "{error}");
}
