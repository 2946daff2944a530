//! Policies and setup keys.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::{group, keys, with};
use crate::target::{Session, ZERO_TIME};

/// A rule from the group `a` to the group `b`, made for this.
async fn rule(session: &Session) -> Value {
    let (a, b) = (group(session, "a").await, group(session, "b").await);
    json!({ "name": "r", "enabled": true, "action": "accept", "bidirectional": true, "protocol": "tcp", "ports": ["443"],
        "sources": [a], "destinations": [b] })
}

fn policy(rules: &[Value]) -> Value {
    json!({ "name": "p", "enabled": true, "rules": rules })
}

pub(super) async fn a_policy_lives_and_dies(session: &Session) {
    let rule = rule(session).await;
    let made =
        session.post("/policies", with(&policy(std::slice::from_ref(&rule)), json!({ "description": "d" }))).await;
    assert_eq!(keys(&made.body), ["description", "enabled", "id", "name", "rules", "source_posture_checks"]);
    let shown = &made.body["rules"][0];
    let expected = [
        "action",
        "bidirectional",
        "description",
        "destinations",
        "enabled",
        "id",
        "name",
        "ports",
        "protocol",
        "sources",
    ];
    assert_eq!(keys(shown), expected);
    assert_eq!(shown["id"], made.body["id"], "a rule has the policy's id");
    let path = format!("/policies/{}", made.id());
    assert_eq!(session.get(&path).await.body, made.body);
    assert_eq!(
        session.put(&path, made.body.clone()).await.status,
        400,
        "an answer is no request: groups are objects there"
    );
    assert_ne!(
        session.post("/policies", policy(std::slice::from_ref(&rule))).await.id(),
        made.id(),
        "names are not unique"
    );
    let unknown = with(&rule, json!({ "sources": ["nope"], "destinations": ["nope", rule["destinations"][0]] }));
    let dropped = session.post("/policies", policy(&[unknown])).await;
    assert_eq!(dropped.status, 200, "unknown groups are dropped without an error");
    assert_eq!(dropped.body["rules"][0]["sources"], Value::Null);
    assert_eq!(session.delete(&path).await.body, json!({}));
    assert_eq!(session.delete(&path).await.status, 404);
    assert_eq!(session.get(&path).await.status, 404);
    assert_eq!(session.put(&path, policy(std::slice::from_ref(&rule))).await.status, 404);
    for body in [with(&policy(&[rule]), json!({ "name": "" })), policy(&[]), json!({ "name": "x" })] {
        assert_eq!(session.post("/policies", body).await.status, 422);
    }
}

pub(super) async fn a_put_replaces_a_policy(session: &Session) {
    let rule = rule(session).await;
    let check = json!({ "name": "c", "description": "", "checks": { "nb_version_check": { "min_version": "0.1.0" } } });
    let check = session.post("/posture-checks", check).await.id();
    let full =
        with(&policy(std::slice::from_ref(&rule)), json!({ "description": "d", "source_posture_checks": [check] }));
    let path = format!("/policies/{}", session.post("/policies", full.clone()).await.id());
    let kept = session.put(&path, with(&full, json!({ "name": "q" }))).await;
    assert_eq!((&kept.body["source_posture_checks"], &kept.body["description"]), (&json!([check]), &json!("d")));
    let lost = session.put(&path, policy(std::slice::from_ref(&rule))).await;
    assert_eq!((&lost.body["source_posture_checks"], &lost.body["description"]), (&Value::Null, &json!("")));
    let one = json!({ "id": "res", "type": "host" });
    let resource = with(&rule, json!({ "destinations": null, "destinationResource": one, "konverge_unknown": 1 }));
    let put = session.put(&path, with(&policy(&[resource]), json!({ "konverge_unknown": 1 }))).await;
    assert_eq!(put.body["rules"][0]["destinationResource"], one);
    let source = with(&rule, json!({ "sources": null, "sourceResource": one }));
    assert_eq!(session.put(&path, policy(&[source])).await.body["rules"][0]["sourceResource"], one);
}

