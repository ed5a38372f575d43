//! Gives the library the soname of the real driver, so that a process which has loaded it finds it again under
//! `dlopen("libcuda.so.1")`, whatever the file is called. And binds its references to its own functions to itself, as the
//! real driver's are: else a preloaded library that exports the same names would stand in the resolver's table by itself,
//! and a test of what it does with the resolver's answers would test nothing.
fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
    println!("cargo:rerun-if-changed=build.rs");
}
