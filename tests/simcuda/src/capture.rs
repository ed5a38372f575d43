//! Stream capture and graphs: operations that are noted down instead of run, and what ends a capture early.
//!
//! Read off an H200 (driver 580): while any stream of a context captures, whatever the mode and the thread,
//! `cuCtxRecordEvent`, `cuCtxWaitEvent` and `cuCtxSynchronize` return 900 *and* invalidate the capture, so that its end
//! returns 901. In global and thread-local mode `cuMemAlloc`, `cuMemFree` and `cuEventQuery` do so on the capturing
//! thread, unless that thread has exchanged its mode for the relaxed one.

use crate::codes::{
    CAPTURE_INVALIDATED, CAPTURE_ISOLATION, CAPTURE_MERGE, CAPTURE_UNJOINED, CAPTURE_UNMATCHED,
    CAPTURE_UNSUPPORTED, CAPTURE_WRONG_THREAD, ILLEGAL_STATE, INVALID_HANDLE, INVALID_VALUE, R,
};
use crate::engine::Effect;
use crate::stream::Event;
use crate::thread::MODE;
use crate::world::World;
use std::collections::BTreeSet;

/// The capture mode in which nothing is forbidden.
pub const RELAXED: i32 = 2;

/// A capture that has begun and not ended.
#[derive(Clone, Debug)]
pub struct Capture {
    /// Context of the stream in which it began.
    pub ctx: u64,
    /// Stream in which it began and must end.
    pub origin: u64,
    /// Thread that began it.
    pub thread: u64,
    /// The same as the system numbers it, if the stream is that thread's default one.
    pub default_of: Option<i32>,
    /// Mode that it began with.
    pub mode: i32,
    /// Graph that it writes.
    pub graph: u64,
    /// Whether the graph was the program's before.
    pub borrowed: bool,
    /// Handles of the nodes that the last query was told of; the program reads them from here.
    pub told: Vec<u64>,
    /// Whether a forbidden call has spoilt it.
    pub invalid: bool,
}

/// One operation of a graph.
#[derive(Clone, Debug)]
pub struct Node {
    /// Handle that programs see.
    pub handle: u64,
    /// What it does.
    pub effect: Effect,
    /// How long it takes, in ns.
    pub ns: u64,
    /// Indices of nodes that must have completed.
    pub deps: Vec<usize>,
}

/// A graph: nodes after what they depend on, and the memory that its allocation nodes made.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Context that it dies with.
    pub ctx: u64,
    /// Operations.
    pub nodes: Vec<Node>,
    /// Bases of allocations.
    pub memory: Vec<u64>,
}

/// An executable graph.
#[derive(Clone, Debug)]
pub struct Exec {
    /// What it runs.
    pub graph: Graph,
    /// When its last launch completes; launches of one executable graph do not overlap.
    pub end: u64,
}

impl World {
    /// Spoils captures.
    pub fn invalidate(&mut self, ids: &[u64]) {
        for id in ids {
            if let Some(c) = self.captures.get_mut(id) {
                c.invalid = true;
            }
        }
    }

    /// For calls that a capture forbids on the capturing thread, or for global captures on every thread.
    pub fn check_unsafe(&mut self) -> R {
        let mode = MODE.get();
        if mode == RELAXED || self.captures.is_empty() {
            return Ok(());
        }
        let forbids =
            |c: &Capture| c.mode != RELAXED && (c.thread == self.thread || (mode == 0 && c.mode == 0));
        let ids: Vec<u64> = self.captures.iter().filter(|(_, c)| forbids(c)).map(|(id, _)| *id).collect();
        self.refuse(&ids)
    }

    /// For calls that concern a whole context.
    pub fn check_context(&mut self, ctx: u64) -> R {
        if self.config.thread_captures_end {
            let ended = |c: &Capture| {
                c.default_of.is_some_and(|t| !std::path::Path::new(&format!("/proc/self/task/{t}")).exists())
            };
            let gone: Vec<u64> = self.captures.iter().filter(|(_, c)| ended(c)).map(|(id, _)| *id).collect();
            for id in gone {
                self.abandon_capture(id);
            }
        }
        let all = self.with_green(ctx);
        let ids = self.captures.iter().filter(|(_, c)| all.contains(&c.ctx)).map(|(id, _)| *id);
        let ids: Vec<u64> = ids.collect();
        self.refuse(&ids)
    }

