//! A small model of a GPU, for tests and the fuzzer: one line of work that is submitted, completes when the test says so, and is
//! ordered by waits. It kills captures like the real driver, and fails on request.

use super::{Ctx, CuResult, Event, Gpu};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};

/// State behind [`Model`]; tests look into it.
#[derive(Default)]
pub struct State {
    /// Work submitted so far.
    pub submitted: u64,
    /// Work completed so far.
    pub completed: u64,
    /// Work that all later work of a context is ordered after.
    ordered: HashMap<Ctx, u64>,
    /// For each pair of contexts: the work of the second that all later work of the first is ordered after.
    orders: HashMap<(Ctx, Ctx), u64>,
    /// Bytes the device has.
    pub capacity: u64,
    /// Allocations by address.
    pub memory: BTreeMap<u64, u64>,
    /// The most that was ever allocated.
    pub peak: u64,
    /// Whether a stream captures, and whether a call has killed the capture.
    pub capturing: bool,
    /// See `capturing`.
    pub killed: bool,
    /// Calls by name.
    pub calls: HashMap<&'static str, u64>,
    /// Calls to fail: name and code; each fails once.
    pub failures: Vec<(&'static str, CuResult)>,
    /// Calls to fail by their number: name, first and last of them, and code.
    pub fail_nth: Vec<(&'static str, u64, u64, CuResult)>,
    /// A context whose every call fails with this code.
    pub failed: Option<(Ctx, CuResult)>,
    /// What happens when memory is next freed, before the call comes back.
    pub at_free: Option<Box<dyn FnOnce(u64) + Send>>,
    events: Vec<(Ctx, u64)>,
    next_address: u64,
    /// Physical memory, addresses and mappings.
    pub mapping: super::model_mapping::Maps,
}

impl State {
    /// A device of `capacity` bytes on which nothing has happened yet.
    pub fn of(capacity: u64) -> State {
        State { capacity, next_address: 1 << 40, ..State::default() }
    }

    /// Bytes allocated now.
    pub fn used(&self) -> u64 {
        self.memory.values().sum::<u64>() + self.mapping.bytes()
    }

    pub(super) fn call(&mut self, name: &'static str) -> Result<(), CuResult> {
        let calls = self.calls.entry(name).or_default();
        *calls += 1;
        let nth = *calls;
        let due =
            |fail: &&(&'static str, u64, u64, CuResult)| fail.0 == name && (fail.1..=fail.2).contains(&nth);
        if let Some(fail) = self.fail_nth.iter().find(due) {
            return Err(fail.3);
        }
        match self.failures.iter().position(|(failing, _)| *failing == name) {
            Some(at) => Err(self.failures.remove(at).1),
            None => Ok(()),
        }
    }

    fn alive(&self, ctx: Ctx) -> Result<(), CuResult> {
        match self.failed {
            Some((failed, code)) if failed == ctx => Err(code),
            _ => Ok(()),
        }
    }

    /// A call that no capture survives.
    fn forbidden(&mut self, name: &'static str) -> Result<(), CuResult> {
        self.call(name)?;
        if self.capturing {
            self.killed = true;
            return Err(CuResult(900));
        }
        Ok(())
    }
}

/// The model.
pub struct Model {
    /// Its state.
    pub state: Mutex<State>,
    /// Whether it has context-wide events.
    pub events: bool,
}

impl Model {
    /// A device of `capacity` bytes.
    pub fn new(capacity: u64, events: bool) -> Model {
        Model { state: Mutex::new(State::of(capacity)), events }
    }

    /// How often `name` was called.
    pub fn calls(&self, name: &'static str) -> u64 {
        self.state.lock().calls.get(name).copied().unwrap_or(0)
    }

    /// Submits some work.
    pub fn submit(&self) -> u64 {
        let mut state = self.state.lock();
        state.submitted += 1;
        state.submitted
    }

    /// Whether memory last used by work number `work` may be used by work submitted from now on to the first context.
    pub fn is_safe(&self, work: u64) -> bool {
        self.is_safe_in(Ctx(1), work)
    }

    /// The same for another context.
    pub fn is_safe_in(&self, ctx: Ctx, work: u64) -> bool {
        let state = self.state.lock();
        work <= state.completed || state.ordered.get(&ctx).is_some_and(|ordered| work <= *ordered)
    }

    /// Whether memory last used by work number `work` of the context `source` may be used by work of `user` submitted from
    /// now on.
    pub fn is_safe_for(&self, user: Ctx, source: Ctx, work: u64) -> bool {
        let state = self.state.lock();
        work <= state.completed || state.orders.get(&(user, source)).is_some_and(|ordered| work <= *ordered)
    }

    /// Completes everything.
    pub fn complete(&self) {
        let mut state = self.state.lock();
        state.completed = state.submitted;
    }
}

impl Gpu for Model {
    fn mem_alloc(&self, _: Ctx, bytes: u64) -> Result<u64, CuResult> {
        let mut state = self.state.lock();
        state.call("mem_alloc")?;
        if state.used() + bytes > state.capacity {
            return Err(CuResult::OUT_OF_MEMORY);
        }
        let address = state.next_address;
        state.next_address += bytes.next_multiple_of(2 << 20) + (2 << 20);
        state.memory.insert(address, bytes);
        state.peak = state.peak.max(state.used());
        Ok(address)
    }

    fn mem_free(&self, _: Ctx, address: u64) -> Result<(), CuResult> {
        let mut state = self.state.lock();
        if let Some(meanwhile) = state.at_free.take() {
            meanwhile(address);
        }
        state.call("mem_free")?;
        state.completed = state.submitted;
        state.memory.remove(&address).map(|_| ()).ok_or(CuResult::INVALID_VALUE)
    }

    fn has_context_events(&self) -> bool {
        self.events
    }

    fn event_create(&self, _: Ctx) -> Result<Event, CuResult> {
        let mut state = self.state.lock();
        state.call("event_create")?;
        state.events.push((Ctx(0), 0));
        Ok(Event(state.events.len() - 1))
    }

    fn record(&self, ctx: Ctx, event: Event) -> Result<(), CuResult> {
        let mut state = self.state.lock();
        state.alive(ctx)?;
        state.forbidden("record")?;
        state.events[event.0] = (ctx, state.submitted);
        Ok(())
    }

    fn query(&self, event: Event, relaxed: bool) -> Result<bool, CuResult> {
        let mut state = self.state.lock();
        if relaxed {
            state.call("query")?;
        } else {
            state.forbidden("query")?;
        }
        Ok(state.events[event.0].1 <= state.completed)
    }

    fn wait(&self, ctx: Ctx, event: Event) -> Result<(), CuResult> {
        let mut state = self.state.lock();
        state.alive(ctx)?;
        state.forbidden("wait")?;
        let (source, work) = state.events[event.0];
        let ordered = state.ordered.entry(ctx).or_default();
        *ordered = work.max(*ordered);
        let ordered = state.orders.entry((ctx, source)).or_default();
        *ordered = work.max(*ordered);
        Ok(())
    }

    fn synchronize(&self, ctx: Ctx) -> Result<(), CuResult> {
        let mut state = self.state.lock();
        state.alive(ctx)?;
        state.forbidden("synchronize")?;
        state.completed = state.submitted;
        Ok(())
    }
}
