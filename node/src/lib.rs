//! A Byzantine-fault-tolerant blockchain node, assembled from the crates below it.
