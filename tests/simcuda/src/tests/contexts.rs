//! Contexts: created, primary, green; what dies with them and what reaches across them.

use super::{Driver, cu};
use crate::api::recent::{cuCtxRecordEvent, cuCtxWaitEvent};
use crate::api::{capture::*, context::*, device::*, event::*, green::*, memory::*, stream::*};
use crate::config::Config;

fn event() -> u64 {
    let mut e = 0;
    assert_eq!(cu!(cuEventCreate(&raw mut e, 2)), 0);
    e
}

fn created() -> u64 {
    let mut c = 0;
    assert_eq!(cu!(cuCtxCreate_v2(&raw mut c, 0, 0)), 0);
    c
}

#[test]
fn a_destroyed_context_takes_everything_and_its_handle_is_an_error() {
    let d = Driver::new();
    let before = d.free();
    let c = created();
    let (p, s, e) = (d.alloc(4 << 20), d.stream(), event());
    let (mut current, mut device, mut id) = (0, 7, 0);
    assert_eq!(cu!(cuCtxGetCurrent(&raw mut current)), 0);
    assert_eq!(current, c);
    let other = std::thread::spawn(move || cu!(cuCtxSetCurrent(c)));
    assert_eq!(other.join().expect("no panic"), 0);
    assert_eq!(cu!(cuCtxDestroy_v2(c)), 0);
    assert_eq!(cu!(cuCtxGetCurrent(&raw mut current)), 0);
    assert_eq!(current, d.ctx, "the one below is current again");
    assert_eq!(d.free(), before);
    assert_eq!(cu!(cuMemFree_v2(p)), 1);
    assert_eq!(cu!(cuStreamQuery(s)), 400);
    assert_eq!(cu!(cuEventQuery(e)), 400);
    assert_eq!(cu!(cuCtxDestroy_v2(c)), 201);
    assert_eq!(cu!(cuCtxSetCurrent(c)), 201);
    assert_eq!(cu!(cuCtxGetId(c, &raw mut id)), 201);
    assert_eq!(cu!(cuCtxGetDevice_v2(&raw mut device, c)), 201);
    assert_eq!(cu!(cuCtxRecordEvent(c, e)), 201);
    assert_eq!(cu!(cuCtxDestroy_v2(d.ctx)), 201, "a primary context is released, not destroyed");
}

#[test]
fn another_threads_stale_context_is_reported_as_destroyed() {
    let _d = Driver::new();
    let c = created();
    let (ask, asked) = std::sync::mpsc::channel::<()>();
    let (ready, is_ready) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || {
        assert_eq!(cu!(cuCtxSetCurrent(c)), 0);
        ready.send(()).expect("heard");
        asked.recv().expect("told");
        let mut p = 0;
        cu!(cuMemAlloc_v2(&raw mut p, 512))
    });
    is_ready.recv().expect("told");
    assert_eq!(cu!(cuCtxDestroy_v2(c)), 0);
    ask.send(()).expect("heard");
    assert_eq!(other.join().expect("no panic"), 709);
}

#[test]
fn the_last_release_ends_the_primary_context() {
    let d = Driver::new();
    let before = d.free();
    let mut again = 0;
    d.alloc(4 << 20);
    assert_eq!(cu!(cuDevicePrimaryCtxRetain(&raw mut again, 0)), 0);
    assert_eq!(cu!(cuDevicePrimaryCtxRelease_v2(0)), 0);
    assert_eq!(d.free(), before - (4 << 20), "still held once");
    assert_eq!(cu!(cuDevicePrimaryCtxRelease_v2(0)), 0);
    assert_eq!(cu!(cuDevicePrimaryCtxRelease_v2(0)), 201);
    let (mut flags, mut active) = (0, 7);
    assert_eq!(cu!(cuDevicePrimaryCtxGetState(0, &raw mut flags, &raw mut active)), 0);
    assert_eq!(active, 0);
    assert_eq!(cu!(cuDevicePrimaryCtxRetain(&raw mut again, 0)), 0);
    assert_eq!(d.free(), before);
}

