//! Exported symbols, symbol resolution, the real function table, C types: all of the library's ABI-facing unsafe code.
//!
//! What happens to a call, on its way down:
//!
//! | file | part |
//! |---|---|
//! | `arch/`, `dlsym.rs`, `scopes.rs` | a lookup by `dlsym` gets one of our functions where the real one is hooked |
//! | `procaddress.rs` | the same for `cuGetProcAddress` |
//! | `resolve.rs`, `wiring.rs` | the real driver's functions, and which of ours stands in for which |
//! | `table.rs` | the one table of hooked functions: exports, real addresses, queries |
//! | `guard.rs` | panics stop here |
//! | `runtime.rs` | `cudaMalloc`, `cudaFree`, `cudaMemGetInfo`: a fast path over the driver level |
//! | `runtimes.rs`, `elf.rs` | which runtime a caller's call belongs to, by what its library was linked with |
//! | `memory.rs` | `cuMemAlloc`, `cuMemFree` (served), pitched and managed memory (counted) |
//! | `peers.rs` | access of one device to the memory of another |
//! | `streams.rs`, `pools.rs` | stream-ordered memory (counted), context synchronisation |
//! | `vmm.rs`, `arrays.rs`, `graphs.rs` | physical handles, arrays, graph memory (counted) |
//! | `query.rs`, `identity.rs` | answers that must agree: free and total memory, ranges, attributes, IPC handles |
//! | `contexts.rs`, `captures.rs` | what ends a context, what opens a capture |
//! | `api.rs` | what a program calls on purpose: the functions of `include/gpucache.h` |
//! | `ending.rs` | `_exit`, `_Exit`, `quick_exit` and the finaliser |

pub mod api;
pub mod arch;
pub mod arrays;
pub mod captures;
pub mod contexts;
pub mod dlsym;
pub mod elf;
pub mod ending;
pub mod graphs;
pub mod guard;
pub mod identity;
pub mod memory;
pub mod peers;
pub mod pools;
pub mod procaddress;
pub mod query;
pub mod resolve;
pub mod runtime;
pub mod runtimes;
pub mod scopes;
pub mod streams;
pub mod table;
pub mod types;
pub mod vmm;
pub mod wiring;
