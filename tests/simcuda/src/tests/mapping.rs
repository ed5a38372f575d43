//! Who reaches mapped memory, and what mapping does to captures.

use super::{Driver, cu};
use crate::api::{capture::*, context::*, copy::*, device::*, physical::*, share::*};
use crate::config::Config;

const MIB: usize = 1 << 20;
const SIZE: usize = 2 * MIB;

fn prop(rdma: bool) -> [u64; 4] {
    [1, 1, 0, u64::from(rdma) << 8]
}

/// Memory of device 0, mapped and accessible to `devices`.
fn mapped(devices: &[i32], rdma: bool) -> (u64, u64) {
    let prop = prop(rdma);
    let (mut va, mut h) = (0, 0);
    assert_eq!(cu!(cuMemAddressReserve(&raw mut va, 8 * SIZE, 0, 0, 0)), 0);
    assert_eq!(cu!(cuMemCreate(&raw mut h, SIZE, prop.as_ptr().cast(), 0)), 0);
    assert_eq!(cu!(cuMemMap(va, SIZE, 0, h, 0)), 0);
    for device in devices {
        assert_eq!(set(va, *device, 3), 0);
    }
    (va, h)
}

fn set(va: u64, device: i32, flags: i32) -> i32 {
    let access = [1, device, flags];
    cu!(cuMemSetAccess(va, SIZE, access.as_ptr().cast(), 1))
}

#[test]
fn a_kernel_reaches_what_its_own_device_was_let_into() {
    for (devices, on, ends) in [([0].as_slice(), 0, 0), (&[0, 1], 1, 0), (&[0], 1, 700), (&[1], 0, 700)] {
        let d = Driver::with(Config { devices: 2, ..Config::default() });
        let (va, _) = mapped(devices, false);
        let mut ctx = 0;
        assert_eq!(cu!(cuDevicePrimaryCtxRetain(&raw mut ctx, on)), 0);
        assert_eq!(cu!(cuCtxSetCurrent(ctx)), 0);
        assert_eq!(d.fill(0, va, 16, 1, 1000), 0);
        assert_eq!(cu!(cuCtxSynchronize()), ends, "{devices:?}, on {on}");
    }
}

#[test]
fn access_is_taken_away_from_one_device_and_not_from_the_others() {
    let d = Driver::with(Config { devices: 2, ..Config::default() });
    let (va, _) = mapped(&[0, 1], false);
    assert_eq!(set(va, 1, 0), 0);
    assert_eq!(d.fill(0, va, 16, 1, 1000), 0);
    assert_eq!(d.wrong(va, 16, 1), 0);
}

#[test]
fn a_copy_by_address_needs_access_and_one_between_named_contexts_does_not() {
    let d = Driver::with(Config { devices: 2, ..Config::default() });
    let (va, _) = mapped(&[0], false);
    let mut ctx = 0;
    assert_eq!(cu!(cuDevicePrimaryCtxRetain(&raw mut ctx, 1)), 0);
    assert_eq!(cu!(cuCtxSetCurrent(ctx)), 0);
    let there = d.alloc(SIZE);
    assert_eq!(cu!(cuMemcpy(there, va, 64)), 1);
    assert_eq!(cu!(cuMemcpyPeer(there, ctx, va, d.ctx, 64)), 0);
    assert_eq!(set(va, 1, 3), 0);
    assert_eq!(cu!(cuMemcpy(there, va, 64)), 0);
}

#[test]
fn mapping_spoils_a_capture_on_its_thread_unless_relaxed() {
    for relaxed in [false, true] {
        for call in 0..4 {
            let d = Driver::new();
            let (va, h) = mapped(&[0], false);
            let (s, prop) = (d.stream(), prop(false));
            assert_eq!(cu!(cuStreamBeginCapture_v2(s, 0)), 0);
            let (mut mode, mut fresh) = (if relaxed { 2 } else { 0 }, 0);
            assert_eq!(cu!(cuThreadExchangeStreamCaptureMode(&raw mut mode)), 0);
            let result = match call {
                0 => cu!(cuMemCreate(&raw mut fresh, SIZE, prop.as_ptr().cast(), 0)),
                1 => set(va, 0, 3),
                2 => cu!(cuMemUnmap(va, SIZE)),
                _ => cu!(cuMemRelease(h)),
            };
            assert_eq!(cu!(cuThreadExchangeStreamCaptureMode(&raw mut mode)), 0);
            let mut graph = 0;
            let end = cu!(cuStreamEndCapture(s, &raw mut graph));
            assert_eq!((result, end), if relaxed { (0, 0) } else { (900, 901) }, "call {call}");
        }
    }
}

#[test]
fn a_descriptor_covers_neighbouring_mappings_of_memory_that_was_made_for_it() {
    for (rdma, code) in [(true, 0), (false, 801)] {
        let _d = Driver::new();
        let (va, _) = mapped(&[0], rdma);
        let prop = prop(rdma);
        let (mut h, mut fd) = (0, -1);
        assert_eq!(cu!(cuMemCreate(&raw mut h, SIZE, prop.as_ptr().cast(), 0)), 0);
        assert_eq!(cu!(cuMemMap(va + SIZE as u64, SIZE, 0, h, 0)), 0);
        assert_eq!(cu!(cuMemGetHandleForAddressRange(&raw mut fd, va, 2 * SIZE, 1, 0)), code);
        assert_eq!(
            cu!(cuMemGetHandleForAddressRange(&raw mut fd, va, 3 * SIZE, 1, 0)),
            if rdma { 1 } else { 801 }
        );
        if fd >= 0 {
            // SAFETY: ours to close.
            unsafe { libc::close(fd) };
        }
    }
}

#[test]
fn a_device_without_mapping_says_so() {
    let _d = Driver::with(Config { mapping: false, ..Config::default() });
    let mut value = 7;
    assert_eq!(cu!(cuDeviceGetAttribute(&raw mut value, 102, 0)), 0);
    assert_eq!(value, 0);
}
