//! Networks, their resources and routers.

use http::Method;
use serde_json::{Value, json};

use super::{group, keys, with};
use crate::target::Session;

async fn network(session: &Session, name: &str) -> String {
    format!("/networks/{}", session.post("/networks", json!({ "name": name })).await.id())
}

fn resource(name: &str, address: &str, groups: &[&str]) -> Value {
    json!({ "name": name, "address": address, "enabled": true, "groups": groups })
}

fn router(groups: &[&str]) -> Value {
    json!({ "peer_groups": groups, "metric": 9999, "masquerade": true, "enabled": true })
}

pub(super) async fn a_network_takes_its_parts_along(session: &Session) {
    let made = session.post("/networks", json!({ "name": "n", "description": "d", "konverge_unknown": 1 })).await;
    let expected = ["description", "id", "name", "policies", "resources", "routers", "routing_peers_count"];
    assert_eq!(keys(&made.body), expected);
    assert_ne!(session.post("/networks", json!({ "name": "n" })).await.id(), made.id(), "names are not unique");
    assert_eq!(session.post("/networks", json!({})).await.status, 200, "a name is not needed");
    let path = format!("/networks/{}", made.id());
    assert_eq!(session.get(&format!("{path}/resources")).await.body, Value::Null, "an empty list is null");
    assert_eq!(session.get(&format!("{path}/routers")).await.body, json!([]));
    assert_eq!(session.get(&path).await.body["resources"], Value::Null);
    session.get("/networks").await;
    assert_eq!(session.put(&path, json!({ "name": "m" })).await.body["description"], "", "it is cleared");
    let (a, b) = (group(session, "a").await, group(session, "b").await);
    let part = session.post(&format!("{path}/resources"), resource("r", "10.0.0.1", &[&a])).await.id();
    let route = session.post(&format!("{path}/routers"), router(&[&b])).await.id();
    let shown = session.get(&path).await.body;
    assert_eq!((&shown["resources"], &shown["routers"]), (&json!([part]), &json!([route])));
    session.get("/networks").await;
    let rule = json!({ "name": "r", "enabled": true, "action": "accept", "protocol": "all", "sources": [b], "destinations": [a] });
    let policy = json!({ "name": "p", "enabled": true, "rules": [rule] });
    let policy = format!("/policies/{}", session.post("/policies", policy).await.id());
    session.get(&path).await;
    session.get("/networks").await;
    session.delete(&policy).await;
    let all = session.get("/networks/resources").await.body;
    assert!(all[0].get("network_id").is_none() && all[0]["id"] == part.as_str(), "the list names no network");
    session.get("/networks/routers").await;
    assert_eq!(session.get(&format!("/groups/{a}")).await.body["resources_count"], 1);
    assert_eq!(session.delete(&path).await.body, json!({}));
    assert_eq!(session.get(&format!("/groups/{a}")).await.body["resources"], Value::Null);
    assert_eq!(session.get("/networks/resources").await.body, json!([]));
    assert_eq!(session.get("/networks/routers").await.body, json!([]));
    for status in
        [session.delete(&path).await, session.get(&path).await, session.put(&path, json!({ "name": "x" })).await]
    {
        assert_eq!(status.status, 404);
    }
    // Lists of a missing network look like those of an empty one.
    assert_eq!(session.get(&format!("{path}/resources")).await.status, 200);
    assert_eq!(session.get(&format!("{path}/routers")).await.status, 200);
    assert_eq!(session.post(&format!("{path}/resources"), resource("r", "10.0.0.1", &[])).await.status, 404);
    assert_eq!(session.post(&format!("{path}/routers"), router(&[])).await.status, 404);
}

