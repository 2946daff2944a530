//! The operator as a program.

fn main() -> std::process::ExitCode {
    outside::operator().main()
}
