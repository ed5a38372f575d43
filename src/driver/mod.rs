//! The few GPU operations that the pool needs, and the ladder that serves a request with them.
//!
//! | file | what it does |
//! |---|---|
//! | `mod.rs` | the operations as a trait, [`Gpu`], and the words they use |
//! | `real.rs` | the trait over the real driver's functions |
//! | `mapping.rs` | more of them: physical memory by handle, and addresses to map it at |
//! | `model.rs`, `model_mapping.rs` | the traits over a small model, for tests and the fuzzer |
//! | `world.rs` | random actions on two contexts of that model, everything checked after each |
//! | `gate.rs` | keeps stream captures and barriers apart |
//! | `fence.rs` | makes freed memory reusable: seals epochs, polls them, waits for them on the device |
//! | `turns.rs` | which thread seals and polls |
//! | `pace.rs` | how often the device is made to wait |
//! | `patience.rs` | how long growth may wait for an idle device |
//! | `members.rs` | which contexts that concerns |
//! | `hits.rs` | what the calling thread's cache serves and takes back, without a lock |
//! | `large.rs` | what is too large for that: one pass under the heap's lock |
//! | `trade.rs` | an idle region for one of the size that is asked for |
//! | `server.rs`, `inner.rs` | one context's pool: the locked way in and out, and what is asked of it; what the lock guards |
//! | `figures.rs` | what a pool tells a report |
//! | `chronicle.rs` | what goes into the history |
//! | `survey.rs` | how a heap's memory lies, drawn and measured |
//! | `glance.rs` | what a passer-by may know of a pool without waiting for it |
//! | `ladder.rs` | what a miss tries, in order, until only "out of memory" is left |
//! | `backing.rs`, `carry.rs`, `give.rs` | the range of a pool with `expandable_segments`: when it grows; the calls, and how they are undone; what goes back |
//! | `collect.rs` | what goes back above the garbage-collection threshold |
//! | `peers.rs` | which devices may reach whose memory |
//! | `books.rs` | what all contexts of a device share: account, counts, moments of failure |
//! | `external.rs` | device memory that the pool does not serve: counted and held under the cap |

mod backing;
pub mod books;
mod carry;
pub mod chronicle;
mod collect;
pub mod external;
pub mod fence;
pub mod figures;
pub mod gate;
mod give;
pub mod glance;
mod hits;
mod inner;
mod ladder;
mod large;
pub mod mapping;
mod members;
#[cfg(any(test, fuzzing))]
pub mod model;
#[cfg(any(test, fuzzing))]
mod model_mapping;
pub mod pace;
mod patience;
pub mod peers;
pub mod real;
mod rotation;
pub mod server;
pub mod survey;
#[cfg(test)]
mod tests;
mod trade;
mod turns;
#[cfg(any(test, fuzzing))]
pub mod world;

/// A driver result. A plain integer and not an enum: a code that a newer driver adds must pass through unharmed.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CuResult(pub i32);

impl CuResult {
    /// `CUDA_SUCCESS`.
    pub const SUCCESS: CuResult = CuResult(0);
    /// `CUDA_ERROR_INVALID_VALUE`.
    pub const INVALID_VALUE: CuResult = CuResult(1);
    /// `CUDA_ERROR_OUT_OF_MEMORY`.
    pub const OUT_OF_MEMORY: CuResult = CuResult(2);
    /// `CUDA_ERROR_NOT_INITIALIZED`.
    pub const NOT_INITIALIZED: CuResult = CuResult(3);
    /// `CUDA_ERROR_INVALID_CONTEXT`.
    pub const INVALID_CONTEXT: CuResult = CuResult(201);
    /// `CUDA_ERROR_NOT_FOUND`.
    pub const NOT_FOUND: CuResult = CuResult(500);
    /// `CUDA_ERROR_NOT_READY`.
    pub const NOT_READY: CuResult = CuResult(600);
    /// `CUDA_ERROR_CONTEXT_IS_DESTROYED`.
    pub const CONTEXT_IS_DESTROYED: CuResult = CuResult(709);
    /// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`.
    pub const STREAM_CAPTURE_INVALIDATED: CuResult = CuResult(901);
    /// `CUDA_ERROR_NOT_SUPPORTED`.
    pub const NOT_SUPPORTED: CuResult = CuResult(801);

    /// `Ok(())` for success, else the code.
    ///
    /// # Errors
    /// Every code but success.
    pub fn ok(self) -> Result<(), CuResult> {
        if self == CuResult::SUCCESS { Ok(()) } else { Err(self) }
    }
}

/// A context's handle as a number. The value comes back after a reset: never a key without a liveness check.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Ctx(pub usize);

/// An event's handle as a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event(pub usize);

/// What the pool asks of a GPU. All but [`Gpu::synchronize`] and [`Gpu::mem_free`] return without waiting for device work.
///
/// Every method may be called from any thread, whatever context is current there, and leaves the current context as it was.
pub trait Gpu: mapping::Mapping + Send + Sync + 'static {
    /// Takes `bytes` of device memory for `ctx`. Neither fails for a capture nor kills one, on any thread.
    ///
    /// # Errors
    /// The driver's own code, `CUDA_ERROR_OUT_OF_MEMORY` among them.
    fn mem_alloc(&self, ctx: Ctx, bytes: u64) -> Result<u64, CuResult>;

    /// Gives memory from [`Gpu::mem_alloc`] back, after waiting for all work of its device; as harmless to captures.
    ///
    /// # Errors
    /// The driver's own code; the memory is then still allocated.
    fn mem_free(&self, ctx: Ctx, address: u64) -> Result<(), CuResult>;

    /// Whether events can capture all work of a context (driver 12.5 and later).
    fn has_context_events(&self) -> bool;

    /// Makes an event without timing, in `ctx`.
    ///
    /// # Errors
    /// The driver's own code.
    fn event_create(&self, ctx: Ctx) -> Result<Event, CuResult>;

    /// Records all work submitted to `ctx` so far, on every stream, in `event`.
    ///
    /// # Errors
    /// The driver's own code. While a stream of `ctx` captures, the call fails and **kills the capture**.
    fn record(&self, ctx: Ctx, event: Event) -> Result<(), CuResult>;

    /// Whether the work recorded in `event` has completed.
    ///
    /// # Errors
    /// The driver's own code; sticky errors of the context show here.
    fn query(&self, event: Event, relaxed: bool) -> Result<bool, CuResult>;

    /// Orders all later work of `ctx` after the work recorded in `event`, on the device.
    ///
    /// # Errors
    /// The driver's own code. While a stream of `ctx` captures, the call fails and **kills the capture**.
    fn wait(&self, ctx: Ctx, event: Event) -> Result<(), CuResult>;

    /// Blocks the calling thread until all work of `ctx` has completed.
    ///
    /// # Errors
    /// The driver's own code. While a stream of `ctx` captures, the call fails and **kills the capture**.
    fn synchronize(&self, ctx: Ctx) -> Result<(), CuResult>;
}

/// Errors after which a context answers every call with the same code (CUDA's "sticky" errors).
pub fn is_sticky(code: CuResult) -> bool {
    matches!(code.0, 214 | 220 | 700 | 702 | 708 | 710 | 711 | 714..=719 | 721)
}
