//! The program.

fn main() -> std::process::ExitCode {
    multicontroller_operator::operator().main()
}
