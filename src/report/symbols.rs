//! The names of functions at addresses of an object, read from the symbol table of its file.
//!
//! Read, and not asked of the dynamic linker: its functions wait for a lock that a thread which `exit` has stopped may
//! hold, and know exported functions only. The file is gone through in pieces, for all addresses at once, so that neither
//! its size nor the number of addresses matters much. Anything unexpected in it means that there are no names.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes that are read at once.
const PIECE: usize = 64 << 10;
/// Larger symbol tables are passed over: to read them would hold up the end of a process.
const LARGEST: u64 = 256 << 20;
/// Longer names are cut.
const LONGEST: usize = 4096;

const SYMTAB: u32 = 2;
const DYNSYM: u32 = 11;
const FUNCTION: u8 = 2;
const INDIRECT_FUNCTION: u8 = 10;
/// Of a section header, and of a symbol, in 64-bit files.
const HEADER: usize = 64;
const SYMBOL: usize = 24;

/// The function at each of the addresses, as the object was linked; none where there is no name for it.
pub fn names(path: &Path, addresses: &[u64]) -> Vec<Option<String>> {
    let found = File::open(path).ok().and_then(|file| of_file(&file, addresses));
    found.unwrap_or_else(|| vec![None; addresses.len()])
}

fn of_file(file: &File, addresses: &[u64]) -> Option<Vec<Option<String>>> {
    let sections = sections(file)?;
    // The full table where it has not been stripped.
    let table = |kind: u32| sections.iter().find(|section| section.kind == kind && section.size <= LARGEST);
    let mut names = vec![None; addresses.len()];
    // One for all: at the end of a process memory is not given back.
    let (mut piece, mut name) = (vec![0; PIECE / SYMBOL * SYMBOL], vec![0; LONGEST]);
    for kind in [SYMTAB, DYNSYM] {
        let Some(symbols) = table(kind) else { continue };
        let Some(strings) = sections.get(symbols.link as usize) else { continue };
        let missing: Vec<usize> = (0..addresses.len()).filter(|at| names[*at].is_none()).collect();
        let wanted: Vec<u64> = missing.iter().map(|at| addresses[*at]).collect();
        for (at, place) in missing.into_iter().zip(nearest(file, symbols, &wanted, &mut piece)?) {
            names[at] = place.and_then(|offset| text(file, strings, offset, &mut name));
        }
    }
    Some(names)
}

struct Section {
    kind: u32,
    link: u32,
    offset: u64,
    size: u64,
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn sections(file: &File) -> Option<Vec<Section>> {
    let mut head = [0; HEADER];
    file.read_exact_at(&mut head, 0).ok()?;
    // ELF, 64 bits, little-endian.
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let start = word(&head, 40)?;
    let (size, count) = (half(&head, 58)? as u16 as usize, (half(&head, 60)? & 0xffff) as usize);
    if size != HEADER || count == 0 {
        return None;
    }
    let mut table = vec![0; size * count];
    file.read_exact_at(&mut table, start).ok()?;
    let section = |header: &[u8]| {
        Some(Section {
            kind: half(header, 4)?,
            link: half(header, 40)?,
            offset: word(header, 24)?,
            size: word(header, 32)?,
        })
    };
    table.chunks_exact(size).map(section).collect()
}

/// For each address, the place in the string table of the name of the function that it lies in.
fn nearest(file: &File, symbols: &Section, addresses: &[u64], piece: &mut [u8]) -> Option<Vec<Option<u32>>> {
    let mut order: Vec<(u64, usize)> = addresses.iter().copied().zip(0..).collect();
    order.sort_unstable();
    let mut best: Vec<Option<(u64, u32)>> = vec![None; addresses.len()];
    let mut at = 0;
    while at < symbols.size / SYMBOL as u64 * SYMBOL as u64 {
        let length = piece.len().min((symbols.size - at) as usize / SYMBOL * SYMBOL);
        file.read_exact_at(&mut piece[..length], symbols.offset.checked_add(at)?).ok()?;
        for symbol in piece[..length].chunks_exact(SYMBOL) {
            let kind = symbol[4] & 15;
            let section = u16::from_le_bytes([symbol[6], symbol[7]]);
            if (kind != FUNCTION && kind != INDIRECT_FUNCTION) || section == 0 {
                continue;
            }
            let (name, start, size) = (half(symbol, 0)?, word(symbol, 8)?, word(symbol, 16)?);
            let first = order.partition_point(|(address, _)| *address < start);
            for (_, which) in order[first..].iter().take_while(|(address, _)| *address - start < size.max(1))
            {
                // The innermost of several that overlap; of several names of one function the first.
                if best[*which].is_none_or(|(before, _)| start > before) {
                    best[*which] = Some((start, name));
                }
            }
        }
        at += length as u64;
    }
    Some(best.into_iter().map(|best| best.map(|(_, name)| name)).collect())
}

fn text(file: &File, strings: &Section, offset: u32, buffer: &mut [u8]) -> Option<String> {
    let room = strings.size.checked_sub(u64::from(offset))?.min(buffer.len() as u64) as usize;
    let bytes = &mut buffer[..room];
    file.read_exact_at(bytes, strings.offset.checked_add(u64::from(offset))?).ok()?;
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(room);
    let name = String::from_utf8_lossy(&bytes[..end]).into_owned();
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn landmark(by: u64) -> u64 {
        std::hint::black_box(by + 1)
    }

    /// Where this program was loaded: what the addresses in its file are counted from.
    fn base() -> u64 {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let exe = std::env::current_exe().unwrap();
        let line = maps.lines().find(|line| line.ends_with(exe.to_str().unwrap())).unwrap();
        u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap()
    }

    #[test]
    fn functions_of_this_program_are_found_by_an_address_within() {
        landmark(1);
        let address = landmark as fn(u64) -> u64 as usize as u64 - base();
        let exe = std::env::current_exe().unwrap();
        let found = names(&exe, &[address + 1, u64::MAX, 0, address]);
        let name = found[0].as_deref().unwrap();
        assert!(name.contains("landmark"), "{name}");
        assert_eq!(found[3].as_deref(), Some(name));
        assert_eq!((&found[1], &found[2]), (&None, &None));
    }

    #[test]
    fn what_is_no_object_has_no_names() {
        let folder = std::env::temp_dir();
        for (at, bytes) in [&b""[..], b"\x7fELF", b"#!/bin/sh\n", &[0x7f; 4096]].into_iter().enumerate() {
            let path = folder.join(format!("gpucache-no-object-{}-{at}", std::process::id()));
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(names(&path, &[1, 2]), [None, None]);
            std::fs::remove_file(&path).unwrap();
        }
        assert_eq!(names(Path::new("/nonexistent"), &[1]), [None]);
    }

    #[test]
    fn a_file_that_is_cut_or_damaged_does_no_harm() {
        let whole = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let path = std::env::temp_dir().join(format!("gpucache-damaged-{}", std::process::id()));
        let mut damaged = whole[..whole.len().min(4 << 20)].to_vec();
        std::fs::write(&path, &damaged).unwrap();
        let _ = names(&path, &[0x1000]);
        for at in [40, 41, 58, 60, 61] {
            damaged[at] ^= 0x55;
            std::fs::write(&path, &damaged).unwrap();
            let _ = names(&path, &[0x1000]);
        }
        std::fs::remove_file(&path).unwrap();
    }
}
