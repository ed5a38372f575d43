//! The cap of one device. Whoever wants device memory reserves it here first, allocates, and releases the reservation if
//! the driver refuses: so the sum of what all threads hold and are about to hold never exceeds the limit.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::stats::{ExternalKind, Gauge, SharedGauge};

/// What an allocation of `bytes` outside the pool takes from the device, and so from the cap.
///
/// The driver hands memory out in pages of 2 MiB. (100 allocations of 1 MiB and 512 bytes were seen to take 198 MiB, 100 of
/// 2 MiB and 512 bytes 400 MiB.) Managed memory never shares a page; other small allocations do, as many as fit, in
/// multiples of 512 bytes, so each counts as its share of a page. Where sizes are mixed that is an estimate.
pub fn footprint(kind: ExternalKind, bytes: u64) -> u64 {
    const PAGE: u64 = 2 << 20;
    if kind == ExternalKind::Managed || bytes > PAGE / 2 {
        return bytes.checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
    }
    PAGE / (PAGE / bytes.max(1).next_multiple_of(512))
}

/// A reservation that would have exceeded the limit. All figures are bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverLimit {
    /// What was asked for.
    pub asked: u64,
    /// What was in use when it was refused, inside the pool and out.
    pub in_use: u64,
    /// The limit.
    pub limit: u64,
}

impl fmt::Display for OverLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { asked, in_use, limit } = self;
        write!(f, "{asked} bytes more than the {in_use} in use would exceed the limit of {limit}")
    }
}

impl std::error::Error for OverLimit {}

/// What a process holds of one device, against its limit. Every method may be called from any thread.
///
/// One gauge, of the pool's reserved bytes and the external ones together, decides; the others tell them apart for the
/// report. They are updated after the decision and before a release, so at any moment each part may lag behind the sum,
/// but never shows bytes that the sum does not hold.
#[derive(Debug)]
pub struct DeviceAccount {
    total: u64,
    /// The highest that the limit may be: what was configured, or the total.
    most: u64,
    limit: AtomicU64,
    /// What decides: held, or about to be.
    in_use: SharedGauge,
    held: SharedGauge,
    reserved: SharedGauge,
    external: SharedGauge,
    by_kind: [SharedGauge; ExternalKind::ALL.len()],
}

impl DeviceAccount {
    /// An account for a device of `total` bytes of which at most `limit` may be held. A limit above the total is the
    /// total; a limit of 0 admits nothing.
    pub fn new(total: u64, limit: u64) -> Self {
        Self {
            total,
            most: limit.min(total),
            limit: AtomicU64::new(limit.min(total)),
            in_use: SharedGauge::new(),
            held: SharedGauge::new(),
            reserved: SharedGauge::new(),
            external: SharedGauge::new(),
            by_kind: [const { SharedGauge::new() }; ExternalKind::ALL.len()],
        }
    }

    /// Memory of the device.
    pub fn total_bytes(&self) -> u64 {
        self.total
    }

    /// Most bytes that may be held at once.
    pub fn limit_bytes(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit, to no more than the account was opened with: who started the process has the last word. Returns
    /// what holds now. What is held beyond it stays; nothing more is admitted until it fits.
    pub fn set_limit(&self, bytes: u64) -> u64 {
        let limit = bytes.min(self.most);
        self.limit.store(limit, Ordering::Relaxed);
        limit
    }

    /// Bytes held beyond the limit; none without a cap.
    pub fn excess(&self) -> u64 {
        self.in_use.current().saturating_sub(self.most())
    }

    /// Bytes held now or about to be, in the pool and outside.
    pub fn in_use(&self) -> u64 {
        self.in_use.current()
    }

    /// Bytes that can still be reserved; without a cap the driver decides.
    pub fn headroom(&self) -> u64 {
        self.most().saturating_sub(self.in_use.current())
    }

    /// The smallest headroom that what was really held ever left.
    pub fn closest_headroom(&self) -> u64 {
        self.limit_bytes().saturating_sub(self.held.peak())
    }

    /// Reserves `n` bytes that are about to be taken from the driver. The reservation is given up when it is dropped,
    /// unless it has become the pool's or external memory by then.
    ///
    /// # Errors
    /// The limit would be exceeded; nothing has changed.
    pub fn reserve(&self, n: u64) -> Result<Reservation<'_>, OverLimit> {
        self.admit(n)?;
        Ok(Reservation { account: self, bytes: n })
    }

