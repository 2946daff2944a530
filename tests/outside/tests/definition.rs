//! Tests of an author without an API server, with the test kit.

use konverge::kube::CustomResourceExt;
use konverge_testkit::double::ApiDouble;

#[test]
fn the_definition_has_the_fields_of_the_nested_type() {
    let definition = konverge::serde_json::to_string(&outside::Greeting::crd()).unwrap();
    assert!(definition.contains("places"), "{definition}");
    let _double: Option<ApiDouble> = None;
}
