//! The client on each target of this machine.

use konverge_core::SecretValue;
use konverge_openzro::{
    Cause, Collection, Credential, Deletion, Feature, Fields, Modified, OpenZro, OpenZroConfig,
    types::{Group, Network, Policy, Resource, SetupKey},
};
use serde_json::{Value, json};

use crate::target::Target;

pub(crate) fn token(text: &str) -> Credential {
    Credential::value(SecretValue::from(text.to_owned()))
}

pub(crate) fn fields(value: Value) -> Fields {
    let Value::Object(fields) = value else { panic!("an object") };
    fields
}

fn client(target: &Target, token_of: &str) -> OpenZro {
    let token = token(&target.account().tokens[token_of]);
    OpenZro::new(&OpenZroConfig::new(target.url(), token).unwrap())
}

async fn create(openzro: &OpenZro, collection: &Collection, body: Value) -> String {
    openzro.create(collection, &fields(body)).await.unwrap().object.id().to_owned()
}

#[tokio::test]
async fn a_change_of_our_keys_keeps_all_others() {
    for target in Target::all().await {
        let openzro = client(&target, "admin");
        let network = create(&openzro, &Collection::Networks, json!({ "name": "n", "description": "by hand" })).await;
        let resources = Collection::Resources { network: network.clone() };
        let group = create(&openzro, &Collection::Groups, json!({ "name": "g" })).await;
        let body =
            json!({ "name": "r", "address": "10.0.0.1", "enabled": true, "groups": [group], "description": "d" });
        let resource = create(&openzro, &resources, body).await;
        // A group keeps its members when it is renamed.
        let place = Collection::Groups.place(&group);
        let renamed = openzro.modify(&place, |group| drop(group.insert("name".to_owned(), json!("h")))).await.unwrap();
        let Modified::Written(renamed) = renamed else { panic!("it is written") };
        assert_eq!(renamed.read::<Group>().unwrap().resources[0].id, resource);
        // The same change again writes nothing.
        let again = openzro.modify(&place, |group| drop(group.insert("name".to_owned(), json!("h")))).await.unwrap();
        assert!(matches!(again, Modified::Unchanged(_)));
        // A resource keeps its groups and its description.
        let place = resources.place(&resource);
        let moved = openzro.modify(&place, |resource| drop(resource.insert("address".to_owned(), json!("10.0.0.2"))));
        let Modified::Written(moved) = moved.await.unwrap() else { panic!("it is written") };
        let moved: Resource = moved.read().unwrap();
        assert_eq!((&*moved.address, &*moved.description, &*moved.groups[0].id), ("10.0.0.2/32", "d", &*group));
        // The account keeps its settings.
        let account = openzro.list(&Collection::Accounts).await.unwrap().remove(0);
        let place = account.place();
        let changed = openzro.modify(&place, |account| {
            account["settings"]["admission_exempt_groups"] = json!([group]);
            account.retain(|key, _| key == "settings");
        });
        let Modified::Written(changed) = changed.await.unwrap() else { panic!("it is written") };
        let mut expected = account.raw()["settings"].clone();
        expected["admission_exempt_groups"] = json!([group]);
        assert_eq!(changed.raw()["settings"], expected);
        let network: Network = openzro.get(&Collection::Networks.place(network)).await.unwrap().read().unwrap();
        assert_eq!((&*network.description, network.resources), ("by hand", vec![resource]));
    }
}

#[tokio::test]
async fn a_policy_with_several_rules_is_not_written_back_by_accident() {
    for target in Target::all().await {
        let openzro = client(&target, "admin");
        let group = create(&openzro, &Collection::Groups, json!({ "name": "g" })).await;
        let rule = |name| {
            json!({ "name": name, "enabled": true, "action": "accept", "protocol": "all",
            "sources": [group], "destinations": [group] })
        };
        let one =
            create(&openzro, &Collection::Policies, json!({ "name": "p", "enabled": true, "rules": [rule("a")] }))
                .await;
        let disable = |policy: &mut Fields| drop(policy.insert("enabled".to_owned(), json!(false)));
        let changed = openzro.modify(&Collection::Policies.place(one), disable).await.unwrap();
        let Modified::Written(changed) = changed else { panic!("it is written") };
        assert_eq!(changed.read::<Policy>().unwrap().rules[0].sources[0].id, group);
        // Rules of a POST would collide; a PUT keeps their ids.
        let two = json!({ "name": "q", "enabled": true, "rules": [rule("a")] });
        let two = Collection::Policies.place(create(&openzro, &Collection::Policies, two).await);
        let second = json!({ "id": format!("{}-b", two.id), "name": "b", "enabled": true, "action": "accept", "protocol": "all",
            "sources": [group], "destinations": [group] });
        let body = fields(json!({ "name": "q", "enabled": true, "rules": [rule("a"), second] }));
        openzro.replace(&two, &body).await.unwrap();
        // The server does not show the sources of the second rule, so writing back what was read would remove them.
        let error = openzro.modify(&two, disable).await.unwrap_err();
        assert!(matches!(error.cause, Cause::HiddenGroups), "{error}");
        let complete = |policy: &mut Fields| {
            disable(policy);
            for rule in policy["rules"].as_array_mut().unwrap() {
                rule["sources"] = json!([group]);
            }
        };
        assert!(matches!(openzro.modify(&two, complete).await.unwrap(), Modified::Written(_)));
    }
}

