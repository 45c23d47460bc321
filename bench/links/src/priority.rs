//! Has a thread run before ordinary ones as soon as it is woken.
//!
//! The links stand for the network, which does not wait for a core. Linux's fair scheduler lets a
//! running thread finish its slice of about 3 ms, whatever the woken one's nice value; only a
//! real-time thread does not wait. The carrier sleeps between events, so it cannot starve anybody.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The nice value to ask for where real time is not allowed: between ordinary and kernel threads.
#[cfg(target_os = "linux")]
const NICE: i32 = -15;

/// Raises the calling thread as far as the system allows; that takes root or `CAP_SYS_NICE`. Without, it
/// goes on as it is. Tells whether it is a real-time thread now.
pub(crate) fn raise() -> bool {
    use thread_priority::{
        RealtimeThreadSchedulePolicy::Fifo, ThreadPriority, ThreadSchedulePolicy,
        set_thread_priority_and_policy, thread_native_id,
    };
    // The least of the real-time priorities is above all ordinary ones.
    let policy = ThreadSchedulePolicy::Realtime(Fifo);
    if set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy).is_ok() {
        return true;
    }
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
    false
}

/// Raises the calling thread and notes the outcome for others.
pub(crate) fn raise_and_note(is_real_time: &AtomicBool) {
    is_real_time.store(raise(), Relaxed);
}
