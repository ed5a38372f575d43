//! Who holds the memory: a sample of the allocations, each with the place in the program that made it (`sites`).
//!
//! | file | what it does |
//! |---|---|
//! | `sampler.rs` | which allocations are looked at, and what each of them stands for |
//! | `live.rs` | the sampled allocations that are not freed yet, by address |
//! | `frames.rs` | the frames of stacks, each kept once |
//! | `table.rs` | the places, and what each holds, has held at the peak, and has allocated |
//!
//! Nothing here knows how a stack is got at: that is for the layers above.

mod frames;
mod live;
mod sampler;
mod table;

pub use frames::{DEPTH, Frame, Module, Stack};
pub use live::{Live, Sample};
pub use sampler::{Sampler, Scaled, scale};
pub use table::{Noted, Table};
