//! The reasons of an author, as an enum.

use konverge_apply::conditions::Reason;

/// An enum whose variants are reasons; made by [`reasons!`](crate::reasons!).
///
/// [`Error`](crate::Error), [`Context::ready`](crate::Context::ready) and the others take a variant wherever they take a reason.
pub trait Reasons: Copy + Into<&'static str> + Into<Reason> + 'static {
    /// All of them with their meanings, for the generated reference; see [`Controller::reasons`](crate::Controller::reasons).
    const ALL: &'static [(&'static str, &'static str)];
}

/// Makes an enum of reasons. The name of each variant is the reason, and its doc comment is the meaning that the generated reference shows. A
/// name that Kubernetes does not take for a reason does not compile.
///
/// ```
/// use konverge::prelude::*;
///
/// konverge::reasons! {
///     /// Why a Greeting is as it is.
///     pub enum Why {
///         /// spec.text is empty
///         NoText,
///         /// The greeting was read by everyone
///         Greeted,
///     }
/// }
///
/// let error = Error::permanent(Why::NoText, "spec.text is empty; say something");
/// # use konverge::core::error::Classify;
/// assert_eq!(error.reason(), "NoText");
/// assert_eq!(<Why as konverge::Reasons>::ALL[1], ("Greeted", "The greeting was read by everyone"));
/// ```
#[macro_export]
macro_rules! reasons {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $name:ident {
            $($(#[doc = $meaning:literal])+ $reason:ident),+ $(,)?
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        $visibility enum $name {
            $($(#[doc = $meaning])+ $reason,)+
        }

        impl ::core::convert::From<$name> for &'static str {
            fn from(reason: $name) -> Self {
                match reason {
                    $($name::$reason => ::core::stringify!($reason),)+
                }
            }
        }

        impl ::core::convert::From<$name> for $crate::apply::conditions::Reason {
            fn from(reason: $name) -> Self {
                match reason {
                    $($name::$reason => const { $crate::apply::conditions::Reason::new(::core::stringify!($reason)) },)+
                }
            }
        }

        impl $crate::Reasons for $name {
            const ALL: &'static [(&'static str, &'static str)] = &[
                $((::core::stringify!($reason), ::core::concat!($($meaning),+).trim_ascii()),)+
            ];
        }
    };
}
