//! One line on stderr: `gpucache[PID]: …`, in a single `write(2)`, so that lines of several processes never mix.

/// Writes `text` as one line.
pub fn line(text: &str) {
    raw(&format!("gpucache[{}]: {text}\n", std::process::id()));
}

/// Writes `text` as it is. A closed stderr is not an error worth a word, and there would be nowhere to say it.
pub fn raw(text: &str) {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        // SAFETY: a buffer that lives across the call.
        let written = unsafe { libc::write(libc::STDERR_FILENO, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(written) {
            Ok(written) if written > 0 => rest = &rest[written..],
            _ if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}
