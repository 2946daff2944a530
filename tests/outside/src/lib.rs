//! An operator outside of the workspace of Konverge, which names one crate: `konverge`.

use konverge::prelude::*;

/// The spec of a greeting.
#[konverge::resource(group = "example.io", version = "v1", kind = "Greeting", namespaced, status = "GreetingStatus")]
#[serde(rename_all = "camelCase")]
pub struct GreetingSpec {
    /// The text of the config map.
    pub text: String,
    /// Where the greeting is shown.
    #[serde(default)]
    pub places: Vec<Place>,
}

/// A place.
#[konverge::schema]
#[derive(PartialEq, Eq)]
pub struct Place {
    /// Its name.
    pub name: String,
}

/// The status of a greeting.
#[konverge::schema]
#[derive(Default)]
pub struct GreetingStatus {
    /// How often the text was shown.
    #[serde(default)]
    pub shown: u32,
    /// Conditions of the framework.
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

struct Greeter;

impl Reconcile<Greeting> for Greeter {
    type Error = Error;

    async fn apply(&self, greeting: Arc<Greeting>, context: Context<Greeting>) -> Result<Action, Error> {
        let mut child = ConfigMap::default();
        child.metadata.name = Some(greeting.name_any());
        child.data = Some([("text".to_owned(), greeting.spec.text.clone())].into());
        context.children().with(child).apply().await?;
        Ok(Action::Done)
    }
}

/// The operator.
pub fn operator() -> Operator {
    konverge::operator!().controller(Controller::new(Greeter).owns::<ConfigMap>())
}
