//! The built-in kernels. Programs get them by name from any module, and pass their parameters as for real kernels.

use crate::codes::{INVALID_VALUE, R};
use crate::engine::Effect;

/// Names of all kernels.
pub const NAMES: [&str; 5] = ["spin", "fill", "check", "copy", "add1"];

/// Reads the parameters of kernel `name` and gives what it does and how long it takes, in ns.
///
/// # Safety
/// `params` points to as many valid parameter pointers as the kernel has parameters.
pub unsafe fn launch(name: &str, params: *const *const u64) -> R<(Effect, u64)> {
    if params.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller vouches for the array and what it points to.
    let wide = |i: usize| unsafe { (*params.add(i)).read_unaligned() };
    // SAFETY: as above.
    let narrow = |i: usize| unsafe { (*params.add(i)).cast::<u32>().read_unaligned() };
    Ok(match name {
        "spin" => (Effect::Nothing, wide(0)),
        "fill" => (Effect::Fill { p: wide(0), n: wide(1), v: narrow(2) }, wide(3)),
        "check" => (Effect::Check { p: wide(0), n: wide(1), v: narrow(2), bad: wide(3) }, wide(4)),
        "copy" => (
            Effect::Copy { dst: wide(0), src: wide(1), bytes: wide(2).saturating_mul(4), kernel: true },
            wide(3),
        ),
        "add1" => (Effect::Add1 { p: wide(0), n: wide(1) }, wide(2)),
        _ => return Err(crate::codes::INVALID_HANDLE),
    })
}
