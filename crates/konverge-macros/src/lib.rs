//! The attributes `#[konverge::resource]` and `#[konverge::schema]`; use them through the crate `konverge`.
//!
//! The derive macros of kube, serde and schemars name their own crates in the code that they generate, so each of these crates would have to be a
//! dependency of the operator. The attributes add the same derives and tell each where to find its crate within `konverge`.

use proc_macro::TokenStream;

/// Derives a custom resource and what its spec needs: `CustomResource`, `Clone`, `Debug`, `Deserialize`, `Serialize`, `JsonSchema`.
///
/// It takes the arguments of kube's [`#[kube(…)]`](https://docs.rs/kube/latest/kube/derive.CustomResource.html), and stands above all other
/// attributes of the struct. Attributes of the derives (`#[kube(…)]`, `#[serde(…)]`, `#[schemars(…)]`) and further derives may follow.
///
/// Where the crate `konverge` has another name in `Cargo.toml`, write the derives and their `crate` attributes yourself.
#[proc_macro_attribute]
pub fn resource(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let mut attributes = derives("::konverge::kube::CustomResource, ");
    attributes.push_str(
        "#[kube(crates(kube_core = \"::konverge::kube::core\", k8s_openapi = \"::konverge::k8s_openapi\", \
         schemars = \"::konverge::schemars\", serde = \"::konverge::serde\", serde_json = \"::konverge::serde_json\"))]",
    );
    let mut tokens = read(&attributes);
    tokens.extend(kube(arguments));
    tokens.extend(item);
    tokens
}

/// Derives what each type within a custom resource needs: `Clone`, `Debug`, `Deserialize`, `Serialize`, `JsonSchema`.
///
/// It stands above all other attributes of the type; attributes of serde and schemars and further derives may follow.
#[proc_macro_attribute]
pub fn schema(_arguments: TokenStream, item: TokenStream) -> TokenStream {
    let mut tokens = read(&derives(""));
    tokens.extend(item);
    tokens
}

/// Takes the attributes of clap's `Args` and derives nothing: for settings in a build without a command line.
#[doc(hidden)]
#[proc_macro_derive(NoArgs, attributes(arg, command))]
pub fn no_args(_item: TokenStream) -> TokenStream {
    TokenStream::new()
}

fn derives(first: &str) -> String {
    format!(
        "#[derive({first}Clone, Debug, ::konverge::serde::Deserialize, ::konverge::serde::Serialize, ::konverge::schemars::JsonSchema)]\
         #[serde(crate = \"::konverge::serde\")] #[schemars(crate = \"::konverge::schemars\")]"
    )
}

/// `#[kube(arguments)]`, with the author's own tokens, so that an error points to them.
fn kube(arguments: TokenStream) -> TokenStream {
    use proc_macro::{Delimiter, Group, Ident, Punct, Spacing, Span, TokenTree};
    let inner = TokenStream::from_iter([
        TokenTree::from(Ident::new("kube", Span::call_site())),
        Group::new(Delimiter::Parenthesis, arguments).into(),
    ]);
    TokenStream::from_iter([
        TokenTree::from(Punct::new('#', Spacing::Alone)),
        Group::new(Delimiter::Bracket, inner).into(),
    ])
}

fn read(code: &str) -> TokenStream {
    #[expect(clippy::expect_used, reason = "it is a constant of this file, and every use of the macro reads it")]
    code.parse().expect("attributes that this crate wrote")
}