    /// For calls that ask about one stream from the host.
    pub fn check_stream(&mut self, stream: u64) -> R {
        self.check_implicit(stream)?;
        let ids: Vec<u64> = self.streams[&stream].capture.iter().map(|(id, _)| *id).collect();
        self.refuse(&ids)
    }

    fn refuse(&mut self, ids: &[u64]) -> R {
        self.invalidate(ids);
        if ids.is_empty() { Ok(()) } else { Err(CAPTURE_UNSUPPORTED) }
    }

    /// Begins a capture in a live stream; `into` is a graph of the program's with nodes to depend on.
    pub fn begin_capture(&mut self, stream: u64, mode: i32, into: Option<(u64, Vec<u64>)>) -> R {
        if !(0..=RELAXED).contains(&mode) {
            return Err(INVALID_VALUE);
        }
        let s = &self.streams[&stream];
        let ctx = s.ctx;
        if self.ctxs.get(&ctx).is_some_and(|c| c.legacy == stream) {
            return Err(CAPTURE_UNSUPPORTED);
        }
        if s.capture.is_some() {
            return Err(ILLEGAL_STATE);
        }
        let borrowed = into.is_some();
        let (graph, deps) = match into {
            None => {
                let h = self.handle();
                self.graphs.insert(h, Graph { ctx, ..Graph::default() });
                (h, Vec::new())
            }
            Some((h, handles)) => {
                let nodes = &self.graphs.get(&h).ok_or(INVALID_VALUE)?.nodes;
                let index = |n: &u64| nodes.iter().position(|node| node.handle == *n).ok_or(INVALID_VALUE);
                (h, handles.iter().map(index).collect::<R<Vec<usize>>>()?)
            }
        };
        self.ids += 1;
        let id = self.ids;
        let thread = self.thread;
        let own = self.ctxs.get(&ctx).is_some_and(|c| c.per_thread.get(&thread) == Some(&stream));
        // SAFETY: no arguments, cannot fail.
        let default_of = own.then(|| unsafe { libc::gettid() });
        let (told, invalid) = (Vec::new(), false);
        let capture =
            Capture { ctx, origin: stream, thread, default_of, mode, graph, borrowed, told, invalid };
        self.captures.insert(id, capture);
        self.streams.get_mut(&stream).expect("live stream").capture = Some((id, deps));
        Ok(())
    }

    /// Ends the capture of a live stream and returns the graph.
    pub fn end_capture(&mut self, stream: u64) -> R<u64> {
        let (id, deps) = self.streams[&stream].capture.clone().ok_or(ILLEGAL_STATE)?;
        let c = self.captures.get(&id).ok_or(CAPTURE_INVALIDATED)?.clone();
        if c.origin != stream {
            self.invalidate(&[id]);
            return Err(CAPTURE_UNMATCHED);
        }
        if c.mode != RELAXED && c.thread != self.thread {
            return Err(CAPTURE_WRONG_THREAD);
        }
        let unjoined = !c.invalid && self.unjoined(id, c.graph, &deps);
        if c.invalid || unjoined {
            self.abandon_capture(id);
            return Err(if c.invalid { CAPTURE_INVALIDATED } else { CAPTURE_UNJOINED });
        }
        self.close_capture(id);
        Ok(c.graph)
    }

    fn close_capture(&mut self, id: u64) -> Option<Capture> {
        for s in self.streams.values_mut() {
            s.capture.take_if(|(other, _)| *other == id);
        }
        self.captures.remove(&id)
    }

    /// Ends a capture that comes to nothing; a graph of the program's stays.
    pub fn abandon_capture(&mut self, id: u64) {
        if let Some(c) = self.close_capture(id).filter(|c| !c.borrowed) {
            self.drop_graph(c.graph);
        }
    }

    /// Whether another stream of the capture has work that the origin's end does not wait for.
    fn unjoined(&self, id: u64, graph: u64, deps: &[usize]) -> bool {
        let nodes = &self.graphs[&graph].nodes;
        let mut reached: BTreeSet<usize> = deps.iter().copied().collect();
        let mut todo: Vec<usize> = deps.to_vec();
        while let Some(n) = todo.pop() {
            todo.extend(nodes[n].deps.iter().copied().filter(|d| reached.insert(*d)));
        }
        let in_capture = self.streams.values().filter_map(|s| s.capture.as_ref()).filter(|(c, _)| *c == id);
        in_capture.flat_map(|(_, d)| d).any(|n| !reached.contains(n))
    }

