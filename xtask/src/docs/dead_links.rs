//! The links of the finished site. The links of the sources are checked by `tidy`; what a generator makes of them, only here.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::tidy::links::normal;

/// All pages in one file, whose anchors differ, and the page for addresses that do not exist, whose links start at the root of a server.
const UNCHECKED: [&str; 2] = ["print.html", "404.html"];

/// A page: its anchors and where its links lead.
struct Page {
    anchors: BTreeSet<String>,
    links: Vec<String>,
}

/// Returns the links of a site that lead to no file or to no anchor, each with its page.
pub(super) fn find(site: &Path) -> Result<Vec<String>> {
    let mut files = BTreeSet::new();
    collect(site, Path::new(""), &mut files)?;
    let mut pages = BTreeMap::new();
    for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "html")) {
        let text = fs::read_to_string(site.join(file)).with_context(|| format!("cannot read {}", file.display()))?;
        let links = attributes(&text, "href").chain(attributes(&text, "src")).collect();
        pages.insert(file.clone(), Page { anchors: attributes(&text, "id").collect(), links });
    }
    let mut found = Vec::new();
    for (path, page) in pages.iter().filter(|(path, _)| !UNCHECKED.iter().any(|name| path.ends_with(name))) {
        for link in &page.links {
            if let Some(fault) = fault(path, link, &files, &pages) {
                found.push(format!("{}: the link {link} {fault}", path.display()));
            }
        }
    }
    Ok(found)
}

/// Returns what is wrong with a link of a page.
fn fault(page: &Path, link: &str, files: &BTreeSet<PathBuf>, pages: &BTreeMap<PathBuf, Page>) -> Option<&'static str> {
    // An address with a scheme leads away from the site.
    let (address, anchor) = link.split_once('#').unwrap_or((link, ""));
    if address.contains(':') {
        return None;
    }
    let file = if address.is_empty() {
        page.to_owned()
    } else {
        normal(&page.parent().unwrap_or(Path::new("")).join(address))
    };
    if !files.contains(&file) {
        return Some("leads to no file");
    }
    let is_there = anchor.is_empty() || pages.get(&file).is_none_or(|target| target.anchors.contains(anchor));
    (!is_there).then_some("leads to no anchor")
}

/// Returns the values of an attribute. Text between tags has no quotation marks that look like one's: a generator escapes them in code.
fn attributes(html: &str, name: &str) -> impl Iterator<Item = String> {
    let begins = format!(" {name}=\"");
    let values: Vec<_> =
        html.split(begins.as_str()).skip(1).filter_map(|rest| rest.split('"').next()).map(decoded).collect();
    values.into_iter()
}

/// Undoes the escapes of HTML and of addresses that file names and headings get.
fn decoded(value: &str) -> String {
    let value = value.replace("&#39;", "'").replace("&#x27;", "'").replace("&amp;", "&");
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.as_bytes();
    while let Some((&first, others)) = rest.split_first() {
        let escaped = others.get(..2).filter(|_| first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = escaped.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            bytes.push(byte);
            rest = &others[2..];
        } else {
            bytes.push(first);
            rest = others;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Adds the files of a folder and of those below it.
fn collect(root: &Path, folder: &Path, files: &mut BTreeSet<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(root.join(folder)).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            collect(root, &path, files)?;
        } else {
            files.insert(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_no_file_or_no_anchor_is_found() {
        let site = tempfile::tempdir().unwrap();
        fs::create_dir(site.path().join("a")).unwrap();
        let write = |name: &str, text: &str| fs::write(site.path().join(name), text).unwrap();
        write("style.css", "");
        write("print.html", "<a href=\"gone.html\">");
        write("b.html", "<h2 id=\"there\"><a class=\"x\" href=\"#there\"></a></h2><h2 id=\"größe\"></h2>");
        let links = [
            "../b.html#there",
            "../b.html#gr%C3%B6%C3%9Fe",
            "../b.html#gone",
            "../c.html",
            "../style.css",
            "https://example.com/c.html#gone",
            "mailto:somebody@example.com",
            "#",
            "#top",
        ];
        let text = links.map(|link| format!("<a href=\"{link}\">")).concat();
        write("a/a.html", &(text + "<img alt=\"\" src=\"gone.png\"><code>href=&quot;no.html&quot;</code>"));
        let expected = [
            "a/a.html: the link ../b.html#gone leads to no anchor",
            "a/a.html: the link ../c.html leads to no file",
            "a/a.html: the link #top leads to no anchor",
            "a/a.html: the link gone.png leads to no file",
        ];
        assert_eq!(find(site.path()).unwrap(), expected);
    }
}
