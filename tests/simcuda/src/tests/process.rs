//! What happens between processes: forks, shared memory, and calls after exit. Some tests start this test program
//! again for one of its tests, because a process has one driver.

use super::{Driver, cu};
use crate::api::{copy::*, init::cuInit, memory::*, share::*};
use std::process::Command;

const ROLE: &str = "SIMCUDA_TEST_ROLE";
const BYTES: &str = "SIMCUDA_TEST_HANDLE";

/// Runs one test of this program in a process of its own; returns its exit status.
fn rerun(test: &str, role: &str, handle: &str) -> Option<i32> {
    let program = std::env::current_exe().expect("a path");
    let mut command = Command::new(program);
    command.args(["--exact", test, "--nocapture"]).env(ROLE, role).env(BYTES, handle);
    command.env("SIMCUDA_TRAP_AT_EXIT", "1");
    command.output().expect("starts").status.code()
}

fn role() -> Option<String> {
    std::env::var(ROLE).ok()
}

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

#[test]
fn another_process_opens_the_whole_allocation_and_shares_its_bytes() {
    let d = Driver::new();
    if role().is_some() {
        let hex = std::env::var(BYTES).expect("given");
        let mut bytes = [0u8; 64];
        for (i, b) in bytes.iter_mut().enumerate() {
            *b = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hex");
        }
        bytes[60] ^= 1;
        let (mut p, mut base, mut size, mut word) = (0, 0, 0, 0u32);
        assert_eq!(cu!(cuIpcOpenMemHandle_v2(&raw mut p, Bytes(bytes), 1)), 0, "bytes 56 to 63 mean nothing");
        assert_eq!(cu!(cuMemGetAddressRange_v2(&raw mut base, &raw mut size, p)), 0);
        assert_eq!((base, size), (p, 4096));
        assert_eq!(cu!(cuMemcpyDtoH_v2((&raw mut word) as u64, p + 512, 4)), 0);
        assert_eq!(word, 77);
        assert_eq!(cu!(cuMemsetD32_v2(p, 78, 1)), 0);
        assert_eq!(d.wrong(p, 1, 78), 0);
        bytes[52] ^= 1;
        assert_eq!(cu!(cuIpcOpenMemHandle_v2(&raw mut p, Bytes(bytes), 1)), 1);
        assert_eq!(cu!(cuMemFree_v2(base)), 1, "an import is closed, not freed");
        assert_eq!(cu!(cuIpcCloseMemHandle(base)), 0);
        assert_eq!(cu!(cuIpcCloseMemHandle(base)), 1);
        return;
    }
    d.alloc(512);
    let p = d.alloc(4096);
    assert_eq!(cu!(cuMemsetD32_v2(p + 512, 77, 1)), 0);
    assert_eq!(d.wrong(p + 512, 1, 77), 0);
    let (mut bytes, mut interior) = ([0u8; 64], [0u8; 64]);
    assert_eq!(cu!(cuIpcGetMemHandle(&raw mut bytes, p)), 0);
    assert_eq!(cu!(cuIpcGetMemHandle(&raw mut interior, p + 1024)), 0);
    assert_eq!(bytes, interior, "an interior pointer exports the base");
    let mut own = 0;
    assert_eq!(cu!(cuIpcOpenMemHandle_v2(&raw mut own, Bytes(bytes), 1)), 201, "not in the same process");
    let hex = bytes.map(|b| format!("{b:02x}")).concat();
    let test = "tests::process::another_process_opens_the_whole_allocation_and_shares_its_bytes";
    assert_eq!(rerun(test, "importer", &hex), Some(0));
    assert_eq!(d.wrong(p, 1, 78), 0, "the importer's write arrives");
}

extern "C" fn late_call() {
    let mut p = 0;
    cu!(cuMemAlloc_v2(&raw mut p, 512));
}

#[test]
fn a_call_after_exit_is_trapped() {
    if role().is_some() {
        // SAFETY: registers a function of this program; it runs after the driver's own handler, which comes later.
        unsafe { libc::atexit(late_call) };
        cu!(cuInit(0));
        std::process::exit(0);
    }
    assert_eq!(rerun("tests::process::a_call_after_exit_is_trapped", "late", ""), Some(99));
}
