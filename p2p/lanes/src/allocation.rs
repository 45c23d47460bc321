//! How a validator divides its bandwidth among the peers that fetch from it: adaptive state
//! transfer (Milićević, EPFL 2025), and what was added to it.
//!
//! Each peer has a *ceiling*, the rate that its connection can take, and a *guaranteed* rate, which
//! it gets even if all others fetch as well. Guaranteed rates are proportional to the ceilings, add
//! up to the link, and are divided by the peer's rank. What that frees is given out again, in a way
//! that [`Sharing`] names.
//!
//! In the thesis the rank is that of past use alone: who has had least comes first. With two honest
//! peers this converges to equal *use*, whatever their connections can take: the slower one ends
//! late, and the link is not full after the faster one is done. So [`Sharing::Need`] ranks by need:
//! a peer that can take less comes first, since what it leaves is for the others; of those that can
//! take about the same, the one that has least left, so that one is whole early and the other one no
//! later. Past use decides between equals. A peer that truly needs nothing, because it votes or has
//! had that part already, is a *scavenger*: it gets what the connections of the others cannot take, and a fiftieth of
//! the link. It does not borrow what they leave for a moment, as between an answer and their next request: an
//! answer to a scavenger would be in the way of theirs.

/// Scavengers together are guaranteed this part of the link: 1/50.
const SCAVENGED: u64 = 50;

/// Connections whose rates differ by less than this factor count as equally fast: 5/4.
const SIMILAR: (u64, u64) = (5, 4);

/// How what the ranks free is given out again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sharing {
    /// No ranks: guaranteed rates follow the ceilings alone.
    Static,
    /// In equal parts.
    Uniform,
    /// In proportion to what each is guaranteed.
    Proportional,
    /// Not at all: who is first borrows first, as with the priorities of the kernel's `htb`.
    Priority,
    /// Ranked by need; who is first gets it, up to its ceiling.
    #[default]
    Need,
}

/// A peer that is being served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Most bytes a second that it is sent.
    pub ceiling: u64,
    /// Bytes a second that its connection has taken. Only [`Sharing::Need`] looks at it.
    pub takes: u64,
    /// Bytes that it was sent within the window.
    pub used: u64,
    /// Whether it needs what it requests. Only [`Sharing::Need`] looks at it.
    pub is_scavenger: bool,
    /// How much it still needs, in millionths of the whole.
    pub left: u32,
}

/// What a peer gets, in bytes a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    pub guaranteed: u64,
    pub ceiling: u64,
    /// 1 for the first. Of [`Sharing::Static`], 1 for all.
    pub rank: u64,
}

/// Divides the link among the peers that are being served.
pub fn allocate(link: u64, sharing: Sharing, claims: &[Claim]) -> Vec<Rate> {
    let ranks = ranks(sharing, claims);
    let is_scavenger = |claim: &Claim| sharing == Sharing::Need && claim.is_scavenger;
    let scavengers = claims.iter().filter(|claim| is_scavenger(claim)).count();
    // Without anybody in need, scavengers share the link as others would.
    let apart = scavengers > 0 && scavengers < claims.len();
    let scavenged = if apart { link / SCAVENGED } else { 0 };
    let in_need = |claim: &Claim| !(apart && is_scavenger(claim));
    let sum: u128 = claims
        .iter()
        .filter(|claim| in_need(claim))
        .map(|claim| u128::from(claim.ceiling.min(link)))
        .sum();
    let mut rates: Vec<Rate> = claims
        .iter()
        .zip(ranks)
        .map(|(claim, rank)| {
            let ceiling = claim.ceiling.min(link);
            let guaranteed = match in_need(claim) {
                true => (share(link - scavenged, ceiling.into(), sum) / rank).min(ceiling),
                false => (scavenged / scavengers as u64).min(ceiling),
            };
            Rate {
                guaranteed,
                ceiling,
                rank,
            }
        })
        .collect();
    let given: u64 = rates.iter().map(|rate| rate.guaranteed).sum();
    redistribute(link.saturating_sub(given), link, sharing, &mut rates);
    for (rate, claim) in rates.iter_mut().zip(claims) {
        if !in_need(claim) {
            rate.ceiling = rate.guaranteed;
        }
    }
    rates
}

/// `whole × part / sum`.
fn share(whole: u64, part: u128, sum: u128) -> u64 {
    let share = u128::from(whole) * part / sum.max(1);
    u64::try_from(share).unwrap_or(whole)
}

fn ranks(sharing: Sharing, claims: &[Claim]) -> Vec<u64> {
    if sharing == Sharing::Static {
        return vec![1; claims.len()];
    }
    let mut order: Vec<usize> = (0..claims.len()).collect();
    if sharing == Sharing::Need {
        order.sort_by_key(|place| (claims[*place].takes, *place));
        // A new class begins with a connection that takes well more than the first of the last one.
        let mut classes = vec![0; claims.len()];
        let (mut class, mut first) = (0, None);
        for place in &order {
            let takes = claims[*place].takes;
            let least = *first.get_or_insert(takes);
            let (over, under) = SIMILAR;
            if u128::from(takes) * u128::from(under) > u128::from(least) * u128::from(over) {
                class += 1;
                first = Some(takes);
            }
            classes[*place] = class;
        }
        order.sort_by_key(|place| {
            let claim = &claims[*place];
            let need = (claim.is_scavenger, classes[*place], claim.left);
            (need, claim.used, *place)
        });
    } else {
        order.sort_by_key(|place| (claims[*place].used, *place));
    }
    let mut ranks = vec![0; claims.len()];
    for (rank, place) in (1..).zip(order) {
        ranks[place] = rank;
    }
    ranks
}

