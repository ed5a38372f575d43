//! A strict simulated CUDA driver: builds a library with the soname `libcuda.so.1` that needs no GPU.
//!
//! It is a discrete-event simulation in virtual time. Work takes effect on real bytes only when the virtual clock
//! passes its completion, as late as the driver's promises allow; a program that hands memory on too early gets wrong
//! data every time, on any machine. Results, error codes and costs were read off an H200 with driver 580.
//!
//! | module | what it holds |
//! |---|---|
//! | `config` | settings from the environment |
//! | `codes`, `costs` | result codes; what calls cost |
//! | `engine` | virtual time and the effects of work |
//! | `area`, `memory` | bytes and addresses; allocations and accounts |
//! | `context`, `stream`, `capture` | contexts; streams and events; captures and graphs |
//! | `vmm`, `ipc`, `kernels` | virtual memory management; sharing; built-in kernels |
//! | `procaddress` | which function a name means at a version |
//! | `world`, `thread` | all state; what belongs to a host thread |
//! | `gate` | the lock, and what every call passes through |
//! | `api` | the exported functions |
//!
//! # Settings
//! | variable | meaning |
//! |---|---|
//! | `SIMCUDA_MEMORY` | bytes a device, or `80GiB` (default 8 GiB) |
//! | `SIMCUDA_DEVICES` | number of devices (1) |
//! | `SIMCUDA_DRIVER_VERSION` | such as 12050 (13000; 11080 with the feature `old-driver`) |
//! | `SIMCUDA_CALL_COST` | `NAME=ns,…`: virtual cost of calls, by exported symbol |
//! | `SIMCUDA_REAL_COST` | 1: calls also really take that long; waiting for device work takes no real time |
//! | `SIMCUDA_THREAD_CAPTURES_END` | 1: a thread that ends takes the captures on its default streams with it |
//! | `SIMCUDA_NO_MAPPING` | 1: the devices say that they cannot map physical memory |
//! | `SIMCUDA_POISON` | 1: fresh memory is filled with 0xCB |
//! | `SIMCUDA_FAIL` | `NAME:N[+][:CODE],…`: the Nth call (and all later ones) fails, by exported symbol |
//! | `SIMCUDA_TRACE` | file to which every call appends one line |
//! | `SIMCUDA_STATS` | file written at exit: `NAME COUNT` lines, `peak_used_bytes`, `live_allocations`, `leaked_bytes` |
//! | `SIMCUDA_TRAP_AT_EXIT` | 1: a call after the driver's exit handler ends the process with status 99 |
//!
//! # Kernels
//! Any image loads as a module, and every module has these kernels; `ns` is their duration in virtual time.
//!
//! | kernel | what it does |
//! |---|---|
//! | `spin(u64 ns)` | takes time |
//! | `fill(u32 *p, u64 n, u32 v, u64 ns)` | `p[i] = v + i` |
//! | `check(const u32 *p, u64 n, u32 v, u64 *bad, u64 ns)` | adds to `*bad` how many `p[i]` are not `v + i` |
//! | `copy(u32 *dst, const u32 *src, u64 n, u64 ns)` | copies `n` words |
//! | `add1(u32 *p, u64 n, u64 ns)` | adds one to `n` words |
//!
//! # Limits
//! Host functions run with the driver locked, in whichever call lets time pass. Counts are written by the handlers of
//! `exit`, so a process that ends by `_exit` or a signal writes none; the trace is complete in any case. Peer access
//! is demanded of kernels and copies for mapped memory only; exportable handle types and release thresholds of pools are taken and not enforced.
//!
//! # Steering
//! Functions named `simcuda_*` let a test look at and steer the driver from inside the process.

mod api;
mod area;
mod capture;
mod codes;
mod config;
mod context;
mod costs;
mod engine;
mod gate;
mod ipc;
mod kernels;
mod memory;
mod procaddress;
mod stream;
// The tests call what an older driver does not export.
#[cfg(all(test, not(feature = "old-driver")))]
mod tests;
mod thread;
mod vmm;
mod world;
