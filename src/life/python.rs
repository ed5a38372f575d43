//! The frames of Python on the calling thread's stack.
//!
//! A library that is called from Python has mostly given the interpreter's lock (the GIL) back before it allocates, and it is
//! never taken here: that could wait for ever. Two ways are left:
//!
//! - `CPython` 3.13 and 3.14 publish where the fields of their structures lie (`_Py_DebugOffsets`), for tools that read a
//!   process from outside. By these a thread reads its own frames (`python_frames.rs`), with or without the lock: it runs
//!   them, so they neither change nor go away meanwhile. Nothing is called, counted or made.
//! - Older ones are asked by functions of their stable interface, if this thread holds the lock. These make objects, so
//!   the collector of garbage is held off, which could run code of the program, and an exception that is under way is kept.
//!
//! The functions are looked up by themselves, in the program and in what is called `libpython3…`, whenever the process has
//! loaded or unloaded something since; nothing is linked.

use super::python_frames::{self, Offsets};
use super::{exports, modules};
use crate::stats::sites::DEPTH;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

type Object = *mut c_void;

/// What a walk has found of Python.
#[derive(Debug, Default)]
pub struct Frames {
    /// File, function and line, the innermost first.
    pub frames: Vec<(String, String, u32)>,
    /// Whether there are more.
    pub cut: bool,
    /// Whether the thread runs Python, but its frames cannot be read now.
    pub unreadable: bool,
}

/// A Python interpreter in the process.
pub struct Python {
    way: Way,
    this_thread: unsafe extern "C" fn() -> Object,
    is_initialized: unsafe extern "C" fn() -> c_int,
    /// An address of its code.
    code: usize,
    minor: u32,
}

enum Way {
    Layout(Offsets),
    Interface(Interface),
    /// Neither is possible.
    None,
}

/// Functions of the stable interface.
struct Interface {
    current: unsafe extern "C" fn() -> Object,
    frame: unsafe extern "C" fn() -> Object,
    back: unsafe extern "C" fn(Object) -> Object,
    code: unsafe extern "C" fn(Object) -> Object,
    line: unsafe extern "C" fn(Object) -> c_int,
    attribute: unsafe extern "C" fn(Object, *const c_char) -> Object,
    text: unsafe extern "C" fn(Object, *mut isize) -> *const c_char,
    release: unsafe extern "C" fn(Object),
    fetch: unsafe extern "C" fn(*mut Object, *mut Object, *mut Object),
    restore: unsafe extern "C" fn(Object, Object, Object),
    /// Before 3.10 there are none, and none are needed: frames are objects there, and nothing is made.
    collector_off: Option<unsafe extern "C" fn() -> c_int>,
    collector_on: Option<unsafe extern "C" fn() -> c_int>,
    /// What a function is called by.
    name: &'static CStr,
}

/// The interpreter that was found last. One that was is never freed: a thread may be reading by it.
static PYTHON: AtomicPtr<Python> = AtomicPtr::new(null_mut());
/// What the process had loaded and unloaded when it was looked for.
static SEEN: AtomicU64 = AtomicU64::new(u64::MAX);

/// The interpreter in the process, if there is one.
pub fn present(changes: modules::Changes) -> Option<&'static Python> {
    let now = changes.loaded << 32 | changes.unloaded & 0xffff_ffff;
    if SEEN.swap(now, Ordering::AcqRel) != now {
        look();
    }
    found()
}

/// The interpreter that was found last.
pub fn found() -> Option<&'static Python> {
    // SAFETY: null, or what `look` has leaked.
    unsafe { PYTHON.load(Ordering::Acquire).as_ref() }
}

fn look() {
    let is_python = |path: &[u8]| {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        path.is_empty() || name.starts_with(b"libpython3")
    };
    let now = find(|name| exports::address(name, &is_python));
    // The same one as before, as nearly always.
    if now.as_ref().map(Python::code) != found().map(Python::code) {
        let new = now.map_or(null_mut(), |python| Box::into_raw(Box::new(python)));
        PYTHON.store(new, Ordering::Release);
    }
}

