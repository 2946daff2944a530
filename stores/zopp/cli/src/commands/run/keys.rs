//! Which keys of an environment become variables of the command, and which are refused.
//!
//! A writer of secrets is not the person who runs the command. Some variables let the writer choose code: the dynamic loader, a shell,
//! an interpreter or a common tool loads or runs the code that the variable names. [`RUNS_CODE`] and [`RUNS_CODE_PREFIXES`] list them.
//!
//! The names come from the documentation of the programs that read them:
//!
//! - the loaders: `ld.so(8)`, `dyld(1)`, and the variables that glibc itself removes for set-user-ID programs (`unsecvars.h`);
//!
//! - the shells and others that `sudo` removes by default (`env_delete`, and `sudoers(5)`);
//!
//! - the manuals of the interpreters and runtimes: Bash, Zsh, Python, Perl, Ruby, Node.js, the JVM, .NET, PHP, Lua, Erlang, R;
//!
//! - the tools that run commands from variables: Git, SSH, OpenSSL, make, Go, Cargo, npm, pagers and editors.
//!
//! Variables that only redirect traffic or name a configuration file (`HTTPS_PROXY`, `SSL_CERT_FILE`, `KUBECONFIG`) are not listed: people
//! keep them as secrets. Neither are names that tools use for data, such as `GIT_TOKEN`, `PYTHONUNBUFFERED` or `NODE_ENV`.

use std::collections::BTreeSet;

use clap::Args;
use konverge_zopp_client::EnvironmentName;

use crate::failure::Failure;

/// Variables by which a writer of secrets chooses code. Sorted.
const RUNS_CODE: &[&str] = &[
    "BASHOPTS",
    "BASH_ENV",
    "BROWSER",
    "BUNDLE_GEMFILE",
    "CARGO_BUILD_RUSTC",
    "CARGO_BUILD_RUSTC_WRAPPER",
    "CARGO_HOME",
    "CDPATH",
    "CLASSPATH",
    "CMAKE_TOOLCHAIN_FILE",
    "COR_ENABLE_PROFILING",
    "COR_PROFILER",
    "COR_PROFILER_PATH",
    "DOTNET_ADDITIONAL_DEPS",
    "DOTNET_ROOT",
    "DOTNET_STARTUP_HOOKS",
    "EDITOR",
    "ENV",
    "ERL_AFLAGS",
    "ERL_FLAGS",
    "ERL_LIBS",
    "ERL_ZFLAGS",
    "FPATH",
    "GCONV_PATH",
    "GEM_HOME",
    "GEM_PATH",
    "GETCONF_DIR",
    "GIT_ASKPASS",
    "GIT_CONFIG",
    "GIT_DIR",
    "GIT_EDITOR",
    "GIT_EXEC_PATH",
    "GIT_EXTERNAL_DIFF",
    "GIT_PAGER",
    "GIT_PROXY_COMMAND",
    "GIT_SEQUENCE_EDITOR",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_TEMPLATE_DIR",
    "GLIBC_TUNABLES",
    "GLOBIGNORE",
    "GOENV",
    "GOFLAGS",
    "GRADLE_OPTS",
    "HOME",
    "HOSTALIASES",
    "IFS",
    "JAVA_HOME",
    "JAVA_OPTS",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "LESSCLOSE",
    "LESSOPEN",
    "LIBPATH",
    "LOCPATH",
    "MAKEFILES",
    "MAKEFLAGS",
    "MANPAGER",
    "MAVEN_OPTS",
    "NLSPATH",
    "NODE_OPTIONS",
    "NODE_PATH",
    "NPM_CONFIG_GIT",
    "NPM_CONFIG_NODE_OPTIONS",
    "NPM_CONFIG_SCRIPT_SHELL",
    "NPM_CONFIG_USERCONFIG",
    "NULLCMD",
    "OPENSSL_CONF",
    "OPENSSL_ENGINES",
    "OPENSSL_MODULES",
    "PAGER",
    "PATH",
    "PERL5DB",
    "PERL5LIB",
    "PERL5OPT",
    "PERLLIB",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "PROMPT_COMMAND",
    "PS4",
    "PYTHONBREAKPOINT",
    "PYTHONEXECUTABLE",
    "PYTHONHOME",
    "PYTHONINSPECT",
    "PYTHONPATH",
    "PYTHONPLATLIBDIR",
    "PYTHONPYCACHEPREFIX",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    "PYTHONWARNINGS",
    "READNULLCMD",
    "RESOLV_HOST_CONF",
    "RUBYLIB",
    "RUBYOPT",
    "RUBYSHELL",
    "RUSTC",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTFLAGS",
    "R_ENVIRON",
    "R_ENVIRON_USER",
    "R_LIBS",
    "R_LIBS_USER",
    "R_PROFILE",
    "R_PROFILE_USER",
    "SHELL",
    "SHELLOPTS",
    "SHLIB_PATH",
    "SSH_ASKPASS",
    "SUDO_ASKPASS",
    "TERMINFO",
    "TERMINFO_DIRS",
    "VISUAL",
    "XDG_CONFIG_HOME",
    "ZDOTDIR",
    "_JAVA_OPTIONS",
    "npm_config_git",
    "npm_config_node_options",
    "npm_config_script_shell",
    "npm_config_userconfig",
];

