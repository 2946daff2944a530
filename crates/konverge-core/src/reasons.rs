//! The reasons that the framework itself gives: in conditions, events and the metric `konverge_reconcile_errors_total`. Authors have
//! their own besides. Sources outside have theirs in `konverge_external_errors_total`.

/// Makes a constant of each reason, and the list of all.
macro_rules! reasons {
    ($($name:ident = $word:literal: $meaning:literal,)*) => {
        $(#[doc = concat!($meaning, ".")]
        pub const $name: &str = $word;)*

        /// All of them with their meanings, for the reference.
        pub const ALL: &[(&str, &str)] = &[$(($word, $meaning)),*];
    };
}

reasons! {
    ALTERED_BY_ADMISSION = "AlteredByAdmission":
        "An admission policy or webhook stored other values than were sent; it is tried again",
    API_SERVER_ANSWER_UNREADABLE = "ApiServerAnswerUnreadable":
        "The API server answered something that cannot be read",
    API_SERVER_BUSY = "ApiServerBusy":
        "The API server has too much to do; it is tried again when it says so",
    API_SERVER_FAILING = "ApiServerFailing":
        "The API server failed; it is tried again",
    API_SERVER_UNAUTHORIZED = "ApiServerUnauthorized":
        "The API server does not know who the operator is",
    API_SERVER_UNREACHABLE = "ApiServerUnreachable":
        "The API server did not answer",
    CHILDREN_APPLIED_TWICE = "ChildrenAppliedTwice":
        "Two sets of children were applied in one run, and each would delete the children of the other; a bug in the operator",
    CHILD_ORDER = "ChildOrder":
        "A child waits for one that is not wanted, or children wait for each other; a bug in the operator",
    CONFLICT = "Conflict":
        "Somebody else wrote at the same time; it is tried again",
    EVENTS_LIMITED = "EventsLimited":
        "The object has had many events in a short time, so more are left out; its status and the operator's log have the rest",
    FAILED = "Failed":
        "It failed, and the error's own reason is no single word",
    FIELD_CONFLICT = "FieldConflict":
        "Somebody else owns fields that are to be written",
    FORBIDDEN = "Forbidden":
        "The operator's role does not allow a request",
    GONE = "Gone":
        "The object to be written is no more, or is another one of the same name",
    IMMUTABLE = "Immutable":
        "A field was to be changed that cannot be",
    INPUT_OUTPUT = "InputOutput":
        "Input or output failed; it is tried again",
    INVALID_DATA = "InvalidData":
        "Data could not be converted",
    INVALID_FINALIZER = "InvalidFinalizer":
        "A finalizer that Kubernetes does not allow; a bug in the operator",
    INVALID_NAME = "InvalidName":
        "A name or namespace that Kubernetes does not allow",
    MISSING_FIELD = "MissingField":
        "An object that is to be written lacks a field such as its name; a bug in the operator",
    NOT_ENCODABLE = "NotEncodable":
        "An object that is to be written is no JSON; a bug in the operator",
    NOT_ESTABLISHED = "NotEstablished":
        "A definition was brought and is not served yet; it is looked at again",
    NOT_FOUND = "NotFound":
        "A write refers to an object that does not exist, such as a namespace or a definition",
    NOT_LEADING = "NotLeading":
        "This process does not hold its lease, so it writes nothing; the leader will",
    NOT_OURS = "NotOurs":
        "An object has the name of a child and belongs to somebody else; it is left alone",
    NOT_SELECTED = "NotSelected":
        "An object with the operator's finalizer is being deleted, and perhaps no process selects it; change its labels so that one does",
    NOT_UNDERSTOOD = "NotUnderstood":
        "An object is not what its kind says; it is left alone until somebody changes it",
    OWNER_KEY_UNAVAILABLE = "OwnerKeyUnavailable":
        "The Secret with the key that proves which children are the operator's cannot be read; it is tried again",
    OWNED_BY_ANOTHER = "OwnedByAnother":
        "The child has another owner already; it is left alone",
    PANICKED = "Panicked":
        "A bug in the operator ended the run; it is tried again",
    RECONCILED = "Reconciled":
        "The object is as it is wanted, and its author says nothing more of it",
    REJECTED = "Rejected":
        "The API server, a quota or a webhook does not take an object as it is wanted",
    REQUEST_FAILED = "RequestFailed":
        "A request of the author's own to the API server failed",
    SECRET_IMMUTABLE = "SecretImmutable":
        "As Immutable, of a Secret",
    SECRET_REJECTED = "SecretRejected":
        "As Rejected, of a Secret; what was said is kept back, because it may show a value",
    SECRET_TOO_LARGE = "SecretTooLarge":
        "As TooLarge, of a Secret",
    STORED_VERSION_MISSING = "StoredVersionMissing":
        "A definition lacks a version in which objects are stored; it is not brought",
    TERMINATING = "Terminating":
        "The object to be written is being deleted, and the write makes no sense for it any more",
    TIMED_OUT = "TimedOut":
        "The run took longer than its time limit and was given up; it is tried again",
    TOO_LARGE = "TooLarge":
        "An object is larger than the API server takes",
    TOO_MANY_DELETIONS = "TooManyDeletions":
        "More children would be deleted than the budget allows; an annotation allows it",
    UNDECLARED = "Undeclared":
        "A kind was used that the controller does not declare; a bug in the operator",
    UNPROVEN_CHILD = "UnprovenChild":
        "An object carries the label of a child, and nothing proves that the operator made it; it is left alone",
    WAITING_FOR_CHILDREN = "WaitingForChildren":
        "Children are not ready yet, or wait for others that are not",
    WANTED_TWICE = "WantedTwice":
        "The same child is wanted twice in one run; a bug in the operator",
}
