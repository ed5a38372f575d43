//! The frames of stacks, each kept once and known by a number, and so are the objects and names in them.

use crate::report::sites::{Frame as Shown, Module as Object, Sites};
use std::collections::HashMap;
use std::fmt::Write;

/// Frames of a stack that are kept, of native code and of Python each.
pub const DEPTH: usize = 64;

/// A loaded object that frames lie in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Module {
    /// Its path.
    pub path: String,
    /// Its build id.
    pub build_id: Vec<u8>,
}

/// A frame as whoever has walked the stack hands it over.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Frame {
    /// Of native code: the object and the address in it as it was linked, or in no object the address itself.
    Native(Option<Module>, u64),
    /// Of Python: file, function and line.
    Python(String, String, u32),
}

/// A stack: its frames, the innermost first, and whether there were more.
#[derive(Clone, Debug, Default)]
pub struct Stack {
    /// The frames.
    pub frames: Vec<Frame>,
    /// Whether the outermost are missing.
    pub cut: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Kept {
    Native { module: Option<u32>, offset: u64 },
    Python { file: u32, function: u32, line: u32 },
}

/// All frames of all stacks.
#[derive(Default)]
pub struct Frames {
    all: Vec<Kept>,
    numbers: HashMap<Kept, u32>,
    modules: Vec<Module>,
    names: Vec<String>,
    name_numbers: HashMap<String, u32>,
}

impl Frames {
    /// The number of a frame; none if it has none and is to get none.
    pub fn number(&mut self, frame: &Frame, only_known: bool) -> Option<u32> {
        let kept = match frame {
            Frame::Native(module, offset) => {
                let module = module.as_ref().map(|module| self.module(module, only_known));
                Kept::Native {
                    module: module.map_or(Some(None), |number| number.map(Some))?,
                    offset: *offset,
                }
            }
            Frame::Python(file, function, line) => Kept::Python {
                file: self.name(file, only_known)?,
                function: self.name(function, only_known)?,
                line: *line,
            },
        };
        let known = self.numbers.get(&kept).copied();
        if known.is_some() || only_known {
            return known;
        }
        let number = self.all.len() as u32;
        self.all.push(kept);
        self.numbers.insert(kept, number);
        Some(number)
    }

    fn module(&mut self, module: &Module, only_known: bool) -> Option<u32> {
        let known = self.modules.iter().position(|known| known == module);
        if known.is_none() && !only_known {
            self.modules.push(module.clone());
            return Some(self.modules.len() as u32 - 1);
        }
        known.map(|at| at as u32)
    }

    fn name(&mut self, name: &str, only_known: bool) -> Option<u32> {
        let known = self.name_numbers.get(name).copied();
        if known.is_some() || only_known {
            return known;
        }
        let number = self.names.len() as u32;
        self.names.push(name.to_owned());
        self.name_numbers.insert(name.to_owned(), number);
        Some(number)
    }
}

/// Numbers in a report of what has others in the table.
#[derive(Default)]
pub struct Renumbered {
    frames: HashMap<u32, u32>,
    modules: HashMap<u32, u32>,
}

impl Renumbered {
    /// The number in `report` of a frame, which is added to it if need be.
    pub fn frame(&mut self, known: &Frames, report: &mut Sites, number: u32) -> u32 {
        if let Some(there) = self.frames.get(&number) {
            return *there;
        }
        let name = |at: u32| known.names.get(at as usize).cloned();
        let shown = match known.all[number as usize] {
            Kept::Native { module, offset } => Shown {
                module: module.map(|module| self.module(known, report, module)),
                offset: Some(offset),
                ..Shown::default()
            },
            Kept::Python { file, function, line } => {
                Shown { file: name(file), function: name(function), line: Some(line), ..Shown::default() }
            }
        };
        report.frames.push(shown);
        let new = report.frames.len() as u32 - 1;
        self.frames.insert(number, new);
        new
    }

    fn module(&mut self, known: &Frames, report: &mut Sites, number: u32) -> u32 {
        *self.modules.entry(number).or_insert_with(|| {
            let module = &known.modules[number as usize];
            let mut build_id = String::new();
            for byte in &module.build_id {
                let _ = write!(build_id, "{byte:02x}");
            }
            report.modules.push(Object { path: module.path.clone(), build_id });
            report.modules.len() as u32 - 1
        })
    }
}