/// Beginnings of such names: the options of both loaders, the functions that Bash takes from its environment, settings given to Git, and
/// those that have a version or a platform in their name.
const RUNS_CODE_PREFIXES: &[&str] = &[
    "BASH_FUNC_",
    "CARGO_TARGET_",
    "CORECLR_",
    "DYLD_",
    "GIT_CONFIG_",
    "LDR_",
    "LD_",
    "LUA_CPATH",
    "LUA_INIT",
    "LUA_PATH",
    "_RLD",
];

/// `--only`, `--prefix` and `--allow-key`.
#[derive(Debug, Default, Args)]
pub(super) struct Choice {
    /// Only these keys, separated by commas; may be repeated, and combined with --prefix
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    only: Vec<String>,
    /// Only keys that begin with this; may be repeated, and combined with --only
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    prefix: Vec<String>,
    /// Set this variable although it can choose the code that runs, such as PATH; may be repeated
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    allow_key: Vec<String>,
}

/// Why no command is run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Keys that `--only` names and the environment does not have.
    Missing(Vec<String>),
    /// Keys that would let their writer choose code.
    RunCode(Vec<String>),
}

impl Choice {
    /// Returns the keys to set.
    pub(super) fn apply<'a>(&self, keys: &[&'a str]) -> Result<BTreeSet<&'a str>, Refused> {
        let missing: Vec<_> = self.only.iter().filter(|key| !keys.contains(&key.as_str())).cloned().collect();
        if !missing.is_empty() {
            return Err(Refused::Missing(missing));
        }
        let chosen: BTreeSet<_> = keys.iter().copied().filter(|key| self.chooses(key)).collect();
        let is_allowed = |key: &str| self.allow_key.iter().any(|allowed| allowed == key);
        let refused: Vec<_> =
            chosen.iter().filter(|key| runs_code(key) && !is_allowed(key)).map(ToString::to_string).collect();
        if refused.is_empty() { Ok(chosen) } else { Err(Refused::RunCode(refused)) }
    }

    fn chooses(&self, key: &str) -> bool {
        (self.only.is_empty() && self.prefix.is_empty())
            || self.only.iter().any(|only| only == key)
            || self.prefix.iter().any(|prefix| key.starts_with(prefix.as_str()))
    }
}

impl Refused {
    pub(super) fn into_failure(self, name: &EnvironmentName) -> Failure {
        match self {
            Self::Missing(keys) => Failure::new(format!("{name} has no secret '{}'", keys.join("', '")))
                .next("zopp secret list shows them."),
            Self::RunCode(keys) => Failure::new(format!(
                "the command is not run: in {name}, '{}' can choose the code that runs",
                keys.join("', '")
            ))
            .next(format!(
                "If its writers may do that: --allow-key {}. Otherwise choose other keys with --only or --prefix.",
                keys.join(",")
            )),
        }
    }
}