pub(super) async fn values_of_rules_are_checked(session: &Session) {
    let rule = rule(session).await;
    let range = |start, end| json!({ "ports": null, "port_ranges": [{ "start": start, "end": end }] });
    for (changes, expected) in [
        (json!({ "ports": ["0"] }), 422),
        (json!({ "ports": ["65535"] }), 200),
        (json!({ "ports": ["65536"] }), 422),
        (json!({ "ports": ["x"] }), 422),
        (json!({ "ports": ["80-90"] }), 422),
        (json!({ "ports": [443] }), 400),
        (json!({ "ports": null }), 200),
        (json!({ "ports": [] }), 200),
        (json!({ "port_ranges": [{ "start": 1, "end": 2 }] }), 422),
        (range(8, 9), 200),
        (range(9, 8), 200),
        (range(0, 8), 422),
        (json!({ "protocol": "icmp" }), 422),
        (json!({ "protocol": "all" }), 422),
        (json!({ "protocol": "icmp", "ports": null }), 200),
        (json!({ "protocol": "all", "ports": null }), 200),
        (json!({ "protocol": "udp" }), 200),
        (json!({ "protocol": "sctp" }), 422),
        (json!({ "protocol": null }), 422),
        (json!({ "action": "drop" }), 200),
        (json!({ "action": "deny" }), 422),
        (json!({ "action": null }), 422),
        (json!({ "sources": null }), 422),
        (json!({ "destinations": null }), 422),
        (json!({ "sources": [], "destinations": [] }), 200),
        (json!({ "name": null, "enabled": null, "bidirectional": null }), 200),
        (json!({ "description": "d", "bidirectional": false }), 200),
    ] {
        let reply = session.post("/policies", policy(&[with(&rule, changes.clone())])).await;
        assert_eq!(reply.status, expected, "{changes}: {reply:?}");
    }
}

pub(super) async fn several_rules_share_an_id_and_hide_groups(session: &Session) {
    let first = rule(session).await;
    let c = group(session, "c").await;
    let (a, b) = (first["sources"][0].clone(), first["destinations"][0].clone());
    let second = with(&first, json!({ "name": "s", "protocol": "udp", "sources": [a, c], "destinations": [b] }));
    let third = with(&first, json!({ "name": "t", "sources": [b], "destinations": [a] }));
    let made = session.post("/policies", policy(&[first.clone(), second.clone(), third.clone()])).await;
    let rules = &made.body["rules"];
    assert_eq!(rules[0]["id"], rules[1]["id"], "the rules of a POST collide");
    let path = format!("/policies/{}", made.id());
    let stored = session.get(&path).await;
    assert_eq!(stored.body["rules"].as_array().map(Vec::len), Some(1), "one of them is stored: {stored:?}");
    // An id of a rule is unique in the whole server: another account that uses it takes the rule away.
    let id = |rule: &Value, suffix: &str| with(rule, json!({ "id": format!("{}{suffix}", made.id()) }));
    let body = policy(&[id(&first, ""), id(&second, "-s"), id(&third, "-t")]);
    let put = session.put(&path, body).await;
    assert_eq!(put.body["rules"][1]["id"], format!("{}-s", made.id()), "a PUT keeps explicit ids");
    let shown = session.get(&path).await;
    // A source group that an earlier rule named is not shown again: what is read cannot be written back.
    assert_eq!(shown.body["rules"][1]["sources"].as_array().map(Vec::len), Some(1));
    assert_eq!(shown.body["rules"][2]["sources"], Value::Null);
    assert_eq!(shown.body["rules"][2]["destinations"].as_array().map(Vec::len), Some(1));
}

/// A body that makes a key.
fn key() -> Value {
    json!({ "name": "k", "type": "reusable", "expires_in": 0, "auto_groups": [], "usage_limit": 0 })
}

