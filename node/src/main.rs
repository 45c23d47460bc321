//! The `quorate` binary; see [`quorate_node::cli`].

use std::process::ExitCode;

/// mimalloc returns memory to the system after a load peak (an attack, a busy hour); the system's
/// allocator would keep most of it forever (`docs/OPERATING.md`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

// A validator must never be built with signature checks switched off.
const _: () = assert!(!quorate_crypto::CRYPTOGRAPHY_OFF);

fn main() -> ExitCode {
    quorate_node::cli::main()
}