#[test]
fn devices_have_their_own_memory_and_may_reach_each_other() {
    let d = Driver::with(Config { devices: 2, ..Config::default() });
    let before = d.free();
    let (mut second, mut can, mut device) = (0, 0, 7);
    assert_eq!(cu!(cuDevicePrimaryCtxRetain(&raw mut second, 1)), 0);
    assert_eq!(cu!(cuDeviceCanAccessPeer(&raw mut can, 0, 1)), 0);
    assert_eq!(can, 1);
    assert_eq!(cu!(cuCtxEnablePeerAccess(second, 0)), 0);
    assert_eq!(cu!(cuCtxEnablePeerAccess(second, 0)), 704);
    assert_eq!(cu!(cuCtxPushCurrent_v2(second)), 0);
    assert_eq!(cu!(cuCtxGetDevice(&raw mut device)), 0);
    assert_eq!(device, 1);
    d.alloc(4 << 20);
    assert_eq!(d.free(), before - (4 << 20));
    let mut popped = 0;
    assert_eq!(cu!(cuCtxPopCurrent_v2(&raw mut popped)), 0);
    assert_eq!(popped, second);
    assert_eq!(d.free(), before, "the first device did not pay");
    assert_eq!(cu!(cuDeviceGet(&raw mut device, 2)), 101);
}

#[test]
fn a_barrier_may_wait_for_another_contexts_event_and_record_only_its_own() {
    let d = Driver::new();
    let p = d.alloc(4096);
    let s = d.stream();
    let e = event();
    assert_eq!(d.fill(s, p, 64, 1, 20_000_000), 0);
    assert_eq!(cu!(cuCtxRecordEvent(d.ctx, e)), 0);
    let c = created();
    assert_eq!(cu!(cuCtxRecordEvent(c, e)), 400);
    assert_eq!(cu!(cuCtxWaitEvent(c, e)), 0);
    assert_eq!(d.fill(d.stream(), p, 64, 5000, 10), 0);
    assert_eq!(d.wrong(p, 64, 5000), 0);
}

fn green() -> (u64, u64) {
    let mut resource = std::mem::MaybeUninit::<Resource>::uninit();
    let (mut description, mut green, mut c) = (0, 0, 0);
    assert_eq!(cu!(cuDeviceGetDevResource(0, resource.as_mut_ptr(), 1)), 0);
    assert_eq!(cu!(cuDevResourceGenerateDesc(&raw mut description, resource.as_ptr(), 1)), 0);
    assert_eq!(cu!(cuGreenCtxCreate(&raw mut green, description, 0, 1)), 0);
    assert_eq!(cu!(cuCtxFromGreenCtx(&raw mut c, green)), 0);
    (green, c)
}

#[test]
fn memory_of_a_green_context_is_the_primary_ones() {
    let d = Driver::new();
    let (green, c) = green();
    assert_eq!(cu!(cuCtxSetCurrent(c)), 0);
    let p = d.alloc(512);
    assert_eq!(cu!(cuGreenCtxDestroy(green)), 0);
    assert_eq!(cu!(cuCtxSetCurrent(d.ctx)), 0);
    assert_eq!(d.fill(d.stream(), p, 64, 1, 10), 0);
    assert_eq!(cu!(cuMemFree_v2(p)), 0);
    assert_eq!(cu!(cuGreenCtxDestroy(green)), 400);
}

#[test]
fn a_primary_context_speaks_for_its_green_ones() {
    let d = Driver::new();
    let (_, c) = green();
    let p = d.alloc(512);
    let mut e = 0;
    assert_eq!(cu!(cuEventCreate(&raw mut e, 2)), 0);
    assert_eq!(cu!(cuCtxSetCurrent(c)), 0);
    let s = d.stream();
    assert_eq!(d.fill(s, p, 64, 1, 1_000_000), 0);
    assert_eq!(cu!(cuCtxRecordEvent(d.ctx, e)), 0);
    assert_eq!(cu!(cuEventQuery(e)), 600, "work of the green context is recorded");
    assert_eq!(cu!(cuStreamBeginCapture_v2(s, 2)), 0);
    assert_eq!(cu!(cuCtxRecordEvent(d.ctx, e)), 900, "and its captures are in the way");
}
