//! What a block does to the accounts. It is in [`quorate_types`] because explorers execute blocks
//! as well.

pub use quorate_types::execution::{Execution, Rules, execute, touched};