    /// Adds an operation of a capturing stream to the graph.
    pub fn add_captured(&mut self, stream: u64, effect: Effect, ns: u64) -> R {
        let (id, deps) = self.streams[&stream].capture.clone().ok_or(ILLEGAL_STATE)?;
        let c = self.captures.get(&id).filter(|c| !c.invalid).ok_or(CAPTURE_INVALIDATED)?;
        let graph = c.graph;
        let node = self.add_node(graph, effect, ns, deps)?;
        self.streams.get_mut(&stream).expect("live stream").capture = Some((id, vec![node]));
        Ok(())
    }

    /// Adds a node to a graph; returns its index.
    pub fn add_node(&mut self, graph: u64, effect: Effect, ns: u64, deps: Vec<usize>) -> R<usize> {
        let handle = self.handle();
        let nodes = &mut self.graphs.get_mut(&graph).ok_or(INVALID_VALUE)?.nodes;
        nodes.push(Node { handle, effect, ns, deps });
        Ok(nodes.len() - 1)
    }

    /// A wait that involves a capture: forks it to another stream, joins streams of it, or is an error.
    pub fn wait_captured(&mut self, stream: u64, event: &Event) -> R {
        let own = self.streams[&stream].capture.clone();
        let ctx = self.streams[&stream].ctx;
        let Some((id, deps)) = &event.capture else {
            let ids: Vec<u64> = own.iter().map(|(id, _)| *id).collect();
            self.invalidate(&ids);
            return Err(CAPTURE_ISOLATION);
        };
        let Some(c) = self.captures.get(id) else {
            return Err(if own.is_some() { CAPTURE_ISOLATION } else { INVALID_VALUE });
        };
        if c.invalid {
            return Err(CAPTURE_INVALIDATED);
        }
        if self.ctxs.get(&ctx).is_some_and(|c| c.legacy == stream) {
            self.invalidate(&[*id]);
            return Err(crate::codes::CAPTURE_IMPLICIT);
        }
        let mut all = deps.clone();
        if let Some((mine, have)) = &own {
            if mine != id {
                self.invalidate(&[*mine, *id]);
                return Err(CAPTURE_MERGE);
            }
            all.extend(have);
            all.sort_unstable();
            all.dedup();
        }
        self.streams.get_mut(&stream).expect("live stream").capture = Some((*id, all));
        Ok(())
    }

    /// Runs an executable graph in a live stream, or adds its nodes to the graph that the stream captures.
    pub fn launch_graph(&mut self, exec: u64, stream: u64) -> R {
        let e = self.execs.get(&exec).ok_or(INVALID_HANDLE)?.clone();
        self.check_implicit(stream)?;
        if let Some((id, deps)) = self.streams[&stream].capture.clone() {
            let graph = self.captures.get(&id).filter(|c| !c.invalid).ok_or(CAPTURE_INVALIDATED)?.graph;
            let first = self.graphs[&graph].nodes.len();
            for n in &e.graph.nodes {
                let inner: Vec<usize> = n.deps.iter().map(|d| d + first).collect();
                let own = if inner.is_empty() { deps.clone() } else { inner };
                self.add_node(graph, n.effect.clone(), n.ns, own)?;
            }
            let ends = (first..first + e.graph.nodes.len()).chain(deps).collect();
            self.streams.get_mut(&stream).expect("live stream").capture = Some((id, ends));
            return Ok(());
        }
        let start = self.ready(stream).max(e.end);
        let ctx = self.streams[&stream].ctx;
        let mut ends: Vec<u64> = Vec::with_capacity(e.graph.nodes.len());
        for n in &e.graph.nodes {
            let end = n.deps.iter().map(|d| ends[*d]).fold(start, u64::max) + n.ns;
            self.engine.push(end, ctx, n.effect.clone());
            ends.push(end);
        }
        let end = ends.into_iter().fold(start, u64::max);
        self.streams.get_mut(&stream).expect("live stream").end = end;
        self.execs.get_mut(&exec).expect("found above").end = end;
        Ok(())
    }

    /// Forgets a graph, and its memory when nothing else uses it.
    pub fn drop_graph(&mut self, graph: u64) {
        if let Some(g) = self.graphs.remove(&graph) {
            self.drop_graph_memory(&g.memory);
        }
    }

    /// Gives back memory of graphs that no graph and no executable graph holds any more.
    pub fn drop_graph_memory(&mut self, bases: &[u64]) {
        for base in bases {
            let held = self.graphs.values().any(|g| g.memory.contains(base))
                || self.execs.values().any(|e| e.graph.memory.contains(base));
            if !held {
                self.release(*base);
            }
        }
    }
}
