//! Cases with a name: promises of the documentation, and faults that other pools had.

use super::super::record::Record;
use super::super::{Fit, Heap, Idle, Rules};
use super::{MIB, alloc, free, heap, index};

/// Allocates as the caller should: before a growth, idle regions go back, smallest first, until the mark holds.
fn alloc_within(heap: &mut Heap, next: &mut u64, bytes: u64) -> u64 {
    if let Some(addr) = heap.alloc(bytes, bytes, Fit::Any, 0) {
        return addr;
    }
    let mut idle: Vec<Idle> = Vec::new();
    heap.idle_regions(&mut idle);
    idle.sort_by_key(|idle| idle.size);
    for idle in idle {
        let usage = heap.usage().reserved;
        if usage.current + heap.growth(bytes).preferred <= usage.peak {
            break;
        }
        heap.take_region(idle.addr);
    }
    alloc(heap, next, bytes)
}

#[test]
fn eight_of_16_mib_then_four_of_32_reserve_128_mib_and_so_does_the_reverse() {
    for (first, then) in [((8, 16), (4, 32)), ((4, 32), (8, 16))] {
        let (mut heap, index) = heap();
        let mut next = 1 << 40;
        let blocks: Vec<u64> =
            (0..first.0).map(|_| alloc_within(&mut heap, &mut next, first.1 * MIB)).collect();
        for addr in blocks {
            free(&mut heap, index, addr, 0);
        }
        for _ in 0..then.0 {
            alloc_within(&mut heap, &mut next, then.1 * MIB);
        }
        assert_eq!(heap.usage().reserved.peak, 128 * MIB);
        heap.check().unwrap();
    }
}

#[test]
fn half_a_mib_after_two_needs_no_second_region() {
    let (mut heap, index) = heap();
    let mut next = 1 << 40;
    let addr = alloc(&mut heap, &mut next, 2 * MIB);
    free(&mut heap, index, addr, 0);
    alloc(&mut heap, &mut next, MIB / 2);
    assert_eq!(heap.usage().reserved.current, 2 * MIB);
}

#[test]
fn a_tiny_program_reserves_two_mib() {
    let (mut heap, _) = heap();
    let mut next = 1 << 40;
    for bytes in [1, 512, 4096, 30_000, 100_000, 1 << 20] {
        alloc(&mut heap, &mut next, bytes);
    }
    assert_eq!(heap.usage().reserved.current, 2 * MIB);
}

#[test]
fn tight_takes_nothing_from_a_large_block_and_no_new_slab() {
    let (mut heap, index) = heap();
    assert!(heap.add_region(1 << 40, 64 * MIB));
    assert_eq!(heap.alloc(1024, 1024, Fit::Tight, 0), None, "a slab would have to be carved");
    assert_eq!(heap.alloc(56 * MIB, 56 * MIB, Fit::Tight, 0), None, "a seventh more than asked");
    assert!(heap.alloc(57 * MIB, 57 * MIB, Fit::Tight, 0).is_some());
    let addr = heap.alloc(1024, 1024, Fit::Any, 0).unwrap();
    free(&mut heap, index, addr, 0);
    assert!(heap.alloc(1024, 1024, Fit::Tight, 0).is_some(), "its slab is there now");
}

#[test]
fn blocks_rotate_first_in_first_out_and_never_before_their_epoch() {
    let (mut heap, index) = heap();
    let mut next = 1 << 40;
    let addrs: Vec<u64> = (0..128).map(|_| alloc(&mut heap, &mut next, 512)).collect();
    for (epoch, addr) in addrs.iter().enumerate() {
        free(&mut heap, index, *addr, epoch as u64 + 1);
    }
    assert_eq!(heap.alloc(512, 512, Fit::Tight, 0), None);
    for (epoch, addr) in addrs.iter().take(8).enumerate() {
        assert_eq!(heap.alloc(512, 512, Fit::Tight, epoch as u64 + 1), Some(*addr));
        assert_eq!(heap.alloc(512, 512, Fit::Tight, epoch as u64 + 1), None);
    }
}

