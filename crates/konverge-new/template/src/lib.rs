//! The operator: each Greeting gets a `ConfigMap` of the same name, which holds its text.
//!
//! Begin at [`GreetingSpec`], the interface to the user; then read the reconciler below it, and [`controller`], which declares the kinds that it owns.

use konverge::prelude::*;

/// The desired state.
#[konverge::resource(
    group = "example.io",
    version = "v1alpha1",
    kind = "Greeting",
    namespaced,
    status = "GreetingStatus",
    printcolumn = r#"{"name": "Ready", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name": "Child", "type": "string", "jsonPath": ".status.child"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct GreetingSpec {
    /// The value of the key `text` in the `ConfigMap`.
    pub text: String,
}

/// The observed state.
#[konverge::schema]
#[derive(Default)]
pub struct GreetingStatus {
    /// The name of the `ConfigMap`, once it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub child: Option<String>,
    /// Conditions and the generation that they describe. The framework writes them.
    #[serde(flatten)]
    pub standard: Status,
}

impl CustomStatus for GreetingStatus {
    fn standard(&self) -> &Status {
        &self.standard
    }

    fn standard_mut(&mut self) -> &mut Status {
        &mut self.standard
    }
}

struct Reconciler;

impl Reconcile<Greeting> for Reconciler {
    type Error = Error;

    async fn apply(&self, object: Arc<Greeting>, context: Context<Greeting>) -> Result<Action, Error> {
        let text = &object.spec.text;
        if text.is_empty() {
            // A retry cannot help: the object is `Stalled` until somebody changes it.
            return Err(Error::permanent("NoText", "spec.text is empty; say something"));
        }
        // Declare all children, each time: a child in sync costs no request, and a child that is no longer added here is deleted.
        let mut child = ConfigMap::default();
        child.metadata.name = Some(object.name_any());
        child.data = Some([("text".to_owned(), text.clone())].into());
        let report = context.children().with(child).apply().await?;

        for child in &report.children {
            match child.outcome {
                ApplyOutcome::Created => context.event(EventType::Normal, "Created", "Apply", child.object.to_string()),
                ApplyOutcome::Changed => context.event(EventType::Normal, "Changed", "Apply", child.object.to_string()),
                ApplyOutcome::Unchanged => {}
            }
        }
        context.status(|status| status.child = Some(object.name_any()));
        Ok(Action::Done)
    }

    async fn cleanup(&self, _object: Arc<Greeting>, _context: Context<Greeting>) -> Result<(), Error> {
        // Delete here everything that the operator has created outside the cluster. The framework deletes the children afterwards.
        Ok(())
    }
}

/// The controller: its kind, the kinds of its children, and its finalizer. The operator's role is derived from this.
pub fn controller() -> Controller<Greeting, impl Reconcile<Greeting>> {
    Controller::new(Reconciler).owns::<ConfigMap>().finalizer("konverge-template.example.io/cleanup")
}

/// The operator: its controllers.
pub fn operator() -> Operator {
    konverge::operator!().controller(controller())
}
