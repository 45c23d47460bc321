//! Delay, jitter, bandwidth, stalls and partitions between real processes on one machine.
