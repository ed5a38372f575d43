//! Forked children.

use super::{Driver, cu};
use crate::api::{init::cuInit, memory::cuMemAlloc_v2};

#[test]
fn a_forked_child_gets_not_initialised() {
    let _driver = Driver::new();
    // SAFETY: the child calls the driver, which takes no lock there, and ends without running anything else.
    let status = unsafe {
        let child = libc::fork();
        if child == 0 {
            let mut p = 0;
            let right = cuInit(0) == 3 && cuMemAlloc_v2(&raw mut p, 512) == 3;
            libc::_exit(i32::from(!right));
        }
        let mut status = -1;
        libc::waitpid(child, &raw mut status, 0);
        status
    };
    assert_eq!(status, 0);
}

#[test]
fn nothing_works_without_a_context() {
    let _driver = Driver::new();
    let other = std::thread::spawn(|| {
        let mut p = 0;
        cu!(cuMemAlloc_v2(&raw mut p, 512))
    });
    assert_eq!(other.join().expect("no panic"), 201);
}
