//! The history in forms that other tools show.
//!
//! | file | what it does |
//! |---|---|
//! | `trace.rs` | a trace of the kind that Chrome's and Perfetto's viewers open |
//! | `snapshot.rs` | a memory snapshot of `PyTorch`'s kind |
//! | `replay.rs` | what happened, so that a viewer can take it back step by step |

mod replay;
mod snapshot;
mod trace;

pub use snapshot::snapshot;
pub use trace::trace;

use crate::failure::Failure;
use crate::report::Report;
use crate::report::history::History;

/// The history of a report, or what to do to have one.
fn history_of(report: &Report) -> Result<&History, Failure> {
    report.history.as_ref().ok_or_else(|| {
        Failure::new(
            "the report has no history; run the program with GPUCACHE_CONF=history:10000 (and JSON by GPUCACHE_REPORT=FILE)",
        )
    })
}
