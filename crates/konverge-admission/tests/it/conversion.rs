//! A kind with two versions, of which a real API server reads and writes both.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use konverge_admission::{Converter, RegistrationError, Webhooks, certificates::Target};
use konverge_testkit::eventually;
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    SOON,
    stage::Stage,
    things::{Converted, Group, Thing, V1, V2, definition},
};

type Old = Thing<Converted, V1>;
type New = Thing<Converted, V2>;

fn new(name: &str, size: i64, colour: Option<&str>) -> New {
    let colour = colour.map(str::to_owned);
    New::new(name, V2 { size, unit: "cm".to_owned(), colour, payload: None })
}

fn converter() -> Converter<New> {
    Converter::new().spoke::<Old>()
}

proptest! {
    #[test]
    fn there_and_back_is_as_before(
        size: i64,
        unit in "[a-z ]{0,5}",
        colour in proptest::option::of("[a-z]{1,5}"),
        labels in proptest::collection::btree_map("[a-z]", "[a-z]", 0..3),
    ) {
        let mut thing = new("a", size, colour.as_deref());
        thing.spec.unit = unit;
        thing.metadata.labels = (!labels.is_empty()).then_some(labels);
        thing.metadata.uid = Some("1".to_owned());
        let before = serde_json::to_value(thing).unwrap();
        let there = converter().convert(&before, "converted.example.com/v1").unwrap();
        prop_assert_eq!(&there["apiVersion"], "converted.example.com/v1");
        let back = converter().convert(&there, "converted.example.com/v2").unwrap();
        prop_assert_eq!(back, before);
    }
}

#[test]
fn what_cannot_be_converted_says_which_and_why() {
    let thing = |version: &str, kind: &str, spec: Value| {
        json!({
            "apiVersion": format!("converted.example.com/{version}"), "kind": kind,
            "metadata": { "namespace": "n", "name": "a" }, "spec": spec,
        })
    };
    let table = [
        (thing("v1", "Thing", json!({ "size": "hunter2" })), "v2", "spec.size: expected a number, a blank and a unit"),
        (
            thing("v1", "Thing", json!({ "size": 7 })),
            "v2",
            "object cannot be read at spec.size: invalid type: integer, expected a string",
        ),
        (thing("v1", "Thing", json!({})), "v2", "object cannot be read at spec: missing field `size`"),
        (thing("v1", "Other", json!({ "size": "1 m" })), "v2", "this webhook converts Thing"),
        (
            thing("v0", "Thing", json!({})),
            "v2",
            "version converted.example.com/v0 is not known, only converted.example.com/v2, converted.example.com/v1",
        ),
        (
            thing("v1", "Thing", json!({ "size": "1 m" })),
            "v9",
            "version converted.example.com/v9 is not known, only converted.example.com/v2, converted.example.com/v1",
        ),
    ];
    for (object, to, why) in table {
        let error = converter().convert(&object, &format!("converted.example.com/{to}")).unwrap_err();
        assert_eq!(error.why, why);
        assert_eq!(error.object, format!("{} n/a", object["kind"].as_str().unwrap()));
    }
    // The version that it has is no question of form.
    let odd = thing("v7", "Other", json!(5));
    assert_eq!(converter().convert(&odd, "converted.example.com/v7").unwrap(), odd);
}

#[test]
fn a_version_has_one_conversion() {
    let twice = Webhooks::new().convert(converter().spoke::<Old>());
    let version = "converted.example.com/v1".to_owned();
    let definition = "things.converted.example.com".to_owned();
    assert_eq!(twice.check(), Err(RegistrationError::VersionTaken { version, definition }));
}

#[tokio::test]
async fn both_versions_are_read_and_written() {
    let stage = Stage::new().await;
    let webhooks = Webhooks::new().convert(converter());
    let mut conversions = webhooks.conversions(&stage.location());
    let (name, conversion) = conversions.remove(0);
    assert_eq!(name, format!("things.{}", Converted::NAME));
    let mut definition = definition::<Converted>(&["v1", "v2"]);
    definition.spec.conversion = Some(conversion);
    stage.define::<Converted>(definition).await;
    let running = stage.serve(webhooks, stage.self_made([Target::Conversion(name.clone())])).await;

    let (old, new_api) = (stage.api::<Old>(), stage.api::<New>());
    let mut sent = Old::new("first", V1 { size: "3 cm".to_owned() });
    sent.labels_mut().insert("kept".to_owned(), "yes".to_owned());
    let create = async || old.create(&PostParams::default(), &sent).await.ok();
    let made = eventually(SOON, create).await.unwrap();
    assert_eq!(made.spec.size, "3 cm");
    let read = new_api.get("first").await.unwrap();
    assert_eq!((read.spec.size, read.spec.unit.as_str(), read.labels()["kept"].as_str()), (3, "cm", "yes"));
    assert_eq!(read.uid(), made.uid());

    // Fields that v1 lacks survive a write in v1.
    new_api.create(&PostParams::default(), &new("second", 5, Some("blue"))).await.unwrap();
    let mut second = old.get("second").await.unwrap();
    assert_eq!(second.spec.size, "5 cm");
    second.spec.size = "6 cm".to_owned();
    old.replace("second", &PostParams::default(), &second).await.unwrap();
    let second = new_api.get("second").await.unwrap();
    assert_eq!((second.spec.size, second.spec.colour.as_deref()), (6, Some("blue")));
    assert!(second.annotations().is_empty(), "the conversion took its note away again");

    // Lists, in both.
    for index in 0..20 {
        new_api.create(&PostParams::default(), &new(&format!("many-{index}"), index, None)).await.unwrap();
    }
    assert_eq!(old.list(&ListParams::default()).await.unwrap().items.len(), 22);
    assert_eq!(new_api.list(&ListParams::default()).await.unwrap().items.len(), 22);

    // An object that cannot be converted is named, and others are converted.
    let refused = old.create(&PostParams::default(), &Old::new("third", V1 { size: "big".to_owned() })).await;
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("third") && message.contains("spec.size"), "{message}");
    old.get("first").await.unwrap();

    // Somebody who overwrites the authority is corrected, long before the next look would be due.
    let definitions = Api::<CustomResourceDefinition>::all(stage.admin.clone());
    let gone = json!({ "spec": { "conversion": { "webhook": { "clientConfig": { "caBundle": null } } } } });
    definitions.patch(&name, &PatchParams::default(), &Patch::Merge(&gone)).await.unwrap();
    let mended = async || {
        let definition = definitions.get(&name).await.unwrap();
        definition.spec.conversion?.webhook?.client_config?.ca_bundle
    };
    let bundle = eventually(SOON, mended).await.unwrap();
    assert_eq!(String::from_utf8(bundle.0).unwrap(), stage.stored().await.0);
    running.stop().await;
}
