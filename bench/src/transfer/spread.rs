//! Other ways to spread the requests for a state over its sources, to compare with.

use clap::ValueEnum;
use quorate_machine::{directory::PeerIndex, sync::MayAsk};
use quorate_types::Span;
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

/// Who is asked for which part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Spread {
    /// As a node does it: whoever has room is asked for the next part.
    #[default]
    Adaptive,
    /// "Naive1": one source is asked for everything, and the next one if it is faulty.
    OneByOne,
    /// "Naive2": all sources are asked for everything.
    All,
    /// "CST": each source is asked for an equal part, as in collaborative state transfer (Bessani et
    /// al., USENIX ATC 2013).
    Equal,
    /// "Geo": each source is asked for a part in proportion to its bandwidth (Chiba et al., 2022). There
    /// it is estimated again and again; here it is known and constant, which is the best case.
    ByBandwidth,
}

/// The sources' shares of the key space.
pub(super) struct Shares {
    spread: Spread,
    /// The sources and their bandwidths.
    sources: Vec<(PeerIndex, f64)>,
    faulty: Mutex<BTreeSet<PeerIndex>>,
}

impl Shares {
    pub(super) fn new(spread: Spread, sources: Vec<(PeerIndex, f64)>) -> Arc<Self> {
        Arc::new(Self {
            spread,
            sources,
            faulty: Mutex::default(),
        })
    }

    /// A source is faulty: the others share what it was to send.
    pub(super) fn is_faulty(&self, peer: PeerIndex) {
        let mut faulty = self.faulty.lock().unwrap_or_else(PoisonError::into_inner);
        faulty.insert(peer);
    }

    /// The runs of state sync that this takes, and whom each may ask for what.
    pub(super) fn runs(self: &Arc<Self>) -> Vec<Option<MayAsk>> {
        match self.spread {
            Spread::Adaptive => vec![None],
            Spread::All => {
                let only = |(source, _): &(PeerIndex, f64)| {
                    let source = *source;
                    Some(Box::new(move |peer, _: &Span| peer == source) as MayAsk)
                };
                self.sources.iter().map(only).collect()
            }
            Spread::OneByOne | Spread::Equal | Spread::ByBandwidth => {
                let shares = self.clone();
                vec![Some(Box::new(move |peer, span: &Span| {
                    shares.may_ask(peer, span)
                }))]
            }
        }
    }

    fn may_ask(&self, peer: PeerIndex, span: &Span) -> bool {
        let faulty = self.faulty.lock().unwrap_or_else(PoisonError::into_inner);
        let sources = self
            .sources
            .iter()
            .filter(|(source, _)| !faulty.contains(source));
        let weight = |bandwidth: f64| match self.spread {
            Spread::ByBandwidth => bandwidth,
            _ => 1.0,
        };
        if self.spread == Spread::OneByOne {
            return sources.map(|(source, _)| *source).next() == Some(peer);
        }
        let all: f64 = sources
            .clone()
            .map(|(_, bandwidth)| weight(*bandwidth))
            .sum();
        let mut first = 0.0;
        for (source, bandwidth) in sources {
            let end = first + weight(*bandwidth) / all;
            if *source == peer {
                let (from, to) = ends(span);
                return from < end && first < to;
            }
            first = end;
        }
        false
    }
}

/// Where a span begins and ends, as shares of the key space.
fn ends(span: &Span) -> (f64, f64) {
    let (head, _) = span.first().split_at(8);
    let head = u64::from_be_bytes(head.try_into().expect("eight bytes"));
    let from = head as f64 / 2_f64.powi(64);
    let bits = i32::try_from(span.bits()).unwrap_or(i32::MAX);
    (from, from + 0.5_f64.powi(bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(shares: &Shares, span: &Span) -> Vec<usize> {
        let peers = 0..4;
        peers
            .filter(|peer| shares.may_ask(PeerIndex(*peer), span))
            .collect()
    }

    #[test]
    fn shares_follow_the_bandwidth_and_those_of_faulty_sources_go_to_the_others() {
        let sources = |weights: [f64; 3]| {
            let numbered = weights.into_iter().enumerate();
            numbered.map(|(i, w)| (PeerIndex(i), w)).collect()
        };
        let [left, right] = Span::ALL.halves().expect("wide");
        let equal = Shares::new(Spread::Equal, sources([1.0, 1.0, 8.0]));
        assert_eq!(asked(&equal, &Span::ALL), [0, 1, 2]);
        assert_eq!(asked(&equal, &left), [0, 1]);
        assert_eq!(asked(&equal, &right), [1, 2]);
        let geo = Shares::new(Spread::ByBandwidth, sources([1.0, 1.0, 8.0]));
        assert_eq!(asked(&geo, &right), [2]);
        geo.is_faulty(PeerIndex(2));
        assert_eq!(asked(&geo, &right), [1]);
        let one = Shares::new(Spread::OneByOne, sources([1.0; 3]));
        assert_eq!(asked(&one, &right), [0]);
        one.is_faulty(PeerIndex(0));
        assert_eq!(asked(&one, &left), [1]);
    }
}
