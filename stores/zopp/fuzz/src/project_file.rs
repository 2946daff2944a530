//! Any text is settings or an error that names the file.

use std::path::Path;

use konverge_zopp_cli::project_file::parse;

pub(crate) const SEEDS: &[&[u8]] = &[
    b"[defaults]\nworkspace = \"acme\"\nproject = \"backend\"\nenvironment = \"dev\"\n",
    b"defaults:\n  workspace: acme\n  project: &p backend\n  environment: *p\n",
    b"a: &a [x, x]\nb: &b [*a, *a, *a]\nc: &c [*b, *b, *b]\nd: &d [*c, *c, *c]\ndefaults: {workspace: *d}\n",
    br#"{"defaults":{"workspace":"acme","project":null}}"#,
    b"[[[[[[[[[[[[[[[[[[[[",
];

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    for name in ["zopp.toml", "zopp.yaml", "zopp.json"] {
        if let Err(error) = parse(Path::new(name), text) {
            assert!(error.to_string().contains(name), "{error}");
        }
    }
}
