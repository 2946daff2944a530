//! Compiles the schema in Rust, so that no machine needs protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let schema = protox::compile(["zopp.proto", "konverge/zopp/v1/identity.proto"], ["proto"])?;
    // A server that does not serve a call yet answers UNIMPLEMENTED, which is what the default stubs do.
    tonic_prost_build::configure().generate_default_stubs(true).compile_fds(schema)?;
    Ok(())
}
