//! What ends a capture early and what it survives; replay of graphs.

use super::{Driver, cu};
use crate::api::recent::{cuCtxRecordEvent, cuCtxWaitEvent, cuStreamBeginCaptureToGraph};
use crate::api::{async_memory::*, capture::*, context::*, event::*, memory::*, stream::*};

const N: u64 = 256;
const MODES: [i32; 3] = [0, 1, 2];

fn event() -> u64 {
    let mut e = 0;
    assert_eq!(cu!(cuEventCreate(&raw mut e, 2)), 0);
    e
}

fn exchange(mut mode: i32) -> i32 {
    assert_eq!(cu!(cuThreadExchangeStreamCaptureMode(&raw mut mode)), 0);
    mode
}

/// Runs `inside` in a capture; returns its result and that of the capture's end.
fn capturing(mode: i32, inside: impl Fn(&Driver, u64) -> i32) -> (i32, i32) {
    let d = Driver::new();
    let s = d.stream();
    assert_eq!(cu!(cuStreamBeginCapture_v2(s, mode)), 0);
    let result = inside(&d, s);
    let mut graph = 7;
    let end = cu!(cuStreamEndCapture(s, &raw mut graph));
    assert_eq!(graph == 0, end != 0, "a failed end gives no graph");
    let mut status = 7;
    assert_eq!(cu!(cuStreamIsCapturing(s, &raw mut status)), 0);
    assert_eq!(status, 0);
    (result, end)
}

#[test]
fn context_wide_calls_spoil_a_capture_in_every_mode() {
    for mode in MODES {
        assert_eq!(capturing(mode, |d, _| cu!(cuCtxRecordEvent(d.ctx, event()))), (900, 901), "mode {mode}");
        assert_eq!(capturing(mode, |d, _| cu!(cuCtxWaitEvent(d.ctx, event()))), (900, 901), "mode {mode}");
        assert_eq!(capturing(mode, |_, _| cu!(cuCtxSynchronize())), (900, 901), "mode {mode}");
        assert_eq!(capturing(mode, |_, s| cu!(cuStreamSynchronize(s))), (900, 901), "mode {mode}");
    }
}

#[test]
fn allocating_freeing_and_asking_spoil_it_on_the_capturing_thread_unless_relaxed() {
    for mode in MODES {
        let want = if mode == 2 { (0, 0) } else { (900, 901) };
        let mut p = 0;
        let out = &raw mut p;
        assert_eq!(capturing(mode, |_, _| cu!(cuMemAlloc_v2(out, 512))), want, "alloc, mode {mode}");
        assert_eq!(capturing(mode, |_, _| cu!(cuEventQuery(event()))), want, "query, mode {mode}");
        assert_eq!(capturing(mode, |_, _| cu!(cuMemFree_v2(0))), want, "free, mode {mode}");
        let relaxed = |d: &Driver, _: u64| {
            let old = exchange(2);
            let (e, p) = (event(), d.alloc(512));
            let result = cu!(cuEventQuery(e)) + cu!(cuMemFree_v2(p));
            assert_eq!(exchange(old), 2);
            result
        };
        assert_eq!(capturing(mode, relaxed), (0, 0), "exchanged, mode {mode}");
    }
}

#[test]
fn another_thread_disturbs_global_captures_only() {
    for (mode, want) in [(0, (900, 901)), (1, (0, 0)), (2, (0, 0))] {
        let got = capturing(mode, |d, _| {
            let ctx = d.ctx;
            let other = std::thread::spawn(move || {
                let mut p = 0;
                cu!(cuCtxSetCurrent(ctx)) + cu!(cuMemAlloc_v2(&raw mut p, 512))
            });
            other.join().expect("no panic")
        });
        assert_eq!(got, want, "mode {mode}");
    }
}

#[test]
fn captured_work_runs_at_each_launch_and_not_before() {
    let d = Driver::new();
    let (p, s, t) = (d.alloc(4096), d.stream(), d.stream());
    assert_eq!(d.fill(s, p, N, 1, 10), 0);
    assert_eq!(cu!(cuStreamBeginCapture_v2(s, 0)), 0);
    assert_eq!(d.spin(s, 1_000_000), 0);
    let (fork, join) = (event(), event());
    assert_eq!(cu!(cuEventRecord(fork, s)), 0);
    assert_eq!(cu!(cuStreamWaitEvent(t, fork, 0)), 0);
    assert_eq!(d.fill(t, p, N, 5000, 10), 0);
    assert_eq!(cu!(cuEventRecord(join, t)), 0);
    assert_eq!(cu!(cuStreamWaitEvent(s, join, 0)), 0);
    let mut graph = 0;
    assert_eq!(cu!(cuStreamEndCapture(s, &raw mut graph)), 0);
    assert_eq!(d.wrong(p, N, 1), 0, "nothing ran");
    let mut exec = 0;
    assert_eq!(cu!(cuGraphInstantiateWithFlags(&raw mut exec, graph, 0)), 0);
    assert_eq!(cu!(cuGraphLaunch(exec, t)), 0);
    assert_eq!(cu!(cuStreamQuery(t)), 600);
    assert_eq!(d.wrong(p, N, 5000), 0);
    assert_eq!(cu!(cuGraphExecDestroy(exec)) + cu!(cuGraphDestroy(graph)), 0);
    assert_eq!(cu!(cuGraphLaunch(exec, t)), 400, "stale handles are errors");
}

