//! Annotations, reasons, metrics, addresses, routes, and names of what is applied.

use std::{collections::BTreeSet, path::Path, time::Duration};

use clap::ValueEnum;
use konverge_push::{
    annotations,
    metrics::Metrics,
    object::{Kind, ObjectRef},
    runtime_info::RuntimeInfo,
    spec::{BinaryPolicy, DeletionPolicy, ExistingPolicy, Invalid},
};
use konverge_vault::{LoginCounts, Owner, VaultError};
use prometheus_client::{encoding::text::encode, registry::Registry};

use super::{PAGE, PAGES, quoted, section, words};

/// The keys of a mark in Vault, which are no annotations.
fn marks() -> Vec<String> {
    let [name, uid, instance] = ["a/Secret/b", "1", "one"].map(str::to_owned);
    let owner = Owner { prefix: "vault-sync.io".to_owned(), name, uid, instance };
    // That of a key ends with the key.
    assert!(include_str!("../../../src/merge.rs").contains("/key/{key}"));
    owner.mark().unwrap().into_keys().chain([format!("{}/key/", owner.prefix)]).collect()
}

/// The values of the constants of a source file.
fn constants(source: &str) -> BTreeSet<&str> {
    source.lines().filter_map(|line| line.strip_prefix("pub const ")?.split('"').nth(1)).collect()
}

/// A word such as `PathNotAllowed`.
fn is_reason(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_uppercase())
        && word.chars().all(|letter| letter.is_ascii_alphabetic())
        && word.chars().any(|letter| letter.is_ascii_lowercase())
}

#[test]
fn w26_annotations_are_those_of_the_page() {
    let known = constants(include_str!("../../../src/annotations.rs"));
    assert!(known.len() > 10 && known.contains(annotations::PATH), "{known:?}");
    for name in &known {
        assert!(PAGE.contains(&format!("`{name}`")), "docs/push.md does not explain {name}");
    }
    let is_letter = |letter: char| letter.is_ascii_lowercase() || "-./".contains(letter);
    let marks = marks();
    for page in PAGES {
        for named in words(page, is_letter, |word| word.starts_with("vault-sync.io/")) {
            assert!(known.contains(named) || marks.iter().any(|mark| mark == named), "there is no {named}");
        }
    }
    for mark in &marks {
        let ending = mark.trim_start_matches("vault-sync.io");
        assert!(PAGE.contains(&format!("`{mark}")) || PAGE.contains(&format!("`{ending}`")), "{mark} is not explained");
    }
}

/// What a row of the table of annotations or flags allows is what the program takes.
fn assert_words<T: ValueEnum>(annotation: &str) {
    let row = PAGE.lines().find(|line| line.starts_with(&format!("| `{annotation}` |"))).unwrap();
    let values = row.split('|').nth(2).unwrap();
    let before_meaning = values.split(':').next().unwrap();
    let told: BTreeSet<_> = quoted(before_meaning).map(str::to_owned).collect();
    let known: BTreeSet<_> =
        T::value_variants().iter().map(|value| value.to_possible_value().unwrap().get_name().to_owned()).collect();
    assert_eq!(told, known, "{annotation}");
}

#[test]
fn w26_words_of_annotations_are_those_of_the_page() {
    assert_words::<DeletionPolicy>(annotations::DELETION_POLICY);
    assert_words::<ExistingPolicy>(annotations::EXISTING);
    assert_words::<BinaryPolicy>(annotations::BINARY);
    let policies: BTreeSet<_> = section(PAGE, "## When it is no longer asked for")
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .filter(|word| *word != "deletion-policy")
        .collect();
    assert_eq!(policies, ["destroy", "keep", "metadata", "soft"].into());
}

/// Every reason that an event, a state or the metric of bindings can have.
fn reasons() -> BTreeSet<String> {
    let mut reasons: BTreeSet<_> =
        constants(include_str!("../../../src/reasons.rs")).into_iter().map(str::to_owned).collect();
    for source in [
        include_str!("../../../src/spec.rs"),
        include_str!("../../../src/ledger.rs"),
        include_str!("../../../src/error.rs"),
        include_str!("../../../../../stores/vault/src/error.rs"),
    ] {
        let after = source.split("fn reason(&self)").nth(1).unwrap_or_else(|| panic!("no reasons in {source:.200}"));
        let body = &after[..after.find("\n    }\n").unwrap()];
        reasons.extend(body.split('"').skip(1).step_by(2).map(str::to_owned));
    }
    let framework = include_str!("../../../../../crates/konverge-core/src/reasons.rs");
    let word = |name: &str| {
        let line = framework.lines().find(|line| line.trim().starts_with(&format!("{name} = "))).unwrap();
        line.split('"').nth(1).unwrap().to_owned()
    };
    let source = include_str!("../../../../../crates/konverge-apply/src/error.rs");
    let of_writes = source.split("=> reasons::").skip(1).map(|rest| word(rest.split(',').next().unwrap()));
    reasons.extend(of_writes);
    // The sink of events says so itself.
    reasons.insert(word("EVENTS_LIMITED"));
    reasons
}

