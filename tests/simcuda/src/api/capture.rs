//! Captures and graphs.

use super::{give, want};
use crate::capture::{Exec, Graph, RELAXED};
use crate::codes::{CAPTURE_IMPLICIT, INVALID_HANDLE, INVALID_VALUE, R};
use crate::engine::Effect;
use crate::memory::Kind;
use crate::thread::MODE;
use crate::world::World;
use std::ffi::c_void;

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AllocParams {
    kind: i32,
    handle_types: i32,
    location_kind: i32,
    location: i32,
    rest: [u64; 9],
    access: *const c_void,
    access_count: usize,
    bytes: usize,
    pointer: u64,
}

impl World {
    fn instantiate(&mut self, out: *mut u64, graph: u64) -> R {
        want(out)?;
        let graph = self.graphs.get(&graph).ok_or(INVALID_VALUE)?.clone();
        let h = self.handle();
        self.execs.insert(h, Exec { graph, end: 0 });
        give(out, h);
        Ok(())
    }

    fn deps(&self, graph: u64, nodes: *const u64, count: usize) -> R<Vec<usize>> {
        let g = self.graphs.get(&graph).ok_or(INVALID_VALUE)?;
        if count > 0 && nodes.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the caller passes `count` handles.
        let handles = (0..count).map(|i| unsafe { *nodes.add(i) });
        handles.map(|h| g.nodes.iter().position(|n| n.handle == h).ok_or(INVALID_VALUE)).collect()
    }

    /// Status, id and graph of the capture that a stream takes part in: 0 none, 1 active, 2 invalidated.
    fn capture_info(&mut self, stream: u64) -> R<(i32, u64, u64)> {
        let s = self.stream(stream)?;
        if !self.implicit(s).is_empty() {
            // Asking is an error, and does the capture no harm, as CUDA documents.
            return Err(CAPTURE_IMPLICIT);
        }
        let Some((id, _)) = &self.streams[&s].capture else { return Ok((0, 0, 0)) };
        Ok(self.captures.get(id).map_or((2, *id, 0), |c| (if c.invalid { 2 } else { 1 }, *id, c.graph)))
    }

    /// Tells of the nodes that the stream's next operation would depend on; they stay readable until the next query.
    fn give_deps(&mut self, stream: u64, nodes: *mut *const u64, count: *mut usize) -> R {
        let s = self.stream(stream)?;
        let Some((id, deps)) = &self.streams[&s].capture else { return Ok(()) };
        let Some(c) = self.captures.get_mut(id).filter(|c| !c.invalid) else { return Ok(()) };
        let all = &self.graphs.get(&c.graph).ok_or(INVALID_VALUE)?.nodes;
        c.told = deps.iter().map(|d| all[*d].handle).collect();
        give(nodes, c.told.as_ptr());
        give(count, c.told.len());
        Ok(())
    }

    fn give_info(&mut self, stream: u64, status: *mut i32, id: *mut u64, graph: *mut u64) -> R {
        want(status)?;
        let (now, number, g) = self.capture_info(stream)?;
        give(status, now);
        if now == 1 {
            give(id, number);
            give(graph, g);
        }
        Ok(())
    }
}

