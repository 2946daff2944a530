//! Programs that read dotenv files take each exported value for what it is.
//!
//! The readers are real: bash, the shell of the system, node and python-dotenv, which pip installs for the test. A machine without one of them says
//! so by `KONVERGE_TEST_DOTENV_READERS`, such as `bash,sh`.

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::world::World;

const ALL: &str = "bash,sh,node,python-dotenv";
const PYTHON_DOTENV: &str = "python-dotenv==1.1.1";

/// The values of a file, by key. The prefix keeps them apart from variables of the reader.
type Values = BTreeMap<String, String>;

/// Values that people have, and some that run a command where they are not quoted.
fn written(witness: &Path) -> Values {
    let witness = witness.display();
    let values = [
        ("PEM", "-----BEGIN KEY-----\nabc+/=\n-----END KEY-----\n".to_owned()),
        ("SPACES", "two words".to_owned()),
        ("HASH", "a#b # c".to_owned()),
        ("DOLLAR", "pa$word$1".to_owned()),
        ("BACKSLASH", "C:\\new\\table".to_owned()),
        ("DOUBLE", "say \"hi\"".to_owned()),
        ("APOSTROPHE", "it's".to_owned()),
        ("LINES", "it's\ntwo\n".to_owned()),
        ("JSON", r#"{"a":"b\nc","d":[1, 2]}"#.to_owned()),
        ("BANG", "wow!!".to_owned()),
        ("BACKTICK", format!("`touch {witness}`")),
        ("COMMAND", format!("$(touch {witness}); touch {witness}")),
        ("HOME", "~/x".to_owned()),
        ("EMPTY", String::new()),
        ("URL", "postgres://u:p@h:5/d?x=y&z=1".to_owned()),
        ("BLANKS", " x ".to_owned()),
        ("TAB", "a\tb".to_owned()),
        ("UNICODE", "grüße 🔑".to_owned()),
    ];
    values.into_iter().map(|(key, value)| (format!("V_{key}"), value)).collect()
}

/// Values that no form holds for all readers.
const REFUSED: [(&str, &str); 5] = [
    ("V_BOTH", "it's \"x\""),
    ("V_BRACE", "a ${HOME} b"),
    ("V_RETURN", "a\r\nb"),
    ("V_TRAILING", "a b\\"),
    ("V_UNC", "\\\\host\\share"),
];

#[test]
fn every_reader_takes_each_exported_value_unchanged_and_runs_none() {
    let World { alice, server: _server } = World::new();
    let witness = alice.path("witness");
    let values = written(&witness);
    for (key, value) in values.iter().map(|(key, value)| (key.as_str(), value.as_str())).chain(REFUSED) {
        alice.ok_with_stdin(&format!("secret set {key} -"), value.as_bytes());
    }
    alice.fails("secret export --file .env", 1);
    let ended = alice.run("secret export --skip-invalid --file .env");
    assert_eq!(ended.code, 0, "{}", ended.stderr);
    for (key, _) in REFUSED {
        assert!(ended.stderr.contains(&format!("{key:?}")), "{key}: {}", ended.stderr);
    }
    let chosen = env::var("KONVERGE_TEST_DOTENV_READERS").unwrap_or_else(|_| ALL.to_owned());
    for reader in chosen.split(',') {
        let folder = alice.path(".env").parent().unwrap().to_owned();
        let read: Values = read_by(reader, &folder).into_iter().filter(|(key, _)| key.starts_with("V_")).collect();
        assert_eq!(read, values, "{reader}");
    }
    assert!(!witness.exists(), "a value was run");
    alice.ok("environment create copy");
    alice.ok("secret import -e copy -i .env");
    let copy = alice.json("secret export -e copy");
    assert_eq!(serde_json::from_value::<Values>(copy).unwrap(), values);
}

fn read_by(reader: &str, folder: &Path) -> Values {
    match reader {
        "bash" | "sh" => {
            let output = run(reader, &["-c", "set -a; . ./.env; exec env -0"], folder);
            let pairs = output.split('\0').filter_map(|pair| pair.split_once('='));
            pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
        }
        "node" => {
            let script = "process.stdout.write(JSON.stringify(process.env))";
            json(&run("node", &["--env-file=.env", "-e", script], folder))
        }
        "python-dotenv" => {
            let script = format!(
                "import sys; sys.path.insert(0, {:?}); import dotenv, json; json.dump(dotenv.dotenv_values('.env'), sys.stdout)",
                python_dotenv().display().to_string()
            );
            json(&run("python3", &["-c", &script], folder))
        }
        other => panic!("KONVERGE_TEST_DOTENV_READERS names {other:?}; there are {ALL}"),
    }
}

fn json(text: &str) -> Values {
    serde_json::from_str(text).unwrap()
}

/// The folder of the package, which is kept beside the test programs.
fn python_dotenv() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(PYTHON_DOTENV);
    if !folder.join("dotenv").exists() {
        fs::create_dir_all(&folder).unwrap();
        let target = folder.display().to_string();
        run("python3", &["-m", "pip", "install", "--quiet", "--target", &target, PYTHON_DOTENV], &folder);
    }
    folder
}

fn run(program: &str, arguments: &[&str], folder: &Path) -> String {
    let missing = format!("install {program}, or name the readers that are here: KONVERGE_TEST_DOTENV_READERS=bash,sh");
    let output = Command::new(program).args(arguments).current_dir(folder).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}; {missing}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {stderr}; {missing}");
    String::from_utf8(output.stdout).unwrap()
}
