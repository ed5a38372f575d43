//! Which block is cut, and when a region is traded instead.

use super::super::{Purse, Trade};
use super::{Fit, Heap, MIB, free, heap};

const FIRST: u64 = 1 << 40;
const SECOND: u64 = 2 << 40;
const THIRD: u64 = 3 << 40;

/// A heap with regions of so many MiB, all idle.
fn with_regions(sizes: &[(u64, u64)]) -> Heap {
    let (mut heap, _) = heap();
    for (addr, mib) in sizes {
        assert!(heap.add_region(*addr, mib * MIB));
    }
    heap
}

fn take(heap: &mut Heap, mib: u64, fit: Fit) -> Option<u64> {
    heap.alloc(mib * MIB, mib * MIB, fit, 0)
}

#[test]
fn a_hole_is_cut_before_an_idle_region_that_fits_better() {
    for fit in [Fit::Begun, Fit::Any] {
        let mut heap = with_regions(&[(FIRST, 100)]);
        take(&mut heap, 40, Fit::Any).unwrap();
        assert!(heap.add_region(SECOND, 50 * MIB));
        assert_eq!(take(&mut heap, 20, fit), Some(FIRST + 40 * MIB), "{fit:?}");
        assert_eq!(heap.idle(), 50 * MIB);
    }
}

#[test]
fn an_idle_region_that_the_request_takes_nearly_all_of_is_as_good_as_a_hole() {
    let mut heap = with_regions(&[(FIRST, 100)]);
    take(&mut heap, 20, Fit::Any).unwrap();
    assert!(heap.add_region(SECOND, 60 * MIB));
    assert_eq!(take(&mut heap, 50, Fit::Any), Some(SECOND));
}

#[test]
fn a_hole_that_fits_comes_before_an_idle_region_that_fits_exactly() {
    let mut heap = with_regions(&[(FIRST, 100)]);
    take(&mut heap, 48, Fit::Any).unwrap();
    assert!(heap.add_region(SECOND, 50 * MIB));
    assert_eq!(take(&mut heap, 50, Fit::Any), Some(FIRST + 48 * MIB));
}

#[test]
fn of_idle_regions_alone_the_largest_is_cut_if_any_may_be() {
    let mut heap = with_regions(&[(FIRST, 64), (SECOND, 128), (THIRD, 96)]);
    assert_eq!(take(&mut heap, 20, Fit::Begun), None, "none has begun");
    assert_eq!(take(&mut heap, 20, Fit::Any), Some(SECOND));
    assert_eq!(take(&mut heap, 20, Fit::Any), Some(SECOND + 20 * MIB), "and then that again");
    assert_eq!(heap.idle(), 160 * MIB);
}

#[test]
fn a_small_block_does_not_pin_the_largest_region() {
    let mut heap = with_regions(&[(FIRST, 8), (SECOND, 1024), (THIRD, 16)]);
    assert_eq!(take(&mut heap, 2, Fit::Any), Some(FIRST));
}

/// 400 MiB live, which is the peak; idle regions of 200 and 100 MiB.
fn at_its_peak() -> Heap {
    let mut heap = with_regions(&[(FIRST, 400)]);
    take(&mut heap, 400, Fit::Any).unwrap();
    assert!(heap.add_region(SECOND, 200 * MIB) && heap.add_region(THIRD, 100 * MIB));
    heap
}

/// The trade for so many MiB, if it is made.
fn make(heap: &Heap, mib: u64, purse: &mut Purse) -> Option<Trade> {
    let trade = heap.may_trade(mib * MIB, purse).then(|| heap.trade(mib * MIB)).flatten();
    trade.filter(|trade| heap.pay(trade, purse))
}

fn given(trade: &Trade) -> Option<u64> {
    trade.give.map(|region| region.addr)
}

