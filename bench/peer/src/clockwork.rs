//! A validator's own runtime within the deterministic one: its clock, and its disk with what syncs
//! take.
//!
//! The library's simulated network cuts latencies down to whole milliseconds. So its time is
//! stretched: a millisecond there is a microsecond here, and the validators' clocks tell the time
//! in microseconds of ours.

use crate::charged::Meter;
use commonware_runtime::{
    Blob, BlobVersion, Clock, Error, Handle, IoBufs, IoBufsMut, Metrics, Name, ReadOptions,
    Spawner, Storage, Supervisor, WriteOptions,
    deterministic::Context,
    signal::Signal,
    telemetry::metrics::{Metric, Registered},
};
use governor::clock::{Clock as GovernorClock, ReasonablyRealtime};
use rand::{TryCryptoRng, TryRng};
use std::{
    convert::Infallible,
    fmt::Display,
    ops::RangeInclusive,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// How much slower the simulated network's time goes.
pub(crate) const STRETCH: u32 = 1_000;

/// The partition of the voter's journal.
const JOURNAL: &str = "consensus";

/// So long in the network's time.
pub(crate) fn stretched(duration: Duration) -> Duration {
    duration.saturating_mul(STRETCH)
}

/// The runtime of one validator.
pub(crate) struct Clockwork {
    inner: Context,
    index: usize,
    meter: Arc<Meter>,
}

impl Clockwork {
    pub(crate) fn new(inner: Context, index: usize, meter: Arc<Meter>) -> Self {
        Self {
            inner,
            index,
            meter,
        }
    }

    fn around(&self, inner: Context) -> Self {
        Self::new(inner, self.index, self.meter.clone())
    }

    /// Disks are apart.
    fn partition(&self, partition: &str) -> String {
        format!("{}-{partition}", self.index)
    }
}

impl Supervisor for Clockwork {
    fn name(&self) -> Name {
        self.inner.name()
    }

    fn child(&self, label: &'static str) -> Self {
        self.around(self.inner.child(label))
    }

    fn with_attribute(mut self, key: &'static str, value: impl Display) -> Self {
        self.inner = self.inner.with_attribute(key, value);
        self
    }
}

impl Spawner for Clockwork {
    fn shared(mut self, blocking: bool) -> Self {
        self.inner = self.inner.shared(blocking);
        self
    }

    fn dedicated(mut self) -> Self {
        self.inner = self.inner.dedicated();
        self
    }

    fn spawn<F, Fut, T>(self, task: F) -> Handle<T>
    where
        F: FnOnce(Self) -> Fut + Send + 'static,
        Fut: Future<Output = T> + Send + 'static,
        T: Send + 'static,
    {
        let Self {
            inner,
            index,
            meter,
        } = self;
        inner.spawn(move |inner| task(Self::new(inner, index, meter)))
    }

    async fn stop(self, value: i32, timeout: Option<Duration>) -> Result<(), Error> {
        self.inner.stop(value, timeout.map(stretched)).await
    }

    fn stopped(&self) -> Signal {
        self.inner.stopped()
    }
}

impl Metrics for Clockwork {
    fn register<N: Into<String>, H: Into<String>, M: Metric>(
        &self,
        name: N,
        help: H,
        metric: M,
    ) -> Registered<M> {
        self.inner.register(name, help, metric)
    }

    fn encode(&self) -> String {
        self.inner.encode()
    }
}

impl Clock for Clockwork {
    fn current(&self) -> SystemTime {
        let since = self.inner.current().duration_since(UNIX_EPOCH);
        UNIX_EPOCH + since.unwrap_or_default() / STRETCH
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.inner.sleep(stretched(duration))
    }

    fn sleep_until(
        &self,
        deadline: SystemTime,
    ) -> impl Future<Output = ()> + Send + 'static + use<> {
        let since = deadline.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.inner.sleep_until(UNIX_EPOCH + stretched(since))
    }
}

impl GovernorClock for Clockwork {
    type Instant = SystemTime;

    fn now(&self) -> SystemTime {
        self.current()
    }
}

impl ReasonablyRealtime for Clockwork {}

impl TryRng for Clockwork {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        self.inner.try_next_u32()
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        self.inner.try_next_u64()
    }

    fn try_fill_bytes(&mut self, destination: &mut [u8]) -> Result<(), Infallible> {
        self.inner.try_fill_bytes(destination)
    }
}

impl TryCryptoRng for Clockwork {}

impl Storage for Clockwork {
    type Blob = File;

    async fn open_versioned(
        &self,
        partition: &str,
        name: &[u8],
        versions: RangeInclusive<BlobVersion>,
    ) -> Result<(File, u64, BlobVersion), Error> {
        let own = self.partition(partition);
        let opened = self.inner.open_versioned(&own, name, versions).await?;
        let (inner, size, version) = opened;
        let file = File {
            inner,
            of_voter: partition.starts_with(JOURNAL),
            clock: Arc::new(self.child("disk")),
        };
        // Nothing opens a file that it has left empty.
        if size == 0 {
            self.sleep(self.meter.costs.create).await;
        }
        Ok((file, size, version))
    }

    async fn remove(&self, partition: &str, name: Option<&[u8]>) -> Result<(), Error> {
        self.inner.remove(&self.partition(partition), name).await?;
        self.sleep(self.meter.costs.sync).await;
        Ok(())
    }

    async fn scan(&self, partition: &str) -> Result<Vec<Vec<u8>>, Error> {
        self.inner.scan(&self.partition(partition)).await
    }
}

/// A file whose syncs take time.
pub(crate) struct File {
    inner: <Context as Storage>::Blob,
    /// Whether it is the voter's, who pays here for what it has signed.
    of_voter: bool,
    clock: Arc<Clockwork>,
}

impl File {
    /// Waits for as long as a sync takes that begins now.
    fn synced(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        let meter = &self.clock.meter;
        let signed = match self.of_voter {
            true => meter.signed(),
            false => Duration::ZERO,
        };
        self.clock.sleep(signed + meter.costs.sync)
    }
}

impl Blob for File {
    async fn read_at_buf(
        &self,
        offset: u64,
        len: usize,
        bufs: impl Into<IoBufsMut> + Send,
        options: ReadOptions,
    ) -> Result<IoBufsMut, Error> {
        self.inner.read_at_buf(offset, len, bufs, options).await
    }

    async fn read_at(
        &self,
        offset: u64,
        len: usize,
        options: ReadOptions,
    ) -> Result<IoBufsMut, Error> {
        self.inner.read_at(offset, len, options).await
    }

    async fn write_at(
        &self,
        offset: u64,
        bufs: impl Into<IoBufs> + Send,
        options: WriteOptions,
    ) -> Result<(), Error> {
        self.inner.write_at(offset, bufs, options).await?;
        if options.contains(WriteOptions::SYNC) {
            self.synced().await;
        }
        Ok(())
    }

    async fn resize(&self, len: u64) -> Result<(), Error> {
        self.inner.resize(len).await
    }

    async fn sync(&self) -> Result<(), Error> {
        self.inner.sync().await?;
        self.synced().await;
        Ok(())
    }

    async fn start_sync(&self) -> Handle<()> {
        let started = self.inner.start_sync().await;
        let synced = self.synced();
        Handle::from_future(async move {
            synced.await;
            started.await
        })
    }
}
