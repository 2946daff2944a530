//! How settings are made that may get more fields.

/// Gives settings the method `with`, which changes fields of theirs: `Settings::default().with(|settings| settings.field = value)`.
///
/// Settings of published crates are `#[non_exhaustive]`, so that a new field breaks no caller; another crate cannot write them as a literal.
///
/// ```
/// #[derive(Default)]
/// #[non_exhaustive]
/// pub struct Settings {
///     pub patience: u32,
/// }
///
/// konverge_core::with!(Settings);
///
/// assert_eq!(Settings::default().with(|settings| settings.patience = 3).patience, 3);
/// ```
#[macro_export]
macro_rules! with {
    ($settings:ty) => {
        impl $settings {
            /// These settings with a change.
            #[must_use]
            pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
                change(&mut self);
                self
            }
        }
    };
}