pub(super) async fn resource_names_are_unique_and_addresses_canonical(session: &Session) {
    let path = format!("{}/resources", network(session, "n").await);
    let a = group(session, "a").await;
    let made = session.post(&path, resource("r", "10.0.0.1", &[&a])).await;
    assert_eq!(keys(&made.body), ["address", "description", "enabled", "groups", "id", "name", "type"]);
    assert_eq!(session.post(&path, resource("r", "10.0.0.2", &[])).await.status, 422);
    for (number, (address, shown)) in [
        ("10.0.0.1/32", Some("10.0.0.1/32")),
        ("10.1.2.3/16", Some("10.1.2.3/16")),
        ("0.0.0.0/0", Some("0.0.0.0/0")),
        ("2001:DB8::1", Some("2001:db8::1/128")),
        ("2001:db8::1/128", Some("2001:db8::1/128")),
        ("2001:db8::/32", Some("2001:db8::/32")),
        ("2001:db8::/48", Some("2001:db8::/48")),
        ("example.com", Some("example.com")),
        ("*.example.com", Some("*.example.com")),
        ("EXAMPLE.com", Some("EXAMPLE.com")),
        ("svc.ns.svc.cluster.local", Some("svc.ns.svc.cluster.local")),
        ("xn--bcher-kva.example", Some("xn--bcher-kva.example")),
        ("example.com.", None),
        ("a_b.example.com", None),
        ("localhost", None),
        ("*", None),
        ("*.com", None),
        ("http://x", None),
        ("999.1.1.1", None),
        ("10.0.0.1/33", None),
        ("10.0.0.01", None),
        (" 10.0.0.1", None),
        ("", None),
    ]
    .into_iter()
    .enumerate()
    {
        let reply = session.post(&path, resource(&format!("r{number}"), address, &[])).await;
        assert_eq!(reply.body["address"].as_str(), shown, "{address}: {reply:?}");
        assert_eq!(reply.status, if shown.is_some() { 200 } else { 500 }, "{address}");
    }
    for (name, changes, expected) in [
        ("g0", json!({ "groups": null }), 200),
        ("g1", json!({ "groups": ["nope"] }), 404),
        ("g2", json!({ "groups": [a, a] }), 200),
        ("g3", json!({ "enabled": null }), 200),
        ("g4", json!({ "enabled": false, "description": "d", "konverge_unknown": 1 }), 200),
    ] {
        let reply = session.post(&path, with(&resource(name, "10.0.0.9", &[]), changes)).await;
        assert_eq!(reply.status, expected, "{name}: {reply:?}");
    }
    let listed = session.get(&path).await.body;
    let names = listed.as_array().into_iter().flatten().filter_map(|resource| resource["name"].as_str());
    assert!(!names.into_iter().any(|name| name == "g1"), "a refused creation leaves nothing");
}

pub(super) async fn a_put_replaces_a_resource(session: &Session) {
    let path = format!("{}/resources", network(session, "n").await);
    let (a, b) = (group(session, "a").await, group(session, "b").await);
    session.post(&path, resource("other", "10.0.0.2", &[])).await;
    let made = session.post(&path, with(&resource("r", "10.0.0.1", &[&a]), json!({ "description": "d" }))).await;
    let one = format!("{path}/{}", made.id());
    assert_eq!(session.get(&one).await.body, made.body);
    assert_eq!(
        session.put(&one, made.body.clone()).await.status,
        400,
        "an answer is no request: groups are objects there"
    );
    let put = session.put(&one, with(&made.body, json!({ "groups": [a], "name": "s" }))).await;
    assert_eq!(
        (&put.body["description"], &put.body["address"]),
        (&json!("d"), &json!("10.0.0.1/32")),
        "what was read is kept"
    );
    let put = session.put(&one, resource("s", "10.0.0.1", &[&b])).await;
    assert_eq!((&put.body["description"], &put.body["groups"][0]["id"]), (&json!(""), &json!(b)));
    assert_eq!(session.put(&one, resource("other", "10.0.0.1", &[])).await.status, 422);
    assert_eq!(session.put(&one, resource("s", "nonsense", &[])).await.status, 500);
    assert_eq!(session.put(&format!("{path}/nope"), resource("t", "10.0.0.1", &[])).await.status, 404);
    assert_eq!(session.get(&format!("/groups/{a}")).await.body["resources"], Value::Null);
    // A PUT of the group without its resources takes the resource out of it.
    session.put(&format!("/groups/{b}"), json!({ "name": "b" })).await;
    assert_eq!(session.get(&one).await.body["groups"], Value::Null);
    assert_eq!(session.delete(&one).await.body, json!({}));
    assert_eq!(session.delete(&one).await.status, 404);
    assert_eq!(session.get(&one).await.status, 404);
}

