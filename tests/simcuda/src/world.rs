//! The whole state of the driver; [`crate::gate`] keeps it behind one lock. What happens to the state is in the modules
//! of the things that it holds.

use crate::area::Area;
use crate::capture::{Capture, Exec, Graph};
use crate::codes::{INVALID_CONTEXT, R};
use crate::config::Config;
use crate::context::{Context, Primary};
use crate::engine::Engine;
use crate::memory::{Account, Alloc, Chunk};
use crate::stream::{Event, Stream};
use crate::vmm::{Handle, Mapping};
use std::collections::{BTreeMap, HashMap};

/// Bookkeeping of one exported function.
#[derive(Default)]
pub struct CallInfo {
    /// Calls so far.
    pub count: u64,
    /// Cost of a call in ns.
    pub cost: u64,
    /// Whether the settings fix the cost.
    pub overridden: bool,
    /// Whether the driver's version is older than the function.
    pub too_new: bool,
}

/// The state of the driver.
pub struct World {
    /// The last question about an event that was not done: thread and event, and when.
    pub last_question: Option<((u64, u64), std::time::Instant)>,
    /// Settings.
    pub config: Config,
    /// Process that made this state, or initialised it after a fork.
    pub pid: u32,
    /// Whether `cuInit` succeeded.
    pub initialised: bool,
    /// Virtual time and pending effects.
    pub engine: Engine,
    /// Bytes and addresses.
    pub area: Area,
    /// One account a device.
    pub accounts: Vec<Account>,
    /// Chunks shared by small allocations, by offset.
    pub chunks: BTreeMap<u64, Chunk>,
    /// Live allocations by base address.
    pub allocs: BTreeMap<u64, Alloc>,
    /// Physical handles of the virtual memory functions.
    pub handles: HashMap<u64, Handle>,
    /// Reserved address ranges: base to length.
    pub reservations: BTreeMap<u64, u64>,
    /// Mapped ranges by base.
    pub mappings: BTreeMap<u64, Mapping>,
    /// Live contexts by handle.
    pub ctxs: HashMap<u64, Context>,
    /// Primary context of each device.
    pub primaries: Vec<Primary>,
    /// Live streams by handle.
    pub streams: HashMap<u64, Stream>,
    /// Live events by handle.
    pub events: HashMap<u64, Event>,
    /// Captures that have not ended, by id.
    pub captures: BTreeMap<u64, Capture>,
    /// Live graphs by handle.
    pub graphs: HashMap<u64, Graph>,
    /// Live executable graphs by handle.
    pub execs: HashMap<u64, Exec>,
    /// Modules, libraries, functions, pools, arrays: handle to what it stands for.
    pub things: HashMap<u64, Thing>,
    /// Default memory pool of each device.
    pub default_pools: Vec<u64>,
    /// Current memory pool of each device; 0 means the default one.
    pub current_pools: Vec<u64>,
    /// Bytes in use by pool.
    pub pool_used: HashMap<u64, u64>,
    /// Source of identities that are never reused.
    pub ids: u64,
    /// Current context of the calling thread, 0 if none.
    pub cur: u64,
    /// Number of the calling thread.
    pub thread: u64,
    /// Device that reaches for memory now, when that must have been let in: of a kernel whose effect is happening, or of the
    /// stream that a copy is submitted to.
    pub running: Option<i32>,
    /// Whether the entry point called is a per-thread one.
    pub per_thread: bool,
    /// Bookkeeping by exported symbol.
    pub calls: HashMap<&'static str, CallInfo>,
    /// Cost of the call so far in ns.
    pub spent: u64,
    /// Whether the settings fix the cost of the current call.
    pub fixed_cost: bool,
    /// Where every call writes a line.
    pub trace: Option<std::fs::File>,
}

/// Handles of small kinds.
#[derive(Clone, Debug)]
pub enum Thing {
    /// A loaded module or library.
    Module,
    /// A built-in kernel, by name.
    Function(&'static str),
    /// A memory pool of a device; attributes by number.
    Pool { device: i32, attributes: HashMap<i32, u64> },
    /// An array, backed by the allocation with this address and identity.
    Array(u64, u64),
    /// A green context of a context.
    Green(u64),
}

// SAFETY: the raw pointers point into mappings that live as long as the process, and are followed under the lock only.
unsafe impl Send for World {}

impl World {
    /// A driver with these settings, not initialised yet.
    pub fn new(config: Config) -> World {
        let devices = config.devices as usize;
        let trace = config.trace.as_ref().map(|path| {
            std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap_or_else(|error| {
                eprintln!("simcuda: SIMCUDA_TRACE={path}: {error}");
                std::process::abort();
            })
        });
        World {
            config,
            pid: std::process::id(),
            initialised: false,
            last_question: None,
            engine: Engine::default(),
            area: Area::new(),
            accounts: vec![Account::default(); devices],
            chunks: BTreeMap::new(),
            allocs: BTreeMap::new(),
            handles: HashMap::new(),
            reservations: BTreeMap::new(),
            mappings: BTreeMap::new(),
            ctxs: HashMap::new(),
            primaries: (0..devices).map(|_| Primary::default()).collect(),
            streams: HashMap::new(),
            events: HashMap::new(),
            captures: BTreeMap::new(),
            graphs: HashMap::new(),
            execs: HashMap::new(),
            things: HashMap::new(),
            default_pools: vec![0; devices],
            current_pools: vec![0; devices],
            pool_used: HashMap::new(),
            ids: 0,
            cur: 0,
            thread: 0,
            running: None,
            per_thread: false,
            calls: HashMap::new(),
            spent: 0,
            fixed_cost: false,
            trace,
        }
    }

    /// A handle that no program can mistake for memory and that is never reused.
    pub fn handle(&mut self) -> u64 {
        self.ids += 1;
        0x5C00_0000_0000_0000 | (self.ids << 4)
    }

    /// Adds to the cost of the current call, unless the settings fix it.
    pub fn spend(&mut self, ns: u64) {
        if !self.fixed_cost {
            self.spent += ns;
            self.advance_to(self.engine.now + ns);
        }
    }

    /// Calls of an exported function so far.
    pub fn count(&self, name: &str) -> u64 {
        self.calls.get(name).map_or(0, |c| c.count)
    }

    /// The current context.
    pub fn ctx(&mut self) -> R<&mut Context> {
        self.ctxs.get_mut(&self.cur).ok_or(INVALID_CONTEXT)
    }

    /// Writes the counts to the file that the settings name.
    pub fn write_stats(&self) {
        use std::fmt::Write;
        let Some(path) = &self.config.stats else { return };
        let mut names: Vec<_> = self.calls.iter().collect();
        names.sort_by_key(|(name, _)| **name);
        let mut text = String::new();
        for (name, info) in names {
            let _ = writeln!(text, "{name} {}", info.count);
        }
        let peak: u64 = self.accounts.iter().map(|a| a.peak).sum();
        let leaked: u64 = self.allocs.values().map(|a| a.size).sum::<u64>()
            + self.handles.values().map(|h| h.size).sum::<u64>();
        let live = self.allocs.len() + self.handles.len();
        let _ = writeln!(text, "peak_used_bytes {peak}\nlive_allocations {live}\nleaked_bytes {leaked}");
        if let Err(error) = std::fs::write(path, text) {
            eprintln!("simcuda: SIMCUDA_STATS={path}: {error}");
        }
    }
}
