//! The replica's inputs.

use crate::inlet::Queued;
use quorate_api::OffenderJson;
use quorate_consensus::JobId;
use quorate_consensus::Order;
use quorate_consensus::Verdict;
use quorate_types::Digest;
use quorate_types::Height;
use quorate_types::Identity;
use quorate_types::Message;
use quorate_types::ValidatorIndex;
use quorate_types::View;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// An input of the replica.
pub enum Event {
    /// Messages of one frame.
    Frame {
        from: ValidatorIndex,
        messages: Vec<Message>,
        /// Whether the frame was relayed because there is no link to its sender.
        across: bool,
        /// The room that they take in the queue; freed with the event.
        queued: Queued,
    },
    /// The crypto pool's verdicts.
    Checked(Vec<(JobId, Verdict)>),
    /// A proposed block was checked.
    Validated {
        view: View,
        block: Digest,
        /// Why no honest leader could have built it; `None` if it is valid.
        invalid: Option<&'static str>,
    },
    /// Blocks up to this height are durable in the database.
    Executed(Height),
    /// A peer requests a block that the engine may hold in memory.
    Wanted {
        from: ValidatorIndex,
        id: Digest,
        /// The room that the request takes in the queue; freed with the event.
        #[allow(dead_code)]
        queued: Queued,
    },
    /// The first transaction has come that can go into a block.
    Pending,
    /// The link to a validator has come up or gone down.
    Linked { peer: ValidatorIndex, up: bool },
    /// An order of the operator, or the end of a penalty.
    Ordered(Ordered),
    /// The node is stopping.
    Stop,
}

/// An order about a validator.
pub struct Ordered {
    pub validator: ValidatorIndex,
    pub order: Order,
    /// For how long; `None` for good.
    pub lasts: Option<Duration>,
    /// Where the outcome is sent.
    pub reply: Option<oneshot::Sender<Result<Option<OffenderJson>, String>>>,
}

/// Cuts the link to a validator, or allows it again.
pub type Cutter = Arc<dyn Fn(Identity, Cut) + Send + Sync>;

/// What to do with a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Refuse it for a minute.
    Off,
    /// Allow it again.
    Allowed,
}
