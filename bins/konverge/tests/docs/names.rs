//! Annotations, reasons, metrics, alerts, files, and what the manifests are called.

use std::{collections::BTreeSet, fs};

use serde_json::Value;

use crate::{assert_none, first_cells, pages, quoted, read, root, words};

#[test]
fn metrics_are_named_as_a_scrape_shows_them() {
    let known = first_cells(&read("docs/reference/metrics.md"));
    assert!(known.len() > 80, "{known:?}");
    let is_letter = |letter: char| letter.is_ascii_lowercase() || letter == '_';
    let prefixes = [
        "konverge_pull_",
        "konverge_push_",
        "konverge_roll_",
        "konverge_remote_",
        "openzro_request",
        "vault_sync_operator_",
        "workqueue_",
        "rest_client_",
        "zopp_server_",
    ];
    let mut faults = Vec::new();
    for page in pages() {
        for word in words(&page.text, is_letter) {
            let is_metric = prefixes.iter().any(|prefix| word.starts_with(prefix));
            let of_histogram = ["_bucket", "_sum", "_count"].iter().filter_map(|part| word.strip_suffix(part));
            if is_metric && !known.contains(word) && !of_histogram.clone().any(|name| known.contains(name)) {
                faults.push(format!("{}: {word}", page.path));
            }
        }
    }
    assert_none("there are no such metrics", &faults);
}

#[test]
fn annotations_are_those_of_the_reference() {
    let known = first_cells(&read("docs/reference/annotations.md"));
    assert!(known.len() > 30, "{known:?}");
    // Marks in Vault, finalizers and a label of manage, and an annotation of every operator of the framework.
    let others = [
        "vault-sync.io/owner",
        "vault-sync.io/uid",
        "vault-sync.io/instance",
        "vault-sync.io/key/",
        "openzro.io/cleanup",
        "openzro.io/setup-key-cleanup",
        "konverge.dev/sidecar-profiles",
        "konverge.dev/allow-deletes",
    ];
    // In the place of a name they have the version of an API.
    let is_version = |word: &str| {
        word.split_once("/v").is_some_and(|(_, rest)| rest.starts_with(|first: char| first.is_ascii_digit()))
    };
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-./".contains(letter);
    let domains = ["vault-sync.io/", "roll.konverge.dev/", "zopp.dev/", "konverge.dev/", "openzro.io/"];
    let mut faults = Vec::new();
    for page in pages() {
        for word in words(&page.text, is_letter) {
            let word = word.trim_end_matches('.');
            let is_annotation = domains.iter().any(|domain| word.starts_with(domain) && word.len() > domain.len());
            if is_annotation && !is_version(word) && !known.contains(word) && !others.contains(&word) {
                faults.push(format!("{}: {word}", page.path));
            }
        }
    }
    assert_none("there are no such annotations", &faults);
}

/// Words in the form of a reason that are something else.
const OTHERS: [&str; 58] = [
    "Age",
    "Always",
    "Asks",
    "Clearing",
    "ClusterRole",
    "ClusterSecretStore",
    "ConfigMap",
    "Delete",
    "Deleting",
    "Developers",
    "ExternalSecret",
    "Forbidden",
    "Gateway",
    "GatewayClass",
    "Greeting",
    "HTTPRoute",
    "Held",
    "Ignored",
    "InSync",
    "Job",
    "Never",
    "None",
    "Noted",
    "OnChange",
    "OnDelete",
    "Path",
    "Paths",
    "Pending",
    "PersistentVolume",
    "PodDisruptionBudget",
    "PodMonitor",
    "PrometheusRule",
    "PushSecret",
    "Ready",
    "Reason",
    "Reconciling",
    "Role",
    "RolledOut",
    "RollingOut",
    "RuntimeDefault",
    "Secret",
    "SecretProviderClass",
    "SecretStore",
    "SecretTransformation",
    "SelfSubjectAccessReview",
    "Servers",
    // Only in the log of roll.
    "SourceUnreadable",
    "Stalled",
    "SubjectAccessReview",
    "TCPRoute",
    "VaultAuth",
    "VaultConnection",
    "VaultDynamicSecret",
    "VaultPKISecret",
    "VaultStaticSecret",
    "Working",
    "Written",
    "ZoppSecretSync",
];

/// The values that the fields of a definition may have.
fn enum_values(schema: &Value, values: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::Array(listed)) = fields.get("enum") {
                values.extend(listed.iter().filter_map(Value::as_str).map(str::to_owned));
            }
            fields.values().for_each(|field| enum_values(field, values));
        }
        Value::Array(items) => items.iter().for_each(|item| enum_values(item, values)),
        _ => {}
    }
}

#[test]
fn reasons_are_those_of_the_reference() {
    let mut known = first_cells(&read("docs/reference/reasons.md"));
    assert!(known.len() > 120, "{known:?}");
    let definitions = "deploy/charts/konverge/files/crds";
    for file in fs::read_dir(root().join(definitions)).unwrap() {
        let text = read(&format!("{definitions}/{}", file.unwrap().file_name().to_str().unwrap()));
        let definition: Value = serde_saphyr::from_str(&text).unwrap();
        known.insert(definition["spec"]["names"]["kind"].as_str().unwrap().to_owned());
        enum_values(&definition, &mut known);
    }
    known.extend(rules().iter().map(|rule| rule["alert"].as_str().unwrap().to_owned()));
    let is_reason = |word: &str| {
        word.starts_with(|first: char| first.is_ascii_uppercase())
            && word.chars().all(|letter| letter.is_ascii_alphabetic())
            && word.chars().any(|letter| letter.is_ascii_lowercase())
    };
    let mut faults = Vec::new();
    // Values of fields and flags have the form of a reason.
    let others = ["/alerts.md", "/custom-resources.md", "/flags.md"];
    for page in pages().iter().filter(|page| !others.iter().any(|other| page.path.ends_with(other))) {
        for word in quoted(&page.text).filter(|word| is_reason(word)) {
            if !known.contains(word) && !OTHERS.contains(&word) {
                faults.push(format!("{}: {word}", page.path));
            }
        }
    }
    assert_none("there are no such reasons", &faults);
}

