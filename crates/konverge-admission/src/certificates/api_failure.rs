//! A failed request to the API server, in words for the log and for `/readyz`.

use std::{error::Error, fmt};

use konverge_core::error::in_one_line;

/// An error of the client. Its text has the message of the API server's answer and the next step; the client's own text repeats the whole answer.
#[derive(Debug)]
pub(super) struct ApiFailure(pub(super) Box<kube::Error>);

impl fmt::Display for ApiFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            kube::Error::Api(status) if status.code == 403 => {
                write!(f, "{}; apply the generated role of the program again, which grants this", status.message)
            }
            kube::Error::Api(status) if status.message.is_empty() => {
                write!(f, "the API server answered {}; the program retries", status.code)
            }
            kube::Error::Api(status) => f.write_str(&status.message),
            error => f.write_str(&in_one_line(error)),
        }
    }
}

// Its text has the causes.
impl Error for ApiFailure {}

impl From<kube::Error> for ApiFailure {
    fn from(error: kube::Error) -> Self {
        Self(Box::new(error))
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn an_answer_is_told_by_its_message_and_a_refusal_with_the_next_step() {
        for (code, message, expected) in [
            (
                403,
                "secrets \"x\" is forbidden",
                "secrets \"x\" is forbidden; apply the generated role of the program again, which grants this",
            ),
            (404, "namespaces \"shop\" not found", "namespaces \"shop\" not found"),
            (503, "", "the API server answered 503; the program retries"),
        ] {
            let status = Status { code, message: message.to_owned(), ..Status::default() };
            assert_eq!(ApiFailure::from(kube::Error::Api(status.boxed())).to_string(), expected);
        }
    }
}