#[tokio::test]
async fn absence_counts_only_as_the_api_says_it() {
    for target in Target::all().await {
        let openzro = client(&target, "admin");
        for collection in
            [Collection::Groups, Collection::Policies, Collection::SetupKeys, Collection::Networks, Collection::Zones]
        {
            let place = collection.place("nope");
            assert!(openzro.find(&place).await.unwrap().is_none(), "{place}");
            assert_eq!(openzro.delete(&place).await.unwrap(), Deletion::Absent, "{place}");
        }
        let group = create(&openzro, &Collection::Groups, json!({ "name": "g" })).await;
        let body = json!({ "name": "key of shop", "type": "reusable", "auto_groups": [group] });
        let key = create(&openzro, &Collection::SetupKeys, body).await;
        let error = openzro.delete(&Collection::Groups.place(&group)).await.unwrap_err();
        let Cause::Linked { kind, name } = &error.cause else { panic!("it is linked: {error}") };
        assert_eq!((&**kind, &**name), ("setup key", "key of shop"));
        assert_eq!(openzro.delete(&Collection::SetupKeys.place(key)).await.unwrap(), Deletion::Deleted);
        assert_eq!(openzro.delete(&Collection::Groups.place(group)).await.unwrap(), Deletion::Deleted);
        let error = openzro.create(&Collection::Groups, &fields(json!({ "name": "All" }))).await.unwrap_err();
        assert!(matches!(error.cause, Cause::Exists { .. }), "{error}");
        assert!(openzro.has(Feature::Zones).await.unwrap() && !openzro.has(Feature::Services).await.unwrap());
    }
}

#[tokio::test]
async fn the_secret_of_a_setup_key_stands_apart_and_is_not_printed() {
    for target in Target::all().await {
        let openzro = client(&target, "admin");
        let body = fields(json!({ "name": "k", "type": "one-off", "auto_groups": [] }));
        let created = openzro.create(&Collection::SetupKeys, &body).await.unwrap();
        let secret = String::from_utf8(created.secret.as_ref().unwrap().expose().to_vec()).unwrap();
        let shown: SetupKey = created.object.read().unwrap();
        assert!(secret.len() == 36 && shown.key == format!("{}****", &secret[..5]));
        assert!(!format!("{created:?} {:?}", created.object.raw()).contains(&secret[6..]));
        let read = openzro.get(&created.object.place()).await.unwrap();
        assert_eq!(read.read::<SetupKey>().unwrap(), shown);
    }
}

#[tokio::test]
async fn every_collection_can_be_listed() {
    for target in Target::all().await {
        let account = target.account();
        let openzro = OpenZro::new(&OpenZroConfig::new(target.url(), token(&account.tokens["admin"])).unwrap());
        let network = create(&openzro, &Collection::Networks, json!({ "name": "n" })).await;
        for (collection, length) in [
            (Collection::Groups, 1),
            (Collection::Policies, 0),
            (Collection::SetupKeys, 0),
            (Collection::Networks, 1),
            (Collection::Resources { network: network.clone() }, 0),
            (Collection::AllResources, 0),
            (Collection::Routers { network }, 0),
            (Collection::AllRouters, 0),
            (Collection::Zones, 0),
            (Collection::Accounts, 1),
            (Collection::Peers, 0),
            (Collection::AccessiblePeers { peer: "nope".to_owned() }, 0),
        ] {
            assert_eq!(openzro.list(&collection).await.unwrap().len(), length, "{collection:?}");
        }
    }
}

#[tokio::test]
async fn a_role_that_is_too_low_is_denied_what_it_may_not_and_nothing_else() {
    for target in Target::all().await {
        let openzro = client(&target, "network_admin");
        let body = fields(json!({ "name": "k", "type": "one-off", "auto_groups": [] }));
        for _ in 0..10 {
            let error = openzro.create(&Collection::SetupKeys, &body).await.unwrap_err();
            assert!(matches!(error.cause, Cause::Forbidden { .. }), "{error}");
        }
        create(&openzro, &Collection::Groups, json!({ "name": "g" })).await;
    }
}