#[test]
fn w26_reasons_are_those_of_the_page() {
    let reasons = reasons();
    assert!(reasons.len() > 50, "{reasons:?}");
    let table = section(PAGE, "## What you see").split("| Reason |").nth(1).unwrap().split("\n\n").next().unwrap();
    let explained: BTreeSet<_> =
        table.lines().filter_map(|line| line.split('|').nth(1)).flat_map(quoted).map(str::to_owned).collect();
    assert_eq!(explained, reasons);
    // Names of others' kinds.
    let others = [
        "PushSecret",
        "SecretStore",
        "ConfigMap",
        "VaultPush",
        "Replace",
        "Merge",
        "IfNotExists",
        "Delete",
        "None",
        "True",
        "Ready",
        "Reconciling",
        "Stalled",
        "Reason",
        "Paths",
        "Path",
        "Age",
    ];
    for page in PAGES {
        for named in quoted(page).filter(|word| is_reason(word) && !others.contains(word)) {
            assert!(reasons.contains(named), "there is no reason {named}");
        }
    }
}

/// The metrics of push, as a scrape names them.
fn metrics() -> BTreeSet<String> {
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let web = ObjectRef { kind: Kind::Deployment, namespace: "a".to_owned(), name: "web".to_owned() };
    metrics.attempted(&web, true, Duration::ZERO);
    metrics.discovered(&web, 1);
    metrics.secret_not_found("a", "db");
    metrics.key_missing("a", "db", "k");
    metrics.parse_failed(&web, &Invalid::Spec { cause: String::new() });
    metrics.write_failed(&VaultError::NoMount { what: String::new() }, "x");
    metrics.logins(LoginCounts { succeeded: 1, failed: 1, renewed: 1 });
    metrics.runtime(&RuntimeInfo::default(), 1);
    metrics.said(&web, "Synced");
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types
        .map(|line| match line.split_once(' ').unwrap() {
            (name, "counter") => format!("{name}_total"),
            (name, _) => name.to_owned(),
        })
        .collect()
}

#[test]
fn w26_metrics_are_those_of_the_page() {
    let metrics = metrics();
    assert_eq!(metrics.len(), 21, "{metrics:?}");
    let is_letter = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    let is_metric = |word: &str| word.starts_with("vault_sync_operator_") || word.starts_with("konverge_push_");
    for page in PAGES {
        for named in words(page, is_letter, is_metric) {
            assert!(metrics.contains(named), "there is no metric {named}");
        }
    }
    let rows: BTreeSet<_> = PAGE.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    for metric in &metrics {
        assert!(rows.contains(&**metric), "docs/push.md does not explain {metric}");
    }
}

#[tokio::test]
async fn w26_addresses_are_those_that_answer() {
    let world = crate::world::World::new().await;
    let operator = world.operator(&[]).await;
    let is_letter = |letter: char| letter.is_ascii_lowercase() || letter == '/';
    let named: BTreeSet<_> = PAGES.iter().flat_map(|page| quoted(page)).filter(|word| word.starts_with('/')).collect();
    for address in named.iter().filter(|word| word.chars().all(is_letter)) {
        // The endings of marks, and what is served on a port of its own.
        if !["/uid", "/instance", "/metrics"].contains(address) {
            assert_ne!(operator.get(address).await.0, 404, "nothing is served at {address}");
        }
    }
    assert!(named.contains("/healthz") && named.contains("/readyz") && named.contains("/metrics"), "{named:?}");
}

#[test]
fn w26_routes_are_those_of_the_policy_and_of_the_client() {
    let policy = include_str!("../../../../../deploy/vault-policy.hcl");
    let route = |line: &str| line.split('"').nth(1).map(|path| path.trim_end_matches('*').to_owned());
    let allowed: BTreeSet<_> =
        policy.lines().filter(|line| line.starts_with("path \"secret/")).filter_map(route).collect();
    let table = section(PAGE, "## Policies in Vault").split("| Route |").nth(1).unwrap();
    let told: BTreeSet<_> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .map(|path| path.trim_end_matches('…').to_owned())
        .collect();
    assert_eq!(told, allowed);
    assert!(PAGE.contains("`sys/internal/ui/mounts`"));
    assert!(include_str!("../../../../../stores/vault/src/locate.rs").contains("sys/internal/ui/mounts/"));
}

#[test]
fn w26_names_are_those_of_the_manifests_and_links_lead_somewhere() {
    let known = [
        include_str!("../../../../../deploy/vault-sync-operator.yaml"),
        include_str!("../../../../../deploy/vault-sync-operator-drain.yaml"),
        include_str!("../../../../../deploy/rbac/vault-sync-operator.yaml"),
        include_str!("../../../../../deploy/vault-policy.hcl"),
        "konverge-vault-sync-operator from-vault-sync-operator.md",
    ]
    .concat();
    let is_letter = |letter: char| letter.is_ascii_lowercase() || "-.".contains(letter);
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    for page in PAGES {
        for name in words(page, is_letter, |word| word.contains("vault-sync-operator")) {
            let name = name.trim_end_matches('.');
            assert!(known.contains(name), "nothing is called {name}");
        }
        for link in page.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            assert!(file.contains("://") || docs.join(file).exists(), "{link} leads nowhere");
            // As GitHub makes them of headings.
            let stays = |letter: &char| letter.is_alphanumeric() || " -_".contains(*letter);
            let heading = |line: &str| {
                let text: String = line.trim_start_matches(['#', ' ']).to_lowercase().chars().filter(stays).collect();
                text.replace(' ', "-")
            };
            let linked = Some(file).filter(|file| !file.is_empty() && !anchor.is_empty());
            let linked = linked.map(|file| std::fs::read_to_string(docs.join(file)).unwrap());
            let target = linked.as_deref().unwrap_or(page);
            let is_there = target.lines().filter(|line| line.starts_with('#')).any(|line| heading(line) == anchor);
            assert!(anchor.is_empty() || is_there, "there is no heading for {link}");
        }
    }
}