/// Whether the variable can choose the code that a program runs.
fn runs_code(key: &str) -> bool {
    RUNS_CODE.binary_search(&key).is_ok() || RUNS_CODE_PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choice(only: &[&str], prefix: &[&str], allow_key: &[&str]) -> Choice {
        let owned = |texts: &[&str]| texts.iter().copied().map(str::to_owned).collect();
        Choice { only: owned(only), prefix: owned(prefix), allow_key: owned(allow_key) }
    }

    #[test]
    fn the_list_can_be_searched() {
        assert!(RUNS_CODE.is_sorted());
        assert!(RUNS_CODE_PREFIXES.is_sorted());
    }

    #[test]
    fn variables_that_choose_code_are_told_from_those_that_carry_data() {
        for key in [
            "PATH",
            "LD_PRELOAD",
            "LD_AUDIT",
            "DYLD_INSERT_LIBRARIES",
            "BASH_ENV",
            "ENV",
            "BASH_FUNC_ls%%",
            "NODE_OPTIONS",
            "PYTHONPATH",
            "PYTHONSTARTUP",
            "PERL5OPT",
            "RUBYOPT",
            "JAVA_TOOL_OPTIONS",
            "GIT_SSH_COMMAND",
            "GIT_CONFIG_COUNT",
            "LUA_INIT_5_4",
            "CORECLR_PROFILER_PATH",
            "npm_config_script_shell",
        ] {
            assert!(runs_code(key), "{key}");
        }
        for key in [
            "DATABASE_URL",
            "GIT_TOKEN",
            "GIT_AUTHOR_NAME",
            "PYTHONUNBUFFERED",
            "NODE_ENV",
            "path",
            "LDAP_URL",
            "PATH_TO_X",
            "",
        ] {
            assert!(!runs_code(key), "{key}");
        }
    }

    #[test]
    fn only_and_prefix_add_up() {
        let keys = ["API_KEY", "DB_NAME", "DB_USER", "PATH"];
        let chosen = |only: &[&str], prefix: &[&str]| {
            choice(only, prefix, &["PATH"]).apply(&keys).map(|chosen| chosen.into_iter().collect::<Vec<_>>())
        };
        assert_eq!(chosen(&[], &[]).unwrap(), keys);
        assert_eq!(chosen(&["API_KEY"], &[]).unwrap(), ["API_KEY"]);
        assert_eq!(chosen(&[], &["DB_"]).unwrap(), ["DB_NAME", "DB_USER"]);
        assert_eq!(chosen(&["API_KEY"], &["DB_"]).unwrap(), ["API_KEY", "DB_NAME", "DB_USER"]);
        assert_eq!(chosen(&["API_KEY", "GONE"], &[]), Err(Refused::Missing(vec!["GONE".to_owned()])));
    }

    #[test]
    fn a_key_is_refused_if_it_is_chosen_and_not_allowed_by_its_own_name() {
        let keys = ["A", "LD_PRELOAD", "PATH"];
        let refused = |keys: &[&str]| Err(Refused::RunCode(keys.iter().copied().map(str::to_owned).collect()));
        assert_eq!(choice(&[], &[], &[]).apply(&keys), refused(&["LD_PRELOAD", "PATH"]));
        assert_eq!(choice(&[], &[], &["PATH"]).apply(&keys), refused(&["LD_PRELOAD"]));
        assert_eq!(choice(&[], &[], &["LD_"]).apply(&keys), refused(&["LD_PRELOAD", "PATH"]));
        assert_eq!(choice(&["A"], &[], &[]).apply(&keys).unwrap().len(), 1);
        assert_eq!(choice(&["PATH"], &[], &[]).apply(&keys), refused(&["PATH"]), "to choose a key is not to allow it");
    }
}
