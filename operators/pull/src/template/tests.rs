use super::*;

const LIMIT: usize = 100;

fn template(outputs: &[(&str, Output)]) -> SecretTemplate {
    let outputs = outputs.iter().map(|(key, output)| ((*key).to_owned(), output.clone())).collect();
    SecretTemplate { outputs, keeps_source_keys: false }
}

fn text(text: &str) -> Output {
    Output::Text(text.parse().unwrap())
}

fn file(keys: &[&str]) -> Output {
    Output::File { format: FileFormat::Json, keys: keys.iter().map(|&key| key.to_owned()).collect() }
}

fn registry(password: &str) -> Output {
    let [server, username, password] = ["ghcr.io", "${user}", password].map(|text| text.parse().unwrap());
    Output::Registries(vec![RegistryTemplate { server, username, password }])
}

/// The keys of a Secret with their values, the keys that cannot be made, and whether the Secret is incomplete.
type Result = (Vec<(String, String)>, Vec<(String, Unmade)>, bool);

/// Renders with `user`, `db-host` and `db-port`, with `token` withheld, and with `old` in the Secret under the key `kept`.
fn rendered(template: &SecretTemplate) -> Result {
    let value = |text: &str| SecretValue::from(text.to_owned());
    let (values, old) = ([("user", value("me")), ("db-host", value("db")), ("db-port", value("5432"))], value("old"));
    let sources = SourceKeys {
        values: values.iter().map(|(name, value)| (Cow::Borrowed(*name), value)).collect(),
        withheld: ["token".to_owned()].into(),
    };
    let Rendered { data, unmade, is_incomplete } =
        template.render(sources, LIMIT, |key| (key == "kept" || key == "token").then_some(&old));
    let text = |value: Held<'_>| String::from_utf8(value.value().expose().to_vec()).unwrap();
    (data.into_iter().map(|(key, value)| (key.into_owned(), text(value))).collect(), unmade, is_incomplete)
}

#[test]
fn a_key_is_made_of_the_keys_of_the_sources() {
    for (output, expected) in [
        (text("plain $$"), "plain $"),
        (text("${user}@${db-host}:${db-port}"), "me@db:5432"),
        (file(&["user", "db-*"]), r#"{"user":"me","db-host":"db","db-port":"5432"}"#),
        (file(&["db-*", "db-host"]), r#"{"db-host":"db","db-port":"5432"}"#),
        (file(&["none-*"]), "{}"),
        (
            registry("p-${db-port}"),
            r#"{"auths":{"ghcr.io":{"username":"me","password":"p-5432","auth":"bWU6cC01NDMy"}}}"#,
        ),
    ] {
        let expected = (vec![("made".to_owned(), expected.to_owned())], vec![], false);
        assert_eq!(rendered(&template(&[("made", output)])), expected);
    }
}

#[test]
fn a_key_that_cannot_be_made_stays_as_it_is_in_the_secret() {
    let lacking = |key: &str| Unmade::Lacking(key.to_owned());
    let withheld = || Unmade::Withheld("token".to_owned());
    for (output, cause) in [
        (text("${user}:${none}"), lacking("none")),
        (text("${user}:${token}"), withheld()),
        (text(&"${db-port}".repeat(26)), Unmade::TooLarge),
        (file(&["user", "none"]), lacking("none")),
        (file(&["to*"]), withheld()),
        (file(&[]), withheld()),
        (registry("${token}"), withheld()),
        (registry("${none}"), lacking("none")),
    ] {
        let good = ("good", text("${user}"));
        let good_data = ("good".to_owned(), "me".to_owned());
        let there = template(&[good.clone(), ("kept", output.clone())]);
        let data = vec![good_data.clone(), ("kept".to_owned(), "old".to_owned())];
        assert_eq!(rendered(&there), (data, vec![("kept".to_owned(), cause.clone())], false));
        let absent = template(&[good, ("absent", output)]);
        assert_eq!(rendered(&absent), (vec![good_data], vec![("absent".to_owned(), cause)], true));
    }
}

#[test]
fn source_keys_stay_beside_the_template_if_it_says_so() {
    let beside = SecretTemplate { keeps_source_keys: true, ..template(&[("user", text("<${user}>"))]) };
    let data = [("db-host", "db"), ("db-port", "5432"), ("token", "old"), ("user", "<me>")];
    let data = data.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
    assert_eq!(rendered(&beside), (data, vec![], false));
}

#[test]
fn all_keys_together_are_as_large_as_the_limit_at_most() {
    let full = text(&"x".repeat(LIMIT));
    let (_, unmade, is_incomplete) = rendered(&template(&[("a", full), ("b", text("y"))]));
    assert_eq!((unmade, is_incomplete), (vec![("b".to_owned(), Unmade::TooLarge)], true));
}
