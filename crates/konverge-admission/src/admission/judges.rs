//! The three kinds of handlers, brought to one form.

use std::marker::PhantomData;

use futures::future::BoxFuture;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{Judgement, Unjudged};
use crate::{
    Review, Verdict,
    handler::{Defaulter, Mutator, Validator},
    patch,
    review::decode,
};

/// Judges a request whose objects are not typed yet.
pub(crate) trait Judge: Send + Sync + 'static {
    fn judge(&self, review: Review<Value>) -> BoxFuture<'_, Result<Judgement, Unjudged>>;
}

/// A type that is only named.
type Named<T> = PhantomData<fn() -> T>;

pub(crate) struct Validating<T, V>(V, Named<T>);

pub(crate) struct Mutating<T, M>(M, Named<T>);

pub(crate) struct Defaulting<T, D>(D, Named<T>);

impl<T, V> Validating<T, V> {
    pub(crate) fn new(validator: V) -> Self {
        Self(validator, PhantomData)
    }
}

impl<T, M> Mutating<T, M> {
    pub(crate) fn new(mutator: M) -> Self {
        Self(mutator, PhantomData)
    }
}

impl<T, D> Defaulting<T, D> {
    pub(crate) fn new(defaulter: D) -> Self {
        Self(defaulter, PhantomData)
    }
}

impl<T: DeserializeOwned + Send + Sync + 'static, V: Validator<T>> Judge for Validating<T, V> {
    fn judge(&self, review: Review<Value>) -> BoxFuture<'_, Result<Judgement, Unjudged>> {
        Box::pin(async move {
            let review = review.decode::<T>()?;
            let verdict = self.0.validate(&review).await.map_err(|error| Unjudged::Failed(error.into()))?;
            Ok(Judgement { verdict, patch: None })
        })
    }
}

impl<T, M> Judge for Mutating<T, M>
where
    T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static,
    M: Mutator<T>,
{
    fn judge(&self, mut review: Review<Value>) -> BoxFuture<'_, Result<Judgement, Unjudged>> {
        Box::pin(async move {
            let Some(sent) = review.object.take() else { return Ok(unchanged()) };
            let object: T = decode("object", &sent)?;
            let before = written(&object)?;
            let review = Review { object: Some(object.clone()), ..review.decode::<T>()? };
            let mutation = self.0.mutate(object, &review).await.map_err(|error| Unjudged::Failed(error.into()))?;
            let patch = match &mutation.object {
                Some(object) => patch::between(&sent, &before, &written(object)?),
                None => None,
            };
            Ok(Judgement { verdict: mutation.verdict, patch })
        })
    }
}

impl<T, D> Judge for Defaulting<T, D>
where
    T: Serialize + DeserializeOwned + Send + Sync + 'static,
    D: Defaulter<T>,
{
    fn judge(&self, mut review: Review<Value>) -> BoxFuture<'_, Result<Judgement, Unjudged>> {
        Box::pin(async move {
            let Some(sent) = review.object.take() else { return Ok(unchanged()) };
            let mut object: T = decode("object", &sent)?;
            let before = written(&object)?;
            self.0.fill_in(&mut object);
            Ok(Judgement { patch: patch::between(&sent, &before, &written(&object)?), ..unchanged() })
        })
    }
}

fn unchanged() -> Judgement {
    Judgement { verdict: Verdict::allow(), patch: None }
}

fn written<T: Serialize>(object: &T) -> Result<Value, Unjudged> {
    serde_json::to_value(object).map_err(|error| Unjudged::Failed(error.into()))
}
