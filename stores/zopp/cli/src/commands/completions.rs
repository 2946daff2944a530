//! `zopp completions`: a script by which a shell completes the command line.

use clap::Args;
use clap_complete::{Shell, generate};
use serde::Serialize;

use crate::{
    failure::Failure,
    output::{Answer, Document, Outcome},
    wiped::Wiped,
};

pub(super) const EXAMPLES: &str = "\
Examples:
  zopp completions bash > ~/.local/share/bash-completion/completions/zopp
  zopp completions zsh > ~/.zfunc/_zopp
  zopp completions fish > ~/.config/fish/completions/zopp.fish";

/// `zopp completions`
#[derive(Debug, Args)]
pub struct CompletionsArguments {
    /// The shell
    shell: Shell,
}

/// The script as it is: a shell reads it.
#[derive(Serialize)]
struct Script {
    shell: String,
    script: String,
}

impl Answer for Script {
    fn text(&self, text: &mut Wiped) -> Result<(), Failure> {
        text.push(self.script.as_bytes());
        Ok(())
    }

    fn object(&self, document: &mut Document<'_>) -> Result<(), Failure> {
        document.put(self)
    }
}

pub(super) fn execute(arguments: &CompletionsArguments, mut line: clap::Command) -> Outcome {
    let mut script = Vec::new();
    generate(arguments.shell, &mut line, "zopp", &mut script);
    let script = String::from_utf8(script).map_err(|source| Failure::new("the script is no text").because(source))?;
    Ok(Box::new(Script { shell: arguments.shell.to_string(), script }))
}
