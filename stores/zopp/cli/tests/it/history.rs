//! Earlier values: seen, set again and erased by people, and what a lying server can make of them.

use konverge_zopp_proto::secrets::{ReadSecretHistoryRequest, ReadSecretHistoryResponse};
use tonic::Status;

use crate::{
    lying_server::lying_world,
    world::{World, normalise},
};

const HISTORY: &str = "/konverge.zopp.secrets.v1.Secrets/ReadSecretHistory";

type Answer = Result<ReadSecretHistoryResponse, Status>;

/// The versions in JSON: number, state and value, if it is shown.
fn versions(object: &serde_json::Value) -> Vec<(i64, &str, Option<&str>)> {
    let versions = object["versions"].as_array().unwrap().iter();
    versions
        .map(|version| {
            (version["version"].as_i64().unwrap(), version["state"].as_str().unwrap(), version["value"].as_str())
        })
        .collect()
}

#[test]
fn a_secret_is_set_to_an_earlier_value_also_after_it_was_deleted() {
    let world = World::new();
    let alice = &world.alice;
    for value in ["one", "two"] {
        alice.ok(&format!("secret set A {value}"));
    }
    let text = alice.ok("secret history A");
    let expected = "Versions of secret 'A' of acme/backend/dev:\n\
                    \u{20} 2  set <time> by laptop; current\n\
                    \u{20} 1  set <time> by laptop; replaced at version 2, <time>, by laptop\n";
    assert_eq!(normalise(&text), expected);
    assert_eq!(alice.ok("secret rollback A --to 1"), "Secret 'A' set to its value of version 1\n");
    assert_eq!(alice.ok("secret get A"), "one\n");

    alice.ok("secret delete A");
    assert!(alice.ok("secret history A").contains("\n  3  set "), "also of a deleted key");
    let answer = alice.json("secret rollback A --to 2");
    assert_eq!((answer["key"].as_str(), answer["to"].as_i64()), (Some("A"), Some(2)));
    // Another one: the manifest shows it, and all readers take it.
    assert_eq!(alice.ok("secret export"), "A=two\n");
    let shown = alice.json("secret history A --show");
    assert_eq!(
        versions(&shown),
        [
            (5, "current", Some("two")),
            (3, "deleted", Some("one")),
            (2, "replaced", Some("two")),
            (1, "replaced", Some("one"))
        ]
    );
    let details = alice.json("audit list --action secret.create --limit 1");
    assert_eq!(details["entries"][0]["details"]["rollback_to"], 2, "{details}");
}

#[test]
fn values_are_printed_on_request_only_in_each_format() {
    let world = World::new();
    let alice = &world.alice;
    alice.ok_with_stdin("secret set A -", b"first line\nsecond line");
    alice.ok_with_stdin("secret set A -", &[0xff, 0]);
    for format in ["text", "json", "yaml", "table"] {
        let hidden = alice.ok(&format!("secret history A --output {format}"));
        assert!(
            !hidden.contains("line") && !hidden.contains("/wA=") && hidden.contains("laptop"),
            "{format}: {hidden}"
        );
    }
    let table = alice.ok("secret history A --output table");
    let heading: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(heading, ["VERSION", "STATE", "SET_AT", "SET_BY", "ENDED_VERSION", "ENDED_AT", "ENDED_BY"]);
    assert_eq!(table.lines().count(), 3);

    let text = alice.ok("secret history A --show --output yaml");
    assert!(text.contains("/wA=") && text.contains("second line"), "{text}");
    let shown = alice.run("secret history A --show");
    assert_eq!(shown.code, 0);
    let lines: Vec<&[u8]> = shown.stdout.split(|byte| *byte == b'\n').collect();
    assert_eq!(lines[2], b"     \xff\0", "each line of a value is set off");
    assert_eq!((lines[4], lines[5]), (b"     first line".as_slice(), b"     second line".as_slice()));
}

