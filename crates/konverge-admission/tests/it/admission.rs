//! Objects that a real API server takes, refuses and completes, as the webhooks say.

use konverge_admission::{
    Defaulter, Mutation, Mutator, Operation, Review, Validator, Verdict, Webhook, Webhooks, webhook::FailurePolicy,
};
use konverge_testkit::eventually;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams},
};
use serde_json::json;

use crate::{
    SOON,
    stage::Stage,
    things::{Shop, Thing, V2, definition},
};

type Shoe = Thing<Shop, V2>;

struct Rules;

impl Validator<Shoe> for Rules {
    type Error = std::io::Error;

    async fn validate(&self, review: &Review<Shoe>) -> Result<Verdict, Self::Error> {
        assert_eq!(review.resource.resource, "things");
        assert!(review.user_info.username.is_some() && review.namespace.is_some());
        Ok(match (&review.operation, &review.old_object, &review.object) {
            (Operation::Delete, Some(old), None) if old.labels().contains_key("keep") => {
                Verdict::deny("it is kept; remove label keep first").code(409).reason("Conflict")
            }
            (Operation::Update, Some(old), Some(new)) if old.spec.unit != new.spec.unit => {
                Verdict::unless([("spec.unit", "does not change")])
            }
            (_, _, Some(new)) if new.spec.size > 100 => Verdict::deny("too large")
                .code(422)
                .reason("Invalid")
                .cause("spec.size", "is above 100")
                .warning("so large"),
            (_, _, Some(new)) if new.spec.size > 50 => Verdict::allow().warning("rather large"),
            (_, _, Some(new)) if new.spec.size < 0 => return Err(std::io::Error::other("the rule book is away")),
            _ => Verdict::allow(),
        })
    }
}

impl Mutator<Shoe> for Rules {
    type Error = std::convert::Infallible;

    async fn mutate(&self, mut object: Shoe, _: &Review<Shoe>) -> Result<Mutation<Shoe>, Self::Error> {
        object.labels_mut().insert("seen".to_owned(), "yes".to_owned());
        Ok(Mutation::to(object))
    }
}

impl Defaulter<Shoe> for Rules {
    fn fill_in(&self, object: &mut Shoe) {
        object.spec.colour.get_or_insert_with(|| "red".to_owned());
    }
}

fn webhooks() -> Webhooks {
    let all = [Operation::Create, Operation::Update, Operation::Delete];
    Webhooks::new()
        .validate(Webhook::of::<Shoe>().name("rules.shop.example.com").operations(all), Rules)
        .mutate(
            Webhook::of::<Shoe>().name("labels.shop.example.com").condition("named", "object.metadata.name != 'odd'"),
            Rules,
        )
        .defaults(Webhook::of::<Shoe>().name("defaults.shop.example.com").failure_policy(FailurePolicy::Ignore), Rules)
}

fn shoe(name: &str, size: i64) -> Shoe {
    Shoe::new(name, V2 { size, unit: "cm".to_owned(), ..V2::default() })
}

