use std::os::unix::fs::PermissionsExt;

use proptest::prelude::*;

use super::*;

fn principal(name: &str, email: Option<&str>) -> Principal {
    Principal {
        id: format!("id of {name}"),
        name: name.to_owned(),
        user_id: email.map(|_| "user".to_owned()),
        email: email.map(str::to_owned),
        private_key: Zeroizing::new("aa".repeat(32)),
        public_key: "bb".repeat(32),
        x25519_private_key: Some(Zeroizing::new("cc".repeat(32))),
        x25519_public_key: Some("dd".repeat(32)),
        other: Map::new(),
    }
}

fn parse(content: &str) -> Result<ConfigFile, String> {
    read::parse(content.as_bytes(), Path::new("config.json")).map_err(|error| error.to_string())
}

#[track_caller]
fn refused(content: &str) -> String {
    parse(content).err().unwrap()
}

fn written(content: &ConfigFile) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(".zopp").join("config.json");
    save(&path, content).unwrap();
    (directory, path)
}

#[test]
fn only_the_owner_can_read_it() {
    let (_directory, path) = written(&ConfigFile::default());
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    // A file that others could read is closed by the next write.
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    save(&path, &ConfigFile::default()).unwrap();
    assert_eq!(mode(&path), 0o600);
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn the_union_satisfies_both_generations() {
    let content = ConfigFile {
        principals: vec![principal("robot", None), principal("laptop", Some("a@b.c"))],
        current_principal: Some("laptop".to_owned()),
        ..ConfigFile::default()
    };
    let (_directory, path) = written(&content);
    let json: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(json["user_id"], "user");
    assert_eq!(json["email"], "a@b.c");
    assert_eq!(json["current_principal"], "laptop");
    assert_eq!(json["principals"][0]["email"], Value::Null);
    assert_eq!(json["principals"][1]["email"], "a@b.c");

    let read = load(&path).unwrap();
    assert_eq!(read.principals[0].email, None, "an explicit null is a service principal, whatever the top level says");
    assert_eq!(read.current().unwrap().name, "laptop");
}

#[test]
fn the_top_level_is_empty_for_a_service_principal() {
    let content = ConfigFile { principals: vec![principal("robot", None)], ..ConfigFile::default() };
    let (_directory, path) = written(&content);
    let json: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!((&json["user_id"], &json["email"]), (&Value::from(""), &Value::from("")));
    assert_eq!(load(&path).unwrap().principals[0].user_id, None);
}

#[test]
fn a_first_generation_file_lends_its_identity_to_its_principals() {
    let content = parse(
        r#"{"user_id":"u","email":"a@b.c","principals":[{"id":"1","name":"n","private_key":"p","public_key":"q"}]}"#,
    )
    .unwrap();
    assert_eq!(content.principals[0].email.as_deref(), Some("a@b.c"));
    assert_eq!(content.principals[0].user_id.as_deref(), Some("u"));
    assert!(content.principals[0].x25519_private_key.is_none());
}

#[test]
fn keys_of_other_programs_survive() {
    let content = parse(
        r#"{"principals":[{"id":"1","name":"n","private_key":"p","public_key":"q","colour":"red"}],"theme":{"dark":true}}"#,
    )
    .unwrap();
    let (_directory, path) = written(&content);
    let json: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(json["principals"][0]["colour"], "red");
    assert_eq!(json["theme"]["dark"], true);
}

#[test]
fn a_link_stays_a_link() {
    let (directory, path) = written(&ConfigFile::default());
    let link = directory.path().join("link.json");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    save(&link, &ConfigFile { principals: vec![principal("new", None)], ..ConfigFile::default() }).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(load(&path).unwrap().principals[0].name, "new");
}

#[test]
fn errors_name_the_place() {
    assert_eq!(
        refused("{\"principals\":[\n{\"id\":"),
        "config.json is not valid JSON: it ends too early at line 2, column 6; bring back a whole copy, or move it away and make it anew"
    );
    assert!(refused("nonsense").starts_with("config.json is not valid JSON: unexpected character at line 1"));
    assert_eq!(refused("[]"), "config.json: top level: an object with \"principals\" is expected");
    assert_eq!(refused("{}"), "config.json: principals: a list is expected");
    assert_eq!(refused(r#"{"principals":[1]}"#), "config.json: principals[0]: an object is expected");
    assert_eq!(
        refused(r#"{"principals":[{"id":"1","name":"n","public_key":"q"}]}"#),
        "config.json: principals[0].private_key: a text is expected"
    );
    assert_eq!(
        refused(r#"{"principals":[{"id":"1","name":"n","private_key":"p","public_key":"q","email":5}]}"#),
        "config.json: principals[0].email: a text or null is expected"
    );
    let missing = load(Path::new("/nowhere/config.json")).err().unwrap().to_string();
    assert!(missing.starts_with("/nowhere/config.json does not exist; run \"zopp join\""), "{missing}");
}

#[test]
fn errors_never_quote_a_key() {
    let key = "5ec4e7".repeat(10);
    for content in [
        format!(r#"{{"principals":"{key}"}}"#),
        format!(r#"{{"principals":["{key}"]}}"#),
        format!(r#"{{"principals":[{{"private_key":["{key}"]}}]}}"#),
        format!(r#"{{"principals":[{{"private_key":"{key}"#),
        format!(r#""{key}""#),
    ] {
        let text = refused(&content);
        assert!(!text.contains("5ec4e7"), "{text}");
    }
}

#[test]
fn a_directory_in_its_place_is_an_error_that_changes_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let error = save(directory.path(), &ConfigFile::default()).err().unwrap();
    assert!(matches!(error, FileError::Unwritable { .. }));
    assert!(directory.path().is_dir());
}

#[test]
fn what_is_remembered_of_servers_is_kept() {
    let fingerprint = konverge_zopp_crypto::Fingerprint::of_principal(b"a", b"b");
    let text = format!(r#"{{"http://a:1":{{"generation":"v2","workspaces":{{"acme":"{fingerprint}"}}}}}}"#);
    let content = parse(&format!(r#"{{"principals":[],"servers":{text}}}"#)).unwrap();
    assert_eq!(content.server("http://a:1").workspaces["acme"], fingerprint);
    assert!(content.server("http://b:1").is_empty());
    let (_directory, path) = written(&content);
    let json: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(json["servers"].to_string(), text);
    // A damaged pin must not count as none.
    let damaged = refused(r#"{"principals":[],"servers":{"http://a:1":{"workspaces":{"acme":"x"}}}}"#);
    assert!(damaged.contains("servers"), "{damaged}");
}

proptest! {
    #[test]
    fn any_bytes_are_an_answer_not_a_panic(content: Vec<u8>) {
        let _ = read::parse(&content, Path::new("config.json"));
    }

    #[test]
    fn what_is_written_is_read(name in ".*", email in proptest::option::of(".*"), key in ".*") {
        let mut one = principal(&name, email.as_deref());
        one.private_key = Zeroizing::new(key.clone());
        let content =
            ConfigFile { principals: vec![one], current_principal: Some(name.clone()), ..ConfigFile::default() };
        let (_directory, path) = written(&content);
        let read = load(&path).unwrap();
        prop_assert_eq!(&read.principals[0].name, &name);
        prop_assert_eq!(&read.principals[0].email, &email);
        prop_assert_eq!(read.principals[0].private_key.as_str(), key.as_str());
    }
}

#[test]
fn one_program_at_a_time_changes_it_by_whatever_name() {
    let (directory, path) = written(&ConfigFile::default());
    let link = directory.path().join("link.json");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let soon = std::time::Duration::from_millis(50);
    let held = lock(&path).unwrap();
    for name in [&path, &link] {
        let refused = lock::lock_within(name, soon).unwrap_err();
        assert!(matches!(refused, FileError::Locked { .. }), "{refused}");
    }
    // Another file has another lock, also where there is no file yet.
    let other = lock::lock_within(&directory.path().join("new").join("config.json"), soon).unwrap();
    drop((held, other));
    lock::lock_within(&link, soon).unwrap();
    let beside = fs::metadata(path.with_file_name("config.json.lock")).unwrap();
    assert_eq!(beside.permissions().mode() & 0o777, 0o600);
}

#[test]
fn private_keys_are_encrypted_and_decrypted_as_a_whole() {
    let key = |words: &str| konverge_zopp_crypto::export::Passphrase::new(words.to_owned()).file_key(&[7; 16]).unwrap();
    let mut content = ConfigFile { principals: vec![principal("laptop", Some("a@b.c"))], ..ConfigFile::default() };
    content.protection = Some(KeyProtection { salt: [7; 16] });
    content.principals[0].id = "0190a5d0-ac96-774b-bcce-b302099a8057".to_owned();
    assert!(content.has_open_keys());
    let (_directory, path) = written(&content.with_sealed_keys(&key("words")).unwrap());
    let text = fs::read_to_string(&path).unwrap();
    assert!(!text.contains(&"aa".repeat(32)) && !text.contains(&"cc".repeat(32)), "{text}");
    let mut read = load(&path).unwrap();
    assert!(read.protection == content.protection && !read.has_open_keys());
    assert!(matches!(read.open_keys(&key("other"), &path), Err(FileError::Sealed { .. })));
    let identity = crate::Identity::from_config(&read, &path, None).err().unwrap().to_string();
    assert!(identity.contains("encrypted with a passphrase"), "{identity}");
    read.open_keys(&key("words"), &path).unwrap();
    assert_eq!(read.principals[0].private_key.as_str(), "aa".repeat(32));
    assert_eq!(read.principals[0].x25519_private_key.as_ref().unwrap().as_str(), "cc".repeat(32));
    // Neither key takes the place of another one.
    let sealed = content.with_sealed_keys(&key("words")).unwrap();
    let mut swapped = load(&path).unwrap();
    swapped.principals[0].private_key = sealed.principals[0].x25519_private_key.clone().unwrap();
    assert!(swapped.open_keys(&key("words"), &path).is_err());
    let damaged = refused(r#"{"principals":[],"key_protection":{"salt":"00"}}"#);
    assert!(damaged.contains("key_protection"), "{damaged}");
}

#[test]
fn a_file_that_others_can_read_is_told() {
    let (_directory, path) = written(&ConfigFile::default());
    assert_eq!(exposure(&path), None);
    for (mode, is_open) in [(0o600, false), (0o400, false), (0o700, false), (0o640, true), (0o604, true), (0o620, true)]
    {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let is_told = exposure(&path).is_some_and(|exposure| exposure.reason.contains(&format!("(mode {mode:04o})")));
        assert_eq!(is_told, is_open, "{mode:o}");
    }
    assert_eq!(exposure(&path.with_file_name("gone")), None);
}

/// The owner of the folder, or a user who may write it, replaces a file that only its owner can read.
#[test]
fn a_file_that_another_user_can_replace_is_told() {
    let (directory, path) = written(&ConfigFile::default());
    let (folder, link) = (path.parent().unwrap(), directory.path().join("link.json"));
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let told = |file: &Path| exposure(file).map(|exposure| (exposure.reason, exposure.remedy));
    for mode in [0o755, 0o750, 0o700] {
        fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!((told(&path), told(&link)), (None, None), "{mode:o}");
    }
    for mode in [0o777, 0o1777] {
        fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
        for file in [&path, &link] {
            let (reason, remedy) = told(file).unwrap();
            assert!(reason.ends_with("can be written by every user of this machine"), "{mode:o}: {reason}");
            assert!(remedy.starts_with("chmod go-w "), "{remedy}");
        }
    }
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    // Only root can give a file away.
    if rustix::process::geteuid().is_root() {
        for (given, file) in [(&*path, &path), (folder, &path)] {
            std::os::unix::fs::chown(given, Some(65534), None).unwrap();
            let (reason, remedy) = told(file).unwrap();
            assert!(reason.contains("belongs to the user with the ID 65534"), "{reason}");
            assert!(remedy.starts_with("chown "), "{remedy}");
            std::os::unix::fs::chown(given, Some(0), None).unwrap();
        }
    }
}
