//! What happens between processes: forks, shared memory, and calls after exit. Some tests start this test program
//! again for one of its tests, because a process has one driver.

use super::{Driver, cu};
use crate::api::{context::*, copy::*, device::*, init::cuInit, memory::*, physical::*, share::*};
use std::process::Command;

const ROLE: &str = "SIMCUDA_TEST_ROLE";
const BYTES: &str = "SIMCUDA_TEST_HANDLE";

/// Runs one test of this program in a process of its own; returns its exit status.
fn rerun(test: &str, role: &str, handle: &str) -> Option<i32> {
    let program = std::env::current_exe().expect("a path");
    let mut command = Command::new(program);
    command.args(["--exact", test, "--nocapture"]).env(ROLE, role).env(BYTES, handle);
    command.env("SIMCUDA_TRAP_AT_EXIT", if role == "trapped" { "1" } else { "0" });
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
    let code = cu!(cuMemAlloc_v2(&raw mut p, 512));
    // SAFETY: ends the process with what the call returned.
    unsafe { libc::_exit(40 + code) };
}

#[test]
fn a_call_after_exit_is_an_error_and_can_be_trapped() {
    if role().is_some() {
        // SAFETY: registers a function of this program; it runs after the driver's own handler, which comes later.
        unsafe { libc::atexit(late_call) };
        cu!(cuInit(0));
        std::process::exit(0);
    }
    let test = "tests::process::a_call_after_exit_is_an_error_and_can_be_trapped";
    assert_eq!(rerun(test, "late", ""), Some(44), "shutting down");
    assert_eq!(rerun(test, "trapped", ""), Some(99));
}

#[test]
fn another_process_imports_physical_memory() {
    let d = Driver::new();
    let size = 2 << 20;
    let access: [i32; 3] = [1, 0, 3];
    let access = access.as_ptr().cast::<Access>();
    let (mut va, mut h) = (0, 0);
    assert_eq!(cu!(cuMemAddressReserve(&raw mut va, size, 0, 0, 0)), 0);
    if role().is_some() {
        let before = d.free();
        let fd: usize = std::env::var(BYTES).expect("given").parse().expect("a number");
        assert_eq!(cu!(cuMemImportFromShareableHandle(&raw mut h, fd, 1)), 0);
        assert_eq!(cu!(cuMemMap(va, size, 0, h, 0)) + cu!(cuMemSetAccess(va, size, access, 1)), 0);
        assert_eq!(d.wrong(va, 64, 5000), 0);
        assert_eq!(d.free(), before, "the exporter pays");
        assert_eq!(cu!(cuMemUnmap(va, size)) + cu!(cuMemRelease(h)), 0);
        return;
    }
    let prop: [u64; 4] = [1 | (1 << 32), 1, 0, 0];
    let mut fd = -1;
    assert_eq!(cu!(cuMemCreate(&raw mut h, size, prop.as_ptr().cast(), 0)), 0);
    assert_eq!(cu!(cuMemMap(va, size, 0, h, 0)) + cu!(cuMemSetAccess(va, size, access, 1)), 0);
    assert_eq!(d.fill(0, va, 64, 5000, 10), 0);
    assert_eq!(d.wrong(va, 64, 5000), 0);
    assert_eq!(cu!(cuMemExportToShareableHandle(&raw mut fd, h, 1, 0)), 0);
    let mut same = 0;
    assert_eq!(cu!(cuMemImportFromShareableHandle(&raw mut same, fd as usize, 1)), 0);
    assert_eq!(same, h, "at home it is the same memory");
    assert_eq!(cu!(cuMemRelease(same)), 0);
    // SAFETY: lets the child inherit the descriptor.
    unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
    let test = "tests::process::another_process_imports_physical_memory";
    assert_eq!(rerun(test, "importer", &fd.to_string()), Some(0));
}

#[test]
fn counts_are_written_at_exit() {
    if role().is_some() {
        let mut ctx = 0;
        let mut p = 0;
        assert_eq!(cu!(cuInit(0)), 0);
        assert_eq!(cu!(cuDevicePrimaryCtxRetain(&raw mut ctx, 0)) + cu!(cuCtxSetCurrent(ctx)), 0);
        assert_eq!(cu!(cuMemAlloc_v2(&raw mut p, 512)) + cu!(cuMemAlloc_v2(&raw mut p, 4 << 20)), 0);
        assert_eq!(cu!(cuMemFree_v2(p)), 0);
        std::process::exit(0);
    }
    let path = std::env::temp_dir().join(format!("simcuda-stats-{}", std::process::id()));
    let program = std::env::current_exe().expect("a path");
    let mut command = Command::new(program);
    command.args(["--exact", "tests::process::counts_are_written_at_exit"]).env(ROLE, "counted");
    command.env("SIMCUDA_STATS", &path);
    assert!(command.output().expect("starts").status.success());
    let text = std::fs::read_to_string(&path).expect("written");
    std::fs::remove_file(&path).expect("ours");
    for line in ["cuMemAlloc_v2 2", "peak_used_bytes 6291456", "live_allocations 1", "leaked_bytes 512"] {
        assert!(text.lines().any(|l| l == line), "{line} not in\n{text}");
    }
}
