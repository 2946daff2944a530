//! The program.

fn main() -> std::process::ExitCode {
    konverge_recipes::policy::operator().main()
}
