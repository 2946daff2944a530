//! Compiles the schema in Rust, so that no machine needs protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = ["zopp.proto", "konverge/zopp/v1/identity.proto", "konverge/zopp/secrets/v1/secrets.proto"];
    let schema = protox::compile(files, ["proto"])?;
    // A server that does not serve a call yet answers UNIMPLEMENTED, which is what the default stubs do.
    tonic_prost_build::configure().generate_default_stubs(true).compile_fds(schema)?;
    Ok(())
}
