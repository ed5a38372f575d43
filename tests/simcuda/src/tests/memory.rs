//! Sizes, errors and accounts of memory calls.

use super::{Driver, cu};
use crate::api::{
    array::*, async_memory::*, context::*, copy::*, device::*, memory::*, physical::*, pointer::*,
};
use crate::config::{Config, failures};

const MIB: usize = 1 << 20;

#[test]
fn errors_are_the_drivers_and_leave_outputs_alone() {
    let d = Driver::new();
    let mut p = 7;
    assert_eq!(cu!(cuMemAlloc_v2(&raw mut p, 0)), 1);
    assert_eq!(cu!(cuMemAlloc_v2(&raw mut p, 1 << 50)), 2);
    assert_eq!(cu!(cuMemAlloc_v2(&raw mut p, usize::MAX)), 2);
    assert_eq!(cu!(cuMemAlloc_v2(std::ptr::null_mut(), 16)), 1);
    assert_eq!(p, 7);
    let p = d.alloc(4096);
    assert_eq!(cu!(cuMemFree_v2(p + 512)), 1, "interior");
    assert_eq!(cu!(cuMemFree_v2(p)), 0);
    assert_eq!(cu!(cuMemFree_v2(p)), 1, "double");
    assert_eq!(cu!(cuMemFree_v2(0)), 0);
    assert_eq!(cu!(cuMemGetInfo_v2(std::ptr::null_mut(), std::ptr::null_mut())), 0);
}

#[test]
fn memory_is_charged_in_chunks_of_two_mib() {
    let d = Driver::new();
    let before = d.free();
    let small: Vec<u64> = (0..100).map(|_| d.alloc(MIB + 512)).collect();
    assert_eq!(before - d.free(), 200 << 20);
    for p in &small {
        assert_eq!(cu!(cuMemFree_v2(*p)), 0);
    }
    assert_eq!(d.free(), before);
    let large: Vec<u64> = (0..100).map(|_| d.alloc(2 * MIB + 512)).collect();
    assert_eq!(before - d.free(), 400 << 20);
    for p in &large {
        assert_eq!(cu!(cuMemFree_v2(*p)), 0);
    }
    let tiny: Vec<u64> = (0..4096).map(|_| d.alloc(512)).collect();
    assert_eq!(before - d.free(), 2 << 20, "512 B blocks share one chunk");
    for p in tiny.iter().rev() {
        assert_eq!(cu!(cuMemFree_v2(*p)), 0);
    }
    assert_eq!(d.free(), before);
}

#[test]
fn pointers_know_their_allocation() {
    let d = Driver::new();
    let p = d.alloc(512);
    let (mut base, mut size) = (0, 0);
    assert_eq!(cu!(cuMemGetAddressRange_v2(&raw mut base, &raw mut size, p + 100)), 0);
    assert_eq!((base, size), (p, 512));
    let (mut start, mut id, mut again) = (0u64, 0u64, 0u64);
    assert_eq!(cu!(cuPointerGetAttribute((&raw mut start).cast(), 11, p + 3)), 0);
    assert_eq!(start, p);
    assert_eq!(cu!(cuPointerGetAttribute((&raw mut id).cast(), 7, p)), 0);
    assert_eq!(cu!(cuMemFree_v2(p)), 0);
    assert_eq!(cu!(cuPointerGetAttribute((&raw mut start).cast(), 11, p)), 1);
    assert_eq!(d.alloc(512), p, "the address comes back");
    assert_eq!(cu!(cuPointerGetAttribute((&raw mut again).cast(), 7, p)), 0);
    assert_ne!(id, again, "the identity does not");
}

#[test]
fn reset_takes_all_memory_and_the_handle_comes_back() {
    let d = Driver::new();
    let (p, before) = (d.alloc(4 << 20), d.free());
    assert_eq!(cu!(cuDevicePrimaryCtxReset_v2(0)), 0);
    let mut q = 0;
    assert_eq!(cu!(cuMemAlloc_v2(&raw mut q, 512)), 709);
    let mut ctx = 0;
    let mut id = 0;
    assert_eq!(cu!(cuDevicePrimaryCtxRetain(&raw mut ctx, 0)), 0);
    assert_eq!(ctx, d.ctx);
    assert_eq!(cu!(cuCtxGetId(ctx, &raw mut id)), 0);
    assert_eq!(d.free(), before + (4 << 20));
    assert_eq!(cu!(cuMemFree_v2(p)), 1);
    assert_eq!(cu!(cuMemAlloc_v2(&raw mut q, 512)), 0);
}

