//! Deterministic simulator: the replica through faults in virtual time.
