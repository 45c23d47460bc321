//! Where a [`Span`] lies in the trie.

use super::path::{NIBBLE_BITS, Prefix, nibble};
use quorate_types::Span;

/// The nodes of the trie that a span covers.
pub(crate) trait SpanNodes: Sized {
    /// The prefix of whole nibbles that all its keys share.
    fn prefix(&self) -> Prefix;

    /// How many bits it has beyond its [`prefix`](Self::prefix): 0 to 3.
    fn odd_bits(&self) -> usize;

    /// The prefixes of the topmost nodes in it, in order: its own, or those of the children of one
    /// branch.
    fn nodes(&self) -> impl Iterator<Item = Prefix>;

    /// The span of all keys under a prefix.
    fn under(prefix: &Prefix) -> Option<Self>;
}

impl SpanNodes for Span {
    fn prefix(&self) -> Prefix {
        Prefix::of_key(self.first(), self.bits() / NIBBLE_BITS)
    }

    fn odd_bits(&self) -> usize {
        self.bits() % NIBBLE_BITS
    }

    fn nodes(&self) -> impl Iterator<Item = Prefix> {
        let prefix = self.prefix();
        let odd = self.odd_bits();
        let from = if odd == 0 {
            0
        } else {
            nibble(self.first(), prefix.len())
        };
        let count = if odd == 0 { 1 } else { 16_u8 >> odd };
        (from..from + count).map(move |step| match odd {
            0 => prefix,
            _ => prefix.extended(step),
        })
    }

    fn under(prefix: &Prefix) -> Option<Self> {
        Self::of(prefix.padded(), prefix.bits())
    }
}