fn status(error: kube::Error) -> kube::core::Status {
    match error {
        kube::Error::Api(status) => *status,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn real_requests_are_judged_changed_and_completed() {
    let stage = Stage::new().await;
    stage.define::<Shop>(definition::<Shop>(&["v2"])).await;
    let webhooks = webhooks();
    let options = stage.self_made(stage.applied(&webhooks));
    let running = stage.serve(webhooks, options).await;
    // The API server reads configurations a moment after they are made.
    eventually(SOON, async || (stage.try_create(&shoe("probe", 500)).await.0 == 422).then_some(())).await.unwrap();
    let mutated = async || {
        let object =
            stage.api::<Shoe>().create(&PostParams { dry_run: true, ..PostParams::default() }, &shoe("probe", 1)).await;
        object.ok().filter(|object| object.labels().contains_key("seen"))
    };
    eventually(SOON, mutated).await.unwrap();

    // Refused, with all that was said.
    let api = stage.api::<Shoe>();
    let refused = status(api.create(&PostParams::default(), &shoe("large", 500)).await.unwrap_err());
    assert_eq!((refused.code, refused.reason.as_str()), (422, "Invalid"));
    assert_eq!(refused.message, "admission webhook \"rules.shop.example.com\" denied the request: too large");
    assert_eq!(refused.details.unwrap().causes[0].field, "spec.size");
    let (code, warnings) = stage.try_create(&shoe("large", 500)).await;
    assert_eq!((code, warnings), (422, vec!["299 - \"so large\"".to_owned()]));
    let (code, warnings) = stage.try_create(&shoe("medium", 60)).await;
    assert_eq!((code, warnings), (201, vec!["299 - \"rather large\"".to_owned()]));

    // A failing handler leaves it to the failure policy.
    let failed = status(api.create(&PostParams::default(), &shoe("negative", -1)).await.unwrap_err());
    assert_eq!(failed.code, 500);
    assert!(failed.message.contains("failed calling webhook") && !failed.message.contains("rule book"), "{failed:?}");

    // Taken, completed, and with what the type does not know.
    let resource = ApiResource::erase::<Shoe>(&());
    let raw: Api<DynamicObject> = Api::namespaced_with(stage.admin.clone(), &stage.namespace, &resource);
    let sent = json!({
        "apiVersion": "shop.example.com/v2", "kind": "Thing",
        "metadata": { "name": "good" },
        "spec": { "size": 7, "unit": "cm", "extra": [{ "deep": null }, 1.5] },
        "more": { "of": "it" },
    });
    let made = raw.create(&PostParams::default(), &serde_json::from_value(sent).unwrap()).await.unwrap();
    assert_eq!(made.labels()["seen"], "yes");
    assert_eq!(
        made.data["spec"],
        json!({ "size": 7, "unit": "cm", "colour": "red", "extra": [{ "deep": null }, 1.5] })
    );
    assert_eq!(made.data["more"], json!({ "of": "it" }));
    let odd = api.create(&PostParams::default(), &shoe("odd", 1)).await.unwrap();
    assert!(!odd.labels().contains_key("seen"), "the condition keeps it away");

    // An object that cannot be read is refused, and the field named.
    let wrong = json!({ "spec": { "size": "seven" } });
    let refused = status(raw.patch("good", &PatchParams::default(), &Patch::Merge(&wrong)).await.unwrap_err());
    assert_eq!(refused.code, 400);
    assert!(refused.message.contains("spec.size") && !refused.message.contains("seven"), "{refused:?}");

    // Updates see both objects.
    let change = json!({ "spec": { "unit": "m" } });
    let refused = status(api.patch("good", &PatchParams::default(), &Patch::Merge(&change)).await.unwrap_err());
    assert!(refused.message.contains("spec.unit: does not change"), "{refused:?}");

    // Deletes see the old one.
    let keep = json!({ "metadata": { "labels": { "keep": "yes" } } });
    api.patch("good", &PatchParams::default(), &Patch::Merge(&keep)).await.unwrap();
    let refused = status(api.delete("good", &DeleteParams::default()).await.unwrap_err());
    assert_eq!((refused.code, refused.reason.as_str()), (409, "Conflict"));
    let free = json!({ "metadata": { "labels": { "keep": null } } });
    api.patch("good", &PatchParams::default(), &Patch::Merge(&free)).await.unwrap();
    api.delete("good", &DeleteParams::default()).await.unwrap();

    // Old and new object together are far beyond what web frameworks take.
    let payload = Some("x".repeat(1400 * 1024));
    let mut large = shoe("heavy", 1);
    large.spec.payload.clone_from(&payload);
    let mut large = api.create(&PostParams::default(), &large).await.unwrap();
    large.spec.size = 2;
    let large = api.replace("heavy", &PostParams::default(), &large).await.unwrap();
    assert_eq!((large.spec.size, large.spec.payload == payload), (2, true));

    running.assert_metric(
        r#"controller_runtime_webhook_requests_total{webhook="/validate-shop-example-com-v2-thing",code="500"} 1"#,
    );
    running.stop().await;
}
