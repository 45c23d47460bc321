//! The mark of what has been synced to disk.

/// A value that may leave this node because what it depends on is durable.
///
/// A validator that forgets a vote in a crash can vote again and differently, which is what
/// breaks consensus. So whatever carries votes is handed to the network as a `Durable` only, and
/// only the vote journal, after its sync has succeeded, makes one (a test over the sources holds
/// that no other code calls [`Durable::after_sync`]).
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a durable message that is not sent is a vote that nobody hears"]
pub struct Durable<T>(T);

impl<T> Durable<T> {
    /// Marks a value. For the vote journal alone, after a successful sync.
    pub fn after_sync(value: T) -> Self {
        Self(value)
    }

    /// The value, for sending.
    pub fn into_inner(self) -> T {
        self.0
    }

    /// The value, for looking.
    pub fn get(&self) -> &T {
        &self.0
    }
}
