//! The thread that answers peers' requests for stored blocks.

use crate::inlet::Request;
use anyhow::Context;
use commonware_codec::EncodeSize;
use crossbeam_channel::Receiver;
use quorate_consensus::{Outbound, Target};
use quorate_storage::store::Store;
use quorate_types::{
    EpochLength, Height, Message, ValidatorIndex,
    limits::{MAX_RANGE_BLOCKS, RANGE_REPLY_BYTES},
};

use crate::outlet::Outlet;

/// Answers from the store.
pub struct Server {
    pub(crate) store: Store,
    pub(crate) epoch_length: EpochLength,
    pub(crate) outlet: Outlet,
}

impl Server {
    /// Answers requests until the links are gone. One at a time: a flood of requests queues up, is
    /// bounded there, and takes at most this one thread's time.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub(crate) fn run(self, requests: Receiver<(ValidatorIndex, Request)>) -> anyhow::Result<()> {
        while let Ok((from, request)) = requests.recv() {
            self.serve(from, request)?;
        }
        Ok(())
    }

    /// Answers one request.
    ///
    /// # Errors
    ///
    /// If the database cannot be read.
    pub fn serve(&self, from: ValidatorIndex, request: Request) -> anyhow::Result<()> {
        let answer = answer(&self.store, self.epoch_length, request);
        if let Some(message) = answer.context("cannot read a stored block")? {
            self.outlet.send(vec![Outbound {
                to: Target::One(from),
                message,
            }]);
        }
        Ok(())
    }
}

fn answer(
    store: &Store,
    epoch_length: EpochLength,
    request: Request,
) -> anyhow::Result<Option<Message>> {
    match request {
        Request::Block(id) => {
            let Some(height) = store.height_of(&id)? else {
                return Ok(None);
            };
            let block = store.block(height)?;
            Ok(block.map(|stored| Message::BlockReply(stored.block)))
        }
        Request::Range(from) => range(store, epoch_length, from),
    }
}

/// Consecutive blocks up to the last that has a finalization of its own within the limits and the
/// epoch: who asks verifies with the keys of the epoch that it is in.
fn range(
    store: &Store,
    epoch_length: EpochLength,
    from: Height,
) -> anyhow::Result<Option<Message>> {
    let mut blocks = Vec::new();
    let mut finalization = None;
    let mut closed = 0;
    let mut bytes = 0;
    let mut height = from;
    while blocks.len() < MAX_RANGE_BLOCKS && bytes < RANGE_REPLY_BYTES {
        let Some(stored) = store.block(height)? else {
            break;
        };
        bytes += stored.block.encode_size();
        blocks.push(stored.block);
        if stored.certificate.is_some() {
            finalization = stored.certificate;
            closed = blocks.len();
        }
        if epoch_length.is_last(height) {
            break;
        }
        height = height.next();
    }
    if closed > 0 {
        blocks.truncate(closed);
    }
    Ok((!blocks.is_empty()).then_some(Message::RangeReply {
        blocks,
        finalization,
    }))
}
