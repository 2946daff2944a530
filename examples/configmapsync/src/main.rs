//! The program.

fn main() -> std::process::ExitCode {
    configmapsync_operator::operator().main()
}