pub(super) async fn setup_keys_live_and_die(session: &Session) {
    let (a, b) = (group(session, "a").await, group(session, "b").await);
    let made = session.post("/setup-keys", with(&key(), json!({ "auto_groups": [a] }))).await;
    let expected = [
        "allow_extra_dns_labels",
        "auto_groups",
        "ephemeral",
        "expires",
        "id",
        "key",
        "last_used",
        "name",
        "revoked",
        "state",
        "type",
        "updated_at",
        "usage_limit",
        "used_times",
        "valid",
    ];
    assert_eq!(keys(&made.body), expected);
    assert_eq!((&made.body["expires"], &made.body["last_used"]), (&json!(ZERO_TIME), &json!(ZERO_TIME)));
    let clear = made.body["key"].as_str().unwrap_or_default().to_owned();
    let path = format!("/setup-keys/{}", made.id());
    let masked = session.get(&path).await.body["key"].as_str().unwrap_or_default().to_owned();
    assert!(clear.len() == 36 && masked == format!("{}****", &clear[..5]), "{masked}");
    assert_ne!(session.post("/setup-keys", key()).await.id(), made.id(), "names are not unique");
    let body = json!({ "name": "other", "type": "one-off", "ephemeral": true, "auto_groups": [b], "revoked": false });
    let put = session.put(&path, body).await;
    assert_eq!(put.body["auto_groups"], json!([b]));
    for stays in ["name", "type", "ephemeral"] {
        assert_eq!(put.body[stays], made.body[stays]);
    }
    assert_eq!(session.put(&path, json!({ "revoked": false })).await.status, 422, "auto_groups are required");
    assert_eq!(session.put(&path, json!({ "auto_groups": ["nope"], "revoked": false })).await.status, 422);
    let revoked = session.put(&path, json!({ "auto_groups": [a], "revoked": true })).await;
    assert_eq!((&revoked.body["state"], &revoked.body["valid"]), (&json!("revoked"), &json!(false)));
    assert_eq!(session.put(&path, json!({ "auto_groups": [a], "revoked": false })).await.status, 422);
    assert_eq!(session.put(&path, json!({ "auto_groups": [b], "revoked": true })).await.status, 200);
    assert_eq!(session.delete(&path).await.body, json!({}));
    assert_eq!(session.delete(&path).await.status, 404);
    assert_eq!(session.get(&path).await.status, 404);
    assert_eq!(session.put(&path, json!({ "auto_groups": [], "revoked": false })).await.status, 404);
    let short = session.post("/setup-keys", with(&key(), json!({ "expires_in": 1 }))).await.id();
    let token = format!("Token {}", session.account.tokens["admin"]);
    let path = format!("/setup-keys/{short}");
    for _ in 0..200 {
        if session.send(Method::GET, &path, Some(&token), String::new()).await.body["state"] == "expired" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(session.get(&path).await.body["state"], "expired");
}

pub(super) async fn values_of_setup_keys_are_checked(session: &Session) {
    for (changes, expected) in [
        (json!({ "name": "" }), 422),
        (json!({ "type": "x" }), 422),
        (json!({ "type": null }), 422),
        (json!({ "type": "one-off" }), 200),
        (json!({ "type": "one-off", "usage_limit": 5 }), 200),
        (json!({ "expires_in": -1 }), 422),
        (json!({ "expires_in": 86400 }), 200),
        (json!({ "expires_in": null }), 200),
        (json!({ "auto_groups": null }), 200),
        (json!({ "auto_groups": ["nope"] }), 422),
        (json!({ "usage_limit": 3 }), 200),
        (json!({ "ephemeral": true, "allow_extra_dns_labels": true, "konverge_unknown": 1 }), 200),
    ] {
        let reply = session.post("/setup-keys", with(&key(), changes.clone())).await;
        assert_eq!(reply.status, expected, "{changes}: {reply:?}");
        if changes["allow_extra_dns_labels"] == true {
            assert_eq!(reply.body["allow_extra_dns_labels"], true);
        }
    }
}
