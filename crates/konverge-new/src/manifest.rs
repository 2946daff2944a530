//! A `Cargo.toml` that stands alone, of one that belongs to this workspace.

use std::path::Path;

/// The manifest of this workspace: the versions and features that Konverge itself is built and tested with.
const WORKSPACE: &str = include_str!("../../../Cargo.toml");

/// The settings that a crate of its own needs and a member takes from the workspace.
const PROFILES: &str = "
# A workspace of its own, also where its folder lies in another.
[workspace]

[lints.rust]
unsafe_code = \"forbid\"

[profile.dev]
debug = \"line-tables-only\"

# Nobody steps through other people's code, and without its debug info a build is a third smaller.
[profile.dev.package.\"*\"]
debug = false

[profile.release]
strip = \"symbols\"
";

/// The manifest of a crate of its own. Every `name.workspace = true` becomes what the workspace says of `name`; crates of Konverge
/// become paths into its `checkout`.
pub fn standing_alone(manifest: &str, checkout: &Path) -> String {
    let lines =
        manifest.lines().filter(|line| !["[lints]", "workspace = true", "license.workspace = true"].contains(line));
    let mut text = String::new();
    for line in lines {
        let line = match (line.strip_suffix(".workspace = true"), line.split_once(" = { workspace = true, ")) {
            (Some(name), _) => said_by_workspace(name, checkout),
            (None, Some((name, more))) => with_more(&said_by_workspace(name, checkout), more),
            (None, None) => line.to_owned(),
        };
        text.push_str(&line);
        text.push('\n');
    }
    format!("{}\n{PROFILES}", text.trim_end())
}

/// Returns the workspace's entry for `name`, which is a dependency or a key of a package.
fn said_by_workspace(name: &str, checkout: &Path) -> String {
    if name.starts_with("konverge") {
        // A path is a TOML string: its literal form takes every character but the quote that ends it.
        return format!("{name} = {{ path = '{}' }}", checkout.join("crates").join(name).display());
    }
    let mut lines = WORKSPACE.lines();
    let found = lines.find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(" = ")));
    found.map_or_else(|| format!("{name} = \"*\""), ToOwned::to_owned)
}

/// A dependency with the settings that a member adds to those of the workspace.
fn with_more(dependency: &str, more: &str) -> String {
    match (dependency.strip_suffix(" }"), dependency.split_once(" = ")) {
        (Some(open), _) => format!("{open}, {more}"),
        (None, Some((name, version))) => format!("{name} = {{ version = {version}, {more}"),
        (None, None) => dependency.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_to_a_workspace_and_nothing_is_without_a_version() {
        let manifest = standing_alone(crate::files::MANIFEST, Path::new("/konverge"));
        assert!(!manifest.contains("workspace = true"), "{manifest}");
        assert!(!manifest.contains("= \"*\""), "{manifest}");
        let konverge = "konverge = { path = '/konverge/crates/konverge', features = [\"v1_36\"] }\n";
        assert!(manifest.contains(konverge), "{manifest}");
        assert!(manifest.contains("konverge-testkit = { path = '/konverge/crates/konverge-testkit' }\n"), "{manifest}");
        assert!(manifest.contains("\ntokio = { version = "), "{manifest}");
        assert!(manifest.contains("\npublish = false\n"), "{manifest}");
    }

    #[test]
    fn settings_of_a_member_come_after_those_of_the_workspace() {
        for (dependency, expected) in [
            ("a = \"1\"", "a = { version = \"1\", features = [\"b\"] }"),
            ("a = { path = 'c' }", "a = { path = 'c', features = [\"b\"] }"),
        ] {
            assert_eq!(with_more(dependency, "features = [\"b\"] }"), expected);
        }
    }
}
