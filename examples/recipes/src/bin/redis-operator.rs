//! The program.

fn main() -> std::process::ExitCode {
    konverge_recipes::redis::operator().main()
}
