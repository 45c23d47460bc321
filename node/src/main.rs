//! The `quorate` binary; see [`quorate_node::cli`].

use std::process::ExitCode;

/// It gives memory back that an attack or a busy hour has made necessary; the system's allocator
/// keeps most of it for good (`docs/OPERATING.md`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

// A validator that can be told to make mistakes must never exist.
const _: () = assert!(!quorate_crypto::mistakes::COMPILED_IN);

fn main() -> ExitCode {
    quorate_node::cli::main()
}