#[test]
fn every_reason_has_a_cause_and_every_problem_a_next_step() {
    let reasons = konverge_pull::reasons::REASONS
        .iter()
        .chain(konverge_push::reasons::REASONS)
        .chain(konverge_roll::reasons::REASONS)
        .chain(konverge_manage::reasons::REASONS);
    // States that need nobody.
    let fine = [
        "Accepted",
        "Cleared",
        "Connected",
        "Created",
        "Deleted",
        "DryRun",
        "HandedOver",
        "InSync",
        "LeftAlone",
        "Programmed",
        "Replaced",
        "ResolvedRefs",
        "RolledOut",
        "RolloutRecovered",
        "RolloutRunning",
        "RolloutTriggered",
        "Shared",
        "Synced",
        "Updated",
    ];
    for entry in reasons {
        assert!(entry.cause.ends_with('.') && !entry.on.is_empty(), "{entry:?}");
        assert_eq!(entry.next.is_empty(), fine.contains(&entry.reason), "{entry:?}");
    }
}

/// The files beneath manage whose texts in the form of a reason are all reasons of manage.
const REASONS_OF_MANAGE: [&str; 4] = [
    "crates/konverge-remote/src/driver.rs",
    "crates/konverge-remote/src/plan.rs",
    "crates/konverge-remote/src/remote.rs",
    "stores/openzro/src/error.rs",
];

#[test]
fn every_reason_of_an_item_in_openzro_is_on_the_page() {
    let known: BTreeSet<_> = konverge_manage::reasons::REASONS.iter().map(|entry| entry.reason).collect();
    let (mut faults, mut count) = (Vec::new(), 0);
    for file in REASONS_OF_MANAGE {
        let text = read(file);
        let code = text.split("#[cfg(test)]").next().unwrap();
        let lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        for text in lines.flat_map(|line| line.split('"').skip(1).step_by(2)) {
            let is_reason = text.len() > 3
                && text.starts_with(|first: char| first.is_ascii_uppercase())
                && text.chars().all(|letter| letter.is_ascii_alphabetic())
                && text.chars().any(|letter| letter.is_ascii_lowercase());
            count += usize::from(is_reason);
            if is_reason && !known.contains(text) {
                faults.push(format!("{file}: {text}"));
            }
        }
    }
    assert!(count > 40, "{count}");
    assert_none("the page of reasons lacks these", &faults);
}

/// The rules of the chart.
fn rules() -> Vec<Value> {
    let mut rules = Vec::new();
    for job in ["pull", "push", "roll", "manage", "server"] {
        let file: Value =
            serde_saphyr::from_str(&read(&format!("deploy/charts/konverge/files/alerts/{job}.yaml"))).unwrap();
        rules.extend(file["groups"][0]["rules"].as_array().unwrap().clone());
    }
    rules
}

#[test]
fn every_runbook_is_a_section_of_the_page_of_alerts() {
    let page = read("docs/reference/alerts.md");
    let rules = rules();
    assert!(rules.len() > 40, "{rules:?}");
    let mut names = BTreeSet::new();
    for rule in &rules {
        let name = rule["alert"].as_str().unwrap();
        names.insert(name);
        assert!(page.contains(&format!("\n## {name}\n")), "{name} has no section");
        let url = rule["annotations"]["runbook_url"].as_str().unwrap();
        let expected = format!("RUNBOOK_BASE_URL/docs/reference/alerts.html#{}", name.to_lowercase());
        assert_eq!(url, expected, "the site has the page docs/reference/alerts.md there");
        assert!(rule["labels"]["severity"].is_string() && rule["annotations"]["summary"].is_string(), "{rule}");
    }
    let sections: BTreeSet<_> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(sections, names);
}

#[test]
fn each_job_and_the_server_have_alerts_of_their_own() {
    let rules = rules();
    for prefix in ["Pull", "Push", "Roll", "Manage", "ZoppServer"] {
        let count = rules.iter().filter(|rule| rule["alert"].as_str().unwrap().starts_with(prefix)).count();
        assert!(count >= 4, "{prefix}: {count}");
    }
}

#[test]
fn files_that_pages_name_are_there() {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter);
    let mut faults = Vec::new();
    for page in pages() {
        for word in words(&page.text, is_letter) {
            let word = word.trim_end_matches('.');
            let is_file = word.starts_with("deploy/") && [".yaml", ".hcl"].iter().any(|ending| word.ends_with(ending));
            if is_file && !root().join(word).is_file() {
                faults.push(format!("{}: {word}", page.path));
            }
        }
    }
    assert_none("there are no such files", &faults);
}

#[test]
fn the_scrape_configuration_finds_the_pods_of_the_manifest() {
    let page = read("docs/how-to/monitoring.md");
    let manifest = read("deploy/konverge.yaml");
    assert!(page.contains("regex: konverge;http\n"), "label and port");
    assert!(manifest.contains("app.kubernetes.io/name: konverge\n") && manifest.contains("- name: http\n"));
    // A Service that is named as a target would have to be one of the manifests.
    for page in pages() {
        assert!(!page.text.contains("static_configs"), "{} scrapes a Service", page.path);
    }
}