#[test]
fn stream_ordered_frees_happen_in_stream_order() {
    let d = Driver::new();
    let (s, before) = (d.stream(), d.free());
    let mut p = 0;
    assert_eq!(cu!(cuMemAllocAsync(&raw mut p, 4 * MIB, s)), 0);
    assert_eq!(d.spin(s, 1_000_000), 0);
    assert_eq!(cu!(cuMemFreeAsync(p, s)), 0);
    assert_eq!(cu!(cuMemFreeAsync(p, s)), 1);
    assert_eq!(d.free(), before - 4 * MIB as u64, "not before its turn");
    assert_eq!(cu!(cuCtxSynchronize()), 0);
    assert_eq!(d.free(), before);
    assert_eq!(cu!(cuMemAllocAsync(&raw mut p, 4 * MIB, s)), 0);
    assert_eq!(cu!(cuMemFree_v2(p)), 0, "the plain free takes it too");
    assert_eq!(d.free(), before);
}

#[test]
fn virtual_memory_maps_shares_and_faults() {
    let d = Driver::new();
    let before = d.free();
    let size = 2 * MIB;
    let prop: [u64; 4] = [1 | (1 << 32), 1, 0, 0];
    let prop = prop.as_ptr().cast::<Prop>();
    let access: [i32; 3] = [1, 0, 3];
    let access = access.as_ptr().cast::<Access>();
    let (mut va, mut h, mut same) = (0, 0, 0);
    assert_eq!(cu!(cuMemAddressReserve(&raw mut va, 16 << 40, 0, 0, 0)), 0);
    assert_eq!(cu!(cuMemCreate(&raw mut h, size + 512, prop, 0)), 1);
    assert_eq!(cu!(cuMemCreate(&raw mut h, size, prop, 0)), 0);
    assert_eq!(cu!(cuMemMap(va, size, 0, h, 0)), 0);
    assert_eq!(cu!(cuMemMap(va, size, 0, h, 0)), 1, "taken");
    assert_eq!(cu!(cuMemMap(va + size as u64, size, 0, h, 0)), 0, "twice at two addresses");
    assert_eq!(cu!(cuMemsetD32_v2(va, 5, 4)), 1, "no access yet");
    assert_eq!(cu!(cuMemSetAccess(va, 2 * size, access, 1)), 0);
    assert_eq!(cu!(cuMemRetainAllocationHandle(&raw mut same, va + 100)), 0);
    assert_eq!(same, h);
    assert_eq!(cu!(cuMemsetD32_v2(va, 5, 1)), 0);
    let mut word = 0u32;
    assert_eq!(cu!(cuMemcpyDtoH_v2((&raw mut word) as u64, va + size as u64, 4)), 0);
    assert_eq!(word, 5);
    assert_eq!(cu!(cuMemRelease(h)) + cu!(cuMemRelease(h)), 0);
    assert_eq!(cu!(cuMemRelease(h)), 1);
    assert_eq!(d.free(), before - size as u64, "mappings keep the memory");
    let s = d.stream();
    assert_eq!(d.fill(s, va, 16, 1, 1_000_000), 0);
    assert_eq!(cu!(cuMemUnmap(va, size)), 0);
    assert_eq!(cu!(cuMemUnmap(va + size as u64, size)), 0);
    assert_eq!(cu!(cuMemAddressFree(va, 16 << 40)), 0);
    assert_eq!(d.free(), before, "unmap did not wait");
    assert_eq!(cu!(cuCtxSynchronize()), 700);
}

