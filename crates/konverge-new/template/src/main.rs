//! The program: it runs the operator or, with `generate`, prints its manifests.

fn main() -> std::process::ExitCode {
    konverge_template::operator().main()
}
