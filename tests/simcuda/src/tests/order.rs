//! Work takes effect late, and only what the driver promises to order is ordered.

use super::{Driver, cu};
use crate::api::recent::{cuCtxRecordEvent, cuCtxWaitEvent};
use crate::api::{copy::*, event::*, memory::*, stream::*};

const N: u64 = 1024;
const MS: u64 = 1_000_000;

fn event() -> u64 {
    let mut e = 0;
    assert_eq!(cu!(cuEventCreate(&raw mut e, 2)), 0);
    e
}

/// An old owner's long kernel is still running when the new owner writes: what a cache must prevent.
fn reuse(barrier: bool, new_owner: impl Fn(&Driver, u64) -> i32) -> u64 {
    let d = Driver::new();
    let p = d.alloc(4 * N as usize);
    let old = d.stream();
    assert_eq!(d.fill(old, p, N, 1, 20 * MS), 0);
    if barrier {
        let e = event();
        assert_eq!(cu!(cuCtxRecordEvent(d.ctx, e)), 0);
        assert_eq!(cu!(cuCtxWaitEvent(d.ctx, e)), 0);
        assert_eq!(cu!(cuEventQuery(e)), 600, "neither record nor wait blocks the host");
    }
    assert_eq!(new_owner(&d, p), 0);
    d.wrong(p, N, 5000)
}

#[test]
fn reuse_without_a_barrier_gives_wrong_data_every_time() {
    for _ in 0..3 {
        assert_eq!(reuse(false, |d, p| d.fill(d.stream(), p, N, 5000, 10)), N);
    }
}

#[test]
fn the_barrier_orders_every_kind_of_later_work() {
    assert_eq!(reuse(true, |d, p| d.fill(d.stream(), p, N, 5000, 10)), 0);
    assert_eq!(reuse(true, |d, p| d.fill(0, p, N, 5000, 10)), 0, "legacy stream");
    assert_eq!(reuse(true, |d, p| d.fill(2, p, N, 5000, 10)), 0, "per-thread stream");
    let words: Vec<u32> = (0..N as u32).map(|i| 5000 + i).collect();
    let src = words.as_ptr() as u64;
    assert_eq!(reuse(true, |_, p| cu!(cuMemcpyHtoD_v2(p, src, 4 * N as usize))), 0, "synchronous copy");
    assert_eq!(reuse(true, |d, p| cu!(cuMemcpyHtoDAsync_v2(p, src, 4 * N as usize, d.stream()))), 0);
}

