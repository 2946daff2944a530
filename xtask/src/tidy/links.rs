//! The links between pages: each leads to a file of the repository and to a heading on it, and each page of `docs` is in the summary of the site.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

use anyhow::{Context, Result};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// The list of all pages of the site.
pub(crate) const SUMMARY: &str = "docs/SUMMARY.md";

/// A link on a page to something in the repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    /// The line, from 1.
    line: usize,
    /// The text of the link.
    text: String,
    /// The file, from the root of the repository.
    pub(crate) file: PathBuf,
    /// The heading, or an empty text.
    anchor: String,
}

/// Returns what is wrong with the links of the site's pages, and of the pages at the root.
pub(super) fn faults(root: &Path) -> Result<Vec<String>> {
    let chapters = chapters(root)?;
    let mut pages: BTreeSet<PathBuf> = chapters.iter().cloned().collect();
    pages.insert(PathBuf::from("README.md"));
    let mut found = Vec::new();
    for page in markdown(root, Path::new("docs"))? {
        if page != Path::new(SUMMARY) && !chapters.contains(&page) {
            found.push(format!("{} is not in {SUMMARY}", page.display()));
        }
        pages.insert(page);
    }
    let mut texts = BTreeMap::new();
    for page in &pages {
        let text = fs::read_to_string(root.join(page)).with_context(|| format!("cannot read {}", page.display()))?;
        texts.insert(page.clone(), text);
    }
    for (page, text) in &texts {
        for link in links(page, text) {
            if link.file == Path::new(SUMMARY) && chapters.contains(page) {
                found.push(format!("{}:{}: the site has no page {SUMMARY}", page.display(), link.line));
            }
            if let Some(fault) =
                fault(&link, |file| root.join(file).is_file(), |file| texts.get(file).map(String::as_str))
            {
                found.push(format!("{}:{}: the link {} {fault}", page.display(), link.line, link.text));
            }
        }
    }
    Ok(found)
}

/// Returns what is wrong with a link. A page that is not among those of the site has no headings that could be checked.
fn fault<'a>(link: &Link, is_file: impl Fn(&Path) -> bool, page: impl Fn(&Path) -> Option<&'a str>) -> Option<String> {
    if !is_file(&link.file) {
        return Some("leads to no file".to_owned());
    }
    let text = page(&link.file);
    if text.is_none() && link.file.extension().is_some_and(|extension| extension == "md") {
        return Some(format!("leads to a page that is not in {SUMMARY}"));
    }
    let is_there = link.anchor.is_empty() || text.is_none_or(|text| anchors(text).contains(&link.anchor));
    (!is_there).then(|| format!("names no heading of {}", link.file.display()))
}

/// Returns the pages of the site, from the root of the repository, in their order.
pub(crate) fn chapters(root: &Path) -> Result<Vec<PathBuf>> {
    let text = fs::read_to_string(root.join(SUMMARY)).with_context(|| format!("cannot read {SUMMARY}"))?;
    Ok(links(Path::new(SUMMARY), &text).into_iter().map(|link| link.file).collect())
}

/// Returns the links and images of a page that lead into the repository. Code is left out.
pub(crate) fn links(page: &Path, text: &str) -> Vec<Link> {
    let folder = page.parent().unwrap_or(Path::new(""));
    let targets = parser(text).into_offset_iter().filter_map(|(event, at)| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some((dest_url, at.start)),
        _ => None,
    });
    targets
        .filter(|(target, _)| !target.contains("://") && !target.starts_with("mailto:"))
        .map(|(target, start)| {
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let file = if file.is_empty() { page.to_owned() } else { normal(&folder.join(file)) };
            let line = text[..start].matches('\n').count() + 1;
            Link { line, text: target.to_string(), file, anchor: anchor.to_owned() }
        })
        .collect()
}

/// Returns the anchors of the headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut found = BTreeSet::new();
    let mut heading = None;
    for event in parser(text) {
        match event {
            Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
            Event::Text(part) | Event::Code(part) => heading.iter_mut().for_each(|heading| heading.push_str(&part)),
            Event::End(TagEnd::Heading(_)) => {
                let stays = |letter: &char| letter.is_alphanumeric() || " -_".contains(*letter);
                let heading = heading.take().unwrap_or_default().to_lowercase();
                let anchor = heading.chars().filter(stays).collect::<String>().replace(' ', "-");
                let count = counts.entry(anchor.clone()).or_default();
                found.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
                *count += 1;
            }
            _ => {}
        }
    }
    found
}

/// Returns the parser of a page. Tables are on, as on GitHub and in mdBook.
fn parser(text: &str) -> Parser<'_> {
    Parser::new_ext(text, Options::ENABLE_TABLES)
}

/// Returns the path without `.` and `..`.
pub(crate) fn normal(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                parts.pop();
            }
            Component::CurDir => {}
            other => parts.push(other),
        }
    }
    parts
}

/// Returns the pages in a folder and below.
fn markdown(root: &Path, folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let entries = fs::read_dir(root.join(folder)).with_context(|| format!("cannot read {}", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            found.extend(markdown(root, &path)?);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_outside_of_code_are_found_from_the_root() {
        let page = "# A\n[one](b.md), [`two`](../c.md#d-e) and [three](#a)\n```\n[no](x.md)\n```\n[web](https://example.com) [up](../deploy/a.yaml) `[no](x.md)`\n";
        let found = links(Path::new("docs/a.md"), page);
        let found: Vec<_> = found.iter().map(|link| (link.line, link.file.to_str().unwrap(), &*link.anchor)).collect();
        assert_eq!(found, [(2, "docs/b.md", ""), (2, "c.md", "d-e"), (2, "docs/a.md", "a"), (6, "deploy/a.yaml", "")]);
    }

    #[test]
    fn anchors_are_those_of_github() {
        let page =
            "# A `kubectl` page\n## One, two & three\n## Twice\n## Twice\n```\n# no\n```\n## A [link](b.md) in it\n";
        let expected = ["a-kubectl-page", "a-link-in-it", "one-two--three", "twice", "twice-1"];
        assert_eq!(anchors(page).into_iter().collect::<Vec<_>>(), expected.map(str::to_owned).to_vec());
    }

    #[test]
    fn a_link_that_leads_nowhere_is_a_fault() {
        let pages = BTreeMap::from([(PathBuf::from("docs/b.md"), "# B\n## There\n")]);
        let text = "[a](b.md#there) [b](b.md#gone) [c](c.md) [d](loose.md) [e](role.yaml)";
        let is_file = |file: &Path| file != Path::new("docs/c.md");
        let found: Vec<_> = links(Path::new("docs/a.md"), text)
            .iter()
            .filter_map(|link| fault(link, is_file, |file| pages.get(file).copied()))
            .collect();
        assert_eq!(
            found,
            ["names no heading of docs/b.md", "leads to no file", "leads to a page that is not in docs/SUMMARY.md",]
        );
    }
}
