//! Gives the library the soname of the real driver, so that a process which has loaded it finds it again under
//! `dlopen("libcuda.so.1")`, whatever the file is called.
fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    println!("cargo:rerun-if-changed=build.rs");
}