#[test]
fn what_is_not_there_is_named_with_the_next_step() {
    let world = World::new();
    let alice = &world.alice;
    alice.ok("secret set A 1");
    let stderr = alice.fails("secret rollback A --to 9", 1);
    assert!(stderr.contains("has no version 9") && stderr.contains("zopp secret history A"), "{stderr}");
    let stderr = alice.fails("secret history B", 1);
    assert!(stderr.contains(r#"secret "B" not found"#), "{stderr}");
    alice.fails("secret rollback A", 2);
    assert_eq!(alice.ok("secret get A"), "1\n");

    let (robot_id, robot) = world.robot("robot");
    alice.ok(&format!("permission set --principal {robot_id} --role read"));
    alice.ok("secret set A 2");
    assert!(robot.ok("secret history A").contains("replaced at version 2"));
    for line in ["secret history A --show", "secret rollback A --to 1", "secret forget A"] {
        let stderr = robot.fails(line, 1);
        assert!(stderr.contains("write"), "{line}: {stderr}");
    }
}

#[test]
fn earlier_values_end_with_a_new_key_and_on_request() {
    let world = World::new();
    let alice = &world.alice;
    for value in 1..=3 {
        alice.ok(&format!("secret set A {value}"));
        alice.ok(&format!("secret set B {value}"));
    }
    assert_eq!(alice.ok("secret forget A"), "2 earlier values of secret 'A' erased\n");
    assert_eq!(alice.json("secret forget A")["erased"], 0);
    assert_eq!((alice.ok("secret get A"), versions(&alice.json("secret history A")).len()), ("3\n".to_owned(), 1));
    // Of the workspace: the environment's key is wrapped anew, and then replaced.
    assert_eq!(versions(&alice.json("secret history B")).len(), 3);
    alice.ok("environment rotate-key dev");
    let left = alice.json("secret history B --show");
    assert_eq!(versions(&left), [(7, "current", Some("3"))]);
    alice.fails("secret rollback B --to 1", 1);
}

#[test]
fn a_lying_server_makes_up_no_earlier_value() {
    let (world, liar) = lying_world();
    let alice = &world.alice;
    for (key, value) in [("A", "one"), ("A", "two"), ("B", "foreign")] {
        alice.ok(&format!("secret set {key} {value}"));
    }
    // The value of another key, under this one's name.
    let of_b = std::sync::Arc::new(std::sync::Mutex::new(None));
    let kept = std::sync::Arc::clone(&of_b);
    liar.lie(HISTORY, move |_: ReadSecretHistoryRequest, answer: Answer| {
        *kept.lock().unwrap() = answer.as_ref().ok().cloned();
        answer
    });
    alice.ok("secret history B --show");
    let other = of_b.lock().unwrap().take().unwrap();
    liar.lie(HISTORY, move |_: ReadSecretHistoryRequest, answer: Answer| {
        let mut answer = answer?;
        answer.versions[0].nonce.clone_from(&other.versions[0].nonce);
        answer.versions[0].ciphertext.clone_from(&other.versions[0].ciphertext);
        Ok(answer)
    });
    let stderr = alice.fails("secret rollback A --to 1", 1);
    assert!(stderr.contains("cannot be decrypted"), "{stderr}");
    let shown = alice.ok("secret history A --show");
    assert!(shown.contains("cannot be decrypted") && !shown.contains("foreign"), "{shown}");
    // Another key of the environment than the workspace's key opens.
    liar.lie(HISTORY, |_: ReadSecretHistoryRequest, answer: Answer| {
        let mut answer = answer?;
        answer.dek_wrapped = vec![7; 48];
        Ok(answer)
    });
    alice.fails("secret rollback A --to 1", 1);
    // No answer for a version, or one without its ciphertext, sets nothing.
    liar.lie(HISTORY, |_: ReadSecretHistoryRequest, answer: Answer| {
        let mut answer = answer?;
        answer.versions[0].ciphertext.clear();
        answer.versions[0].nonce.clear();
        Ok(answer)
    });
    alice.fails("secret rollback A --to 1", 1);
    // Names from the server do not control the terminal.
    liar.lie(HISTORY, |_: ReadSecretHistoryRequest, answer: Answer| {
        let mut answer = answer?;
        answer.versions[0].set_by.as_mut().unwrap().name = "\u{1b}[2Jroot\n  9  set".into();
        Ok(answer)
    });
    let text = alice.ok("secret history A");
    assert!(!text.contains('\u{1b}') && text.lines().count() == 3, "{text}");
    liar.tell_the_truth(HISTORY);
    assert_eq!(alice.ok("secret get A"), "two\n");
    alice.ok("secret rollback A --to 1");
    assert_eq!(alice.ok("secret get A"), "one\n");
}

#[test]
fn a_server_without_history_is_named() {
    let (world, liar) = lying_world();
    world.alice.ok("secret set A 1");
    liar.lie(HISTORY, |_: ReadSecretHistoryRequest, _: Answer| Err(Status::unimplemented("")));
    for line in ["secret history A", "secret rollback A --to 1"] {
        let stderr = world.alice.fails(line, 1);
        assert!(stderr.contains("a stock one, or an older version"), "{line}: {stderr}");
    }
}
