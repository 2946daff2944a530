//! The interface for authors: rules about one kind.

use std::{convert::Infallible, error::Error, sync::Arc};

use crate::{Review, Verdict};

/// Any error of a handler. It answers 500, so that the webhook's failure policy decides; its text is logged.
pub type HandlerError = Box<dyn Error + Send + Sync>;

/// Decides whether a request may go on.
///
/// Called several times at once. A handler must not change anything: the request may still be refused elsewhere, or be a dry run.
/// It is dropped at an await when the API server gave up waiting. Its errors and panics answer 500 and are counted.
pub trait Validator<T>: Send + Sync + 'static {
    /// Why it could not decide.
    type Error: Into<HandlerError>;

    /// Decides about a request.
    fn validate(&self, review: &Review<T>) -> impl Future<Output = Result<Verdict, Self::Error>> + Send;
}

/// Changes an object before it is stored. Not called for requests without an object, such as deletes; those go on.
///
/// The same rules as for a [`Validator`] hold. The API server may call it twice for one request, so it must leave alone what it
/// has changed already.
pub trait Mutator<T>: Send + Sync + 'static {
    /// Why it could not decide.
    type Error: Into<HandlerError>;

    /// Returns the object as it should be. Fields that `T` does not know stay as they were sent. `review` has the object
    /// unchanged.
    fn mutate(&self, object: T, review: &Review<T>) -> impl Future<Output = Result<Mutation<T>, Self::Error>> + Send;
}

/// Fills in what the sender left out. Not called for requests without an object, such as deletes; those go on.
pub trait Defaulter<T>: Send + Sync + 'static {
    /// Fills in. It must do nothing to an object that it has filled in before.
    fn fill_in(&self, object: &mut T);
}

/// The decision of a [`Mutator`].
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a mutation counts only when it is returned"]
pub struct Mutation<T> {
    pub(crate) verdict: Verdict,
    pub(crate) object: Option<T>,
}

impl<T> Mutation<T> {
    /// The object is stored so. No patch is sent if it is as it was.
    pub fn to(object: T) -> Self {
        Self { verdict: Verdict::allow(), object: Some(object) }
    }

    /// The object stays as it is, or is refused: what the verdict says.
    pub fn none(verdict: Verdict) -> Self {
        Self { verdict, object: None }
    }

    /// Adds a warning, as [`Verdict::warning`] does.
    pub fn warning(self, warning: impl AsRef<str>) -> Self {
        Self { verdict: self.verdict.warning(warning), ..self }
    }

    /// Adds an annotation for the audit log, as [`Verdict::audit`] does.
    pub fn audit(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        Self { verdict: self.verdict.audit(key, value), ..self }
    }
}

impl<T: Sync, V: Validator<T>> Validator<T> for Arc<V> {
    type Error = V::Error;

    fn validate(&self, review: &Review<T>) -> impl Future<Output = Result<Verdict, Self::Error>> + Send {
        V::validate(self, review)
    }
}

impl<T: Sync, M: Mutator<T>> Mutator<T> for Arc<M> {
    type Error = M::Error;

    fn mutate(&self, object: T, review: &Review<T>) -> impl Future<Output = Result<Mutation<T>, Self::Error>> + Send {
        M::mutate(self, object, review)
    }
}

impl<T, D: Defaulter<T>> Defaulter<T> for Arc<D> {
    fn fill_in(&self, object: &mut T) {
        D::fill_in(self, object);
    }
}

/// A handler made of a function that needs not wait. See [`validator`], [`mutator`] and [`defaulter`].
#[derive(Debug, Clone, Copy)]
pub struct FromFn<F>(F);

/// A [`Validator`] of a function.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use konverge_admission::{Review, Verdict, Webhook, Webhooks, handler};
///
/// let rules = handler::validator(|review: &Review<ConfigMap>| match &review.object {
///     Some(object) if object.data.is_none() => Verdict::deny("a settings map needs data"),
///     _ => Verdict::allow(),
/// });
/// let webhooks = Webhooks::new().validate(Webhook::of::<ConfigMap>(), rules);
/// # let _ = webhooks;
/// ```
pub fn validator<T, F: Fn(&Review<T>) -> Verdict + Send + Sync + 'static>(decide: F) -> FromFn<F> {
    FromFn(decide)
}

/// A [`Mutator`] of a function.
pub fn mutator<T, F: Fn(T, &Review<T>) -> Mutation<T> + Send + Sync + 'static>(change: F) -> FromFn<F> {
    FromFn(change)
}

/// A [`Defaulter`] of a function.
pub fn defaulter<T, F: Fn(&mut T) + Send + Sync + 'static>(fill: F) -> FromFn<F> {
    FromFn(fill)
}

impl<T: Sync, F: Fn(&Review<T>) -> Verdict + Send + Sync + 'static> Validator<T> for FromFn<F> {
    type Error = Infallible;

    async fn validate(&self, review: &Review<T>) -> Result<Verdict, Infallible> {
        Ok(self.0(review))
    }
}

impl<T: Send + Sync, F: Fn(T, &Review<T>) -> Mutation<T> + Send + Sync + 'static> Mutator<T> for FromFn<F> {
    type Error = Infallible;

    async fn mutate(&self, object: T, review: &Review<T>) -> Result<Mutation<T>, Infallible> {
        Ok(self.0(object, review))
    }
}

impl<T, F: Fn(&mut T) + Send + Sync + 'static> Defaulter<T> for FromFn<F> {
    fn fill_in(&self, object: &mut T) {
        self.0(object);
    }
}
