//! The program.

fn main() -> std::process::ExitCode {
    cloudbucket_operator::operator().main()
}
