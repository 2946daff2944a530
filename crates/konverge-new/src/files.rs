//! The template, and the crate that is made of it.

use std::{collections::BTreeMap, path::Path};

use crate::{manifest, substitution::Names};

/// Its manifest.
pub const MANIFEST: &str = include_str!("../template/Cargo.toml");

/// The sources in which a kind must not mean something else, and what they take in with one `use`.
pub const SOURCES: [&str; 4] = [
    include_str!("../template/src/lib.rs"),
    include_str!("../template/tests/it/life.rs"),
    include_str!("../../konverge/src/prelude.rs"),
    include_str!("../template/tests/it/reconcile.rs"),
];

/// The files of the template, under the paths of the new crate. A file that would affect this repository under its own name, such as
/// `.gitignore`, has another name in the template.
const TEMPLATE: [(&str, &str); 14] = [
    (".dockerignore", include_str!("../template/dockerignore")),
    (".gitignore", include_str!("../template/gitignore")),
    ("Dockerfile", include_str!("../template/Dockerfile")),
    ("README.md", include_str!("../template/README.md")),
    ("deploy/deployment.yaml", include_str!("../template/deploy/deployment.yaml")),
    ("examples/object.yaml", include_str!("../template/examples/object.yaml")),
    ("rust-toolchain.toml", include_str!("../../../rust-toolchain.toml")),
    ("rustfmt.toml", include_str!("../../../rustfmt.toml")),
    ("src/lib.rs", SOURCES[0]),
    ("src/main.rs", include_str!("../template/src/main.rs")),
    ("tests/it/deploy.rs", include_str!("../template/tests/it/deploy.rs")),
    ("tests/it/life.rs", SOURCES[1]),
    ("tests/it/main.rs", include_str!("../template/tests/it/main.rs")),
    ("tests/it/reconcile.rs", SOURCES[3]),
];

/// The files of a new crate by their path in it, but for the generated ones and the lock file.
pub fn of_crate(names: &Names, checkout: &Path) -> BTreeMap<&'static str, String> {
    let mut files: BTreeMap<_, _> = TEMPLATE.iter().map(|(path, text)| (*path, names.put_into(text))).collect();
    // The names first: the path of the checkout may have words of the template in it.
    files.insert("Cargo.toml", manifest::standing_alone(&names.put_into(MANIFEST), checkout));
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_image_is_built_with_the_toolchain_of_the_crate() {
        let of = |wanted: &str| TEMPLATE.iter().find(|(path, _)| *path == wanted).unwrap().1;
        let channel = of("rust-toolchain.toml").split('"').nth(1).unwrap();
        let (release, _) = channel.rsplit_once('.').unwrap();
        let dockerfile = of("Dockerfile");
        assert!(dockerfile.contains(&format!("FROM rust:{release}-alpine ")), "{dockerfile}");
        assert!(dockerfile.contains(&format!("RUSTUP_TOOLCHAIN={channel}\n")), "{dockerfile}");
    }
}