    /// Returns `n` bytes that the pool gave back to the driver.
    pub fn release_pool(&self, n: u64) {
        self.reserved.sub(n);
        self.held.sub(n);
        self.in_use.sub(n);
    }

    /// Counts `n` bytes outside the pool that already exist and that nobody can refuse any more, for example because
    /// only the driver's answer told their size. They may exceed the limit; nothing else is admitted until they fit.
    pub fn charge_external(&self, kind: ExternalKind, n: u64) {
        self.in_use.add(footprint(kind, n));
        self.add_external(kind, n);
    }

    fn add_external(&self, kind: ExternalKind, n: u64) {
        self.held.add(footprint(kind, n));
        self.external.add(n);
        self.by_kind[kind.index()].add(n);
    }

    /// Returns `n` bytes outside the pool that were freed.
    pub fn release_external(&self, kind: ExternalKind, n: u64) {
        self.by_kind[kind.index()].sub(n);
        self.external.sub(n);
        self.held.sub(footprint(kind, n));
        self.in_use.sub(footprint(kind, n));
    }

    /// Whether `n` bytes could ever be held. Without a cap the driver decides: managed memory may exceed the device.
    pub fn could_admit(&self, n: u64) -> bool {
        n <= self.most()
    }

    fn most(&self) -> u64 {
        let limit = self.limit_bytes();
        if limit < self.total { limit } else { u64::MAX }
    }

    fn admit(&self, n: u64) -> Result<(), OverLimit> {
        self.in_use.try_add_below(n, self.most()).map_err(|in_use| OverLimit {
            asked: n,
            in_use,
            limit: self.limit_bytes(),
        })
    }

    /// Bytes that the pool holds.
    pub fn reserved(&self) -> Gauge {
        self.reserved.snapshot()
    }

    /// The most that the pool held since the last call.
    pub fn take_recent_reserved(&self) -> u64 {
        self.reserved.take_recent()
    }

    /// Bytes outside the pool.
    pub fn external(&self) -> Gauge {
        self.external.snapshot()
    }

    /// Bytes outside the pool of one kind.
    pub fn external_of(&self, kind: ExternalKind) -> Gauge {
        self.by_kind[kind.index()].snapshot()
    }
}

/// Bytes that are admitted under the cap and about to be taken from the driver.
#[derive(Debug)]
#[must_use = "dropped, it gives the bytes up"]
pub struct Reservation<'a> {
    account: &'a DeviceAccount,
    bytes: u64,
}

impl<'a> Reservation<'a> {
    /// The pool has got the bytes.
    pub fn for_pool(mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.account.held.add(bytes);
        self.account.reserved.add(bytes);
    }

