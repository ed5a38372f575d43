//! Frames of `CPython` read from memory, by the layout that the interpreter publishes (`_Py_DebugOffsets`, 3.13 and 3.14).
//!
//! Only by the thread that runs the frames, and of what it runs: its state, its frames, their code objects and the strings
//! of these. All of it is its own or never changes. Every number read is checked before it is used as a length.

use super::python::Frames;
use crate::stats::sites::DEPTH;

const COOKIE: &[u8; 8] = b"xdebugpy";
/// Fields lie within so many bytes of their structure.
const LARGEST: u64 = 64 << 10;
/// Characters of a name that are kept.
const LONGEST: usize = 1024;

/// Where the fields lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offsets {
    current_frame: usize,
    previous: usize,
    executable: usize,
    instruction: usize,
    owner: usize,
    filename: usize,
    qualname: usize,
    linetable: usize,
    first_line: usize,
    instructions: usize,
    object_type: usize,
    bytes_length: usize,
    bytes_data: usize,
    text_state: usize,
    text_length: usize,
    text_ascii: usize,
    /// The type of code objects.
    code_type: usize,
}

impl Offsets {
    /// Reads them from the start of `_PyRuntime`. `None` if this is not of a layout that is known here.
    ///
    /// # Safety
    /// `runtime` is null or `_PyRuntime` of a `CPython` 3.13 or later.
    pub unsafe fn read(runtime: *const u64, code_type: usize, minor: u32) -> Option<Offsets> {
        // How many words each part has: the first ones are cookie, version and whether there is no lock.
        let words = match minor {
            13 => Words { interpreter: 13, frame: 6, objects: 4 },
            14 => Words { interpreter: 14, frame: 7, objects: 8 },
            _ => return None,
        };
        if runtime.is_null() || code_type == 0 {
            return None;
        }
        // SAFETY: the structure is far longer.
        let table = unsafe { std::slice::from_raw_parts(runtime, 80) };
        Offsets::of(table, code_type, minor, &words)
    }

    fn of(table: &[u64], code_type: usize, minor: u32, words: &Words) -> Option<Offsets> {
        let known =
            table[0].to_ne_bytes() == *COOKIE && table[1] >> 16 == u64::from(0x300 | minor) && table[2] == 0;
        if !known {
            return None;
        }
        let thread = 6 + words.interpreter;
        let frame = thread + 9;
        let code = frame + words.frame;
        let object = code + 10;
        let tuple = object + 2 + 4;
        // Tuple and list of three each, in 3.14 the set of four; dictionary, float and integer of three, two and three.
        let bytes = tuple + 3 + 3 + (words.objects - 4) + 3 + 2 + 3;
        let text = bytes + 3;
        let at = |word: usize| {
            table.get(word).copied().filter(|offset| *offset < LARGEST).map(|offset| offset as usize)
        };
        Some(Offsets {
            current_frame: at(thread + 4)?,
            previous: at(frame + 1)?,
            executable: at(frame + 2)?,
            instruction: at(frame + 3)?,
            owner: at(frame + 5)?,
            filename: at(code + 1)?,
            qualname: at(code + 3)?,
            linetable: at(code + 4)?,
            first_line: at(code + 5)?,
            instructions: at(code + 9)?,
            object_type: at(object + 1)?,
            bytes_length: at(bytes + 1)?,
            bytes_data: at(bytes + 2)?,
            text_state: at(text + 1)?,
            text_length: at(text + 2)?,
            text_ascii: at(text + 3)?,
            code_type,
        })
    }
}

struct Words {
    interpreter: usize,
    frame: usize,
    objects: usize,
}

/// From this owner on, a frame is the interpreter's own and of no function.
const OWNED_BY_INTERPRETER: u8 = 3;

unsafe fn word(object: usize, offset: usize) -> usize {
    // SAFETY: a field of an object, as the caller promises.
    unsafe { ((object + offset) as *const usize).read_unaligned() }
}

