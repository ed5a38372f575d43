//! How the tool fails: one message that names the file or option and what would be right, and a status.

use std::fmt;
use std::io;
use std::process::ExitCode;

/// Status of a command that could not do its work, as with `diff` and `grep`: 1 is an answer, 2 is trouble.
pub const STATUS: u8 = 2;

/// The same under `gpucache run`, whose other statuses are the program's: as with `env` and `timeout`.
pub const RUN_STATUS: u8 = 125;

/// A message for the user, and the status to end with.
#[derive(Debug)]
pub struct Failure {
    message: String,
    status: u8,
}

impl Failure {
    /// Trouble with what was given.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), status: STATUS }
    }

    /// The same failure with another status.
    pub fn with_status(mut self, status: u8) -> Self {
        self.status = status;
        self
    }

    /// Says it. What stood before the reader's terminal must not drive it, so control characters become spaces.
    pub fn end(self) -> ExitCode {
        for line in self.message.lines() {
            eprintln!("gpucache: {}", crate::report::units::printable(line));
        }
        ExitCode::from(self.status)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Prints to stdout. A reader that has gone away (`gpucache report … | head`) is no failure.
pub fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// The same with what need not be text.
pub fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    use io::Write;
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("cannot write to the standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// A remark on stderr that stops nothing.
pub fn remark(text: &str) {
    eprintln!("gpucache: {}", crate::report::units::printable(text));
}
