//! The `quorate` binary; see [`quorate_node::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    quorate_node::cli::main()
}
