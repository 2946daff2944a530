//! Writes the man pages and the shell completions of all programs into a folder: `man` and `completions`. `cargo xtask dist` runs it.

use std::{error::Error, fs, path::PathBuf};

use clap::{Command, CommandFactory, Parser};
use clap_complete::Shell;

// The command line of this package's own program.
#[path = "../src/main.rs"]
#[expect(dead_code, reason = "only its command line is used, not its main")]
mod program;

#[derive(Parser)]
struct Arguments {
    /// The folder
    #[arg(long)]
    into: PathBuf,
}

/// The shells that completions are written for.
const SHELLS: [Shell; 4] = [Shell::Bash, Shell::Fish, Shell::PowerShell, Shell::Zsh];

fn commands() -> [Command; 8] {
    [
        program::Cli::command(),
        konverge_kubectl::command(),
        konverge_manage::config::Config::command(),
        konverge_pull::config::Config::command(),
        konverge_push::config::Config::command(),
        konverge_roll::config::Config::command(),
        konverge_zopp_cli::arguments::command(),
        konverge_zopp_server::args::Arguments::command(),
    ]
}

fn main() -> Result<(), Box<dyn Error>> {
    let into = Arguments::parse().into;
    let (man, completions) = (into.join("man"), into.join("completions"));
    fs::create_dir_all(&man)?;
    fs::create_dir_all(&completions)?;
    for mut command in commands() {
        let name = command.get_name().to_owned();
        for shell in SHELLS {
            clap_complete::generate_to(shell, &mut command, &name, &completions)?;
        }
        // A page names the program as its file is called, not as kubectl calls it.
        clap_mangen::generate_to(command.bin_name(name), &man)?;
    }
    Ok(())
}
