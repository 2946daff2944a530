//! DNS zones and records.

use serde_json::{Value, json};

use super::{group, keys, with};
use crate::target::Session;

fn zone(group: &str, domain: &str) -> Value {
    json!({ "name": "z", "domain": domain, "distribution_groups": [group], "enabled": true, "enable_search_domain": false })
}

fn record(name: &str) -> Value {
    json!({ "name": name, "type": "A", "content": "10.0.0.1", "ttl": 60 })
}

pub(super) async fn zones_do_not_overlap(session: &Session) {
    let a = group(session, "a").await;
    let made = session.post("/dns/zones", zone(&a, "corp.example")).await;
    let expected = ["distribution_groups", "domain", "enable_search_domain", "enabled", "id", "name", "records"];
    assert_eq!(keys(&made.body), expected);
    let long = "x".repeat(256);
    for (changes, expected) in [
        (json!({}), 422),
        (json!({ "domain": "sub.corp.example" }), 422),
        (json!({ "domain": "example" }), 422),
        (json!({ "domain": "one.test" }), 200),
        (json!({ "domain": "UPPER.test" }), 200),
        (json!({ "domain": "dot.test." }), 200),
        (json!({ "domain": "" }), 422),
        (json!({ "domain": "openzro.selfhosted" }), 422),
        (json!({ "domain": "a.openzro.selfhosted" }), 422),
        (json!({ "domain": "selfhosted" }), 422),
        (json!({ "domain": "two.test", "distribution_groups": [] }), 422),
        (json!({ "domain": "two.test", "distribution_groups": null }), 422),
        (json!({ "domain": "two.test", "distribution_groups": ["nope"] }), 422),
        (json!({ "domain": "two.test", "distribution_groups": [a, a] }), 422),
        (json!({ "domain": "two.test", "name": "" }), 422),
        (json!({ "domain": "two.test", "name": long }), 422),
        (json!({ "domain": "three.test", "enabled": null, "enable_search_domain": null }), 200),
        (json!({ "domain": "four.test", "enabled": false, "konverge_unknown": 1 }), 200),
    ] {
        let reply = session.post("/dns/zones", with(&zone(&a, "corp.example"), changes.clone())).await;
        assert_eq!(reply.status, expected, "{changes}: {reply:?}");
        if changes["domain"] == "three.test" {
            assert_eq!(reply.body["enabled"], true, "left out, it is true");
        }
    }
}

pub(super) async fn a_put_of_a_zone_keeps_records(session: &Session) {
    let (a, b) = (group(session, "a").await, group(session, "b").await);
    let path = format!("/dns/zones/{}", session.post("/dns/zones", zone(&a, "corp.example")).await.id());
    session.post(&format!("{path}/records"), record("www.corp.example")).await;
    let put = session.put(&path, with(&zone(&b, "corp.example"), json!({ "name": "y", "enabled": false }))).await;
    assert_eq!(put.body["records"].as_array().map(Vec::len), Some(1));
    let read = session.get(&path).await.body;
    assert_eq!(session.put(&path, read.clone()).await.body, read, "what was read is accepted");
    assert_eq!(
        session.put(&path, with(&zone(&b, "corp.example"), json!({ "enabled": null }))).await.body["enabled"],
        true
    );
    for domain in [json!("other.example"), Value::Null] {
        assert_eq!(session.put(&path, with(&zone(&b, "x"), json!({ "domain": domain }))).await.status, 422);
    }
    let listed = session.get("/dns/zones").await.body;
    assert_eq!(listed[0]["records"].as_array().map(Vec::len), Some(1), "the list has records");
    assert_eq!(session.delete(&path).await.body, json!({}));
    for reply in [
        session.delete(&path).await,
        session.get(&path).await,
        session.put(&path, zone(&b, "corp.example")).await,
        session.get(&format!("{path}/records")).await,
        session.post(&format!("{path}/records"), record("www.corp.example")).await,
    ] {
        assert_eq!(reply.status, 404);
    }
}

pub(super) async fn records_are_checked(session: &Session) {
    let a = group(session, "a").await;
    let zone = format!("/dns/zones/{}", session.post("/dns/zones", zone(&a, "corp.example")).await.id());
    let path = format!("{zone}/records");
    let made = session.post(&path, record("www.corp.example")).await;
    assert_eq!(keys(&made.body), ["content", "id", "name", "ttl", "type"]);
    assert_ne!(session.post(&path, record("www.corp.example")).await.id(), made.id(), "records are not unique");
    for (changes, expected) in [
        (json!({ "name": "corp.example" }), 200),
        (json!({ "name": "UP.corp.example." }), 200),
        (json!({ "name": "*.corp.example" }), 200),
        (json!({ "name": "www.other.example" }), 422),
        (json!({ "name": "www" }), 422),
        (json!({ "name": "" }), 422),
        (json!({ "ttl": 0 }), 422),
        (json!({ "ttl": -1 }), 422),
        (json!({ "name": "t.corp.example", "ttl": null }), 200),
        (json!({ "name": "c.corp.example", "type": "CNAME", "content": "x.example." }), 200),
        (json!({ "name": "c.corp.example", "type": "CNAME", "content": "y.example" }), 200),
        (json!({ "name": "c.corp.example" }), 422),
        (json!({ "type": "CNAME", "content": "x.example" }), 422),
        (json!({ "name": "d.corp.example", "type": "CNAME", "content": "10.0.0.1" }), 422),
        (json!({ "name": "d.corp.example", "type": "CNAME", "content": "not a host" }), 422),
        (json!({ "name": "q.corp.example", "type": "AAAA", "content": "2001:DB8:0::1" }), 200),
        (json!({ "name": "q.corp.example", "type": "AAAA", "content": "10.0.0.1" }), 422),
        (json!({ "name": "q.corp.example", "content": "2001:db8::1" }), 422),
        (json!({ "name": "q.corp.example", "type": "TXT", "content": "t" }), 422),
        (json!({ "name": "u.corp.example", "konverge_unknown": 1 }), 200),
    ] {
        let reply = session.post(&path, with(&record("www.corp.example"), changes.clone())).await;
        assert_eq!(reply.status, expected, "{changes}: {reply:?}");
    }
    let one = format!("{path}/{}", made.id());
    assert_eq!(session.get(&one).await.body, made.body);
    assert_eq!(session.put(&one, with(&made.body, json!({ "content": "10.0.0.9" }))).await.body["content"], "10.0.0.9");
    assert_eq!(session.put(&one, with(&made.body, json!({ "ttl": null }))).await.body["ttl"], 300);
    assert_eq!(session.put(&one, with(&made.body, json!({ "name": "c.corp.example" }))).await.status, 422);
    session.get(&path).await;
    assert_eq!(session.delete(&one).await.body, json!({}));
    for reply in
        [session.delete(&one).await, session.get(&one).await, session.put(&one, record("www.corp.example")).await]
    {
        assert_eq!(reply.status, 404);
    }
}