/// The frames of the calling thread.
///
/// # Safety
/// `thread` is the calling thread's state, and `offsets` are of its interpreter.
pub unsafe fn of(offsets: &Offsets, thread: usize) -> Frames {
    let mut found = Frames::default();
    // SAFETY: the thread's own chain of frames, which it runs.
    unsafe {
        let mut frame = word(thread, offsets.current_frame);
        // Frames of the interpreter's own count too, so that the walk has an end.
        for _ in 0..8 * DEPTH {
            if frame == 0 {
                return found;
            }
            let owner = *((frame + offsets.owner) as *const u8);
            // The lowest bits are a tag in 3.14.
            let code = word(frame, offsets.executable) & !7;
            let is_code = owner < OWNED_BY_INTERPRETER
                && code != 0
                && word(code, offsets.object_type) == offsets.code_type;
            if is_code {
                if found.frames.len() == DEPTH {
                    found.cut = true;
                    return found;
                }
                found.frames.push((
                    text(offsets, word(code, offsets.filename)),
                    text(offsets, word(code, offsets.qualname)),
                    line(offsets, code, word(frame, offsets.instruction)),
                ));
            }
            frame = word(frame, offsets.previous);
        }
    }
    found.cut = true;
    found
}

/// A string.
///
/// # Safety
/// `object` is a `str` or null.
unsafe fn text(offsets: &Offsets, object: usize) -> String {
    if object == 0 {
        return "?".to_owned();
    }
    // SAFETY: fields of a string, which never change.
    unsafe {
        let state = ((object + offsets.text_state) as *const u32).read_unaligned();
        let (kind, compact, ascii) = (state >> 2 & 7, state >> 5 & 1, state >> 6 & 1);
        let length = word(object, offsets.text_length).min(LONGEST);
        if compact == 0 || ![1, 2, 4].contains(&kind) {
            return "?".to_owned();
        }
        // What is not ASCII has length and place of its UTF-8 form before the characters.
        let start = object + offsets.text_ascii + if ascii == 1 { 0 } else { 16 };
        if ascii == 1 {
            let bytes = std::slice::from_raw_parts(start as *const u8, length);
            return String::from_utf8_lossy(bytes).into_owned();
        }
        let unit = |at: usize| match kind {
            1 => u32::from(*((start + at) as *const u8)),
            2 => u32::from(((start + 2 * at) as *const u16).read_unaligned()),
            _ => ((start + 4 * at) as *const u32).read_unaligned(),
        };
        (0..length).map(|at| char::from_u32(unit(at)).unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    }
}

/// The line of an instruction; of the function where it cannot be told.
///
/// # Safety
/// `code` is a code object.
unsafe fn line(offsets: &Offsets, code: usize, instruction: usize) -> u32 {
    // SAFETY: fields of a code object, which never change.
    let (first, table, at) = unsafe {
        let first = ((code + offsets.first_line) as *const i32).read_unaligned();
        let table = word(code, offsets.linetable);
        let length = if table == 0 { 0 } else { word(table, offsets.bytes_length) };
        let bytes: &[u8] = if length == 0 || length > 16 << 20 {
            &[]
        } else {
            std::slice::from_raw_parts((table + offsets.bytes_data) as *const u8, length)
        };
        (first, bytes, instruction.wrapping_sub(code + offsets.instructions) / 2)
    };
    u32::try_from(line_at(table, first, at).unwrap_or(first)).unwrap_or(0)
}

/// The line of the code unit number `wanted`, by a location table (`Objects/locations.md` of `CPython` 3.11 and later): each
/// entry is for up to eight units, and begins with a byte whose highest bit is set, a kind, and how many units.
fn line_at(table: &[u8], first: i32, wanted: usize) -> Option<i32> {
    let (mut line, mut unit, mut at) = (first, 0, 0);
    while at < table.len() {
        let (kind, units) = (table[at] >> 3 & 15, usize::from(table[at] & 7) + 1);
        let (change, has_line) = match kind {
            // No location; long and without columns; one line with columns; columns alone.
            15 => (0, false),
            13 | 14 => (signed(table.get(at + 1..)?), true),
            10..=12 => (i32::from(kind) - 10, true),
            _ => (0, true),
        };
        line = line.wrapping_add(change);
        unit += units;
        if wanted < unit {
            return has_line.then_some(line);
        }
        at += 1;
        while at < table.len() && table[at] & 128 == 0 {
            at += 1;
        }
    }
    None
}

/// A number in pieces of six bits, the lowest first, the lowest bit of all its sign.
fn signed(bytes: &[u8]) -> i32 {
    let mut value = 0u32;
    for (at, byte) in bytes.iter().take(6).enumerate() {
        value |= u32::from(byte & 63).checked_shl(6 * at as u32).unwrap_or(0);
        if byte & 64 == 0 {
            break;
        }
    }
    let size = (value >> 1) as i32;
    if value & 1 == 1 { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_out_of_a_location_table() {
        // def f():        units 0: line 10, no columns (13), +0
        //     a           units 1-2: short form
        //     b           units 3: next line (11)
        //                 units 4: none
        //     c           units 5-6: long form, +100
        let table = [
            0x80 | 13 << 3,
            0, // one unit
            0x80 | 1,
            0x12, // two units, short
            0x80 | 11 << 3,
            1,
            2,
            0x80 | 15 << 3,
            0x80 | 14 << 3 | 1,
            0x40 | 8,
            3,
            0,
            1,
            1,
            0x80 | 13 << 3,
            3,
        ];
        let lines: Vec<Option<i32>> = (0..9).map(|unit| line_at(&table, 10, unit)).collect();
        let expected = [Some(10), Some(10), Some(10), Some(11), None, Some(111), Some(111), Some(110), None];
        assert_eq!(lines, expected);
        assert_eq!(line_at(&[], 10, 0), None);
        assert_eq!(line_at(&[0x80 | 14 << 3], 10, 0), Some(10), "cut short");
    }

    /// Structures in memory, laid out in an order of their own.
    #[test]
    fn frames_are_read_from_the_innermost_out() {
        let offsets = Offsets {
            current_frame: 16,
            previous: 0,
            executable: 8,
            instruction: 16,
            owner: 24,
            filename: 8,
            qualname: 16,
            linetable: 24,
            first_line: 32,
            instructions: 40,
            object_type: 0,
            bytes_length: 8,
            bytes_data: 16,
            text_state: 8,
            text_length: 0,
            text_ascii: 16,
            code_type: 77,
        };
        let address = |object: &[u64]| object.as_ptr() as u64;
        let word = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
        // Compact: of ASCII, and of two bytes a character, which lie behind two words more.
        let file = [4, 1 << 2 | 1 << 5 | 1 << 6, word(b"a.py\0\0\0\0")];
        let name = [2, 2 << 2 | 1 << 5, 0, 0, u64::from(0x3bbu32) | u64::from(b'x') << 16];
        let lines = [0, 4, word(&[0x80 | 13 << 3 | 1, 4, 0x80 | 11 << 3, 0, 0, 0, 0, 0])];
        let code = [77, address(&file), address(&name), address(&lines), 10, 0, 0];
        let stranger = [78, 0, 0, 0, 0, 0, 0];
        let at = |unit: u64| address(&code) + 40 + 2 * unit;
        let outer = [0, address(&code), at(2), 0];
        let not_code = [address(&outer), address(&stranger), at(0), 0];
        let of_c = [address(&not_code), address(&code), at(0), 3];
        let inner = [address(&of_c), address(&code) | 1, at(1), 1];
        let thread = [0, 0, address(&inner)];
        // SAFETY: what was laid out above.
        let found = unsafe { of(&offsets, address(&thread) as usize) };
        let frame = |line| ("a.py".to_owned(), "λx".to_owned(), line);
        assert_eq!(found.frames, [frame(12), frame(13)]);
        assert!(!found.cut);
        let mut endless = outer;
        endless[0] = address(&endless);
        let thread = [0, 0, address(&endless)];
        // SAFETY: as above.
        let found = unsafe { of(&offsets, address(&thread) as usize) };
        assert!(found.cut && found.frames.len() == DEPTH);
    }

    #[test]
    fn only_known_layouts_are_taken() {
        let mut table = vec![0u64; 80];
        table[0] = u64::from_ne_bytes(*COOKIE);
        table[1] = 0x030d_00f0;
        let words = Words { interpreter: 13, frame: 6, objects: 4 };
        assert!(Offsets::of(&table, 1, 13, &words).is_some());
        assert!(Offsets::of(&table, 1, 14, &words).is_none(), "another version");
        table[2] = 1;
        assert!(Offsets::of(&table, 1, 13, &words).is_none(), "without the lock");
        table[2] = 0;
        table[23] = 1 << 40;
        assert!(Offsets::of(&table, 1, 13, &words).is_none(), "an offset that cannot be");
        table[0] = 1;
        assert!(Offsets::of(&table, 1, 13, &words).is_none());
        // SAFETY: null is allowed.
        assert!(unsafe { Offsets::read(std::ptr::null(), 1, 13) }.is_none());
    }
}
