//! Groups.

use http::Method;
use serde_json::{Value, json};

use super::{group, keys};
use crate::target::Session;

pub(super) async fn names_are_unique_only_when_created(session: &Session) {
    let made = session.post("/groups", json!({ "name": "a", "konverge_unknown": 1 })).await;
    assert_eq!(keys(&made.body), ["id", "issued", "name", "peers", "peers_count", "resources", "resources_count"]);
    assert_eq!((&made.body["peers"], &made.body["resources"]), (&Value::Null, &Value::Null));
    assert_eq!(session.post("/groups", json!({ "name": "a" })).await.status, 409);
    for name in ["A", " a ", "グループ", "  ", &"x".repeat(300)] {
        let made = session.post("/groups", json!({ "name": name })).await;
        assert_eq!((made.status, &made.body["name"]), (200, &json!(name)));
    }
    for body in [json!({ "name": "" }), json!({})] {
        assert_eq!(session.post("/groups", body).await.status, 422);
    }
    let other = group(session, "b").await;
    let path = format!("/groups/{other}");
    assert_eq!(session.put(&path, json!({ "name": "a" })).await.status, 200, "a PUT may make a duplicate");
    assert_eq!(session.put(&path, json!({ "name": "" })).await.status, 422);
    assert_eq!(session.put("/groups/nope", json!({ "name": "c" })).await.status, 404);
    assert_eq!(session.post("/groups", json!({ "name": "p", "peers": ["nope"] })).await.status, 422);
    assert_eq!(session.delete(&path).await.body, json!({}));
    let again = session.delete(&path).await;
    assert_eq!((again.status, again.message()), (400, &*format!("group: {other} not found")));
    assert_eq!(session.get(&path).await.status, 404);
}

pub(super) async fn a_put_replaces_members(session: &Session) {
    let made = session.post("/groups", json!({ "name": "a", "resources": [{ "id": "r1", "type": "host" }] })).await;
    let path = format!("/groups/{}", made.id());
    assert_eq!(made.body["resources_count"], 1);
    let mut body = session.get(&path).await.body;
    body["peers"] = json!([]);
    body["name"] = json!("b");
    assert_eq!(session.put(&path, body).await.body["resources"], made.body["resources"], "what was read is kept");
    let emptied = session.put(&path, json!({ "name": "b" })).await;
    assert_eq!(emptied.body["resources"], Value::Null, "what is left out is emptied");
}

pub(super) async fn the_group_all_stays(session: &Session) {
    let all = format!("{}-all", session.account.id);
    assert_eq!(session.get(&format!("/groups/{all}")).await.body["name"], "All");
    assert_eq!(session.post("/groups", json!({ "name": "All" })).await.status, 409);
    assert_eq!(session.put(&format!("/groups/{all}"), json!({ "name": "All" })).await.status, 422);
    assert_eq!(session.delete(&format!("/groups/{all}")).await.status, 400);
    let key = json!({ "name": "k", "type": "reusable", "expires_in": 0, "auto_groups": [all] });
    assert_eq!(session.post("/setup-keys", key).await.status, 422);
}

pub(super) async fn a_linked_group_stays(session: &Session) {
    let mut ids = Vec::new();
    for name in ["source", "destination", "key", "router", "resource", "zone", "exempt"] {
        ids.push(group(session, name).await);
    }
    let [source, destination, key, router, resource, zone, exempt] = ids.as_slice() else { return };
    let rule = json!({ "name": "r", "enabled": true, "action": "accept", "bidirectional": true, "protocol": "all",
        "sources": [source], "destinations": [destination] });
    session.post("/policies", json!({ "name": "p", "enabled": true, "rules": [rule] })).await;
    let body = json!({ "name": "k", "type": "reusable", "expires_in": 0, "auto_groups": [key] });
    session.post("/setup-keys", body).await;
    let network = format!("/networks/{}", session.post("/networks", json!({ "name": "n" })).await.id());
    let body = json!({ "peer_groups": [router], "metric": 1, "masquerade": true, "enabled": true });
    session.post(&format!("{network}/routers"), body).await;
    let body = json!({ "name": "r", "address": "10.0.0.1", "enabled": true, "groups": [resource] });
    session.post(&format!("{network}/resources"), body).await;
    let body = json!({ "name": "z", "domain": "linked.test", "distribution_groups": [zone], "enabled": true });
    let zone_path = format!("/dns/zones/{}", session.post("/dns/zones", body).await.id());
    let account = format!("/accounts/{}", session.account.id);
    let mut settings = session.get("/accounts").await.body[0]["settings"].clone();
    settings["admission_exempt_groups"] = json!([exempt]);
    session.put(&account, json!({ "settings": settings })).await;
    for linked in [source, destination, key, router, resource] {
        let refused = session.delete(&format!("/groups/{linked}")).await;
        assert!(refused.status == 400 && refused.message().contains("has been linked to "), "{refused:?}");
    }
    // These two do not keep it, and still name it afterwards.
    for free in [zone, exempt] {
        assert_eq!(session.delete(&format!("/groups/{free}")).await.status, 200);
    }
    assert_eq!(session.get(&zone_path).await.body["distribution_groups"], json!([zone]));
    assert_eq!(session.get("/accounts").await.body[0]["settings"]["admission_exempt_groups"], json!([exempt]));
    // A network takes the links of its parts along.
    assert_eq!(session.delete(&network).await.status, 200);
    for freed in [router, resource] {
        assert_eq!(session.delete(&format!("/groups/{freed}")).await.status, 200);
    }
}

pub(super) async fn parallel_creations_of_one_name_make_one_group(session: &Session) {
    let token = format!("Token {}", session.account.tokens["admin"]);
    let body = || json!({ "name": "one" }).to_string();
    let post = || session.send(Method::POST, "/groups", Some(&token), body());
    let (one, two) = tokio::join!(post(), post());
    let mut statuses = [one.status, two.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409]);
}
