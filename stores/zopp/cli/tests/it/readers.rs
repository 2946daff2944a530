//! Programs that read dotenv files take each exported value for what it is, and `secret import` reads lines as these programs do.
//!
//! The readers are real: bash, dash, node and python-dotenv, which pip installs for the test. A machine without one of them says
//! so by `KONVERGE_TEST_DOTENV_READERS`, such as `bash,dash`.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::world::World;

const ALL: &str = "bash,dash,node,python-dotenv";
const PYTHON_DOTENV: &str = "python-dotenv==1.1.1";

/// The values of a file, by key. The prefix keeps them apart from variables of the reader.
type Values = BTreeMap<String, String>;

/// Usual values, and some that run a command if they are not quoted.
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
        ("SUBSTITUTION", format!("$(touch {witness}); touch {witness}")),
        ("HOME", "~/x".to_owned()),
        ("EMPTY", String::new()),
        ("URL", "postgres://u:p@h:5/d?x=y&z=1".to_owned()),
        ("BLANKS", " x ".to_owned()),
        ("TAB", "a\tb".to_owned()),
        ("UNICODE", "grüße 🔑".to_owned()),
        // zsh takes it for the path of a program.
        ("EQUALS", "=ls".to_owned()),
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
    for reader in readers() {
        let folder = alice.path(".env").parent().unwrap().to_owned();
        let read = read_by(&reader, &folder).unwrap();
        let read: Values = read.into_iter().filter(|(key, _)| key.starts_with("V_")).collect();
        assert_eq!(read, values, "{reader}");
    }
    assert!(!witness.exists(), "a value was run");
    alice.ok("environment create copy");
    alice.ok("secret import -e copy -i .env");
    let copy = alice.json("secret export -e copy");
    assert_eq!(serde_json::from_value::<Values>(copy).unwrap(), values);
}

/// An interactive bash that sources the file runs the first few, and passes the others to the programs that it starts.
#[test]
fn a_key_that_steers_programs_is_exported_only_if_it_is_allowed_by_name() {
    let World { alice, server: _server } = World::new();
    let witness = alice.path("witness");
    let command = format!("touch {}", witness.display());
    let substitution = format!("$({command})");
    let has_bash = readers().iter().any(|reader| reader == "bash");
    let source = || {
        let script = alice.write("source.sh", ". ./.env\n:\n:\n");
        let stdin = fs::File::open(script).unwrap();
        let folder = alice.path(".env").parent().unwrap().to_owned();
        let shell = Command::new("bash").args(["--norc", "-i"]).current_dir(folder).stdin(stdin).output().unwrap();
        assert!(shell.status.success(), "{}", String::from_utf8_lossy(&shell.stderr));
        fs::remove_file(&witness).is_ok()
    };
    alice.ok("secret set API_KEY x");
    for (key, value, is_run) in [
        ("PROMPT_COMMAND", command.clone(), true),
        ("PS0", substitution.clone(), true),
        ("PS1", substitution.clone(), true),
        ("RANDOM", format!("a[{substitution}]"), true),
        ("OPTIND", format!("a[{substitution}]"), true),
        ("PATH", "./bin".to_owned(), false),
        ("LD_PRELOAD", "./evil.so".to_owned(), false),
        ("NODE_OPTIONS", "--require=./evil.js".to_owned(), false),
        ("prompt", substitution.clone(), false),
        ("MAILPATH", format!("x?{substitution}"), false),
        ("ZOPP_SERVER", "http://evil.example".to_owned(), false),
    ] {
        alice.ok_with_stdin(&format!("secret set {key} -"), value.as_bytes());
        for line in ["secret export", "secret export --file .env", "secret export -o table"] {
            assert_eq!(
                alice.fails(line, 1),
                format!(
                    "Error: cannot export acme/backend/dev: '{key}' can make programs run code or write files\n  If its writers may do \
                     that: --allow-key {key}. To leave such keys out: --skip-invalid. As data: --output json.\n"
                )
            );
        }
        assert_eq!(alice.json("secret export")[key], value, "{key}: JSON is data");
        let ended = alice.run("secret export --skip-invalid --file .env");
        assert!(ended.stderr.contains(&format!("{key:?}")), "{key}: {}", ended.stderr);
        ended.succeeded("secret export --skip-invalid");
        assert_eq!(fs::read_to_string(alice.path(".env")).unwrap(), "API_KEY=x");
        assert!(!has_bash || !source(), "{key}: a value was run");

        alice.ok(&format!("secret export --allow-key {key} --file .env"));
        assert!(fs::read_to_string(alice.path(".env")).unwrap().contains(&format!("{key}=")), "{key}");
        if has_bash && is_run {
            assert!(source(), "{key}: bash does not run it, so this test proves nothing");
        }
        alice.ok(&format!("secret delete {key}"));
    }
    alice.ok("secret set RANDOM 4");
    assert_eq!(alice.ok("secret export"), "API_KEY=x\nRANDOM=4\n", "a number is no expression");
}

