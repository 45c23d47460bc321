//! The `quorate` binary; see [`quorate_node::cli`].

use std::process::ExitCode;

// A validator that can be told to make mistakes must never exist.
const _: () = assert!(!quorate_crypto::mistakes::COMPILED_IN);

fn main() -> ExitCode {
    quorate_node::cli::main()
}