pub(super) async fn the_network_in_a_path_moves_what_is_put(session: &Session) {
    let (one, two) = (network(session, "one").await, network(session, "two").await);
    let part = session.post(&format!("{one}/resources"), resource("r", "10.0.0.1", &[])).await.id();
    let through_two = format!("{two}/resources/{part}");
    assert_eq!(session.get(&through_two).await.status, 500, "a GET checks the network");
    assert_eq!(session.put(&through_two, resource("r", "10.0.0.1", &[])).await.status, 200);
    let moved = (session.get(&one).await.body, session.get(&two).await.body);
    assert_eq!((&moved.0["resources"], &moved.1["resources"]), (&Value::Null, &json!([part])), "the PUT moved it");
    assert_eq!(session.delete(&format!("{one}/resources/{part}")).await.status, 500, "a DELETE checks the network");
    assert_eq!(session.delete(&through_two).await.status, 200);
    let route = session.post(&format!("{one}/routers"), router(&[])).await.id();
    assert_eq!(session.put(&format!("{two}/routers/{route}"), router(&[])).await.status, 200);
    let moved = (session.get(&one).await.body, session.get(&two).await.body);
    assert_eq!((&moved.0["routers"], &moved.1["routers"]), (&Value::Null, &json!([route])), "the PUT moved it");
    assert_eq!(
        session.delete(&format!("{one}/routers/{route}")).await.status,
        400,
        "a router's network is checked then"
    );
    assert_eq!(session.delete(&format!("{two}/routers/{route}")).await.status, 200);
}

pub(super) async fn a_router_is_upserted(session: &Session) {
    let path = format!("{}/routers", network(session, "n").await);
    let a = group(session, "a").await;
    let made = session.post(&path, with(&router(&[&a]), json!({ "enabled": false }))).await;
    assert_eq!(keys(&made.body), ["enabled", "id", "masquerade", "metric", "peer", "peer_groups"]);
    assert_eq!(made.body["enabled"], true, "a POST enables it");
    for changes in [
        json!({ "metric": 0 }),
        json!({ "metric": 10000 }),
        json!({ "metric": null, "masquerade": null }),
        json!({ "peer": "nope", "peer_groups": null }),
        json!({ "peer": "nope" }),
        json!({ "peer_groups": null }),
        json!({ "peer_groups": ["nope"], "konverge_unknown": 1 }),
    ] {
        assert_eq!(session.post(&path, with(&router(&[&a]), changes)).await.status, 200);
    }
    let one = format!("{path}/{}", made.id());
    assert_eq!(
        session.put(&one, with(&made.body, json!({ "enabled": false, "metric": 5 }))).await.body["enabled"],
        false
    );
    assert_eq!(session.get(&one).await.body["metric"], 5);
    let upserted = session.put(&format!("{path}/made-by-put"), router(&[&a])).await;
    assert_eq!((upserted.status, &upserted.body["id"]), (200, &json!("made-by-put")), "an unknown id is created");
    assert_eq!(session.put("/networks/nope/routers/x", router(&[&a])).await.status, 404);
    assert_eq!(session.delete(&format!("{path}/made-by-put")).await.body, json!({}));
    assert_eq!(session.delete(&format!("{path}/made-by-put")).await.status, 404);
    assert_eq!(session.get(&format!("{path}/made-by-put")).await.status, 404);
}

pub(super) async fn another_accounts_objects_are_not_found(session: &Session) {
    let others = format!("{}-all", session.other.id);
    assert_eq!(session.get(&format!("/groups/{others}")).await.status, 404);
    assert_eq!(session.put(&format!("/groups/{others}"), json!({ "name": "x" })).await.status, 404);
    assert_eq!(session.delete(&format!("/groups/{others}")).await.status, 400);
    let token = format!("Token {}", session.other.tokens["admin"]);
    let made = session.send(Method::POST, "/networks", Some(&token), json!({ "name": "n" }).to_string()).await;
    session.learn(&made.body);
    let path = format!("/networks/{}", made.id());
    for (method, body) in
        [(Method::GET, Value::Null), (Method::PUT, json!({ "name": "x" })), (Method::DELETE, Value::Null)]
    {
        assert_eq!(session.call("admin", method, &path, body).await.status, 404);
    }
    let settings = session.get("/accounts").await.body[0]["settings"].clone();
    let put = session.put(&format!("/accounts/{}", session.other.id), json!({ "settings": settings })).await;
    assert_eq!(put.status, 403);
}
