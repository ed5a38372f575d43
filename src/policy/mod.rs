//! What the user asked for: the configuration and its grammar, the cap, when to give memory back, how to round sizes.
//! All of it is decided on plain data, without a GPU, so that every rule can be tested by itself.
//!
//! | module | question it answers |
//! |---|---|
//! | [`conf`] | which settings hold, and where each came from |
//! | [`grammar`] | how `key:value,key:[a:b,c:d]` is read |
//! | [`bytes`] | how many bytes `8GiB` are |
//! | [`alarms`] | what should be said while the process runs, and when |
//! | [`limit`] | may this process have that many bytes more |
//! | [`gc`] | which cached regions go back to the driver |
//! | [`round`] | how large a block serves a request |
#![deny(unsafe_code)]

pub mod alarms;
pub mod bytes;
pub mod conf;
pub mod gc;
pub mod grammar;
pub mod limit;
pub mod round;

pub use conf::{Conf, Limit, LogLevel, Parsed, ReportTarget};
pub use limit::{DeviceAccount, OverLimit, Reservation, footprint};
pub use round::Rounding;
