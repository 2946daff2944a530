//! The command line.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use konverge_runtime::watch::label_selector;

/// Shows the state of the objects that operators of Konverge work on, the cause, and the next step.
///
/// Ends with 0 if all is well, 1 if something is out of sync, and 2 if the command failed or the command line is wrong.
#[derive(Debug, Parser)]
#[command(name = "kubectl-konverge", bin_name = "kubectl konverge", version = konverge_version::line(), max_term_width = 120)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) connection: Connection,
    /// Form of what is printed
    #[arg(short, long, global = true, value_enum, default_value_t = Form::Text, value_name = "FORM")]
    pub(crate) output: Form,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Which cluster, and which namespace of it.
#[derive(Debug, Args)]
pub(crate) struct Connection {
    /// Kubeconfig file [default: KUBECONFIG, else ~/.kube/config]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context in it [default: the current one]
    #[arg(long, global = true)]
    pub(crate) context: Option<String>,
    /// Namespace [default: that of the context]
    #[arg(short, long, global = true)]
    pub(crate) namespace: Option<String>,
    /// User to impersonate, such as system:serviceaccount:shop:default
    #[arg(long = "as", global = true, value_name = "USER")]
    pub(crate) user: Option<String>,
    /// Group to impersonate; may be repeated
    #[arg(long = "as-group", global = true, requires = "user", value_name = "GROUP")]
    pub(crate) groups: Vec<String>,
}

/// For whom it is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// For people.
    Text,
    /// For people, and nothing is shortened: of status.
    Wide,
    /// The names of the objects alone: of status.
    Name,
    /// For programs.
    Json,
    /// For programs and people.
    Yaml,
}

/// One object.
#[derive(Debug, Args)]
pub(crate) struct Object {
    /// Which object: TYPE/NAME, such as deployment/web
    #[arg(required = true, num_args = 1..=2, value_name = "TYPE/NAME")]
    pub(crate) target: Vec<String>,
}

/// The next step.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Show the state of the objects that have opted in
    Status {
        /// One object, TYPE/NAME, or all objects of one TYPE [default: all that have opted in]
        #[arg(num_args = 0..=2, value_name = "TYPE/NAME")]
        target: Vec<String>,
        /// In all namespaces
        #[arg(short = 'A', long)]
        all_namespaces: bool,
        /// Only objects with these labels, such as team=a,tier!=test
        #[arg(short = 'l', long, value_parser = label_selector, value_name = "LABELS")]
        selector: Option<String>,
        /// Go on, and print each object again when its state changes
        #[arg(short, long)]
        watch: bool,
    },
    /// Explain one object: what it requests, whether it may, its state, and the next step
    Why(Object),
    /// Show the changes that the operator would make, by the names of keys; values are compared in memory and never shown
    Diff(Object),
    /// Have the operator compare and write the object now
    Sync {
        #[command(flatten)]
        object: Object,
        /// Wait until the operator has answered
        #[arg(long)]
        wait: bool,
        /// How long to wait
        #[arg(long, default_value = "60s", value_parser = span, value_name = "TIME")]
        timeout: Duration,
    },
    /// Have the operator leave the object alone from now on
    Pause(Object),
    /// Have the operator work on the object again
    Resume(Object),
    /// Let the object take over an item outside of the cluster that another client made
    Adopt {
        /// Which object: TYPE/NAME, such as group/devs
        #[arg(value_name = "TYPE/NAME")]
        target: String,
        /// Id of the item [default: the only one of the object's name]
        #[arg(long, value_name = "ID")]
        id: Option<String>,
    },
    /// Let the object's item outside of the cluster stay when the object is deleted
    Release(Object),
    /// Print the object of the newer version that takes the place of this one
    Convert(Object),
    /// List items outside of the cluster that bear its mark and whose objects do not exist
    Leftovers {
        /// Only the items with these ids [default: all]
        #[arg(value_name = "ID")]
        ids: Vec<String>,
        /// Delete them; without this, nothing is changed
        #[arg(long)]
        delete: bool,
    },
    /// Approve the deletions that an operator has stopped because there are too many; doctor shows them. -n names the operator's namespace
    Approve,
    /// Check that operators run, have their permissions, and have everything in sync
    Doctor,
    /// Print the completions of a shell
    Completions {
        /// Which one
        shell: Shell,
    },
}

/// A number of seconds, or one with its unit.
fn span(text: &str) -> Result<Duration, String> {
    let (number, unit) = match text.find(|letter: char| !letter.is_ascii_digit()) {
        Some(at) => text.split_at(at),
        None => (text, "s"),
    };
    let factor = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        _ => 0,
    };
    let seconds = number.parse::<u32>().ok().map(|number| u64::from(number) * factor).filter(|seconds| *seconds > 0);
    seconds.map(Duration::from_secs).ok_or_else(|| "write a time above zero, such as 30s or 5m".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn times() {
        for (text, seconds) in [
            ("30s", Some(30)),
            ("5m", Some(300)),
            ("1h", Some(3_600)),
            ("7", Some(7)),
            ("0s", None),
            ("", None),
            ("s", None),
            ("1d", None),
            ("-1s", None),
        ] {
            assert_eq!(span(text).ok(), seconds.map(Duration::from_secs), "{text}");
        }
    }
}