#[test]
fn forks_must_be_joined_and_other_work_stays_outside() {
    let unjoined = capturing(0, |d, s| {
        let (t, e) = (d.stream(), event());
        cu!(cuEventRecord(e, s)) + cu!(cuStreamWaitEvent(t, e, 0)) + d.spin(t, 1)
    });
    assert_eq!(unjoined, (0, 904));
    let outside = capturing(0, |d, s| {
        let (t, e) = (d.stream(), event());
        cu!(cuEventRecord(e, t)) + cu!(cuStreamWaitEvent(s, e, 0))
    });
    assert_eq!(outside, (905, 901));
    let implicit = capturing(0, |d, _| d.spin(0, 1));
    assert_eq!(implicit, (0, 0), "a non-blocking stream and the legacy one do not meet");
}

#[test]
fn the_legacy_stream_must_not_meet_a_capturing_blocking_stream() {
    for mode in MODES {
        let d = Driver::new();
        let (mut s, mut graph) = (0, 0);
        assert_eq!(cu!(cuStreamCreate(&raw mut s, 0)), 0);
        assert_eq!(cu!(cuStreamBeginCapture_v2(s, mode)), 0);
        let mut status = 0;
        assert_eq!(cu!(cuStreamIsCapturing(0, &raw mut status)), 906);
        assert_eq!(cu!(cuStreamIsCapturing(s, &raw mut status)), 0);
        assert_eq!(status, 1, "asking did no harm");
        assert_eq!(d.spin(0, 1), 906);
        assert_eq!(cu!(cuStreamEndCapture(s, &raw mut graph)), 901);
        assert_eq!(cu!(cuStreamBeginCapture_v2(0, mode)), 900, "the legacy stream itself cannot capture");
        assert_eq!(cu!(cuStreamEndCapture(s, &raw mut graph)), 401);
    }
}

#[test]
fn a_capture_ends_in_the_stream_and_thread_where_it_began() {
    let elsewhere = |mode| {
        let d = Driver::new();
        let (s, ctx) = (d.stream(), d.ctx);
        assert_eq!(cu!(cuStreamBeginCapture_v2(s, mode)), 0);
        let end = move || {
            let mut graph = 0;
            assert_eq!(cu!(cuCtxSetCurrent(ctx)), 0);
            cu!(cuStreamEndCapture(s, &raw mut graph))
        };
        std::thread::spawn(end).join().expect("no panic")
    };
    assert_eq!(MODES.map(elsewhere), [908, 908, 0]);
    let other_stream = capturing(0, |d, s| {
        let (t, e, mut graph) = (d.stream(), event(), 0);
        assert_eq!(cu!(cuEventRecord(e, s)) + cu!(cuStreamWaitEvent(t, e, 0)), 0);
        cu!(cuStreamEndCapture(t, &raw mut graph))
    });
    assert_eq!(other_stream, (903, 901));
}

#[test]
fn memory_of_graphs_lives_as_long_as_they_do() {
    let d = Driver::new();
    let (s, before) = (d.stream(), d.free());
    let mut own = 0;
    assert_eq!(cu!(cuGraphCreate(&raw mut own, 0)), 0);
    assert_eq!(cu!(cuStreamBeginCaptureToGraph(s, own, std::ptr::null(), std::ptr::null(), 0, 0)), 0);
    let mut p = 0;
    assert_eq!(cu!(cuMemAllocAsync(&raw mut p, 4 << 20, s)), 0);
    assert_eq!(d.fill(s, p, N, 9, 10), 0);
    assert_eq!(cu!(cuMemFreeAsync(p, s)), 0);
    let mut graph = 0;
    assert_eq!(cu!(cuStreamEndCapture(s, &raw mut graph)), 0);
    assert_eq!(graph, own);
    let mut exec = 0;
    assert_eq!(cu!(cuGraphInstantiateWithFlags(&raw mut exec, graph, 0)), 0);
    assert_eq!(cu!(cuGraphDestroy(graph)), 0);
    assert_eq!(cu!(cuGraphLaunch(exec, s)) + cu!(cuCtxSynchronize()), 0);
    assert_eq!(d.free(), before - (4 << 20));
    assert_eq!(cu!(cuGraphExecDestroy(exec)), 0);
    assert_eq!(d.free(), before);
}

#[test]
fn a_query_tells_what_the_next_operation_depends_on() {
    let d = Driver::new();
    let s = d.stream();
    assert_eq!(cu!(cuStreamBeginCapture_v2(s, 0)) + d.spin(s, 1), 0);
    let (mut status, mut id, mut graph, mut nodes, mut count) = (0, 0, 0, std::ptr::null(), 7);
    let told = cu!(cuStreamGetCaptureInfo_v2(
        s,
        &raw mut status,
        &raw mut id,
        &raw mut graph,
        &raw mut nodes,
        &raw mut count
    ));
    assert_eq!((told, status, count), (0, 1, 1));
    let (mut node, mut room) = (0u64, 1);
    assert_eq!(cu!(cuGraphGetNodes(graph, &raw mut node, &raw mut room)), 0);
    assert_eq!((cu!(*nodes), room), (node, 1));
}