#[test]
fn free_waits_for_all_streams_and_unmap_like_alloc_does_not() {
    let d = Driver::new();
    let (p, q) = (d.alloc(4096), d.alloc(4096));
    let s = d.stream();
    assert_eq!(d.fill(s, p, N, 1, 20 * MS), 0);
    let e = event();
    assert_eq!(cu!(cuEventRecord(e, s)), 0);
    d.alloc(4096);
    assert_eq!(cu!(cuEventQuery(e)), 600, "alloc does not wait");
    assert_eq!(cu!(cuMemFree_v2(q)), 0);
    assert_eq!(cu!(cuEventQuery(e)), 0, "free waits");
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams_and_they_for_it() {
    for (flags, late) in [(0u32, 0), (1, N)] {
        let d = Driver::new();
        let p = d.alloc(4096);
        let mut s = 0;
        assert_eq!(cu!(cuStreamCreate(&raw mut s, flags)), 0);
        assert_eq!(d.fill(s, p, N, 1, MS), 0);
        assert_eq!(d.fill(0, p, N, 5000, 10), 0);
        assert_eq!(d.wrong(p, N, 5000), late, "flags {flags}: legacy after the stream");
        assert_eq!(d.fill(0, p, N, 1, MS), 0);
        assert_eq!(d.fill(s, p, N, 5000, 10), 0);
        assert_eq!(d.wrong(p, N, 5000), late, "flags {flags}: the stream after legacy");
    }
}

#[test]
fn events_order_streams() {
    let d = Driver::new();
    let p = d.alloc(4096);
    let (a, b, e) = (d.stream(), d.stream(), event());
    assert_eq!(d.fill(a, p, N, 1, MS), 0);
    assert_eq!(cu!(cuEventRecord(e, a)), 0);
    assert_eq!(cu!(cuStreamWaitEvent(b, e, 0)), 0);
    assert_eq!(d.fill(b, p, N, 5000, 10), 0);
    assert_eq!(cu!(cuStreamQuery(b)), 600);
    assert_eq!(d.wrong(p, N, 5000), 0);
    assert_eq!(cu!(cuStreamQuery(b)), 0);
}

#[test]
fn work_on_freed_memory_faults_the_context_for_good() {
    let d = Driver::new();
    let p = d.alloc(4 << 20);
    assert_eq!(cu!(cuMemFree_v2(p)), 0);
    let s = d.stream();
    assert_eq!(d.fill(s, p, N, 1, 10), 0);
    assert_eq!(cu!(cuStreamSynchronize(s)), 700);
    let mut q = 7;
    assert_eq!(cu!(cuMemAlloc_v2(&raw mut q, 512)), 700);
    assert_eq!(q, 7, "outputs stay untouched");
    assert_eq!(cu!(crate::api::device::cuDevicePrimaryCtxReset_v2(0)), 0);
    let mut again = 0;
    assert_eq!(cu!(crate::api::device::cuDevicePrimaryCtxRetain(&raw mut again, 0)), 0);
    assert_eq!(again, d.ctx);
    assert_eq!(cu!(cuMemAlloc_v2(&raw mut q, 512)), 0);
}

#[test]
fn per_thread_streams_of_two_threads_do_not_wait_for_each_other() {
    let d = Driver::new();
    let (p, ctx) = (d.alloc(4096), d.ctx);
    assert_eq!(d.fill(2, p, N, 1, 20 * MS), 0);
    let d = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            assert_eq!(cu!(crate::api::context::cuCtxSetCurrent(ctx)), 0);
            assert_eq!(cu!(cuMemsetD32Async_ptsz(p, 5000, 1, 0)), 0);
            assert_eq!(cu!(cuStreamSynchronize_ptsz(0)), 0);
        });
        other.join().expect("no panic");
        d
    });
    assert_eq!(d.wrong(p, N, 5000), N, "the long kernel of this thread came last");
    assert_eq!(d.fill(2, p, N, 1, 20 * MS), 0);
    assert_eq!(cu!(cuMemsetD32Async_ptsz(p, 5000, 1, 0)), 0);
    assert_eq!(d.wrong(p, 1, 5000), 0, "one thread has one stream");
}

static HOST_CALLS: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(0);

extern "C" fn on_host(_: usize) {
    let mut p = 0;
    HOST_CALLS.store(cu!(cuMemAlloc_v2(&raw mut p, 512)), std::sync::atomic::Ordering::Relaxed);
}

#[test]
fn host_functions_run_in_order_and_must_not_call_the_driver() {
    use std::sync::atomic::Ordering::Relaxed;
    let d = Driver::new();
    let s = d.stream();
    HOST_CALLS.store(-1, Relaxed);
    assert_eq!(d.spin(s, MS), 0);
    assert_eq!(cu!(cuLaunchHostFunc(s, on_host as *const () as usize, 0)), 0);
    assert_eq!(HOST_CALLS.load(Relaxed), -1, "not before its turn");
    assert_eq!(cu!(cuStreamSynchronize(s)), 0);
    assert_eq!(HOST_CALLS.load(Relaxed), 800);
}

/// What the driver's own free promises, under threads: no block reaches a new owner while the old one's work runs.
#[test]
fn memory_handed_on_by_the_drivers_free_is_never_written_late() {
    let d = Driver::new();
    let ctx = d.ctx;
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let d = &d;
            scope.spawn(move || {
                assert_eq!(cu!(crate::api::context::cuCtxSetCurrent(ctx)), 0);
                for round in 0..100 {
                    let p = d.alloc(256);
                    let seed = 1000 * (thread + 1) + round;
                    assert_eq!(d.fill(2, p, 64, seed, u64::from(round % 7) * MS), 0);
                    let mut words = [0u32; 64];
                    if round % 2 == 0 {
                        assert_eq!(cu!(cuMemcpyDtoHAsync_v2(words.as_mut_ptr() as u64, p, 256, 2)), 0);
                        assert!(words.iter().enumerate().all(|(i, w)| *w == seed + i as u32));
                    }
                    assert_eq!(cu!(cuMemFree_v2(p)), 0);
                }
            });
        }
    });
    assert_eq!(crate::api::control::simcuda_used_bytes(0), 0);
}
