//! Contexts that come late, or never get a pool: what is clean is clean for them too.

use super::*;
use crate::sync::Apart;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

const LATE: Ctx = Ctx(2);

/// One block that fills the cap, reused by a wait alone: returns it, live, and the work that may still be under way in it.
fn reused_by_a_wait() -> (Bench, u64, u64) {
    let bench = Bench::new(1 << 30, 64 * MIB);
    let block = bench.alloc(60 * MIB).unwrap();
    let work = bench.model().submit();
    bench.free(block);
    assert_eq!(bench.alloc(60 * MIB), Ok(block));
    assert!(bench.model().is_safe(work) && !bench.model().is_safe_in(LATE, work));
    (bench, block, work)
}

fn capture(bench: &Bench) {
    bench.fence.gate().begin().succeeded();
    bench.model().state.lock().capturing = true;
}

fn end_capture(bench: &Bench) {
    bench.model().state.lock().capturing = false;
    bench.fence.gate().ended();
}

fn join(bench: &Bench) -> Arc<Apart<AtomicI32>> {
    let sticky = Arc::new(Apart(AtomicI32::new(0)));
    bench.fence.join(LATE, Arc::clone(&sticky));
    sticky
}

#[test]
fn a_context_that_joins_is_ordered_after_the_others() {
    let (bench, _, work) = reused_by_a_wait();
    join(&bench);
    assert!(bench.model().is_safe_in(LATE, work));
}

#[test]
fn a_context_that_joins_while_a_capture_is_open_is_ordered_before_anything_is_reused() {
    let (bench, block, work) = reused_by_a_wait();
    capture(&bench);
    join(&bench);
    bench.free(block);
    assert_eq!(bench.alloc(60 * MIB), Err(CuResult::NOT_SUPPORTED), "for the driver to serve");
    assert_eq!(local::with(|thread| bench.server.try_hit(thread, MIB)), None);
    end_capture(&bench);
    assert!(!bench.model().state.lock().killed, "the capture has survived");
    assert_eq!(bench.alloc(60 * MIB), Ok(block));
    assert!(bench.model().is_safe_in(LATE, work));
    assert!(bench.fence.is_ordered());
}

#[test]
fn an_open_capture_does_not_matter_once_the_work_is_done() {
    let (bench, _, _) = reused_by_a_wait();
    capture(&bench);
    join(&bench);
    assert!(!bench.fence.is_ordered());
    bench.model().complete();
    bench.fence.settle();
    assert!(bench.fence.is_ordered());
    assert!(bench.alloc(MIB).is_ok());
    assert!(!bench.model().state.lock().killed);
}

#[test]
fn a_context_that_joins_while_another_ends_is_ordered_before_anything_is_reused() {
    let (bench, block, work) = reused_by_a_wait();
    let ending = bench.fence.end();
    join(&bench);
    bench.free(block);
    assert_eq!(bench.alloc(60 * MIB), Err(CuResult::NOT_SUPPORTED));
    drop(ending);
    assert_eq!(bench.alloc(60 * MIB), Ok(block));
    assert!(bench.model().is_safe_in(LATE, work));
}

#[test]
fn what_was_sealed_before_a_context_was_known_is_sealed_again() {
    let bench = Bench::new(1 << 30, 64 * MIB);
    let block = bench.alloc(60 * MIB).unwrap();
    bench.free(block);
    assert!(bench.fence.seal());
    capture(&bench);
    let work = bench.model().submit(); // the late context's, of before it was seen
    bench.model().state.lock().completed = work - 1;
    join(&bench);
    bench.fence.poll();
    end_capture(&bench);
    assert_eq!(bench.alloc(60 * MIB), Ok(block));
    assert!(bench.model().is_safe(work), "its mark is among those that were waited for");
}

#[test]
fn a_context_without_a_pool_takes_part() {
    let bench = Bench::new(1 << 30, 64 * MIB);
    bench.fence.enter(LATE);
    bench.fence.enter(LATE);
    let block = bench.alloc(60 * MIB).unwrap();
    let work = bench.model().submit();
    bench.free(block);
    let records = bench.model().calls("record");
    assert_eq!(bench.alloc(60 * MIB), Ok(block));
    assert!(bench.model().is_safe(work) && bench.model().is_safe_in(LATE, work));
    assert_eq!(bench.model().calls("record") - records, 2, "one mark a context");
    bench.fence.leave_context(LATE);
    assert!(!bench.fence.has(LATE));
}

#[test]
fn a_context_that_gets_its_pool_later_stays_one_member() {
    let bench = Bench::new(1 << 30, 64 * MIB);
    bench.fence.enter(LATE);
    let sticky = join(&bench);
    bench.model().state.lock().failed = Some((LATE, CuResult(700)));
    let block = bench.alloc(60 * MIB).unwrap();
    bench.model().submit();
    bench.free(block);
    assert_eq!(bench.alloc(60 * MIB), Ok(block));
    assert_eq!(sticky.load(Ordering::Relaxed), 700, "its pool learns of its failure");
    bench.fence.leave_context(LATE);
    bench.fence.enter(LATE);
    assert!(bench.fence.has(LATE));
}

#[test]
fn a_context_that_ended_unseen_is_in_nobodys_way() {
    for code in [CuResult::INVALID_CONTEXT, CuResult::CONTEXT_IS_DESTROYED, CuResult(700)] {
        let bench = Bench::new(1 << 30, 64 * MIB);
        bench.fence.enter(LATE);
        bench.model().state.lock().failed = Some((LATE, code));
        for _ in 0..10 {
            let block = bench.alloc(60 * MIB).unwrap();
            bench.model().submit();
            bench.free(block);
        }
        assert_eq!(bench.model().calls("mem_alloc"), 1, "{code:?}");
        assert_eq!(bench.fence.has(LATE), code == CuResult(700));
    }
}
