//! The C types of the driver interface that the hooks need.
//!
//! Opaque handles come from cudarc. Everything that a newer driver may extend (results, enums inside structures) is a
//! plain integer here: cudarc's closed enums would make an unknown value undefined behaviour.

pub use crate::driver::CuResult;
use cudarc::driver::sys;
use std::ffi::c_void;

/// A device address as the driver passes it.
pub type DevicePtr = sys::CUdeviceptr;
/// A device ordinal handle.
pub type Device = sys::CUdevice;
/// A context handle.
pub type Context = sys::CUcontext;
/// A stream handle.
pub type Stream = sys::CUstream;
/// An event handle.
pub type Event = sys::CUevent;
/// A memory pool handle.
pub type MemPool = sys::CUmemoryPool;
/// An array handle.
pub type Array = sys::CUarray;
/// A mipmapped array handle.
pub type MipmappedArray = sys::CUmipmappedArray;
/// A graph handle.
pub type Graph = sys::CUgraph;
/// An executable graph's handle.
pub type GraphExec = sys::CUgraphExec;
/// A node of a graph.
pub type GraphNode = sys::CUgraphNode;
/// A handle of physical memory made by `cuMemCreate`.
pub type MemHandle = sys::CUmemGenericAllocationHandle;
/// An untyped pointer of which a hook only passes the value on.
pub type Opaque = *mut c_void;

/// `CUDA_ARRAY_DESCRIPTOR_v2`: extents in elements.
#[repr(C)]
pub struct ArrayDescriptor {
    /// Width in elements.
    pub width: usize,
    /// Height in elements, 0 for one dimension.
    pub height: usize,
    /// `CUarray_format`.
    pub format: u32,
    /// Channels an element, 1, 2 or 4.
    pub channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR_v2`: extents in elements.
#[repr(C)]
pub struct Array3dDescriptor {
    /// Width in elements.
    pub width: usize,
    /// Height in elements, 0 for one dimension.
    pub height: usize,
    /// Depth in elements, or layers; 0 for two dimensions.
    pub depth: usize,
    /// `CUarray_format`.
    pub format: u32,
    /// Channels an element, 1, 2 or 4.
    pub channels: u32,
    /// `CUDA_ARRAY3D_*` flags.
    pub flags: u32,
}

/// The head of `CUmemAllocationProp`: all that decides whether an allocation is charged, and to which device.
#[repr(C)]
pub struct MemAllocationProp {
    /// `CUmemAllocationType`.
    pub kind: u32,
    /// `CUmemAllocationHandleType` bits.
    pub handle_types: u32,
    /// Where the memory lives.
    pub location: MemLocation,
}

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct MemLocation {
    /// `CUmemLocationType`; 1 is a device.
    pub kind: u32,
    /// The device's ordinal when `kind` is a device.
    pub id: i32,
}

/// `CU_MEM_LOCATION_TYPE_DEVICE`.
pub const LOCATION_DEVICE: u32 = 1;

/// The head of `CUDA_MEM_ALLOC_NODE_PARAMS`; the whole structure is longer.
#[repr(C)]
pub struct MemAllocNodeHead {
    /// `CUmemPoolProps`: 88 bytes in all versions since 11.4; begins like [`MemAllocationProp`].
    pub pool: [u64; 11],
    /// Access descriptors.
    pub access: *const c_void,
    /// How many of them.
    pub access_count: usize,
    /// Bytes asked for.
    pub bytes: usize,
    /// Out: the address that the node will return.
    pub address: DevicePtr,
}

/// The head of `CUgraphNodeParams`: the kind of node, and the parameters of a memory allocation if it is one.
#[repr(C)]
pub struct GraphNodeHead {
    /// `CUgraphNodeType`.
    pub kind: u32,
    reserved: [u32; 3],
    /// By kind.
    pub params: NodeHead,
}

/// The parameters of the kinds of node that matter here.
#[repr(C)]
pub union NodeHead {
    /// Of [`NODE_MEM_ALLOC`].
    pub alloc: std::mem::ManuallyDrop<MemAllocNodeHead>,
    /// Of [`NODE_GRAPH`].
    pub child: ChildGraphNode,
}

/// `CUDA_CHILD_GRAPH_NODE_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ChildGraphNode {
    /// The child.
    pub graph: Graph,
    /// `CUgraphChildGraphNodeOwnership`; 0 before CUDA 12.9, where the place is reserved.
    pub ownership: u32,
}

/// `CU_GRAPH_NODE_TYPE_GRAPH`.
pub const NODE_GRAPH: u32 = 4;
/// `CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE`: the child belongs to the parent from then on.
pub const CHILD_MOVES: u32 = 1;

/// `CU_GRAPH_NODE_TYPE_MEM_ALLOC`.
pub const NODE_MEM_ALLOC: u32 = 10;

/// A `CUipcMemHandle`: 64 bytes, opaque to programs.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct IpcHandle(pub [u8; 64]);

/// Bytes of one element of an array format; 0 for formats that have no fixed size (block-compressed and planar ones).
pub fn format_bytes(format: u32) -> u64 {
    match format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        _ => 0,
    }
}
