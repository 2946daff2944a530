//! A `Cargo.toml` that stands alone, of one that belongs to this workspace.

use std::path::Path;

/// The manifest of this workspace: the versions and features that Konverge itself is built and tested with.
const WORKSPACE: &str = include_str!("../../../Cargo.toml");

/// What stands in a crate of its own where a member says that the workspace knows.
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
        let line = match line.strip_suffix(".workspace = true") {
            Some(name) => said_by_workspace(name, checkout),
            None => line.to_owned(),
        };
        text.push_str(&line);
        text.push('\n');
    }
    format!("{}\n{PROFILES}", text.trim_end())
}

/// What the workspace says of `name`, which is a dependency or a key of a package.
fn said_by_workspace(name: &str, checkout: &Path) -> String {
    if name.starts_with("konverge") {
        // A path is a TOML string: its literal form takes every character but the quote that ends it.
        return format!("{name} = {{ path = '{}' }}", checkout.join("crates").join(name).display());
    }
    let mut lines = WORKSPACE.lines();
    let found = lines.find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(" = ")));
    found.map_or_else(|| format!("{name} = \"*\""), ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_left_to_a_workspace_and_nothing_is_without_a_version() {
        let manifest = standing_alone(crate::files::MANIFEST, Path::new("/konverge"));
        assert!(!manifest.contains("workspace = true"), "{manifest}");
        assert!(!manifest.contains("= \"*\""), "{manifest}");
        assert!(manifest.contains("konverge = { path = '/konverge/crates/konverge' }\n"), "{manifest}");
        assert!(manifest.contains("\nkube = { version = "), "{manifest}");
        assert!(manifest.contains("\npublish = false\n"), "{manifest}");
    }
}