/// Gives the excess to those below their ceilings.
fn redistribute(mut excess: u64, link: u64, sharing: Sharing, rates: &mut [Rate]) {
    match sharing {
        Sharing::Static | Sharing::Priority => {}
        Sharing::Uniform => {
            // What one cannot take is shared again by the others.
            while let open = rates.iter().filter(|rate| rate.room() > 0).count() as u64
                && open > 0
                && excess >= open
            {
                let each = excess / open;
                for rate in rates.iter_mut() {
                    excess -= rate.add(each.min(excess));
                }
            }
        }
        Sharing::Proportional => {
            let all = excess;
            for rate in rates.iter_mut() {
                let part = share(all, rate.guaranteed.into(), link.into());
                excess -= rate.add(part.min(excess));
            }
        }
        Sharing::Need => {
            let mut order: Vec<&mut Rate> = rates.iter_mut().collect();
            order.sort_by_key(|rate| rate.rank);
            for rate in order {
                excess -= rate.add(excess);
            }
        }
    }
}

impl Rate {
    fn room(&self) -> u64 {
        self.ceiling.saturating_sub(self.guaranteed)
    }

    /// Adds up to this much. Returns how much was added.
    fn add(&mut self, excess: u64) -> u64 {
        let added = excess.min(self.room());
        self.guaranteed += added;
        added
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: u64 = 1_000;

    fn claim(ceiling: u64, used: u64) -> Claim {
        Claim {
            ceiling,
            takes: ceiling,
            used,
            is_scavenger: false,
            left: 1_000_000,
        }
    }

    fn guaranteed(sharing: Sharing, claims: &[Claim]) -> Vec<u64> {
        let rates = allocate(LINK, sharing, claims);
        rates.iter().map(|rate| rate.guaranteed).collect()
    }

    /// The vectors of the thesis: ceilings of 1,000 and 700 on a link of 1,000.
    #[test]
    fn the_rates_are_those_of_the_source() {
        let slow_first = [claim(1_000, 5), claim(700, 0)];
        let fast_first = [claim(1_000, 0), claim(700, 5)];
        assert_eq!(guaranteed(Sharing::Static, &slow_first), [588, 411]);
        assert_eq!(guaranteed(Sharing::Priority, &slow_first), [294, 411]);
        assert_eq!(guaranteed(Sharing::Uniform, &slow_first), [441, 558]);
        assert_eq!(guaranteed(Sharing::Proportional, &slow_first), [380, 532]);
        assert_eq!(guaranteed(Sharing::Uniform, &fast_first), [691, 308]);
        assert_eq!(guaranteed(Sharing::Proportional, &fast_first), [709, 247]);
    }

    #[test]
    fn who_can_take_less_is_first_and_the_rest_is_for_the_others() {
        for used in [0, 5] {
            let claims = [claim(1_000, 0), claim(700, used)];
            assert_eq!(guaranteed(Sharing::Need, &claims), [300, 700]);
        }
    }

    #[test]
    fn of_equals_the_one_with_least_left_is_first_and_the_rest_has_a_floor() {
        let mut claims = [claim(900, 0), claim(1_000, 9), claim(1_000, 0)];
        claims[1].left = 10;
        let rates = allocate(LINK, Sharing::Need, &claims);
        let ranks: Vec<_> = rates.iter().map(|rate| rate.rank).collect();
        assert_eq!(ranks, [2, 1, 3]);
        assert!(rates[2].guaranteed > LINK / 12, "{rates:?}");
        assert!(rates[1].guaranteed > LINK / 2, "{rates:?}");
    }

    #[test]
    fn a_scavenger_takes_what_is_left_or_everything_if_it_is_alone() {
        let mut claims = [claim(1_000, 0), claim(1_000, 0)];
        claims[0].is_scavenger = true;
        assert_eq!(guaranteed(Sharing::Need, &claims), [20, 980]);
        assert_eq!(guaranteed(Sharing::Need, &claims[..1]), [1_000]);
        let ceilings = |claims: &[Claim]| {
            let rates = allocate(LINK, Sharing::Need, claims);
            rates.iter().map(|rate| rate.ceiling).collect::<Vec<_>>()
        };
        assert_eq!(ceilings(&claims), [20, 1_000], "it does not borrow");
        assert_eq!(ceilings(&claims[..1]), [1_000]);
        claims[1].ceiling = 100;
        claims[1].takes = 100;
        assert_eq!(guaranteed(Sharing::Need, &claims), [900, 100]);
        assert_eq!(ceilings(&claims), [900, 100]);
    }

    #[test]
    fn no_division_gives_more_than_the_link_or_a_ceiling() {
        let sharings = [
            Sharing::Static,
            Sharing::Uniform,
            Sharing::Proportional,
            Sharing::Priority,
            Sharing::Need,
        ];
        let mut seed = 7_u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        for _ in 0..2_000 {
            let link = random(1 << 40) + 1;
            let claims: Vec<_> = (0..random(20))
                .map(|_| Claim {
                    ceiling: random(2 * link),
                    takes: random(2 * link),
                    used: random(100),
                    is_scavenger: random(3) == 0,
                    left: u32::try_from(random(1_000_000)).expect("small"),
                })
                .collect();
            for sharing in sharings {
                let rates = allocate(link, sharing, &claims);
                let sum: u64 = rates.iter().map(|rate| rate.guaranteed).sum();
                assert!(sum <= link, "{sharing:?} {claims:?} {rates:?}");
                assert!(rates.iter().all(|rate| rate.guaranteed <= rate.ceiling));
            }
        }
    }
}
