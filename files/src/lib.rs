//! Files read whole within a limit, folders that are their owner's alone, and what the kernel says of
//! processes.
//!
//! Nothing in this project reads a file whole without saying how long it may be: a path that was
//! mistyped may name a disk, a log, or a device that never ends. What the kernel writes under
//! `/proc`, and what is read in pieces, needs no limit.

mod folder;
mod read;
mod usage;

pub use folder::{FolderError, Privacy, make_private_folder, own_folder};
pub use read::{ReadError, read_bounded, read_text};
pub use usage::Usage;
