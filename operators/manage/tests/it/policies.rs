//! `OZPolicy`: standing alone, with resources, with rules, and gone.

use konverge::kube::{Api, api::ListParams};
use konverge_manage::api::v1::{OZGroup, OZGroupSpec, OZPolicy, OZPolicySpec, OZResource, OZResourceSpec};
use konverge_openzro::Collection;
use serde_json::{Value, from_value, json};

use crate::stage::Stage;

fn policy(name: &str, spec: Value) -> OZPolicy {
    OZPolicy::new(name, serde_json::from_value::<OZPolicySpec>(spec).unwrap())
}

/// The rule of a policy, with its groups by name.
fn rule(policy: &Value) -> Value {
    let rule = &policy["rules"][0];
    let mut ports: Vec<_> = rule["ports"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    ports.sort_unstable();
    let names = |key: &str| {
        let mut names: Vec<_> =
            rule[key].as_array().unwrap().iter().map(|group| group["name"].as_str().unwrap()).collect();
        names.sort_unstable();
        json!(names)
    };
    json!({ "ports": ports, "sources": names("sources"), "destinations": names("destinations"),
        "protocol": rule["protocol"], "bidirectional": rule["bidirectional"] })
}

#[tokio::test(flavor = "multi_thread")]
async fn w2_w13_w21_a_policy_stands_alone_keeps_posture_checks_and_is_deleted() {
    let stage = Stage::set().await;
    let _operator = stage.start(&[]).await;
    let policies = Api::<OZPolicy>::all(stage.client.clone());
    let spec = json!({ "name": "web", "description": "to the web", "sourceGroups": ["devs"], "destinationGroups": ["servers"],
        "ports": [443, 80] });
    stage.create(&policies, &policy("web", spec)).await;
    // No request is sent with a group that is not there.
    let waits = stage.says(&policies, "web", "Reconciling", "WaitingForReference").await;
    let message = waits.status.unwrap().standard.conditions.get("Reconciling").unwrap().message.clone();
    assert!(message.contains("devs") && message.contains("servers"), "{message}");
    assert_eq!(stage.writes(), 0);
    stage.by_hand(&Collection::Groups, json!({ "name": "devs" })).await;
    let servers = OZGroup::new("servers", OZGroupSpec { name: "servers".to_owned() });
    stage.create(&stage.api(), &servers).await;
    let ready = stage.says(&policies, "web", "Ready", "Reconciled").await;

    let on_server = stage.on_server(&Collection::Policies).await;
    for (protocol, name) in [("tcp", "web TCP"), ("udp", "web UDP")] {
        let expected = json!({ "ports": ["443", "80"], "sources": ["devs"], "destinations": ["servers"], "protocol": protocol,
            "bidirectional": true });
        assert_eq!(rule(&on_server[name]), expected);
        assert_eq!(on_server[name]["description"], "to the web");
    }
    let status = ready.status.unwrap();
    assert_eq!(status.tcp_policy_id.as_deref(), on_server["web TCP"]["id"].as_str());
    assert_eq!(status.udp_policy_id.as_deref(), on_server["web UDP"]["id"].as_str());

    // W2: an administrator adds a posture check, and it survives a change of the ports.
    let check =
        json!({ "name": "recent", "description": "", "checks": { "nb_version_check": { "min_version": "0.20.0" } } });
    let check = stage.by_hand(&Collection::PostureChecks, check).await;
    let tcp = Collection::Policies.place(status.tcp_policy_id.clone().unwrap());
    let with_check = |body: &mut konverge_openzro::Fields| {
        body.insert("source_posture_checks".to_owned(), json!([check]));
    };
    stage.dashboard.modify(&tcp, with_check).await.unwrap();
    stage.patch(&policies, "web", json!({ "spec": { "ports": [8443], "protocols": ["tcp"] } })).await;
    let ready = stage.says(&policies, "web", "Ready", "Reconciled").await;
    let on_server = stage.on_server(&Collection::Policies).await;
    assert_eq!(on_server.keys().collect::<Vec<_>>(), ["web TCP"], "UDP was excluded");
    assert_eq!(rule(&on_server["web TCP"])["ports"], json!(["8443"]));
    assert_eq!(on_server["web TCP"]["source_posture_checks"], json!([check]));
    assert_eq!(ready.status.unwrap().udp_policy_id, None);

    // The group is in use, and both go in any order. W13: the policy is gone on the server already.
    stage.dashboard.delete(&tcp).await.unwrap();
    stage.delete(&stage.api::<OZGroup>(), "servers").await;
    stage.delete(&policies, "web").await;
    stage.gone(&policies, "web").await;
    stage.gone(&stage.api::<OZGroup>(), "servers").await;
    assert!(stage.on_server(&Collection::Policies).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn w3_w21_a_policy_without_an_effect_or_with_a_wrong_port_says_so() {
    let stage = Stage::set().await;
    let _operator = stage.start(&[]).await;
    let policies = Api::<OZPolicy>::all(stage.client.clone());
    stage.by_hand(&Collection::Groups, json!({ "name": "a" })).await;
    let spec = json!({ "name": "empty", "sourceGroups": ["a"], "destinationGroups": ["a"] });
    stage.create(&policies, &policy("empty", spec)).await;
    stage.says(&policies, "empty", "Reconciling", "Incomplete").await;
    stage.patch(&policies, "empty", json!({ "spec": { "ports": [0] } })).await;
    stage.says(&policies, "empty", "Stalled", "InvalidSpec").await;
    assert_eq!(stage.writes(), 0);

    // W7: a resource adds its ports, and takes them away with it.
    stage.patch(&policies, "empty", json!({ "spec": { "ports": [], "protocols": ["udp"] } })).await;
    let spec = json!({ "name": "r", "networkID": "n", "address": "10.0.0.1", "groups": ["a"], "policyName": "empty",
        "udpPorts": [53], "tcpPorts": [80] });
    let resource = OZResource::new("r", serde_json::from_value::<OZResourceSpec>(spec).unwrap());
    stage.create(&stage.api(), &resource).await;
    let ready = stage.says(&policies, "empty", "Ready", "Reconciled").await;
    assert_eq!(ready.status.unwrap().managed_service_list, [format!("{}/r", stage.namespace)]);
    assert_eq!(rule(&stage.on_server(&Collection::Policies).await["empty UDP"])["ports"], json!(["53"]));
    let resources = stage.api::<OZResource>();
    stage.patch(&resources, "r", json!({ "metadata": { "finalizers": null } })).await;
    stage.delete(&resources, "r").await;
    stage.says(&policies, "empty", "Reconciling", "Incomplete").await;
    assert!(stage.on_server(&Collection::Policies).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_of_the_documented_form_become_policies_and_go_with_their_rule() {
    let stage = Stage::set().await;
    let _operator = stage.start(&[]).await;
    let policies = Api::<OZPolicy>::all(stage.client.clone());
    stage.by_hand(&Collection::Groups, json!({ "name": "a" })).await;
    let web = json!({ "name": "web", "sources": ["a"], "destinations": ["a"], "protocol": "tcp", "ports": ["80", "8000-8010"] });
    let ping =
        json!({ "name": "ping", "sources": ["a"], "destinations": ["a"], "protocol": "icmp", "bidirectional": false });
    stage.create(&policies, &policy("p", json!({ "name": "p", "rules": [web, ping] }))).await;
    let ready = stage.says(&policies, "p", "Ready", "Reconciled").await;
    assert_eq!(ready.status.unwrap().rule_policy_ids.len(), 2);
    let on_server = stage.on_server(&Collection::Policies).await;
    assert_eq!(
        on_server["p web"]["rules"][0]["port_ranges"],
        json!([{ "start": 80, "end": 80 }, { "start": 8000, "end": 8010 }])
    );
    assert_eq!(on_server["p ping"]["rules"][0]["protocol"], "icmp");
    stage.patch(&policies, "p", json!({ "spec": { "rules": [ping] } })).await;
    stage.until("the rule is gone", async || stage.on_server(&Collection::Policies).await.len() == 1).await;
    let ready = stage.says(&policies, "p", "Ready", "Reconciled").await;
    assert_eq!(ready.status.unwrap().rule_policy_ids.into_keys().collect::<Vec<_>>(), ["ping"]);
    stage.delete(&policies, "p").await;
    stage.gone(&policies, "p").await;
    assert!(stage.on_server(&Collection::Policies).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rules_of_a_policy_may_name_groups_by_their_objects() {
    let stage = Stage::set().await;
    let _operator = stage.start(&[]).await;
    let (policies, groups) = (Api::<OZPolicy>::all(stage.client.clone()), stage.api::<OZGroup>());
    let destination = format!("{}/web", stage.namespace);
    let spec = json!({ "name": "p", "rules": [{ "name": "r", "sources": ["devs"], "destinations": [destination], "protocol": "tcp",
        "ports": ["443"] }] });
    stage.create(&policies, &policy("p", spec)).await;
    stage.says(&policies, "p", "Reconciling", "WaitingForReference").await;
    for (name, display) in [("devs", "Developers"), ("web", "Web Servers")] {
        stage.create(&groups, &OZGroup::new(name, OZGroupSpec { name: display.to_owned() })).await;
    }
    stage.says(&policies, "p", "Ready", "Reconciled").await;
    let expected = json!({ "ports": ["443"], "sources": ["Developers"], "destinations": ["Web Servers"], "protocol": "tcp",
        "bidirectional": true });
    assert_eq!(rule(&stage.on_server(&Collection::Policies).await["p r"]), expected);

    // The display name comes first: nobody changes the meaning of a policy by creating an object.
    stage.by_hand(&Collection::Groups, json!({ "name": "devs" })).await;
    let has_other = async || rule(&stage.on_server(&Collection::Policies).await["p r"])["sources"] == json!(["devs"]);
    stage.until("the policy means the group of that name", has_other).await;
    stage.delete(&policies, "p").await;
    stage.gone(&policies, "p").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_whose_policy_cannot_be_generated_is_refused_before_anything_is_written() {
    let stage = Stage::set().await;
    let operator = stage.start(&["--allow-automatic-policy-creation"]).await;
    let (policies, resources) = (Api::<OZPolicy>::all(stage.client.clone()), stage.api::<OZResource>());
    // The name that the generated policy would have.
    let taken = format!("web-{}-taken", stage.namespace);
    stage.create(&policies, &policy(&taken, json!({ "name": "by hand", "sourceGroups": ["All"] }))).await;
    stage.says(&policies, &taken, "Reconciling", "Incomplete").await;
    let network = stage.by_hand(&Collection::Networks, json!({ "name": "n", "description": "" })).await;
    let resource = |name: &str, sources: &[&str]| {
        let spec = json!({ "name": name, "networkID": network, "address": "10.0.0.1", "groups": [name], "policyName": "web",
            "policySourceGroups": sources, "tcpPorts": [80] });
        OZResource::new(name, from_value::<OZResourceSpec>(spec).unwrap())
    };
    for (name, sources, reason, expected) in [
        ("unsourced", [].as_slice(), "InvalidSpec", "none can be generated without spec.policySourceGroups".to_owned()),
        ("taken", &["All"], "NotOurs", format!("OZPolicy {taken} exists and was not generated for this resource")),
    ] {
        stage.create(&resources, &resource(name, sources)).await;
        let refused = stage.says(&resources, name, "Stalled", reason).await.status.unwrap();
        let message = &refused.standard.conditions.get("Stalled").unwrap().message;
        assert!(message.contains(&expected), "{message}");
        assert!(stage.finalizers(&resources, name).await.is_empty());
    }
    assert_eq!(stage.writes(), 0, "{:#?}", stage.calls());
    assert!(stage.api::<OZGroup>().list(&ListParams::default()).await.unwrap().items.is_empty());

    // With source groups, the first one gets its policy.
    stage.patch(&resources, "unsourced", json!({ "spec": { "policySourceGroups": ["All"] } })).await;
    stage.says(&resources, "unsourced", "Ready", "Reconciled").await;
    let generated = format!("web-{}-unsourced", stage.namespace);
    stage.says(&policies, &generated, "Ready", "Reconciled").await;

    // Without them again, its item keeps the former spec until the resource has source groups.
    stage.settled(&operator).await;
    let (address, writes) =
        (async || stage.on_server(&Collection::AllResources).await["unsourced"]["address"].clone(), stage.writes());
    let before = address().await;
    let spec = json!({ "address": "10.0.0.2", "policySourceGroups": [] });
    stage.patch(&resources, "unsourced", json!({ "spec": spec })).await;
    stage.says(&resources, "unsourced", "Stalled", "InvalidSpec").await;
    stage.settled(&operator).await;
    assert_eq!((address().await, stage.writes()), (before.clone(), writes), "{:#?}", stage.calls());
    assert!(policies.get_opt(&generated).await.unwrap().is_some());
    stage.patch(&resources, "unsourced", json!({ "spec": { "policySourceGroups": ["All"] } })).await;
    stage.says(&resources, "unsourced", "Ready", "Reconciled").await;
    assert_ne!(address().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_can_lead_to_one_resource() {
    let stage = Stage::set().await;
    let operator = stage.start(&[]).await;
    let (policies, resources) = (Api::<OZPolicy>::all(stage.client.clone()), stage.api::<OZResource>());
    let spec = json!({ "name": "p", "rules": [{ "name": "ssh", "sources": ["All"], "destinations": ["bastion"], "protocol": "tcp",
        "ports": ["22"], "bidirectional": false }] });
    stage.create(&policies, &policy("p", spec)).await;
    stage.says(&policies, "p", "Reconciling", "WaitingForReference").await;
    assert_eq!(stage.writes(), 0);

    let network = stage.by_hand(&Collection::Networks, json!({ "name": "n", "description": "" })).await;
    let spec = json!({ "name": "Bastion", "networkID": network, "address": "10.10.5.5", "groups": ["All"] });
    stage.create(&resources, &OZResource::new("bastion", from_value::<OZResourceSpec>(spec).unwrap())).await;
    let resource = stage.says(&resources, "bastion", "Ready", "Reconciled").await.status.unwrap().network_resource_id;
    stage.says(&policies, "p", "Ready", "Reconciled").await;
    let name = format!("p ssh {}/bastion", stage.namespace);
    let on_server = stage.on_server(&Collection::Policies).await;
    let rule_of = |policy: &Value| policy["rules"][0].clone();
    assert_eq!(rule_of(&on_server[&name])["destinationResource"], json!({ "id": resource, "type": "host" }));
    assert!(rule_of(&on_server[&name])["destinations"].as_array().is_none_or(Vec::is_empty), "{on_server:#?}");
    assert!(!on_server.contains_key("p ssh"), "{on_server:#?}");

    // Beside a group, it has a policy of its own. At rest and after a restart, nothing is written.
    let rules = json!([{ "name": "ssh", "sources": ["All"], "destinations": ["bastion", "All"], "protocol": "tcp", "ports": ["22"],
        "bidirectional": false }]);
    stage.patch(&policies, "p", json!({ "spec": { "rules": rules } })).await;
    stage.says(&policies, "p", "Ready", "Reconciled").await;
    let on_server = stage.on_server(&Collection::Policies).await;
    assert_eq!(rule(&on_server["p ssh"])["destinations"], json!(["All"]));
    assert_eq!(rule_of(&on_server[&name])["destinationResource"]["id"], json!(resource));
    let writes = stage.writes();
    operator.stop().await;
    let operator = stage.start(&[]).await;
    stage.settled(&operator).await;
    assert_eq!(stage.writes(), writes, "{:#?}", stage.calls());

    // Drift is corrected: a person leads the policy to another resource.
    let place = Collection::Policies.place(on_server[&name]["id"].as_str().unwrap());
    let lead = |body: &mut konverge_openzro::Fields| {
        let rule = body["rules"][0].as_object_mut().unwrap();
        rule.remove("destinations");
        rule["destinationResource"] = json!({ "id": "another", "type": "host" });
    };
    stage.dashboard.modify(&place, lead).await.unwrap();
    let is_corrected = async || {
        rule_of(&stage.on_server(&Collection::Policies).await[&name])["destinationResource"]["id"] == json!(resource)
    };
    stage.until("the policy leads to its resource again", is_corrected).await;

    // Nothing is deleted or opened because the resource is gone.
    stage.delete(&resources, "bastion").await;
    stage.gone(&resources, "bastion").await;
    stage.says(&policies, "p", "Reconciling", "WaitingForReference").await;
    stage.settled(&operator).await;
    let after = stage.on_server(&Collection::Policies).await;
    assert_eq!(rule_of(&after[&name])["destinationResource"]["id"], json!(resource));

    // Without the destination, its policy goes.
    let rules =
        json!([{ "name": "ssh", "sources": ["All"], "destinations": ["All"], "protocol": "tcp", "ports": ["22"] }]);
    stage.patch(&policies, "p", json!({ "spec": { "rules": rules } })).await;
    stage.says(&policies, "p", "Ready", "Reconciled").await;
    stage
        .until("the policy of the resource is gone", async || {
            !stage.on_server(&Collection::Policies).await.contains_key(&name)
        })
        .await;
    stage.delete(&policies, "p").await;
    stage.gone(&policies, "p").await;
}
