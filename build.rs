//! How the library is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Once loaded it stays: programs hold addresses of its functions, and threads that end later call it.
    println!("cargo::rustc-link-arg-cdylib=-Wl,-z,nodelete");
}
