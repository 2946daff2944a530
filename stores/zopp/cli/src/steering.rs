//! Variables that steer the programs that read them.
//!
//! Such a variable makes a program run code, load a library, read options or write a file. The list cannot be complete, because every
//! program may read variables of its own. A declaration in `zopp.toml` is complete. This list is the fallback without one, and for exports.
//!
//! Names are compared without regard to case: npm and Yarn read theirs in any case, and zsh ties `path` to `PATH`.
//!
//! Variables that only redirect traffic or name a configuration file (`HTTPS_PROXY`, `SSL_CERT_FILE`, `KUBECONFIG`) are not listed: people
//! keep them as secrets.

use clap::Args;

use self::names::{ARITHMETIC, DATA, DATA_SUFFIXES, NAMES, PREFIXES, SUFFIXES};

mod names;

/// `--allow-key`
#[derive(Debug, Default, Args)]
pub(crate) struct AllowedKeys {
    /// Permit this key even if it can make programs run code or write files, such as PATH; may be repeated
    #[arg(long, value_name = "KEY", value_delimiter = ',')]
    pub(crate) allow_key: Vec<String>,
}

impl AllowedKeys {
    /// Returns `true` if the command line permits the key by its own name.
    pub(crate) fn contains(&self, key: &str) -> bool {
        self.allow_key.iter().any(|allowed| allowed == key)
    }
}

/// Returns `true` if the variable steers a program that reads it.
pub(crate) fn steers_programs(key: &str) -> bool {
    let key = key.to_ascii_uppercase();
    let is_data = || DATA.binary_search(&key.as_str()).is_ok() || DATA_SUFFIXES.iter().any(|end| key.ends_with(end));
    NAMES.binary_search(&key.as_str()).is_ok()
        || SUFFIXES.iter().any(|suffix| key.ends_with(suffix))
        || PREFIXES.iter().any(|prefix| key.starts_with(prefix)) && !is_data()
}

/// Returns `true` if the variable steers a program, or the shell that sources a file with it. A shell with arithmetic variables takes their
/// values for expressions, except numbers.
pub(crate) fn steers_shells_or_programs(key: &str, value: &[u8]) -> bool {
    let is_number = || value.iter().all(u8::is_ascii_digit);
    steers_programs(key) || ARITHMETIC.binary_search(&key).is_ok() && !is_number()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_can_be_searched() {
        assert!(NAMES.is_sorted() && DATA.is_sorted() && ARITHMETIC.is_sorted());
    }

    /// Variables that steer programs.
    const STEERING: &[&str] = &[
        "PATH",
        "LD_PRELOAD",
        "LD_AUDIT",
        "DYLD_INSERT_LIBRARIES",
        "BASH_ENV",
        "ENV",
        "IFS",
        "BASH_FUNC_ls%%",
        "NODE_OPTIONS",
        "NODE_V8_COVERAGE",
        "PYTHONPATH",
        "PYTHON_HISTORY",
        "PERL5OPT",
        "RUBYOPT",
        "JAVA_TOOL_OPTIONS",
        "_JAVA_OPTIONS",
        "MAVEN_OPTS",
        "GIT_SSH_COMMAND",
        "GIT_CONFIG_COUNT",
        "GIT_TRACE",
        "GIT_TRACE2_EVENT",
        "LUA_INIT_5_4",
        "CORECLR_PROFILER_PATH",
        "npm_config_script_shell",
        "Npm_Config_Script_Shell",
        "CARGO_BUILD_RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_WRAPPER",
        "RUSTUP_TOOLCHAIN",
        "PIP_CONFIG_FILE",
        "UV_PYTHON",
        "TAR_OPTIONS",
        "TAPE",
        "XZ_OPT",
        "RSYNC_RSH",
        "RSYNC_CONNECT_PROG",
        "LESS",
        "LESSOPEN",
        "MORE",
        "PAGER",
        "MANPAGER",
        "EDITOR",
        "VISUAL",
        "SUDO_ASKPASS",
        "SSLKEYLOGFILE",
        "FZF_DEFAULT_COMMAND",
        "MAKEFLAGS",
        "ZOPP_SERVER",
        "ZOPP_GENERATION",
        "ZOPP_REQUIRE_SIGNED_KEYS",
        "ZOPP_SAFE_DIRECTORY",
        "ZOPP_PROTECTED_ENVIRONMENTS",
        "GH_BROWSER",
        "BROWSER",
        "SASL_PATH",
        "VK_LAYER_PATH",
        "VK_ICD_FILENAMES",
        "QT_QPA_PLATFORM_PLUGIN_PATH",
        "QML2_IMPORT_PATH",
        "GOCOVERDIR",
        "COVERAGE_PROCESS_START",
        "PS1",
        "prompt",
        "MAILPATH",
        "KRB5_CONFIG",
        "CLOUDSDK_PYTHON",
        "CUDA_INJECTION64_PATH",
        "SDL_DYNAMIC_API",
        "UWSGI_EXEC_ASAP",
        "SOPS_AGE_KEY_CMD",
        "BORG_PASSCOMMAND",
        "HELM_PLUGINS",
        "PACKER_PLUGIN_PATH",
        "TF_LOG_PATH",
        "GITHUB_ENV",
        "FFREPORT",
    ];

    /// Variables that hold data.
    const PLAIN: &[&str] = &[
        "DATABASE_URL",
        "API_KEY",
        "FEATURE_FLAGS",
        "GITHUB_TOKEN",
        "GIT_TOKEN",
        "GIT_AUTHOR_NAME",
        "CARGO_REGISTRY_TOKEN",
        "NPM_TOKEN",
        "NODE_AUTH_TOKEN",
        "NODE_ENV",
        "PYTHONUNBUFFERED",
        "RSYNC_PASSWORD",
        "LDAP_URL",
        "LESSONS_URL",
        "PATH_TO_X",
        "OPTIONS",
        "PORT",
        "RUST_LOG",
        "HTTPS_PROXY",
        "GITHUB_CLIENT_ID",
        "GH_TOKEN",
        "MIX_PUSHER_APP_KEY",
        "MONO_SECRET_KEY",
        "NUGET_API_KEY",
        "SYSTEM_PROMPT",
        "VITE_API_URL",
        "VK_APP_ID",
        "TF_VAR_region",
        "AWS_ACCESS_KEY_ID",
        "SASL_USERNAME",
        "SASL_MECHANISM",
        "WINERY_URL",
        "ZOPPING",
        "",
    ];

    #[test]
    fn variables_that_steer_programs_are_told_from_data() {
        for key in STEERING {
            assert!(steers_programs(key), "{key}");
        }
        for key in PLAIN {
            assert!(!steers_programs(key), "{key}");
        }
    }

    /// bash runs the command of `RANDOM='a[$(command)]'`.
    #[test]
    fn arithmetic_variables_of_shells_hold_numbers_only() {
        for key in ["RANDOM", "OPTIND", "SECONDS", "UID"] {
            assert!(steers_shells_or_programs(key, b"a[$(ls)]") && !steers_shells_or_programs(key, b"1000"), "{key}");
        }
        assert!(!steers_shells_or_programs("API_KEY", b"a[$(ls)]") && steers_shells_or_programs("PATH", b"1"));
    }
}
