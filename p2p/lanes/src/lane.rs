/// A class of traffic with its own channel, quota, queue and frame limit.
///
/// On each link, `Votes` and `Control` overtake frames queued in the other two lanes, and `Fetch`
/// overtakes `Transactions`. Within a lane frames are sent in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Votes, certificates, proposals. Urgent; frames up to the configured limit.
    Votes,
    /// Requests for blocks and certificates, and the responses. Frames up to the configured limit.
    Fetch,
    /// Forwarded batches of transactions. Frames up to 1 MiB; the smallest queue.
    Transactions,
    /// Small messages about the node itself (status, watermarks). Urgent; frames up to 64 KiB.
    Control,
}

pub const LANES: usize = 4;

impl Lane {
    /// Every lane, most urgent first.
    pub const ALL: [Self; LANES] = [Self::Votes, Self::Control, Self::Fetch, Self::Transactions];

    /// The lane's name, as in the metric label `lane`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Votes => "votes",
            Self::Fetch => "fetch",
            Self::Transactions => "transactions",
            Self::Control => "control",
        }
    }

    /// Every lane, in the order of [`Self::index`].
    pub const fn by_index() -> [Self; LANES] {
        [Self::Votes, Self::Fetch, Self::Transactions, Self::Control]
    }

    /// The lane's index in a table of all lanes, and its channel on the wire.
    pub const fn index(self) -> usize {
        match self {
            Self::Votes => 0,
            Self::Fetch => 1,
            Self::Transactions => 2,
            Self::Control => 3,
        }
    }

    /// Whether the lane's frames overtake the others in a connection's queue.
    pub const fn is_urgent(self) -> bool {
        matches!(self, Self::Votes | Self::Control)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_of_each_lane_is_its_own() {
        for (index, lane) in Lane::by_index().into_iter().enumerate() {
            assert_eq!(lane.index(), index);
        }
        let mut by_index = Lane::ALL;
        by_index.sort_by_key(|lane| lane.index());
        assert_eq!(by_index, Lane::by_index());
    }
}