#[test]
fn everything_that_takes_memory_is_charged_and_given_back() {
    let d = Driver::with(Config { memory: 64 << 20, ..Config::default() });
    let before = d.free();
    let (mut p, mut pitch, mut a, mut m) = (0, 0, 0, 0);
    assert_eq!(cu!(cuMemAllocPitch_v2(&raw mut p, &raw mut pitch, 1000, 5000, 4)), 0);
    assert_eq!(pitch, 1024);
    assert_eq!(before - d.free(), 6 << 20);
    let shape: [u64; 5] = [1024, 1024, 0, 0x20 | (4 << 32), 0];
    assert_eq!(cu!(cuArray3DCreate_v2(&raw mut a, shape.as_ptr().cast())), 0);
    assert_eq!(before - d.free(), 22 << 20);
    assert_eq!(cu!(cuMemAllocManaged(&raw mut m, 128 * MIB, 1)), 0, "managed memory may be oversubscribed");
    assert_eq!(before - d.free(), 22 << 20);
    let mut none = 7;
    assert_eq!(cu!(cuMemAlloc_v2(&raw mut none, 43 * MIB)), 2);
    assert_eq!(cu!(cuArrayDestroy(a)) + cu!(cuMemFree_v2(m)) + cu!(cuMemFree_v2(p)), 0);
    assert_eq!(cu!(cuArrayDestroy(a)), 400);
    assert_eq!(d.free(), before);
}

#[test]
fn failures_are_injected_by_count() {
    let config =
        Config { failures: failures("cuMemAlloc_v2:2,cuMemFree_v2:1+:999").unwrap(), ..Config::default() };
    let d = Driver::with(config);
    let p = d.alloc(512);
    let mut q = 7;
    assert_eq!(cu!(cuMemAlloc_v2(&raw mut q, 512)), 2);
    assert_eq!(q, 7);
    d.alloc(512);
    assert_eq!(cu!(cuMemFree_v2(p)), 999);
    assert_eq!(cu!(cuMemFree_v2(p)), 999);
}

#[test]
fn rows_are_copied_with_their_pitches() {
    let d = Driver::new();
    let (mut p, mut pitch) = (0, 0);
    assert_eq!(cu!(cuMemAllocPitch_v2(&raw mut p, &raw mut pitch, 8, 3, 4)), 0);
    let words: Vec<u32> = (0..6).collect();
    let rows: [u64; 16] = [0, 0, 1, words.as_ptr() as u64, 0, 0, 8, 0, 0, 2, 0, p, 0, pitch as u64, 8, 3];
    assert_eq!(cu!(crate::api::copy2d::cuMemcpy2D_v2(rows.as_ptr().cast())), 0);
    for row in 0..3u64 {
        assert_eq!(d.wrong(p + row * pitch as u64, 2, 2 * row as u32), 0, "row {row}");
    }
}

#[test]
fn what_other_processes_hold_is_not_free() {
    let d = Driver::new();
    let before = d.free();
    assert_eq!(crate::api::control::simcuda_set_other_used_bytes(0, 8 << 30), 0);
    assert_eq!(d.free(), 0);
    let mut p = 0;
    assert_eq!(cu!(cuMemAlloc_v2(&raw mut p, 512)), 2);
    assert_eq!(crate::api::control::simcuda_set_other_used_bytes(0, 0), 0);
    assert_eq!(d.free(), before);
}

#[test]
fn a_reset_takes_memory_of_pools_and_graphs_and_stale_arrays_free_nothing() {
    let d = Driver::new();
    let before = d.free();
    let (s, mut p, mut a, mut b, mut ctx) = (d.stream(), 0, 0, 0, 0);
    let shape: [u64; 3] = [1 << 20, 4, 0x01 | (1 << 32)];
    assert_eq!(cu!(cuMemAllocAsync(&raw mut p, 4 * MIB, s)), 0);
    assert_eq!(cu!(cuArrayCreate_v2(&raw mut a, shape.as_ptr().cast())), 0);
    assert_eq!(cu!(cuDevicePrimaryCtxReset_v2(0)) + cu!(cuDevicePrimaryCtxRetain(&raw mut ctx, 0)), 0);
    assert_eq!(d.free(), before);
    assert_eq!(cu!(cuMemFree_v2(p)), 1);
    for _ in 0..4 {
        assert_eq!(cu!(cuArrayCreate_v2(&raw mut b, shape.as_ptr().cast())), 0);
    }
    assert_eq!(cu!(cuArrayDestroy(a)), 0);
    assert_eq!(d.free(), before - 16 * MIB as u64, "the new arrays stay");
}
