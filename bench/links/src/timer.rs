//! Wakes the carrier at a point in time, to within microseconds where the system can.

use mio::{Registry, Token};
use std::{io, time::Instant};

/// A timer in the carrier's epoll set.
///
/// `epoll_wait` counts milliseconds and sleeping threads have a slack of 50 µs. A `timerfd` has neither.
#[cfg(target_os = "linux")]
pub(crate) struct Timer {
    descriptor: std::os::fd::OwnedFd,
    armed_for: Option<Instant>,
}

#[cfg(target_os = "linux")]
impl Timer {
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        use std::os::fd::AsRawFd;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let descriptor = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let raw = descriptor.as_raw_fd();
        registry.register(
            &mut mio::unix::SourceFd(&raw),
            token,
            mio::Interest::READABLE,
        )?;
        Ok(Self {
            descriptor,
            armed_for: None,
        })
    }

    /// Wakes at `at`, or not at all. Returns how long the wait may last at most. An expiry need not be
    /// read: the set reports edges, and setting the timer anew clears it.
    pub(crate) fn set(
        &mut self,
        at: Option<Instant>,
        now: Instant,
    ) -> io::Result<Option<std::time::Duration>> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
        let Some(at) = at else { return Ok(None) };
        if self.armed_for == Some(at) {
            return Ok(None);
        }
        let wait = at.saturating_duration_since(now);
        let zero = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // All zeros would disarm it.
        let value = Timespec {
            tv_sec: wait.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: wait.subsec_nanos().max(1).into(),
        };
        let timer = Itimerspec {
            it_interval: zero,
            it_value: value,
        };
        timerfd_settime(&self.descriptor, TimerfdTimerFlags::empty(), &timer)?;
        self.armed_for = Some(at);
        Ok(None)
    }

    /// When it goes off, or has gone off.
    pub(crate) fn set_for(&self) -> Option<Instant> {
        self.armed_for
    }

    /// It has gone off, so the same time can be set again.
    pub(crate) fn expired(&mut self) {
        self.armed_for = None;
    }
}

/// Where there is no `timerfd`, the poll's own timeout, which other systems count more finely.
#[cfg(not(target_os = "linux"))]
pub(crate) struct Timer;

#[cfg(not(target_os = "linux"))]
impl Timer {
    pub(crate) fn new(_: &Registry, _: Token) -> io::Result<Self> {
        Ok(Self)
    }

    pub(crate) fn set(
        &mut self,
        at: Option<Instant>,
        now: Instant,
    ) -> io::Result<Option<std::time::Duration>> {
        Ok(at.map(|at| at.saturating_duration_since(now)))
    }

    pub(crate) fn set_for(&self) -> Option<Instant> {
        None
    }

    pub(crate) fn expired(&mut self) {}
}
