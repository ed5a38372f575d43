//! What an ELF file says about itself, as far as it matters to preloading.

use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, FileKind, ReadCache, ReadRef};
use std::fs::{self, File};
use std::path::Path;

/// An executable or a shared library.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Binary {
    pub is_64_bit: bool,
    /// `e_machine`.
    pub machine: u16,
    /// The dynamic linker that it asks for; none in a static executable, or a library.
    pub interpreter: Option<String>,
    /// Whether it is made for a dynamic linker at all.
    pub is_dynamic: bool,
    /// Versions of the C library that it needs, `GLIBC_2.17` and the like.
    pub needs_versions: Vec<String>,
    /// Versions that it defines.
    pub defines_versions: Vec<String>,
}

/// Reads what is needed of a file; none if it is no ELF file.
pub fn read(path: &Path) -> Option<Binary> {
    let file = ReadCache::new(File::open(path).ok()?);
    match FileKind::parse(&file).ok()? {
        FileKind::Elf64 => inspect::<FileHeader64<Endianness>, _>(&file),
        FileKind::Elf32 => inspect::<FileHeader32<Endianness>, _>(&file),
        _ => None,
    }
}

/// Whether a file holds the name of the driver's library: the mark of a program that loads it by itself, as the static CUDA
/// runtime does.
pub fn names_driver(path: &Path) -> bool {
    let name = b"libcuda.so.1\0";
    fs::read(path).is_ok_and(|data| data.windows(name.len()).any(|window| window == name))
}

fn inspect<'data, H, R>(data: R) -> Option<Binary>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = H::parse(data).ok()?;
    let endian = header.endian().ok()?;
    let mut binary =
        Binary { is_64_bit: header.is_class_64(), machine: header.e_machine(endian), ..Binary::default() };
    for segment in header.program_headers(endian, data).ok()? {
        if let Ok(Some(interpreter)) = segment.interpreter(endian, data) {
            binary.interpreter = Some(String::from_utf8_lossy(interpreter).into_owned());
        }
        binary.is_dynamic |= segment.p_type(endian) == elf::PT_DYNAMIC;
    }
    versions(header, endian, data, &mut binary);
    Some(binary)
}

/// Fills in the versions, as far as the file has them. A file without is no fault.
fn versions<'data, H, R>(header: &H, endian: Endianness, data: R, binary: &mut Binary) -> Option<()>
where
    H: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let sections = header.sections(endian, data).ok()?;
    let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    if let Ok(Some((mut libraries, link))) = sections.gnu_verneed(endian, data) {
        let strings = sections.strings(endian, data, link).ok()?;
        while let Ok(Some((_, mut versions))) = libraries.next() {
            while let Ok(Some(version)) = versions.next() {
                binary.needs_versions.push(text(version.name(endian, strings).ok()?));
            }
        }
    }
    if let Ok(Some((mut definitions, link))) = sections.gnu_verdef(endian, data) {
        let strings = sections.strings(endian, data, link).ok()?;
        while let Ok(Some((_, mut versions))) = definitions.next() {
            if let Ok(Some(version)) = versions.next() {
                binary.defines_versions.push(text(version.name(endian, strings).ok()?));
            }
        }
    }
    Some(())
}

/// The highest version of glibc among version names.
pub fn highest_glibc(names: &[String]) -> Option<(u32, u32)> {
    let number = |name: &String| {
        let (major, rest) = name.strip_prefix("GLIBC_")?.split_once('.')?;
        let minor = rest.split('.').next()?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    };
    names.iter().filter_map(number).max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_test_itself_is_a_dynamic_program() {
        let binary = read(&std::env::current_exe().unwrap()).unwrap();
        assert!(binary.is_64_bit && binary.is_dynamic);
        assert!(binary.interpreter.unwrap().contains("/ld-"));
        assert!(highest_glibc(&binary.needs_versions) >= Some((2, 2)));
    }

    #[test]
    fn what_is_no_binary_is_none() {
        assert_eq!(read(Path::new("/proc/self/status")), None);
        assert_eq!(read(Path::new("/no/such/file")), None);
    }

    #[test]
    fn versions_are_numbers() {
        let names = ["GLIBC_2.9", "GLIBC_2.17", "GLIBC_2.2.5", "GLIBC_PRIVATE", "GCC_3.0"].map(str::to_owned);
        assert_eq!(highest_glibc(&names), Some((2, 17)));
        assert_eq!(highest_glibc(&[]), None);
    }
}
