//! The site of the docs.
//!
//! Its pages are files of the repository, in `docs` and beside the code that they describe. The builder mdBook takes pages of one folder, so they
//! are copied with their paths in the repository, together with the manifests that they link. So a link works in the repository and on the site.

mod dead_links;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::{
    environment, paths, step,
    tidy::links::{SUMMARY, chapters, links},
    tools,
};

/// The settings of mdBook. Smart punctuation would make one dash of the two of a flag. Its preprocessor `index` renames each `README.md`, which breaks links to it; its preprocessor `links` is not needed.
const BOOK: &str = r#"[book]
title = "Konverge"
language = "en"
src = "src"

[build]
build-dir = "site"
create-missing = false
use-default-preprocessors = false

[output.html]
no-section-label = true
smart-punctuation = false
additional-css = ["wide.css"]
"#;

/// Tables of four columns need more width than prose. No column and no part of a command may be beyond the edge, because a reader does not look there. Long words of
/// the last columns break, and commands go on in the next line.
const WIDE: &str = "\
:root { --content-max-width: 1000px; }
.table-wrapper table { margin: 0; width: 100%; }
table td, table thead th { padding: 3px 8px; }
td code { font-size: 0.75em; }
td:nth-child(n+3) code { overflow-wrap: anywhere; }
pre > code.language-console { white-space: pre-wrap; }
";

/// The page at the root leads to the first page.
const INDEX: &str = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Konverge</title>\
                     <meta http-equiv=\"refresh\" content=\"0; url=docs/index.html\"></head>\
                     <body><a href=\"docs/index.html\">Konverge</a></body></html>\n";

/// Builds the site into `into`, or else `target/docs`.
pub(crate) fn build(into: Option<PathBuf>) -> Result<()> {
    let root = paths::workspace();
    let into = into.unwrap_or_else(|| {
        environment::variable("CARGO_TARGET_DIR").unwrap_or_else(|| root.join("target")).join("docs")
    });
    if into.exists() {
        fs::remove_dir_all(&into).with_context(|| format!("cannot remove {}", into.display()))?;
    }
    stage(&root, &into)?;
    let mut mdbook = step::program(&tools::ensure(&tools::MDBOOK)?);
    mdbook.arg("build").arg(&into);
    step::run("site", mdbook, "Correct the page that it names.")?;
    let site = into.join("site");
    fs::write(site.join("index.html"), INDEX).with_context(|| format!("cannot write to {}", site.display()))?;
    step::step("links of the site", "Correct the page, or what the generator makes of it.", || {
        let dead = dead_links::find(&site)?;
        if !dead.is_empty() {
            bail!("dead links:\n{}", dead.join("\n"));
        }
        Ok(())
    })?;
    eprintln!("\nThe site is in {}.", site.display());
    Ok(())
}

/// Copies the pages and the files that they link.
fn stage(root: &Path, into: &Path) -> Result<()> {
    let source = into.join("src");
    let pages = chapters(root)?;
    for page in &pages {
        let text = fs::read_to_string(root.join(page)).with_context(|| format!("cannot read {}", page.display()))?;
        for link in links(page, &text) {
            let is_page = link.file.extension().is_some_and(|extension| extension == "md");
            if !is_page && root.join(&link.file).is_file() {
                copy(root, &source, &link.file)?;
            }
        }
        copy(root, &source, page)?;
    }
    let summary = fs::read_to_string(root.join(SUMMARY)).with_context(|| format!("cannot read {SUMMARY}"))?;
    write(&source.join("SUMMARY.md"), &rebased(&summary, &pages))?;
    write(&into.join("wide.css"), WIDE)?;
    write(&into.join("book.toml"), BOOK)
}

/// Returns the summary with its links, in their order, as seen from the root.
fn rebased(summary: &str, pages: &[PathBuf]) -> String {
    let mut pages = pages.iter();
    let mut parts = summary.split("](");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.split_once(')').map_or("", |(_, rest)| rest);
        let page = pages.next().map(|page| page.display().to_string()).unwrap_or_default();
        text.extend(["](", &page, ")", rest]);
    }
    text
}

fn copy(root: &Path, into: &Path, file: &Path) -> Result<()> {
    let to = into.join(file);
    make_folder(&to)?;
    fs::copy(root.join(file), &to).with_context(|| format!("cannot copy {}", file.display()))?;
    Ok(())
}

fn write(file: &Path, text: &str) -> Result<()> {
    make_folder(file)?;
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

fn make_folder(file: &Path) -> Result<()> {
    let folder = file.parent().unwrap_or(Path::new(""));
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_seen_from_the_root() {
        let summary = "# Summary\n\n[Start](index.md)\n\n- [A](a/b.md)\n- [C](../c.md)\n";
        let pages = ["docs/index.md", "docs/a/b.md", "c.md"].map(PathBuf::from);
        let expected = "# Summary\n\n[Start](docs/index.md)\n\n- [A](docs/a/b.md)\n- [C](c.md)\n";
        assert_eq!(rebased(summary, &pages), expected);
    }

    #[test]
    fn pages_and_the_files_that_they_link_are_staged_where_they_stand() {
        let folder = tempfile::tempdir().unwrap();
        let (root, into) = (folder.path().join("root"), folder.path().join("into"));
        for (file, text) in [
            ("docs/SUMMARY.md", "[A](a.md)\n- [B](../b/README.md)\n"),
            ("docs/a.md", "[role](../deploy/role.yaml) [b](../b/README.md) [web](https://example.com)"),
            ("b/README.md", "# B"),
            ("deploy/role.yaml", "kind: Role"),
        ] {
            write(&root.join(file), text).unwrap();
        }
        stage(&root, &into).unwrap();
        for file in ["book.toml", "src/SUMMARY.md", "src/docs/a.md", "src/b/README.md", "src/deploy/role.yaml"] {
            assert!(into.join(file).is_file(), "{file}");
        }
    }
}