/// The right side of a line, the value as `import` reads it, and the readers that read another value, or none.
const IMPORTED: [(&str, &str, &[&str]); 35] = [
    ("v#x", "v#x", NODE),
    ("#x", "#x", NODE),
    ("a#b #c", "a#b", NODE),
    (r#"{"a":"b#c"}"#, r#"{"a":"b#c"}"#, &["bash", "dash", "node"]),
    (" # x", "", PYTHON),
    (" #x", "", PYTHON),
    ("v # x", "v", &[]),
    ("v #b'c", "v", &[]),
    ("v\t# x", "v", NODE),
    ("\u{a0}v\u{a0}", "\u{a0}v\u{a0}", PYTHON),
    ("", "", &[]),
    ("''", "", &[]),
    ("\"\" # x", "", &[]),
    ("v ", "v", &[]),
    ("=a", "=a", &[]),
    ("5$", "5$", &[]),
    ("two words", "two words", SHELLS),
    (" v", "v", SHELLS),
    (r#"{"a":"b\nc","d":[1, 2]} # x"#, r#"{"a":"b\nc","d":[1, 2]}"#, SHELLS),
    ("don't", "don't", SHELLS),
    (r"C:\new\table", r"C:\new\table", SHELLS),
    (r"^\d+$", r"^\d+$", SHELLS),
    ("a`b", "a`b", SHELLS),
    ("'a#b' # c", "a#b", &[]),
    ("' a '", " a ", &[]),
    (r"'C:\new'", r"C:\new", &[]),
    ("'a $b `c` \"d\"'", "a $b `c` \"d\"", &[]),
    ("'a\nb'", "a\nb", &[]),
    ("\"it's\nb\"", "it's\nb", &[]),
    (r#""a\nb""#, "a\nb", SHELLS),
    (r#""C:\Users""#, r"C:\Users", &[]),
    (r#""a\"b\\c""#, r#"a"b\c"#, NODE),
    // The published command line writes this escape.
    (r#""\$x""#, "$x", &["node", "python-dotenv"]),
    // Text that only an escape can hold.
    (r#""a\tb""#, "a\tb", &["bash", "dash", "node"]),
    (r#""a\rb""#, "a\rb", &["bash", "dash", "node"]),
];

const SHELLS: &[&str] = &["bash", "dash"];
const NODE: &[&str] = &["node"];
const PYTHON: &[&str] = &["python-dotenv"];

/// The right sides of lines that `import` refuses, because the readers disagree.
const DISPUTED: [&str; 12] = [
    "a\rb",
    "pa$word",
    "pa$5",
    "${V_A}",
    "\"a$b\"",
    "`a`",
    "'a'#b",
    "\"a\"#b",
    "'a'b",
    "'it'\\''s'",
    "\"a\" b",
    r#""it\'s""#,
];

#[test]
fn import_reads_lines_as_the_readers_do_or_names_them() {
    let World { alice, server: _server } = World::new();
    let lines = IMPORTED.iter().enumerate().map(|(index, (text, ..))| format!("V_{index}={text}\n"));
    alice.write(".env", lines.collect::<String>());
    let imported = alice.run("secret import -i .env");
    assert_eq!(imported.code, 0, "{}", imported.stderr);
    let imported_values: Values = serde_json::from_value(alice.json("secret export")).unwrap();
    let expected: Values =
        IMPORTED.iter().enumerate().map(|(index, (_, value, _))| (format!("V_{index}"), (*value).to_owned())).collect();
    assert_eq!(imported_values, expected);
    // Only node takes a "#" without a blank before it for a comment, so these lines, and no others, are doubtful.
    let doubtful: Vec<_> = imported.stderr.lines().filter(|line| line.contains("Warning: .env: line ")).collect();
    assert_eq!(doubtful.len(), 4, "{}", imported.stderr);
    for (line, warning) in (1..).zip(doubtful) {
        assert!(warning.contains(&format!("line {line}: \"#\"")), "{warning}");
    }

    let folder = alice.path(".env").parent().unwrap().to_owned();
    for reader in readers() {
        for (text, value, dissenting) in IMPORTED {
            alice.write(".env", format!("V_A={text}\n"));
            let read = read_by(&reader, &folder).and_then(|mut values| values.remove("V_A"));
            assert_eq!(read.as_deref() != Some(value), dissenting.contains(&&*reader), "{reader}: {text:?}: {read:?}");
        }
    }
}

#[test]
fn import_refuses_lines_that_readers_read_in_different_ways() {
    let World { alice, server: _server } = World::new();
    let folder = alice.path(".env").parent().unwrap().to_owned();
    let readers = readers();
    for text in DISPUTED {
        alice.write(".env", format!("V_B=1\nV_A={text}\n"));
        let stderr = alice.fails("secret import -i .env", 1);
        assert!(stderr.contains("line 2: "), "{text:?}: {stderr}");
        assert_eq!(alice.json("secret export"), serde_json::json!({}), "{text:?}");
        let read: BTreeSet<_> =
            readers.iter().map(|reader| read_by(reader, &folder).and_then(|mut values| values.remove("V_A"))).collect();
        assert!(read.len() > 1 || readers.len() < ALL.split(',').count(), "{text:?}: {read:?}");
    }
}

/// The readers of this machine: all, unless the variable names them.
fn readers() -> Vec<String> {
    let chosen = env::var("KONVERGE_TEST_DOTENV_READERS").unwrap_or_else(|_| ALL.to_owned());
    chosen.split(',').map(str::to_owned).collect()
}

/// Returns the values of `.env`; `None` if a shell fails on the file, which no other reader does.
fn read_by(reader: &str, folder: &Path) -> Option<Values> {
    match reader {
        "bash" | "dash" => {
            let script = "set -aeu; . ./.env; exec env -0";
            let output = start(reader, &["-c", script], folder);
            if !output.status.success() {
                return None;
            }
            let text = String::from_utf8(output.stdout).unwrap();
            let pairs = text.split('\0').filter_map(|pair| pair.split_once('='));
            Some(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
        }
        "node" => {
            let script = "process.stdout.write(JSON.stringify(process.env))";
            Some(json(&run("node", &["--env-file=.env", "-e", script], folder)))
        }
        "python-dotenv" => {
            let script = format!(
                "import sys; sys.path.insert(0, {:?}); import dotenv, json; found = dotenv.dotenv_values('.env'); \
                 json.dump({{key: value for key, value in found.items() if value is not None}}, sys.stdout)",
                python_dotenv().display().to_string()
            );
            Some(json(&run("python3", &["-c", &script], folder)))
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
    let output = start(program, arguments, folder);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {stderr}; {}", missing(program));
    String::from_utf8(output.stdout).unwrap()
}

fn start(program: &str, arguments: &[&str], folder: &Path) -> Output {
    let output = Command::new(program).args(arguments).current_dir(folder).output();
    output.unwrap_or_else(|error| panic!("{program}: {error}; {}", missing(program)))
}

fn missing(program: &str) -> String {
    format!("install {program}, or name the readers that are here: KONVERGE_TEST_DOTENV_READERS=bash,dash")
}
