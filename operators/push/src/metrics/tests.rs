//! The metrics as a scrape shows them.

use std::sync::Arc;

use konverge_runtime::metrics::MOST_SERIES;
use konverge_vault::SecretPath;
use prometheus_client::encoding::text::encode;

use super::*;

fn object(kind: Kind, name: &str) -> ObjectRef {
    ObjectRef { kind, namespace: "team-a".to_owned(), name: name.to_owned() }
}

/// The text of a scrape after `use_them`.
fn scraped(use_them: impl FnOnce(&Metrics)) -> String {
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    use_them(&metrics);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    text
}

#[track_caller]
fn assert_has(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|told| told == *line), "{line} is not in:\n{text}");
    }
}

#[test]
fn the_originals_metrics_have_its_names_and_labels() {
    let web = object(Kind::Deployment, "web");
    let text = scraped(|metrics| {
        metrics.attempted(&web, true, Duration::from_millis(30));
        metrics.attempted(&web, false, Duration::from_secs(20));
        metrics.discovered(&web, 2);
        metrics.secret_not_found("team-a", "db");
        metrics.key_missing("team-a", "db", "password");
        metrics.parse_failed(&web, &Invalid::Secrets { annotation: "", cause: String::new() });
        metrics.parse_failed(&web, &Invalid::Spec { cause: String::new() });
        let denied = VaultError::Denied { what: String::new(), capability: "update", cause: String::new() };
        metrics.write_failed(&denied, "secret/data/web");
        metrics.logins(LoginCounts { succeeded: 3, failed: 1, renewed: 7 });
        metrics.runtime(&RuntimeInfo { processors: 4, ..RuntimeInfo::default() }, 2);
    });
    let resource = r#"namespace="team-a",resource="web""#;
    assert_has(
        &text,
        &[
            &format!(r#"vault_sync_operator_sync_attempts_total{{{resource},result="success"}} 1"#),
            &format!(r#"vault_sync_operator_sync_attempts_total{{{resource},result="failed"}} 1"#),
            &format!(r#"vault_sync_operator_sync_duration_seconds_bucket{{le="0.025",{resource}}} 0"#),
            &format!(r#"vault_sync_operator_sync_duration_seconds_bucket{{le="0.05",{resource}}} 1"#),
            &format!(r#"vault_sync_operator_sync_duration_seconds_bucket{{le="10.0",{resource}}} 1"#),
            &format!(r#"vault_sync_operator_sync_duration_seconds_bucket{{le="+Inf",{resource}}} 2"#),
            &format!(r"vault_sync_operator_secrets_discovered{{{resource}}} 2"),
            r#"vault_sync_operator_secret_not_found_errors_total{namespace="team-a",secret_name="db"} 1"#,
            r#"vault_sync_operator_secret_key_missing_errors_total{namespace="team-a",secret_name="db",key="password"} 1"#,
            &format!(r#"vault_sync_operator_config_parse_errors_total{{{resource},error_type="json_parse_error"}} 1"#),
            &format!(r#"vault_sync_operator_config_parse_errors_total{{{resource},error_type="invalid_spec"}} 1"#),
            r#"vault_sync_operator_vault_write_errors_total{path="secret/data/web",error_type="permission_denied"} 1"#,
            r#"vault_sync_operator_auth_attempts_total{result="success"} 3"#,
            r#"vault_sync_operator_auth_attempts_total{result="failed"} 1"#,
            r#"vault_sync_operator_runtime_info{setting="numcpu",value="4"} 1"#,
            r#"vault_sync_operator_runtime_info{setting="gomaxprocs",value="2"} 1"#,
            "konverge_push_token_renewals_total 7",
        ],
    );
}

#[test]
fn ours_have_these_names() {
    let text = scraped(|metrics| {
        let Ours { reads, writes, deletes, delete_errors, drift, adoptions, conflicts, .. } = &metrics.ours;
        for counter in [reads, writes, deletes, delete_errors, drift, adoptions, conflicts] {
            counter.inc();
        }
        metrics.orphans(2);
        metrics.oldest_look(Duration::from_secs(90));
        metrics.ours.propagation.observe(1.0);
        metrics.reasons().moved(None, Some("Synced"));
    });
    assert_has(
        &text,
        &[
            "konverge_push_vault_reads_total 1",
            "konverge_push_vault_writes_total 1",
            "konverge_push_vault_deletes_total 1",
            "konverge_push_vault_delete_errors_total 1",
            "konverge_push_drift_total 1",
            "konverge_push_adoptions_total 1",
            "konverge_push_conflicts_total 1",
            "konverge_push_orphans 2",
            "konverge_push_oldest_look_seconds 90.0",
            r#"konverge_push_propagation_seconds_bucket{le="0.5"} 0"#,
            r#"konverge_push_propagation_seconds_bucket{le="1.0"} 1"#,
            r#"konverge_push_bindings{reason="Synced"} 1"#,
        ],
    );
}

#[test]
fn w19_an_object_takes_its_series_along() {
    let (web, db) = (object(Kind::Deployment, "web"), object(Kind::Secret, "db"));
    let text = scraped(|metrics| {
        for object in [&web, &db] {
            metrics.attempted(object, true, Duration::ZERO);
            metrics.discovered(object, 1);
            metrics.parse_failed(object, &Invalid::Secrets { annotation: "", cause: String::new() });
        }
        metrics.secret_not_found("team-a", "db");
        metrics.key_missing("team-a", "db", "password");
        metrics.forget(&db);
    });
    assert!(!text.contains("\"db\""), "{text}");
    assert!(text.contains(r#"sync_attempts_total{namespace="team-a",resource="web""#), "{text}");
}

#[test]
fn w19_there_are_no_more_series_than_a_scrape_can_bear() {
    let text = scraped(|metrics| {
        for number in 0..MOST_SERIES + 2 {
            metrics.key_missing("team-a", "db", &number.to_string());
        }
    });
    let other =
        r#"vault_sync_operator_secret_key_missing_errors_total{namespace="other",secret_name="other",key="other"} 2"#;
    assert_has(&text, &[other]);
    assert_eq!(text.lines().filter(|line| line.contains("key_missing_errors_total{")).count(), MOST_SERIES + 1);
}

#[test]
fn errors_by_what_happened_and_not_by_their_words() {
    let what = || "write secret/data/network/404/permission denied".to_owned();
    let address = || Arc::<str>::from("https://vault");
    let cause = || "invalid path".to_owned();
    let sealed = VaultError::Sealed { what: what(), address: address() };
    let refused = VaultError::LoginRefused { status: 400, cause: cause() };
    let login = |source| VaultError::Login { how: "AppRole".into(), source: Arc::new(source) };
    for (error, expected) in [
        (login(refused), "auth_failed"),
        (login(sealed), "connection_failed"),
        (VaultError::Credential { what: "token", path: None, cause: cause() }, "auth_failed"),
        (VaultError::Denied { what: what(), capability: "update", cause: cause() }, "permission_denied"),
        (VaultError::Path(SecretPath::parse("..").unwrap_err()), "invalid_path"),
        (VaultError::NoMount { what: what() }, "invalid_path"),
        (VaultError::UnknownMount { what: what() }, "invalid_path"),
        (VaultError::Deadline { what: what(), address: address(), limit: Duration::ZERO }, "connection_failed"),
        (VaultError::Limited { what: what(), retry_after: None }, "connection_failed"),
        (VaultError::Rejected { what: what(), status: 400, cause: cause() }, "unknown"),
        (VaultError::Conflict { what: what() }, "unknown"),
    ] {
        assert_eq!(category(&error), expected, "{error}");
    }
}

#[test]
fn of_stopped_deletions_those_count_that_wait() {
    let stopped = Stopped {
        namespaces: Vec::new(),
        requested: 9,
        elsewhere: 0,
        waiting: 4,
        allowed: 5,
        known: 20,
        by_earlier_process: false,
    };
    assert_has(&scraped(|metrics| metrics.stopped(Some(stopped))), &["konverge_push_deletions_stopped 4"]);
    assert_has(&scraped(|metrics| metrics.stopped(None)), &["konverge_push_deletions_stopped 0"]);
}