    /// Takes `bytes` of this reservation, for one of several allocations that were admitted together.
    ///
    /// # Panics
    /// If it holds less.
    pub fn split(&mut self, bytes: u64) -> Reservation<'a> {
        self.bytes = self.bytes.checked_sub(bytes).expect("a part of what was admitted");
        Reservation { account: self.account, bytes }
    }

    /// The program has got `bytes` outside the pool; the reservation was for their [`footprint`].
    pub fn for_external(mut self, kind: ExternalKind, bytes: u64) {
        debug_assert_eq!(self.bytes, footprint(kind, bytes));
        self.bytes = 0;
        self.account.add_external(kind, bytes);
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        self.account.in_use.sub(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn pool(account: &DeviceAccount, n: u64) -> Result<(), OverLimit> {
        account.reserve(n).map(Reservation::for_pool)
    }

    fn external(account: &DeviceAccount, kind: ExternalKind, n: u64) -> Result<(), OverLimit> {
        account.reserve(footprint(kind, n)).map(|reservation| reservation.for_external(kind, n))
    }

    #[test]
    fn external_memory_counts_whole_pages_against_the_cap() {
        let account = DeviceAccount::new(32 << 20, 16 << 20);
        external(&account, ExternalKind::Async, (2 << 20) + 1).unwrap();
        assert_eq!((account.in_use(), account.external().current), (4 << 20, (2 << 20) + 1));
        external(&account, ExternalKind::Async, 1 << 20).unwrap();
        assert_eq!(account.in_use(), 5 << 20, "small ones share a page");
        account.release_external(ExternalKind::Async, (2 << 20) + 1);
        account.release_external(ExternalKind::Async, 1 << 20);
        assert_eq!((account.in_use(), account.closest_headroom()), (0, 11 << 20));
        assert!(account.reserve(footprint(ExternalKind::Async, u64::MAX)).is_err());
        for (kind, bytes, takes) in [
            (ExternalKind::Managed, 1, 2 * MIB),
            (ExternalKind::Async, 700_000, MIB),
            (ExternalKind::Async, 1000, 1024),
            (ExternalKind::Vmm, 2 * MIB, 2 * MIB),
        ] {
            assert_eq!(footprint(kind, bytes), takes, "{bytes} bytes, {kind:?}");
        }
    }

    #[test]
    fn a_reservation_that_comes_to_nothing_leaves_no_trace() {
        let account = DeviceAccount::new(200, 100);
        let reservation = account.reserve(80).unwrap();
        assert_eq!((account.in_use(), account.headroom()), (80, 20));
        drop(reservation);
        assert_eq!((account.in_use(), account.closest_headroom()), (0, 100));
        assert_eq!((account.reserved(), account.external()), (Gauge::default(), Gauge::default()));
    }

    #[test]
    fn without_a_cap_more_may_be_held_than_the_device_has() {
        let account = DeviceAccount::new(100 * MIB, 100 * MIB);
        external(&account, ExternalKind::Managed, 150 * MIB).unwrap();
        assert!(account.headroom() > 100 * MIB, "the driver decides");
        pool(&account, 50 * MIB).unwrap();
    }

    #[test]
    fn pool_and_external_bytes_share_one_limit() {
        let account = DeviceAccount::new(1000 * MIB, 500 * MIB);
        pool(&account, 300 * MIB).unwrap();
        external(&account, ExternalKind::Async, 150 * MIB).unwrap();
        assert_eq!(account.headroom(), 50 * MIB);
        let refused = OverLimit { asked: 52 * MIB, in_use: 450 * MIB, limit: 500 * MIB };
        assert_eq!(pool(&account, 52 * MIB), Err(refused));
        assert_eq!(external(&account, ExternalKind::Vmm, 52 * MIB), Err(refused));
        assert_eq!(account.reserved().current, 300 * MIB);
        assert_eq!(account.external().current, 150 * MIB);
        assert_eq!(account.external_of(ExternalKind::Vmm), Gauge::default());
        pool(&account, 50 * MIB).unwrap();
        account.release_pool(350 * MIB);
        account.release_external(ExternalKind::Async, 150 * MIB);
        assert_eq!((account.in_use(), account.headroom(), account.closest_headroom()), (0, 500 * MIB, 0));
        assert_eq!(account.external_of(ExternalKind::Async).total_freed, 150 * MIB);
    }

    #[test]
    fn a_limit_of_zero_admits_nothing_and_one_above_the_total_is_the_total() {
        let nothing = DeviceAccount::new(1000, 0);
        assert_eq!(pool(&nothing, 1), Err(OverLimit { asked: 1, in_use: 0, limit: 0 }));
        assert_eq!(nothing.headroom(), 0);
        let everything = DeviceAccount::new(1000, u64::MAX);
        assert_eq!(everything.limit_bytes(), 1000);
        assert!(
            external(&everything, ExternalKind::Managed, 1001).is_ok(),
            "without a cap the driver decides"
        );
        assert!(everything.could_admit(u64::MAX) && !nothing.could_admit(1));
    }

    #[test]
    fn a_lowered_limit_refuses_until_it_fits_and_rises_no_higher_than_it_was() {
        let account = DeviceAccount::new(1000 * MIB, 500 * MIB);
        pool(&account, 300 * MIB).unwrap();
        assert_eq!(
            (account.set_limit(200 * MIB), account.excess(), account.headroom()),
            (200 * MIB, 100 * MIB, 0)
        );
        assert!(pool(&account, 1).is_err());
        account.release_pool(150 * MIB);
        assert_eq!((account.excess(), account.headroom()), (0, 50 * MIB));
        pool(&account, 50 * MIB).unwrap();
        assert_eq!(account.set_limit(u64::MAX), 500 * MIB);
        let free = DeviceAccount::new(1000 * MIB, u64::MAX);
        assert_eq!((free.set_limit(1), free.set_limit(2000 * MIB), free.excess()), (1, 1000 * MIB, 0));
        assert!(free.headroom() > 1000 * MIB, "again the driver decides");
    }

    #[test]
    fn what_cannot_be_refused_is_counted_and_shuts_the_door() {
        let account = DeviceAccount::new(200 * MIB, 100 * MIB);
        pool(&account, 90 * MIB).unwrap();
        account.charge_external(ExternalKind::Pitched, 20 * MIB);
        assert_eq!((account.in_use(), account.headroom()), (110 * MIB, 0));
        assert!(pool(&account, 1).is_err());
        account.release_external(ExternalKind::Pitched, 20 * MIB);
        assert_eq!(account.headroom(), 10 * MIB);
    }

    #[test]
    fn an_absurd_size_is_refused_and_not_wrapped() {
        let account = DeviceAccount::new(100, 100);
        pool(&account, 1).unwrap();
        assert!(pool(&account, u64::MAX).is_err());
        assert_eq!(account.in_use(), 1);
    }

    #[test]
    fn racing_threads_never_exceed_the_limit_and_leave_nothing_behind() {
        const LIMIT: u64 = 10_000;
        let account = DeviceAccount::new(1 << 20, LIMIT);
        let refusals = SharedGauge::new();
        std::thread::scope(|scope| {
            for thread in 0..6_u64 {
                let (account, refusals) = (&account, &refusals);
                scope.spawn(move || {
                    for round in 0..10_000_u64 {
                        let n = 1 + (thread * 997 + round * 31) % 5000;
                        let kind = ExternalKind::ALL[(round % 8) as usize];
                        let admitted =
                            if thread % 2 == 0 { pool(account, n) } else { external(account, kind, n) };
                        assert!(account.in_use() <= LIMIT);
                        match admitted {
                            Ok(()) if thread % 2 == 0 => account.release_pool(n),
                            Ok(()) => account.release_external(kind, n),
                            Err(over) => {
                                assert!(over.in_use + over.asked > LIMIT && over.in_use <= LIMIT);
                                refusals.add(1);
                            }
                        }
                    }
                });
            }
        });
        assert_eq!((account.in_use(), account.reserved().current, account.external().current), (0, 0, 0));
        assert!(ExternalKind::ALL.iter().all(|&kind| account.external_of(kind).current == 0));
        let by_kind: u64 =
            ExternalKind::ALL.iter().map(|&kind| account.external_of(kind).total_allocated).sum();
        assert_eq!(by_kind, account.external().total_allocated);
        assert!(account.reserved().total_allocated > 0 && by_kind > 0);
    }
}