#[test]
fn max_split_keeps_large_blocks_whole_and_a_rounding_apart() {
    let heap_of = |max_split| {
        let mut heap = Heap::new(0, index(), Rules { max_split, max_non_split_rounding: 20 * MIB });
        assert!(heap.add_region(1 << 40, 400 * MIB));
        heap
    };
    assert!(heap_of(u64::MAX).alloc(24 * MIB, 24 * MIB, Fit::Any, 0).is_some());
    assert_eq!(heap_of(128 * MIB).alloc(24 * MIB, 24 * MIB, Fit::Any, 0), None, "not cut");
    assert_eq!(heap_of(128 * MIB).alloc(380 * MIB, 380 * MIB, Fit::Any, 0), None, "20 MiB larger");
    let mut heap = heap_of(128 * MIB);
    assert!(heap.alloc(381 * MIB, 381 * MIB, Fit::Any, 0).is_some());
    assert_eq!(heap.usage().allocated.current, 400 * MIB, "not split");
}

#[test]
fn a_full_heap_still_serves_small_requests_from_its_holes() {
    let (mut heap, index) = heap();
    assert!(heap.add_region(1 << 40, 2 * MIB));
    heap.alloc(2 * MIB - 5 * 512, 2 * MIB - 5 * 512, Fit::Any, 0).unwrap();
    let addrs: Vec<u64> = (0..5).map(|_| heap.alloc(300, 300, Fit::Any, 0).expect("a hole")).collect();
    assert_eq!(heap.alloc(300, 300, Fit::Any, 0), None);
    heap.check().unwrap();
    for addr in addrs {
        free(&mut heap, index, addr, 1);
        heap.check().unwrap();
    }
    assert_eq!(heap.epoch_needed(5 * 512), Some(1));
    assert!(heap.alloc(5 * 512, 5 * 512, Fit::Any, 1).is_some());
}

#[test]
fn the_epoch_needed_is_the_first_that_joins_enough() {
    let (mut heap, index) = heap();
    assert!(heap.add_region(1 << 40, 8 * MIB));
    let mut addrs: Vec<u64> = (0..8).map(|_| heap.alloc(MIB, MIB, Fit::Any, 0).unwrap()).collect();
    addrs.sort_unstable();
    for (addr, epoch) in [(0, 1), (2, 2), (3, 3), (1, 4), (7, 5)] {
        free(&mut heap, index, addrs[addr], epoch);
    }
    assert_eq!(heap.epoch_needed(MIB), Some(1));
    assert_eq!(heap.epoch_needed(2 * MIB), Some(3));
    assert_eq!(heap.epoch_needed(4 * MIB), Some(4));
    assert_eq!(heap.epoch_needed(5 * MIB), None);
    assert_eq!(heap.alloc(4 * MIB, 4 * MIB, Fit::Any, 3), None);
    assert_eq!(heap.alloc(4 * MIB, 4 * MIB, Fit::Any, 4), Some(addrs[0]));
}

#[test]
fn the_one_block_that_fits_is_found_behind_many_of_its_bin_that_do_not() {
    let (mut heap, index) = heap();
    assert!(heap.add_region(1 << 40, 512 * MIB));
    // Sizes within a sixtieth share a bin.
    let sizes = std::iter::once(10 * MIB + 100 * 1024).chain(std::iter::repeat_n(10 * MIB + 4096, 40));
    let mut blocks = Vec::new();
    for size in sizes {
        blocks.push(heap.alloc(size, size, Fit::Any, 0).unwrap());
        heap.alloc(2 * MIB, 2 * MIB, Fit::Any, 0).expect("keeps the neighbours apart");
    }
    while let Some(rest) = Some(heap.usage().largest_free).filter(|&rest| rest > 0) {
        heap.alloc(rest, rest, Fit::Any, 0).unwrap();
    }
    for addr in &blocks {
        free(&mut heap, index, *addr, 0);
    }
    let wanted = 10 * MIB + 64 * 1024;
    assert_eq!(heap.alloc(wanted, wanted, Fit::Any, 0), Some(blocks[0]));
}

