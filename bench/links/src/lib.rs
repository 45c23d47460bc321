//! Wide-area links between real processes on one machine.
//!
//! For each ordered pair of endpoints the [`Emulator`] listens on a port of the loopback interface.
//! A process is told to dial its peers there. The bytes are carried to the peer's true address and
//! back, and each way has the properties of its own [`Link`]. Nothing needs root, and the processes
//! know nothing of it.
//!
//! # The model
//!
//! What a pair of processes sees is meant to be what TCP makes of a wide-area path, not the path.
//!
//! - **Delay and jitter.** Bytes arrive one delay after they were sent, plus a random part for each
//!   piece. A piece never overtakes an earlier one of its connection, since TCP keeps order. So dense
//!   traffic sees more of the jitter's upper end than its mean.
//! - **Bandwidth.** All connections from one endpoint to another share the link's line, first come,
//!   first served. [`Emulator::set_egress`] adds a line that all links of one sender share.
//! - **Window.** A connection has at most [`Link::window`] bytes each way that were sent and not yet
//!   acknowledged; the acknowledgement comes back after the other way's delay. When the window is
//!   full the emulator stops reading, and the sender's `write` blocks or waits. That, and
//!   [`KERNEL_BUFFER_BYTES`] in each socket, bounds the memory.
//! - **Slow start**, if [`Link::slow_start`] asks for it: a connection begins with ten segments for each
//!   round trip and doubles, again after each idle time, as Linux does. It is what makes a large block
//!   on a quiet connection take several round trips.
//! - **Loss.** TCP turns a lost segment into a pause of its connection. With three segments behind it
//!   the sender learns of it from duplicate acknowledgements and the pause is one round trip (RFC 5681,
//!   3.2). Otherwise nothing tells the sender, and it waits for its timer: a round trip and 200 ms, the
//!   least that Linux allows. A retransmission can be lost as well, and the timer doubles. Other
//!   connections of the link go on.
//! - **Handshake.** The kernel completes a `connect` to the loopback interface at once, and no
//!   program can delay that. So the emulator charges for it afterwards: what the dialler writes counts as
//!   sent one round trip after it dialled. The first answer comes after two round trips, as it
//!   should. The true address is dialled when the SYN would have arrived; if it refuses, the dialler
//!   sees a reset one round trip after it dialled. A lost SYN costs a second.
//! - **Partition.** Nothing is delivered between groups, connections stay open, new ones hang. When
//!   it heals, everything undelivered is sent again at once. Real TCP waits for its timer, which has
//!   doubled meanwhile, so it may take up to twice the outage.
//! - **Reset.** Both sides of a connection get a reset at once.
//!
//! What is not modelled: packets. There is no queue that drops, so no loss that comes from
//! congestion, and no fairness among connections other than first come, first served. `deploy/netns`
//! has the kernel do all that, and needs root.
//!
//! # The carrier
//!
//! One thread holds all sockets, without blocking, in one epoll set. A heap knows what is due next
//! and a `timerfd` wakes the thread: its expiry is a high-resolution timer of the kernel, without the
//! millisecond of `epoll_wait` and without the slack of sleeping threads. The thread sleeps otherwise.
//! It asks to be a real-time thread, since on a busy machine the wait for a core is what makes it late, by
//! some milliseconds; without the right to it (root or `CAP_SYS_NICE`) it goes on as it is, and
//! [`Emulator::is_real_time`] tells. [`Emulator::lateness`] tells how late bytes were in a run,
//! [`accuracy`] measures it before one.

mod accuracy;
mod carrier;
mod connection;
mod counters;
mod emulator;
mod line;
mod link;
mod priority;
mod regions;
mod stream;
mod timer;
mod window;

pub use accuracy::{Accuracy, accuracy};
pub use carrier::{KERNEL_BUFFER_BYTES, MAX_CONNECTIONS};
pub use counters::{Counters, Lateness};
pub use emulator::{Emulator, Error, MAX_ENDPOINTS};
pub use link::{
    Link, LinkError, MAX_DELAY, MAX_LOSS, MAX_SET_WINDOW_BYTES, MAX_WINDOW_BYTES,
    MIN_BITS_PER_SECOND, MIN_WINDOW_BYTES,
};
pub use regions::{Regions, RegionsError, UNITED_STATES, WORLD};
