//! The `quorate` binary; see [`quorate_node::cli`].

use std::process::ExitCode;

/// jemalloc returns memory to the system after a load peak (an attack, a busy hour); the system's
/// allocator would keep most of it forever (`docs/OPERATING.md`). It is as fast; mimalloc was not (`ARCHITECTURE.md`).
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

// A validator must never be built with signature checks switched off.
const _: () = assert!(!quorate_crypto::CRYPTOGRAPHY_OFF);

fn main() -> ExitCode {
    quorate_node::cli::main()
}
