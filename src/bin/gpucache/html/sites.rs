//! Who holds the memory, as the page shows it: the first sites by each order, with stacks that unfold.

use super::bars::share;
use crate::report::holders::{amount, how, place};
use crate::report::sites::{By, Sites};
use crate::report::units::{human, printable};

/// Sites that one table shows.
const SHOWN: usize = 15;

/// What was sampled on a device.
pub struct Holders {
    /// How the figures came about.
    pub how: String,
    pub orders: Vec<Order>,
}

/// The first sites by one order.
pub struct Order {
    pub title: &'static str,
    pub all: String,
    pub rows: Vec<Row>,
    /// What the others have; empty if that is nothing.
    pub others: String,
}

/// One site.
pub struct Row {
    pub amount: String,
    pub length: f64,
    pub place: String,
    pub stack: Vec<String>,
}

impl Holders {
    /// What there is to show; the orders that have any sites.
    pub fn of(sites: &Sites, end: &'static str) -> Holders {
        let orders = [(end, By::Live), ("at the peak", By::Peak), ("allocated in all", By::Total)];
        Holders {
            how: how(sites),
            orders: orders.into_iter().filter_map(|(title, by)| order(sites, title, by)).collect(),
        }
    }
}

fn order(sites: &Sites, title: &'static str, by: By) -> Option<Order> {
    let top = sites.top(by);
    let (first, all) = (by.of(&top.first()?.held), by.of(&sites.all));
    let row = |site: &&crate::report::sites::Site| {
        let mut stack: Vec<String> =
            sites.stack(site).map(|frame| printable(&sites.exact_words(frame))).collect();
        if site.cut {
            stack.push("…".to_owned());
        }
        Row {
            amount: amount(sites, &site.held, by),
            length: share(by.of(&site.held) as f64, first as f64),
            place: place(sites, site),
            stack,
        }
    };
    let rows: Vec<Row> = top.iter().take(SHOWN).map(row).collect();
    let shown: u64 = top.iter().take(SHOWN).map(|site| by.of(&site.held)).sum();
    let others = all.saturating_sub(shown);
    Some(Order {
        title,
        all: human(all),
        rows,
        others: if others > 0 { human(others) } else { String::new() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn each_order_has_its_first_site_with_the_longest_bar() {
        let holders = Holders::of(&sample::sites(), "at the end");
        let firsts: Vec<(&str, &str, f64)> = holders
            .orders
            .iter()
            .map(|order| (order.title, &*order.rows[0].place, order.rows[0].length))
            .collect();
        assert_eq!(
            firsts,
            [
                ("at the end", "remember (train.py:41) < main (train.py:80)", 1000.0),
                ("at the peak", "forward (model.py:12) < main (train.py:80)", 1000.0),
                ("allocated in all", "forward (model.py:12) < main (train.py:80)", 1000.0),
            ]
        );
        assert_eq!(holders.orders[0].rows.len(), 2);
        assert_eq!((&*holders.orders[0].others, &*holders.orders[1].others), ("", "64.00 MiB"));
        assert_eq!(holders.orders[0].rows[0].stack.len(), 3);
    }
}
