//! Lifetimes: of the process (start, fork, exit), of contexts, of captures.
//!
//! | file | what it does |
//! |---|---|
//! | `process.rs` | what the library is to the process right now, and how that changes |
//! | `contexts.rs` | which contexts live, and the pool of each |
//! | `control.rs` | what may be asked of the running process, by itself or from outside |
//! | `phases.rs` | named parts of the process's life, each with its own peaks |
//! | `captures.rs` | which streams capture |
//! | `green.rs` | whose memory green contexts use |
//! | `threads.rs` | what becomes of a thread's own when it ends |
//! | `graphs.rs` | which graphs hold which memory |
//! | `exit.rs` | the report: gathered from host-side state and written once, however the process ends |
//! | `history.rs` | what happened when, kept for the report |
//! | `failures.rs` | out of memory: what there is to know of the moment, and what is said |
//! | `live.rs` | the live file: the same figures while the process runs, for when it does not end well |
//! | `scratch.rs` | memory for the report, where no allocator may be asked |
//! | `peers.rs` | which devices may reach the mapped memory of which contexts |
//! | `watch.rs` | what is written for those who watch a running process: figures for Prometheus, alarms |
//! | `command.rs` | runs the command for an alarm, unseen by the program |
//! | `sites.rs` | who holds the memory: a sample of the allocations with their stacks |
//! | `stack.rs`, `modules.rs` | the calling thread's stack, and which objects its addresses lie in |
//! | `image.rs` | a loaded object as the dynamic linker describes it |
//! | `exports.rs` | functions that a loaded object exports |
//! | `python.rs`, `python_frames.rs` | the frames of Python on it |
//! | `notes.rs` | what the report has to say besides figures |
//! | `say.rs` | one line on stderr |
//! | `logging.rs` | diagnostics behind `GPUCACHE_LOG` |

pub mod captures;
pub mod command;
pub mod contexts;
pub mod control;
pub mod exit;
mod exports;
pub mod failures;
pub mod graphs;
pub mod green;
pub mod history;
pub mod image;
pub mod live;
pub mod logging;
pub mod modules;
pub mod notes;
pub mod peers;
pub mod phases;
pub mod process;
pub mod python;
mod python_frames;
pub mod say;
pub mod scratch;
pub mod sites;
pub mod stack;
pub mod threads;
pub mod watch;
