//! Whether honest validators vote only for blocks that may follow what was decided before (R3, R11): judged by
//! who has signed what, not by the certificates that a validator holds.

use quorate_types::{
    Block, Committee, Digest, Epoch, Header, Height, Subject, View, VoteKind, genesis::Protocol,
};
use std::collections::{BTreeMap, BTreeSet};

/// The blocks that honest validators have in their journals.
pub(crate) struct Parents {
    protocol: Protocol,
    /// How many views in a row a validator leads.
    turn: u64,
    /// The views in which each host has said finalize, by epoch.
    locks: BTreeMap<(usize, Epoch), BTreeSet<View>>,
    /// The highest view in which each host has said notarize, by epoch.
    voted: BTreeMap<(usize, Epoch), View>,
    headers: BTreeMap<Digest, Header>,
    /// What blocks that begin an epoch were taken to build on, and by whom, until that height is final.
    borders: BTreeMap<Height, Vec<(usize, Digest)>>,
}

impl Parents {
    pub(crate) fn new(committee: &Committee) -> Self {
        Self {
            protocol: committee.turns().protocol,
            turn: committee.turn(),
            locks: BTreeMap::new(),
            voted: BTreeMap::new(),
            headers: BTreeMap::new(),
            borders: BTreeMap::new(),
        }
    }

    /// An honest validator says finalize.
    pub(crate) fn finalize(&mut self, host: usize, epoch: Epoch, view: View) {
        self.locks.entry((host, epoch)).or_default().insert(view);
    }

    pub(crate) fn journaled(&mut self, block: &Block) {
        self.headers.insert(block.id(), *block.header());
    }

    /// An honest validator votes notarize for this block in a view. `signed` tells whether enough have
    /// signed for a certificate to be there; `agreed` which block is final at a height, if one is.
    pub(crate) fn vote(
        &mut self,
        host: usize,
        (epoch, view, id): (Epoch, View, Digest),
        mut signed: impl FnMut(Subject) -> bool,
        agreed: impl Fn(Height) -> Option<Digest>,
    ) -> Result<(), String> {
        // H1; it holds for simplex as well.
        if let Some(before) = self.voted.insert((host, epoch), view)
            && before >= view
        {
            return Err(format!(
                "host {host} votes notarize in {epoch:?} {view:?} after {before:?}"
            ));
        }
        let Some(header) = self.headers.get(&id) else {
            return Ok(());
        };
        let refused = |why: String| {
            Err(format!(
                "host {host} votes notarize in {epoch:?} {view:?} {why}"
            ))
        };
        let mut notarized = |view: View, payload: Digest| {
            signed(Subject {
                epoch,
                view,
                kind: VoteKind::Notarize,
                payload,
            })
        };
        let parent_view = if header.view < view {
            // The epoch's last block once more, on its own newest notarization.
            let mut views = (header.view.0..view.0).rev().map(View);
            let Some(newest) = views.find(|view| notarized(*view, id)) else {
                return refused("for an older block that no quorum has notarized".to_owned());
            };
            newest
        } else if header.parent_view > View(0) {
            if !notarized(header.parent_view, header.parent) {
                let parent_view = header.parent_view;
                return refused(format!("on a block that {parent_view:?} has not notarized"));
            }
            header.parent_view
        } else {
            let height = Height(header.height.0 - 1);
            match agreed(height) {
                Some(last) if last != header.parent => {
                    return refused("on another block than the epoch before ended with".to_owned());
                }
                Some(_) => {}
                None => self
                    .borders
                    .entry(height)
                    .or_default()
                    .push((host, header.parent)),
            }
            View(0)
        };
        // What a leader casts is sent to itself, and perhaps carried to the next one after later votes.
        let locks = self.locks.get(&(host, epoch));
        let lock = locks.and_then(|views| views.range(..view).next_back().copied());
        let (first, lock) = match self.protocol {
            Protocol::Simplex => (parent_view.0 + 1, None),
            // H3
            Protocol::HotstuffChained => (view.0.saturating_sub(1).max(parent_view.0 + 1), lock),
            // B3
            Protocol::HotstuffBasic => {
                let before = (view.0 - 1) / 3 * 3;
                let turn = before.saturating_sub(2).max(1)..=before;
                let first = View(*turn.start());
                let over = view.0 % 3 != 1
                    || before == 0
                    || signed(Subject {
                        epoch,
                        view: first,
                        kind: VoteKind::Finalize,
                        payload: if header.view < view {
                            id
                        } else {
                            header.parent
                        },
                    })
                    || turn
                        .map(View)
                        .any(|view| signed(Subject::nullify(epoch, view)));
                if !over {
                    return refused(format!("although the turn of {first:?} is not over"));
                }
                (view.0, lock)
            }
            // P3
            Protocol::Pbft => {
                let turn = self.turn;
                let mut at = parent_view.0 + 1;
                while at < view.0 {
                    let first = (at - 1) / turn * turn + 1;
                    let covered = |of| signed(Subject::nullify(epoch, View(of)));
                    if !(view.0 - 1).is_multiple_of(turn) || !(first..=at).any(covered) {
                        return refused(format!(
                            "for a block after {parent_view:?}, and {at} is not covered"
                        ));
                    }
                    at = first + turn;
                }
                (view.0, None)
            }
        };
        if let Some(lock) = lock.filter(|lock| parent_view < *lock) {
            return refused(format!(
                "for a block after {parent_view:?}, and is locked on {lock:?}"
            ));
        }
        for between in (first..view.0).map(View) {
            if !signed(Subject::nullify(epoch, between)) {
                return refused(format!(
                    "for a block after {parent_view:?}, and {between:?} is not nullified"
                ));
            }
        }
        Ok(())
    }

    /// A block is final.
    pub(crate) fn agreed(&mut self, height: Height, id: Digest) -> Result<(), String> {
        for (host, parent) in self.borders.remove(&height).unwrap_or_default() {
            if parent != id {
                return Err(format!(
                    "host {host} has voted for the first block of an epoch on another block at {height:?} \
                     than the final one"
                ));
            }
        }
        Ok(())
    }
}
