//! Which graphs hold which memory. What a graph allocates when it runs is charged from the moment at which the driver fixes
//! its address until the graph, and everything instantiated from it, is gone.

use super::contexts::{LEDGER, give_up, write_down};
use super::sites;
use crate::driver::external::Entry;
use crate::stats::ExternalKind;
use parking_lot::Mutex;
use std::collections::HashMap;

/// Which graphs and executable graphs hold which of the charged addresses.
#[derive(Default)]
struct Holders {
    /// By the handle of a graph, or of an executable graph.
    held: HashMap<usize, Vec<u64>>,
    /// How many hold an address.
    holders: HashMap<u64, u64>,
}

impl Holders {
    fn hold(&mut self, holder: usize, address: u64) {
        self.held.entry(holder).or_default().push(address);
        *self.holders.entry(address).or_default() += 1;
    }

    /// Whatever `from` holds, `to` holds as well.
    fn share(&mut self, from: usize, to: usize) {
        for address in self.held.get(&from).cloned().unwrap_or_default() {
            self.hold(to, address);
        }
    }

    /// What `holder` held, and those of it that nobody holds any more.
    fn drop_holder(&mut self, holder: usize) -> Option<(Vec<u64>, Vec<u64>)> {
        let held = self.held.remove(&holder)?;
        let mut free = held.clone();
        free.retain(|address| {
            let Some(count) = self.holders.get_mut(address) else { return false };
            *count -= 1;
            let last = *count == 0;
            if last {
                self.holders.remove(address);
            }
            last
        });
        Some((held, free))
    }

    /// The memory is gone, whoever held it.
    fn forget(&mut self, address: u64) {
        if self.holders.remove(&address).is_some() {
            self.held.retain(|_, held| {
                held.retain(|one| *one != address);
                !held.is_empty()
            });
        }
    }
}

static HOLDERS: Mutex<Option<Holders>> = Mutex::new(None);

/// What a graph held, out of the books while a call is under way that may end the graph: its handle and the addresses may
/// then be another's at once. Ends in [`Taken::gone`] or [`Taken::put_back`].
#[must_use]
pub struct Taken {
    holder: usize,
    held: Vec<u64>,
    free: Vec<(u64, Entry)>,
}

/// Takes what `holder` holds out of the books; `None` if that is nothing.
pub fn take(holder: usize) -> Option<Taken> {
    let (held, free) = HOLDERS.lock().as_mut()?.drop_holder(holder)?;
    let of_graphs = |address| Some((address, LEDGER.remove_kind(address, ExternalKind::Graph)?));
    Some(Taken { holder, held, free: free.into_iter().filter_map(of_graphs).collect() })
}

impl Taken {
    /// The holder is gone; what nobody else holds is gone with it.
    pub fn gone(self) {
        for (address, entry) in self.free {
            if sites::is_on() {
                sites::freed(address);
            }
            give_up(entry);
        }
    }

    /// The holder is still there.
    pub fn put_back(self) {
        self.free.into_iter().for_each(|(address, entry)| write_down(address, entry));
        let mut all = HOLDERS.lock();
        let all = all.get_or_insert_default();
        self.held.into_iter().for_each(|address| all.hold(self.holder, address));
    }
}

/// `holder` is a graph that has just been made. Whatever had the same handle before has ended unseen.
pub fn begins(holder: usize) {
    if let Some(taken) = take(holder) {
        taken.gone();
    }
}

/// The graph holds the memory at `address` from now on.
pub fn hold(graph: usize, address: u64) {
    HOLDERS.lock().get_or_insert_default().hold(graph, address);
}

/// `exec` has just been made from `graph`, and holds what that holds.
pub fn instantiated(graph: usize, exec: usize) {
    begins(exec);
    if let Some(all) = HOLDERS.lock().as_mut() {
        all.share(graph, exec);
    }
}

/// `child` is a part of `parent` from now on and ends with it.
pub fn moved(child: usize, parent: usize) {
    if let Some(all) = HOLDERS.lock().as_mut() {
        all.share(child, parent);
        all.drop_holder(child);
    }
}

/// The memory at `address` has ended with its context.
pub fn forget(address: u64) {
    if let Some(all) = HOLDERS.lock().as_mut() {
        all.forget(address);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_free_when_the_last_that_holds_it_is_gone() {
        let mut all = Holders::default();
        let (graph, exec) = (1, 2);
        all.hold(graph, 0x1000);
        all.hold(graph, 0x2000);
        all.share(graph, exec);
        assert_eq!(
            all.drop_holder(graph),
            Some((vec![0x1000, 0x2000], vec![])),
            "the executable graph holds them"
        );
        assert_eq!(all.drop_holder(graph), None, "once");
        assert_eq!(all.drop_holder(exec).unwrap().1, [0x1000, 0x2000]);
        assert!(all.held.is_empty() && all.holders.is_empty());
    }

    #[test]
    fn a_child_that_moves_ends_with_its_parent() {
        let (child, parent) = (0x5eed_0011, 0x5eed_0012);
        let entry = Entry { device: 63, kind: ExternalKind::Graph, bytes: 4096, ctx: 0 };
        write_down(0x7700_0003_0000, entry);
        hold(child, 0x7700_0003_0000);
        moved(child, parent);
        assert!(take(child).is_none());
        let taken = take(parent).expect("the parent holds it");
        assert_eq!(taken.free.len(), 1);
        taken.gone();
    }

    #[test]
    fn memory_that_ended_with_its_context_is_nobodys() {
        let mut all = Holders::default();
        all.hold(1, 0x1000);
        all.hold(1, 0x2000);
        all.hold(2, 0x1000);
        all.forget(0x1000);
        assert!(!all.held.contains_key(&2) && !all.holders.contains_key(&0x1000));
        all.hold(3, 0x1000); // the address has come back
        assert_eq!(all.drop_holder(1).unwrap().1, [0x2000], "and is another graph's");
        assert_eq!(all.drop_holder(3).unwrap().1, [0x1000]);
    }

    #[test]
    fn a_graph_with_a_handle_that_came_back_inherits_nothing() {
        let graph = 0x5eed_0001;
        let entry = Entry { device: 63, kind: ExternalKind::Graph, bytes: 4096, ctx: 0 };
        write_down(0x7700_0000_0000, entry);
        hold(graph, 0x7700_0000_0000);
        begins(graph);
        assert!(take(graph).is_none());
        assert_eq!(LEDGER.remove(0x7700_0000_0000), None, "what it held is given up");
        // An executable graph's handle comes back, too.
        write_down(0x7700_0001_0000, entry);
        hold(graph + 1, 0x7700_0001_0000);
        instantiated(graph, graph + 1);
        assert!(take(graph + 1).is_none());
    }

    #[test]
    fn a_holder_that_is_still_there_gets_back_what_it_held() {
        let graph = 0x5eed_0003;
        let entry = Entry { device: 63, kind: ExternalKind::Graph, bytes: 4096, ctx: 0 };
        write_down(0x7700_0002_0000, entry);
        hold(graph, 0x7700_0002_0000);
        let taken = take(graph).expect("it holds something");
        assert!(take(graph).is_none() && LEDGER.remove(0x7700_0002_0000).is_none(), "out of the books");
        taken.put_back();
        take(graph).expect("back again").gone();
        assert_eq!(LEDGER.remove(0x7700_0002_0000), None);
    }
}
