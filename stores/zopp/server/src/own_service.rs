//! The shape of a gRPC service of Konverge's own: a table of its calls.

/// Declares the service and its calls. The path that is signed, the audit record and the handler of each call are in its row.
macro_rules! own_service {
    (
        $(#[$doc:meta])*
        $service:ident: $package:ident, $server:ident::$interface:ident {
            $($method:ident($request:ident) -> $answer:ident = $name:literal, $record:expr, $handler:path $(, in $place:ident)?;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone)]
        pub(crate) struct $service {
            state: std::sync::Arc<crate::state::State>,
        }

        impl $service {
            /// A service on this state.
            pub(crate) fn new(state: std::sync::Arc<crate::state::State>) -> Self {
                Self { state }
            }
        }

        #[tonic::async_trait]
        impl konverge_zopp_proto::$package::$server::$interface for $service {
            $(
                async fn $method(
                    &self,
                    request: tonic::Request<konverge_zopp_proto::$package::$request>,
                ) -> Result<tonic::Response<konverge_zopp_proto::$package::$answer>, tonic::Status> {
                    let record: crate::call::Record = $record;
                    let path = konverge_zopp_proto::$package::method_path($name);
                    let names = crate::call::names!(request $($place)?);
                    let mut call = crate::call::Call::open_at(&self.state, &request, &path, record, names).await?;
                    let result = $handler(&mut call, request.into_inner()).await;
                    call.answer(result).await
                }
            )*
        }
    };
}

pub(crate) use own_service;
