//! Memory that graphs allocate when they run: charged when the node is added, which is when the driver fixes its address,
//! until the graph and everything instantiated from it are destroyed.

use super::memory::counted_on;
use super::table::real;
use super::types::{
    CHILD_MOVES, CuResult, Graph, GraphExec, GraphNode, GraphNodeHead, LOCATION_DEVICE, MemAllocNodeHead,
    NODE_GRAPH, NODE_MEM_ALLOC, Opaque,
};
use crate::driver::books::DeviceBooks;
use crate::life::{contexts, graphs};
use crate::stats::ExternalKind;
use std::ffi::{c_char, c_ulonglong, c_void};

/// Destroys a graph or an executable graph by `call`. It leaves the books before: its handle may come back at once.
fn dropping(holder: usize, call: impl FnOnce() -> CuResult) -> CuResult {
    let taken = graphs::take(holder);
    let result = call();
    match taken {
        Some(taken) if result == CuResult::SUCCESS => taken.gone(),
        Some(taken) => taken.put_back(),
        None => {}
    }
    result
}

/// Instantiates `graph` by `call`, which writes `exec`.
unsafe fn instantiating(exec: *mut GraphExec, graph: Graph, call: impl FnOnce() -> CuResult) -> CuResult {
    let result = call();
    if result == CuResult::SUCCESS {
        // SAFETY: written by the successful call.
        graphs::instantiated(graph as usize, unsafe { *exec } as usize);
    }
    result
}

/// The books of the device that a node allocates on: that of its pool.
unsafe fn books_of(params: *const MemAllocNodeHead) -> Option<&'static DeviceBooks> {
    // SAFETY: parameters, by the caller's promise; the location is the second word of the pool's properties.
    let location = unsafe { (*params).pool[1] };
    let (kind, id) = (location as u32, (location >> 32) as u32);
    if kind == LOCATION_DEVICE { contexts::books(id) } else { None }
}

/// Adds a node that allocates, by `call`.
///
/// # Safety
/// `params` is null or the parameters that `call` completes.
unsafe fn allocating(
    graph: Graph,
    params: *mut MemAllocNodeHead,
    call: impl FnMut() -> CuResult,
) -> CuResult {
    let mut call = call;
    if params.is_null() {
        return call();
    }
    // SAFETY: parameters, by the caller's promise.
    let (address, bytes) = unsafe { (&raw mut (*params).address, (*params).bytes as u64) };
    // SAFETY: the address in the parameters is what the call writes.
    let result = unsafe { counted_on(books_of(params), address, bytes, ExternalKind::Graph, call) };
    if result == CuResult::SUCCESS {
        // SAFETY: as above.
        graphs::hold(graph as usize, unsafe { *address });
    }
    result
}

/// The allocation's parameters, if the node is one.
unsafe fn allocation(params: *mut GraphNodeHead) -> *mut MemAllocNodeHead {
    // SAFETY: null or parameters of a node, by the driver's contract.
    unsafe {
        if params.is_null() || (*params).kind != NODE_MEM_ALLOC {
            std::ptr::null_mut()
        } else {
            (&raw mut (*params).params.alloc).cast()
        }
    }
}

/// The graph that a node to be added takes over, memory and all.
unsafe fn moving(params: *mut GraphNodeHead) -> Option<Graph> {
    // SAFETY: null or parameters of a node, by the driver's contract; the kind says which.
    unsafe {
        let params = params.as_ref().filter(|params| params.kind == NODE_GRAPH)?;
        (params.params.child.ownership == CHILD_MOVES).then_some(params.params.child.graph)
    }
}

unsafe fn moves_nothing(_: *mut MemAllocNodeHead) -> Option<Graph> {
    None
}

macro_rules! additions {
    ($( $name:ident => $real:ident, $allocation:expr, $moving:expr, ( $params:ident : $ty:ty $(, $edges:ident : $edges_ty:ty)? ); )*) => {$(
        #[doc = concat!("`", stringify!($real), "`")]
        ///
        /// # Safety
        /// As the driver's.
        pub unsafe fn $name(
            node: *mut GraphNode,
            graph: Graph,
            dependencies: *const GraphNode,
            $($edges: $edges_ty,)?
            count: usize,
            $params: $ty,
        ) -> CuResult {
            // SAFETY: the caller's arguments.
            unsafe {
                let child = $moving($params);
                let result = allocating(graph, $allocation($params), || {
                    real::$real(node, graph, dependencies, $($edges,)? count, $params)
                });
                if result == CuResult::SUCCESS
                    && let Some(child) = child
                {
                    graphs::moved(child as usize, graph as usize);
                }
                result
            }
        }
    )*};
}

additions! {
    add_alloc_node => cuGraphAddMemAllocNode, std::convert::identity, moves_nothing, (params: *mut MemAllocNodeHead);
    add_node => cuGraphAddNode, allocation, moving, (params: *mut GraphNodeHead);
    add_node_v2 => cuGraphAddNode_v2, allocation, moving, (params: *mut GraphNodeHead, edges: *const c_void);
    add_node_v3 => cuGraphAddNode_v3, allocation, moving, (params: *mut GraphNodeHead, edges: *const c_void);
}

macro_rules! instantiations {
    ($( $name:ident => $real:ident ( $($arg:ident : $ty:ty),* ); )*) => {$(
        #[doc = concat!("`", stringify!($real), "`")]
        ///
        /// # Safety
        /// As the driver's.
        pub unsafe fn $name(exec: *mut GraphExec, graph: Graph, $($arg: $ty),*) -> CuResult {
            // SAFETY: the caller's arguments.
            unsafe { instantiating(exec, graph, || real::$real(exec, graph, $($arg),*)) }
        }
    )*};
}

instantiations! {
    instantiate_v1 => cuGraphInstantiate(node: *mut GraphNode, log: *mut c_char, size: usize);
    instantiate_v2 => cuGraphInstantiate_v2(node: *mut GraphNode, log: *mut c_char, size: usize);
    instantiate_with_flags => cuGraphInstantiateWithFlags(flags: c_ulonglong);
    instantiate_with_params => cuGraphInstantiateWithParams(params: Opaque);
    instantiate_with_params_ptsz => cuGraphInstantiateWithParams_ptsz(params: Opaque);
}

/// `cuGraphExecDestroy`
///
/// # Safety
/// As the driver's.
pub unsafe fn exec_destroy(exec: GraphExec) -> CuResult {
    // SAFETY: the caller's argument.
    dropping(exec as usize, || unsafe { real::cuGraphExecDestroy(exec) })
}

/// `cuGraphDestroy`
///
/// # Safety
/// As the driver's.
pub unsafe fn destroy(graph: Graph) -> CuResult {
    // SAFETY: the caller's argument.
    dropping(graph as usize, || unsafe { real::cuGraphDestroy(graph) })
}
