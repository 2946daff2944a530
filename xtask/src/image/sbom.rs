//! A bill of materials in the form of `CycloneDX`: which crates are in a program, as cargo resolved them.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    commit::Commit,
    metadata::{self, Node, Resolve},
};

/// All packages of a build for one platform, and what each needs.
#[derive(Deserialize)]
pub(crate) struct Resolved {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    source: Option<String>,
}

impl Resolved {
    /// Asks cargo, which reads the lock file.
    pub(crate) fn read(target: &str) -> Result<Self> {
        metadata::read(&["--locked", "--filter-platform", target])
    }

    /// The bill of one program, which is made by `package`.
    pub(crate) fn bill(&self, program: &str, package: &str, commit: &Commit) -> Result<Vec<u8>> {
        let root = self.packages.iter().find(|one| one.name == package && one.source.is_none());
        let root = root.with_context(|| format!("there is no package {package}"))?;
        let nodes: BTreeMap<&str, &Node> = self.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
        let (mut reached, mut open) = (BTreeSet::new(), vec![root.id.as_str()]);
        while let Some(id) = open.pop() {
            if reached.insert(id) {
                open.extend(nodes.get(id).into_iter().flat_map(|node| node.linked()));
            }
        }
        let mut packages: Vec<&Package> =
            self.packages.iter().filter(|one| reached.contains(one.id.as_str())).collect();
        packages.sort_by_key(|one| (&one.name, &one.version));
        let urls: BTreeMap<&str, String> = packages.iter().map(|one| (one.id.as_str(), one.url())).collect();
        let dependencies = packages.iter().map(|one| {
            let needed: BTreeSet<&String> = nodes
                .get(one.id.as_str())
                .into_iter()
                .flat_map(|node| node.linked())
                .filter_map(|id| urls.get(id))
                .collect();
            json!({ "ref": one.url(), "dependsOn": needed })
        });
        let bill = json!({
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {
                "timestamp": commit.time,
                "component": { "type": "application", "name": program, "version": root.version, "bom-ref": root.url() },
                "properties": [{ "name": "konverge:commit", "value": commit.hash }],
            },
            "components": packages.iter().filter(|one| one.id != root.id).map(|one| one.component()).collect::<Vec<_>>(),
            "dependencies": dependencies.collect::<Vec<_>>(),
        });
        Ok(serde_json::to_vec_pretty(&bill)?)
    }
}

impl Package {
    fn url(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version)
    }

    fn component(&self) -> Value {
        let mut component = json!({
            "type": "library", "name": self.name, "version": self.version, "purl": self.url(), "bom-ref": self.url(),
        });
        if let Some(license) = &self.license {
            // Older manifests write a slash for a choice.
            component["licenses"] = json!([{ "expression": license.replace('/', " OR ") }]);
        }
        component
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use super::*;

    #[test]
    fn a_bill_names_what_is_linked_and_nothing_that_only_builds_or_tests() {
        let dependency = |name: &str, kind: Option<&str>| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let package = |name: &str, source: Option<&str>| json!({ "id": name, "name": name, "version": "1.0.0", "license": "MIT/Apache-2.0", "source": source });
        let resolved: Resolved = serde_json::from_value(json!({
            "packages": [package("program", None), package("linked", Some("registry")), package("deep", Some("registry")), package("tests", Some("registry")), package("cc", Some("registry"))],
            "resolve": { "nodes": [
                { "id": "program", "deps": [dependency("linked", None), dependency("tests", Some("dev")), dependency("cc", Some("build"))] },
                { "id": "linked", "deps": [dependency("deep", None)] },
                { "id": "deep", "deps": [] }, { "id": "tests", "deps": [] }, { "id": "cc", "deps": [] },
            ] },
        }))
        .unwrap();
        let commit = Commit { hash: "1a2b".to_owned(), seconds: 0, time: "1970-01-01T00:00:00Z".to_owned() };
        let bill: Value = serde_json::from_slice(&resolved.bill("program", "program", &commit).unwrap()).unwrap();
        let names: Vec<_> =
            bill["components"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["deep", "linked"]);
        assert_eq!(bill["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(
            bill["dependencies"][2],
            json!({ "ref": "pkg:cargo/program@1.0.0", "dependsOn": ["pkg:cargo/linked@1.0.0"] })
        );
    }
}
