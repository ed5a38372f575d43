//! What differs between processors: the entries that must not leave a frame of their own. A new processor is one more file
//! here, with the entry of `dlsym` and the instructions that `runtime_entries` asks for.

/// Entries of the runtime functions: as the C functions, with the return address added as the last argument. `second` and
/// `third` put it into the register of that argument, `jump` goes on to `{body}`.
macro_rules! runtime_entries {
    (second: $second:literal, third: $third:literal, jump: $jump:literal) => {
        runtime_entries! {@
            /// `cudaMalloc`
            cudaMalloc(address: *mut u64, bytes: usize) => runtime::malloc, $third, $jump;
            /// `cudaFree`
            cudaFree(address: u64) => runtime::free, $second, $jump;
            /// `cudaMemGetInfo`
            cudaMemGetInfo(free: *mut usize, total: *mut usize) => runtime::mem_get_info, $third, $jump;
        }
    };
    (@ $( $(#[$doc:meta])* $name:ident ( $($arg:ident : $ty:ty),* ) => $body:path, $add:literal, $jump:literal; )*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// As the runtime's.
        #[allow(non_snake_case)]
        #[unsafe(naked)]
        #[cfg_attr(all(not(test), feature = "exports"), unsafe(no_mangle))]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> c_int {
            naked_asm!($add, $jump, body = sym $body)
        }
    )*};
}

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::*;
#[cfg(target_arch = "x86_64")]
pub use x86_64::*;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("gpucache has no dlsym entry for this processor yet: add one in src/abi/arch/");
