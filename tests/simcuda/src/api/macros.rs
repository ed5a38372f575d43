//! The form that every exported function takes, so that each passes the one gate.

/// Defines exported functions, and `table()` with their symbols and addresses. A function is written as
/// `Need fn symbol [per_thread_symbol]: (parameters) |world| { body }`; the second symbol is for functions that take the
/// default stream, and runs the same body with the per-thread stream as default.
macro_rules! driver {
    ($( $(#[$meta:meta])* $need:ident fn $name:ident $([$pt:ident])? : $args:tt |$w:ident| $body:block )*) => {
        $(
            driver!(@one [$(#[$meta])*] $name false $need $args $w $body);
            $( driver!(@one [#[doc = "The same with the per-thread default stream."]] $pt true $need $args $w $body); )?
        )*

        /// Symbols and addresses of this module's functions.
        pub fn table() -> Vec<(&'static str, usize)> {
            vec![$(
                (stringify!($name), $name as *const () as usize),
                $((stringify!($pt), $pt as *const () as usize),)?
            )*]
        }
    };
    (@one [$($meta:tt)*] $name:ident $pt:literal $need:ident ($($arg:ident : $ty:ty),* $(,)?) $w:ident $body:block) => {
        $($meta)*
        ///
        /// # Safety
        /// As the function of the same name in the CUDA driver API.
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::used_underscore_binding)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> i32 {
            $crate::gate::call(
                stringify!($name),
                $crate::gate::Need::$need,
                $pt,
                &|| {
                    let parts: &[String] = &[$(format!(concat!(" ", stringify!($arg), "={:?}"), $arg)),*];
                    parts.concat()
                },
                &mut |$w| $body,
            )
        }
    };
}