#[test]
fn a_trade_gives_the_smallest_region_that_keeps_the_mark_and_takes_what_is_needed() {
    for (need, gives) in [(150, SECOND), (101, SECOND), (60, THIRD)] {
        let trade = make(&at_its_peak(), need, &mut Purse::default()).expect("a trade");
        assert_eq!(given(&trade), Some(gives), "for {need} MiB");
        assert_eq!(trade.take, need.next_multiple_of(2) * MIB);
    }
}

#[test]
fn below_the_mark_nothing_need_be_given() {
    let mut heap = at_its_peak();
    heap.take_region(THIRD).unwrap();
    let trade = make(&heap, 100, &mut Purse::default()).expect("a trade");
    assert_eq!((given(&trade), trade.take), (None, 100 * MIB));
    let trade = make(&heap, 102, &mut Purse::default()).expect("a trade");
    assert_eq!(given(&trade), Some(SECOND), "2 MiB are missing");
}

#[test]
fn no_trade_is_made_that_is_not_worth_it() {
    let heap = at_its_peak();
    let purse = &mut Purse::default();
    assert_eq!(make(&heap, 15, purse), None, "too small");
    assert_eq!(make(&heap, 201, purse), None, "no idle region would be cut");
    assert!(make(&heap, 16, purse).is_some());

    let (mut heap, index) = super::heap();
    assert!(heap.add_region(FIRST, 400 * MIB) && heap.add_region(SECOND, 200 * MIB));
    let first = take(&mut heap, 400, Fit::Any).unwrap();
    free(&mut heap, index, first, 0);
    let purse = &mut Purse::default();
    assert_eq!(make(&heap, 150, purse), None, "far from the peak");
    take(&mut heap, 200, Fit::Any).unwrap();
    assert_eq!(make(&heap, 119, purse), None, "a MiB below the share of it that is near");
    assert!(make(&heap, 120, purse).is_some());
}

#[test]
fn a_wait_is_paid_for_by_itself_and_only_where_the_trade_can_be_too() {
    let (mut heap, _) = super::heap();
    assert!(heap.add_region(FIRST, 2000 * MIB));
    take(&mut heap, 2000, Fit::Any).unwrap();
    assert!(heap.add_region(SECOND, 200 * MIB) && heap.add_region(THIRD, 100 * MIB));
    // Worth 2,300 MiB from the start; a wait costs 128, the trade 292.
    let (purse, trade) = (&mut Purse::default(), heap.trade(60 * MIB).unwrap());
    assert_eq!(
        (0..100).take_while(|_| heap.pay_wait(&trade, purse)).count(),
        15,
        "380 are left, and 420 needed"
    );
    assert!(heap.pay(&trade, purse) && !heap.pay(&trade, purse), "of which nothing has gone");
}

#[test]
fn trades_are_paid_for_with_what_requests_have_earned() {
    let mut heap = at_its_peak();
    let purse = &mut Purse::default();
    let mut trades = |heap: &Heap| (0..100).take_while(|_| make(heap, 60, purse).is_some()).count();
    // Each costs the 100 MiB given back and two calls, of what the mark was worth from the start.
    assert_eq!(trades(&heap), 2);
    let serve = |heap: &mut Heap, requests: u64| {
        for _ in 0..requests {
            let addr = heap.alloc(512, 512, Fit::Any, 0).unwrap();
            free(heap, heap.index, addr, 0);
        }
    };
    serve(&mut heap, 1_000);
    assert_eq!(trades(&heap), 0);
    serve(&mut heap, 3_200);
    assert_eq!(trades(&heap), 1);
    serve(&mut heap, 1_000_000);
    assert_eq!(trades(&heap), 2, "saving has an end");
}

#[test]
fn a_huge_request_is_so_both_by_its_bytes_and_by_its_share() {
    let (mut heap, _) = super::heap();
    assert!(!heap.is_huge(16 * MIB - 512) && heap.is_huge(16 * MIB));
    assert!(heap.add_region(FIRST, 2048 * MIB));
    assert!(!heap.is_huge(32 * MIB - 512) && heap.is_huge(32 * MIB));
}