fn find(symbol: impl Fn(&CStr) -> *mut c_void) -> Option<Python> {
    macro_rules! function {
        ($name:literal) => {{
            let address = symbol($name);
            // SAFETY: Python's function of this name; the field that takes it has its parameters.
            (!address.is_null()).then(|| unsafe { std::mem::transmute::<*mut c_void, _>(address) })
        }};
    }
    let version: unsafe extern "C" fn() -> *const c_char = function!(c"Py_GetVersion")?;
    // SAFETY: may be called before the interpreter is initialised; answers a C string.
    let version = unsafe { CStr::from_ptr(version()) }.to_string_lossy().into_owned();
    let minor = minor_of(&version)?;
    let layout = || {
        let (runtime, code) = (symbol(c"_PyRuntime"), symbol(c"PyCode_Type"));
        // SAFETY: the runtime's state, which begins with the offsets in these versions.
        unsafe { Offsets::read(runtime.cast(), code as usize, minor) }
    };
    let interface = || {
        Some(Interface {
            current: function!(c"_PyThreadState_UncheckedGet")?,
            frame: function!(c"PyEval_GetFrame")?,
            back: function!(c"PyFrame_GetBack")?,
            code: function!(c"PyFrame_GetCode")?,
            line: function!(c"PyFrame_GetLineNumber")?,
            attribute: function!(c"PyObject_GetAttrString")?,
            text: function!(c"PyUnicode_AsUTF8AndSize")?,
            release: function!(c"Py_DecRef")?,
            fetch: function!(c"PyErr_Fetch")?,
            restore: function!(c"PyErr_Restore")?,
            collector_off: function!(c"PyGC_Disable"),
            collector_on: function!(c"PyGC_Enable"),
            name: if minor >= 11 { c"co_qualname" } else { c"co_name" },
        })
    };
    let way = match minor {
        13.. => layout().map_or(Way::None, Way::Layout),
        9..13 => interface().map_or(Way::None, Way::Interface),
        _ => Way::None,
    };
    Some(Python {
        way,
        this_thread: function!(c"PyGILState_GetThisThreadState")?,
        is_initialized: function!(c"Py_IsInitialized")?,
        code: symbol(c"PyEval_GetFrame") as usize,
        minor,
    })
}

/// The 13 of `3.13.0 (main, …)`.
fn minor_of(version: &str) -> Option<u32> {
    let rest = version.strip_prefix("3.")?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

impl Python {
    /// An address of the interpreter's code, by which its object is known.
    pub fn code(&self) -> usize {
        self.code
    }

    /// For the report: where frames come from, or why there are none.
    pub fn in_words(&self) -> String {
        let minor = self.minor;
        match self.way {
            Way::Layout(_) => format!("frames of Python 3.{minor} are read by the layout that it publishes"),
            Way::Interface(_) => format!(
                "frames of Python 3.{minor} are known where the thread holds the interpreter's lock; from 3.13 on everywhere"
            ),
            Way::None => format!("frames of this Python 3.{minor} cannot be read"),
        }
    }

    /// The calling thread's frames.
    pub fn frames(&self) -> Frames {
        // SAFETY: both may be called at any time by any thread, and answer from what is the thread's own.
        let thread = unsafe { if (self.is_initialized)() == 0 { null_mut() } else { (self.this_thread)() } };
        if thread.is_null() {
            return Frames::default();
        }
        match &self.way {
            // SAFETY: the calling thread's own state.
            Way::Layout(offsets) => unsafe { python_frames::of(offsets, thread as usize) },
            // SAFETY: asked of the thread that holds the lock.
            Way::Interface(interface) if unsafe { (interface.current)() } == thread => unsafe {
                interface.frames()
            },
            _ => Frames { unreadable: true, ..Frames::default() },
        }
    }
}

impl Interface {
    /// # Safety
    /// The calling thread holds the interpreter's lock.
    unsafe fn frames(&self) -> Frames {
        let mut found = Frames::default();
        let mut error = [null_mut(); 3];
        // SAFETY: as the caller promises; every reference that a call makes is given back once.
        unsafe {
            let [kind, value, trace] = &mut error;
            (self.fetch)(kind, value, trace);
            let was_on = self.collector_off.is_some_and(|off| off() != 0);
            let mut frame = (self.frame)(); // borrowed
            let mut ours = false;
            while !frame.is_null() {
                if found.frames.len() == DEPTH {
                    found.cut = true;
                    break;
                }
                let code = (self.code)(frame);
                let line = u32::try_from((self.line)(frame)).unwrap_or(0);
                found.frames.push((self.string(code, c"co_filename"), self.string(code, self.name), line));
                (self.release)(code);
                let outer = (self.back)(frame);
                if ours {
                    (self.release)(frame);
                }
                (frame, ours) = (outer, true);
            }
            if ours && !frame.is_null() {
                (self.release)(frame);
            }
            if was_on && let Some(on) = self.collector_on {
                on();
            }
            (self.restore)(error[0], error[1], error[2]);
        }
        found
    }

    /// # Safety
    /// As [`Interface::frames`]; `object` is one.
    unsafe fn string(&self, object: Object, name: &CStr) -> String {
        // SAFETY: as the caller promises.
        unsafe {
            let value = (self.attribute)(object, name.as_ptr());
            if value.is_null() {
                return "?".to_owned();
            }
            let mut length = 0;
            let text = (self.text)(value, &raw mut length);
            let string = if text.is_null() {
                "?".to_owned()
            } else {
                let bytes = std::slice::from_raw_parts(text.cast::<u8>(), length.unsigned_abs());
                String::from_utf8_lossy(bytes).into_owned()
            };
            (self.release)(value);
            string
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_told_by_their_minor_number() {
        assert_eq!(minor_of("3.13.0 (main, Oct 2024)"), Some(13));
        assert_eq!(minor_of("3.9.18+"), Some(9));
        assert_eq!((minor_of("2.7.18"), minor_of("3.x"), minor_of("")), (None, None, None));
    }

    #[test]
    fn a_process_without_python_has_none() {
        assert!(find(|_| null_mut()).is_none());
    }
}
