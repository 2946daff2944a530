//! The program.

fn main() -> std::process::ExitCode {
    labelcopy_operator::operator().main()
}
