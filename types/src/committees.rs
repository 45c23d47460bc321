//! Which validators serve in which epoch.

use crate::{Committee, Epoch, ValidatorIndex, View};
use quorate_crypto::Identity;
use std::sync::Arc;

/// The committee of every epoch. All parts of a process share one value and ask it by epoch, so a change
/// of the set of validators has this one place to come from. So far the genesis committee serves in
/// every epoch.
#[derive(Clone, Debug)]
pub struct Committees(Arc<Committee>);

impl Committees {
    /// The same validators in every epoch.
    pub fn fixed(committee: Committee) -> Self {
        Self(Arc::new(committee))
    }

    /// The committee of an epoch.
    pub fn of(&self, epoch: Epoch) -> Committee {
        self.0.with_epoch(epoch)
    }

    /// The leader of a view.
    pub fn leader(&self, epoch: Epoch, view: View) -> ValidatorIndex {
        self.0.leader_in(epoch, view)
    }

    /// The identity of a view's leader.
    pub fn leader_identity(&self, epoch: Epoch, view: View) -> Option<Identity> {
        self.0.identity(self.leader(epoch, view))
    }

    /// The validators that this process keeps links with, and limits of each are kept for.
    pub fn known(&self) -> &Committee {
        &self.0
    }
}