#[test]
fn nothing_is_handed_out_of_a_region_that_came_back_before_its_epoch_is_over() {
    let (mut heap, index) = heap();
    assert!(heap.add_region(1 << 40, 4 * MIB));
    let addr = heap.alloc(4 * MIB, 4 * MIB, Fit::Any, 0).unwrap();
    free(&mut heap, index, addr, 3);
    assert_eq!(heap.take_region(1 << 40), Some(4 * MIB));
    assert!(heap.add_region_pending(1 << 40, 4 * MIB, 3));
    heap.check().unwrap();
    assert_eq!((heap.reserved().current, heap.idle(), heap.pending()), (4 * MIB, 4 * MIB, 4 * MIB));
    assert_eq!(heap.newest_pending(), Some(3));
    for bytes in [512, MIB, 4 * MIB] {
        assert_eq!(heap.alloc(bytes, bytes, Fit::Any, 2), None);
        assert_eq!(heap.epoch_needed(bytes), Some(3));
    }
    let mut idle = Vec::new();
    heap.idle_regions(&mut idle);
    assert_eq!(idle[0].pending_epoch, Some(3));
    assert_eq!(heap.alloc(4 * MIB, 4 * MIB, Fit::Any, 3), Some(1 << 40));
    assert!(!heap.add_region_pending(1 << 40, 4 * MIB, 4), "it is there already");
    heap.check().unwrap();
}

#[test]
fn a_region_that_came_back_waits_for_the_newest_of_what_was_pending_before_it() {
    let (mut heap, index) = heap();
    assert!(heap.add_region(1 << 40, 2 * MIB));
    let addr = heap.alloc(2 * MIB, 2 * MIB, Fit::Any, 0).unwrap();
    free(&mut heap, index, addr, 5);
    assert!(heap.add_region_pending(1 << 41, 2 * MIB, 4));
    heap.check().unwrap();
    assert_eq!(heap.alloc(2 * MIB, 2 * MIB, Fit::Any, 4), None, "the queue is in order");
    assert!(heap.add_region_pending(1 << 42, 2 * MIB, 4), "over already");
    assert_eq!(heap.alloc(2 * MIB, 2 * MIB, Fit::Any, 4), Some(1 << 42));
}

#[test]
fn the_newest_pending_epoch_is_that_of_a_block_or_of_an_object_and_ends_with_it() {
    let (mut heap, index) = heap();
    assert!(heap.add_region(1 << 40, 8 * MIB));
    let block = heap.alloc(MIB, MIB, Fit::Any, 0).unwrap();
    let objects = [(); 2].map(|()| heap.alloc(512, 512, Fit::Any, 0).unwrap());
    assert_eq!(heap.newest_pending(), None);
    free(&mut heap, index, block, 2);
    assert_eq!(heap.newest_pending(), Some(2));
    free(&mut heap, index, objects[0], 3);
    assert_eq!(heap.newest_pending(), Some(3), "its slab is still in use");
    heap.retire(2);
    assert_eq!(heap.newest_pending(), Some(3));
    heap.retire(3);
    assert_eq!(heap.newest_pending(), None);
    free(&mut heap, index, objects[1], 4);
    assert_eq!(heap.newest_pending(), Some(4));
    assert_eq!(heap.take_region(1 << 40), Some(8 * MIB));
    assert_eq!(heap.newest_pending(), None, "gone with the region");
}

#[test]
fn a_region_that_cannot_be_indexed_is_refused() {
    let (mut heap, _) = heap();
    assert!(!heap.add_region(1 << 49, 2 * MIB), "beyond 49 bits");
    assert!(!heap.add_region((1 << 40) + 256, 2 * MIB), "not aligned");
    assert!(!heap.add_region(1 << 40, 0), "empty");
    assert!(heap.add_region(1 << 40, 2 * MIB));
    assert!(!heap.add_region((1 << 40) + MIB, 2 * MIB), "overlaps");
    assert!(heap.add_region((1 << 49) - 2 * MIB, 2 * MIB));
    heap.check().unwrap();
}

#[test]
fn host_memory_per_live_block_is_within_128_bytes() {
    assert_eq!(size_of::<Record>(), 64);
    for bytes in [512, 3072, 40_000] {
        let (mut heap, index) = heap();
        let mut next = 1 << 40;
        let blocks = 20_000;
        for _ in 0..blocks {
            alloc(&mut heap, &mut next, bytes);
        }
        let each = index.record_bytes() / blocks;
        assert!(each <= 128, "{each} bytes for each block of {bytes}");
    }
}

#[test]
fn records_of_ended_heaps_are_used_again() {
    let index = index();
    let mut after_first = 0;
    for owner in 0..8 {
        let mut heap = Heap::new(owner, index, Rules::default());
        let mut next = 1 << 40;
        for n in 0..2_000 {
            alloc(&mut heap, &mut next, 1 + n * 50);
        }
        drop(heap);
        if owner == 0 {
            after_first = index.record_bytes();
        }
    }
    assert_eq!(index.record_bytes(), after_first);
}