driver! {
    /// Begins a capture in global mode.
    Ctx fn cuStreamBeginCapture [cuStreamBeginCapture_ptsz]: (stream: u64) |w| {
        let s = w.stream(stream)?;
        w.begin_capture(s, 0, None)
    }

    /// Begins a capture.
    Ctx fn cuStreamBeginCapture_v2 [cuStreamBeginCapture_v2_ptsz]: (stream: u64, mode: i32) |w| {
        let s = w.stream(stream)?;
        w.begin_capture(s, mode, None)
    }

    /// Ends a capture; the graph is null when it failed.
    Ctx fn cuStreamEndCapture [cuStreamEndCapture_ptsz]: (stream: u64, graph: *mut u64) |w| {
        want(graph)?;
        let s = w.stream(stream)?;
        let ended = w.end_capture(s);
        give(graph, ended.unwrap_or(0));
        ended.map(|_| ())
    }

    /// Whether a stream captures: 0 no, 1 yes, 2 invalidated.
    Ctx fn cuStreamIsCapturing [cuStreamIsCapturing_ptsz]: (stream: u64, status: *mut i32) |w| {
        want(status)?;
        give(status, w.capture_info(stream)?.0);
        Ok(())
    }

    /// Status and identity of a capture.
    Ctx fn cuStreamGetCaptureInfo [cuStreamGetCaptureInfo_ptsz]: (stream: u64, status: *mut i32, id: *mut u64) |w| {
        w.give_info(stream, status, id, std::ptr::null_mut())
    }

    /// The same with the graph, and the nodes that the next operation would depend on.
    Ctx fn cuStreamGetCaptureInfo_v2 [cuStreamGetCaptureInfo_v2_ptsz]: (stream: u64, status: *mut i32, id: *mut u64,
        graph: *mut u64, nodes: *mut *const u64, count: *mut usize) |w| {
        w.give_info(stream, status, id, graph)?;
        w.give_deps(stream, nodes, count)?;
        Ok(())
    }

    /// The same with a place for edges, which never carry data here.
    Ctx fn cuStreamGetCaptureInfo_v3 [cuStreamGetCaptureInfo_v3_ptsz]: (stream: u64, status: *mut i32, id: *mut u64,
        graph: *mut u64, nodes: *mut *const u64, edges: *mut *const c_void, count: *mut usize) |w| {
        w.give_info(stream, status, id, graph)?;
        give(edges, std::ptr::null());
        w.give_deps(stream, nodes, count)?;
        Ok(())
    }

    /// Exchanges the calling thread's capture mode.
    Nothing fn cuThreadExchangeStreamCaptureMode: (mode: *mut i32) |_w| {
        want(mode)?;
        // SAFETY: the caller passes a mode.
        let new = unsafe { mode.read() };
        if !(0..=RELAXED).contains(&new) {
            return Err(INVALID_VALUE);
        }
        give(mode, MODE.replace(new));
        Ok(())
    }

    /// Makes an empty graph.
    Init fn cuGraphCreate: (graph: *mut u64, flags: u32) |w| {
        want(graph)?;
        if flags != 0 {
            return Err(INVALID_VALUE);
        }
        let h = w.handle();
        w.graphs.insert(h, Graph { ctx: w.cur, ..Graph::default() });
        give(graph, h);
        Ok(())
    }

    /// Ends a graph.
    Init fn cuGraphDestroy: (graph: u64) |w| {
        if !w.graphs.contains_key(&graph) || w.captures.values().any(|c| c.graph == graph) {
            return Err(INVALID_VALUE);
        }
        w.drop_graph(graph);
        Ok(())
    }

    /// Nodes of a graph; with a null array, their number.
    Init fn cuGraphGetNodes: (graph: u64, nodes: *mut u64, count: *mut usize) |w| {
        want(count)?;
        let g = w.graphs.get(&graph).ok_or(INVALID_VALUE)?;
        if !nodes.is_null() {
            // SAFETY: the caller passes room for `count` handles.
            let room = unsafe { count.read() };
            for (i, n) in g.nodes.iter().take(room).enumerate() {
                // SAFETY: as above.
                unsafe { nodes.add(i).write(n.handle) };
            }
        }
        give(count, g.nodes.len());
        Ok(())
    }

    /// Makes an executable graph.
    Ctx fn cuGraphInstantiate: (exec: *mut u64, graph: u64, _error: *mut u64, _log: *mut u8, _len: usize) |w| {
        w.instantiate(exec, graph)
    }

    /// Makes an executable graph.
    Ctx fn cuGraphInstantiate_v2: (exec: *mut u64, graph: u64, _error: *mut u64, _log: *mut u8, _len: usize) |w| {
        w.instantiate(exec, graph)
    }

    /// Makes an executable graph.
    Ctx fn cuGraphInstantiateWithFlags: (exec: *mut u64, graph: u64, _flags: u64) |w| { w.instantiate(exec, graph) }

    /// Runs a graph.
    Ctx fn cuGraphLaunch [cuGraphLaunch_ptsz]: (exec: u64, stream: u64) |w| {
        let s = w.stream(stream)?;
        w.launch_graph(exec, s)
    }

    /// Ends an executable graph after its launches.
    Init fn cuGraphExecDestroy: (exec: u64) |w| {
        let e = w.execs.remove(&exec).ok_or(INVALID_HANDLE)?;
        if !e.graph.memory.is_empty() {
            w.advance_to(e.end);
        }
        w.drop_graph_memory(&e.graph.memory);
        Ok(())
    }

    /// Adds an allocation to a graph. The memory is charged from here until no graph holds it any more.
    Ctx fn cuGraphAddMemAllocNode: (node: *mut u64, graph: u64, deps: *const u64, count: usize,
        params: *mut AllocParams) |w| {
        want(node)?;
        want(params)?;
        let before = w.deps(graph, deps, count)?;
        // SAFETY: the caller passes parameters.
        let mut p = unsafe { params.read() };
        w.device(p.location)?;
        p.pointer = w.allocate(w.cur, p.location, p.bytes as u64, Kind::Graph)?;
        let i = w.add_node(graph, Effect::Nothing, 0, before)?;
        let g = w.graphs.get_mut(&graph).ok_or(INVALID_VALUE)?;
        g.memory.push(p.pointer);
        give(node, g.nodes[i].handle);
        give(params, p);
        Ok(())
    }

    /// Adds a free to a graph.
    Ctx fn cuGraphAddMemFreeNode: (node: *mut u64, graph: u64, deps: *const u64, count: usize, pointer: u64) |w| {
        want(node)?;
        let before = w.deps(graph, deps, count)?;
        w.allocs.get(&pointer).filter(|a| a.kind == Kind::Graph).ok_or(INVALID_VALUE)?;
        let i = w.add_node(graph, Effect::Nothing, 0, before)?;
        give(node, w.graphs[&graph].nodes[i].handle);
        Ok(())
    }
}
