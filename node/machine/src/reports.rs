//! What a validator reports about a registry outside the chain.
//!
//! A function of the reading and the state. Of several differences it reports one at a time, since only the latest
//! report of each validator counts: the first by identity from a point on that is another in each epoch. So:
//!
//! - All who read the same choose the same, whatever others report. Rejected: to follow what most others report. Liars
//!   that change sides could have kept the honest ones apart.
//! - Who sees a difference that nobody else sees does not stay with it for ever, and helps the others in most epochs.
//!
//! A report that stands in the state is not repeated, unless it is too old to count.

use quorate_crypto::sha256;
use quorate_types::{
    Bond, Epoch, ExternalEntry, ExternalRules, Identity, Operation, ValidatorSet,
    registry::{Report, entry_digest, is_known},
};
use std::collections::{BTreeMap, BTreeSet};

/// What the state says, as far as reports depend on it.
pub struct Known<'a> {
    pub epoch: Epoch,
    pub rules: ExternalRules,
    pub acting: &'a ValidatorSet,
    pub bonds: &'a BTreeMap<Identity, Bond>,
    /// The latest reports, by the places of the acting validators.
    pub reports: &'a [Option<Report>],
}

/// Where a reading and the state differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub validator: Identity,
    pub kind: DifferenceKind,
    /// How many acting validators report what this one has read.
    pub reporters: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DifferenceKind {
    /// The chain has no bond of it.
    Missing,
    /// The chain has a bond of it, and the registry no entry.
    Surplus,
    /// Stake, key, address or name are others.
    Changed,
}

impl DifferenceKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Surplus => "surplus",
            Self::Changed => "changed",
        }
    }
}

/// What is to be done about a reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// In the order of identities.
    pub differences: Vec<Difference>,
    /// What this validator should report now.
    pub report: Option<Operation>,
}

/// Compares a reading with the state. Who is not acting reports nothing.
pub fn plan(
    own: &Identity,
    reading: &BTreeMap<Identity, ExternalEntry>,
    known: &Known<'_>,
) -> Plan {
    let members = known.acting.members();
    let counting = |place: usize| {
        let report = known.reports.get(place).copied().flatten()?;
        let counts = report.counts_in(known.epoch, &known.rules)
            && members
                .get(place)
                .is_some_and(|one| one.identity == report.reporter);
        counts.then_some(report)
    };
    let said: Vec<Report> = (0..members.len()).filter_map(counting).collect();
    let everybody: BTreeSet<&Identity> = reading.keys().chain(known.bonds.keys()).collect();
    let mut differences = Vec::new();
    for validator in everybody {
        let (entry, bond) = (reading.get(validator), known.bonds.get(validator));
        if is_known(entry, bond) {
            continue;
        }
        let digest = entry_digest(validator, entry);
        let same = said
            .iter()
            .filter(|one| (one.validator, one.entry) == (*validator, digest));
        differences.push(Difference {
            validator: *validator,
            kind: match (entry, bond) {
                (Some(_), None) => DifferenceKind::Missing,
                (None, _) => DifferenceKind::Surplus,
                (Some(_), Some(_)) => DifferenceKind::Changed,
            },
            reporters: same.count(),
        });
    }
    let report = report(own, reading, known, (&said, &differences));
    Plan {
        differences,
        report,
    }
}

/// The identity from which on differences are reported in an epoch.
fn begins_at(epoch: Epoch) -> Identity {
    Identity(sha256(&[b"quorate/report-order/1", &epoch.0.to_be_bytes()]).0)
}

fn report(
    own: &Identity,
    reading: &BTreeMap<Identity, ExternalEntry>,
    known: &Known<'_>,
    (said, differences): (&[Report], &[Difference]),
) -> Option<Operation> {
    let mut members = known.acting.members().iter();
    members.find(|member| member.identity == *own)?;
    let says = said.iter().find(|report| report.reporter == *own);
    let from = begins_at(known.epoch);
    let mut later = differences.iter().filter(|one| one.validator >= from);
    let chosen = later.next().or(differences.first());
    // Without a difference, a report that still stands is one of a reading that is over.
    let about = match chosen {
        Some(chosen) => chosen.validator,
        None => says?.validator,
    };
    let entry = reading.get(&about);
    if says.is_some_and(|one| (one.validator, one.entry) == (about, entry_digest(&about, entry))) {
        return None;
    }
    Some(Operation::Report {
        validator: about,
        entry: entry.cloned().map(Box::new),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::{BondAddress, BondName, Member, Possession, VoteKey};

    fn id(number: u8) -> Identity {
        Identity([number; 32])
    }

    fn acting() -> ValidatorSet {
        let members = (0..4).map(|number| Member {
            identity: id(number),
            vote_key: VoteKey([number; 96]),
            address: BondAddress::default(),
            name: BondName::default(),
        });
        ValidatorSet::of_members(Epoch(5), members.collect())
    }

    fn entry(stake: u64) -> ExternalEntry {
        ExternalEntry {
            stake,
            vote_key: VoteKey([1; 96]),
            possession: Possession([1; 48]),
            address: BondAddress::default(),
            name: BondName::default(),
        }
    }

    fn said(reporter: u8, validator: u8, stake: u64, epoch: u64) -> Option<Report> {
        Some(Report {
            reporter: id(reporter),
            validator: id(validator),
            entry: entry_digest(&id(validator), Some(&entry(stake))),
            epoch: Epoch(epoch),
        })
    }

    /// About whom validator 0 reports in an epoch, having read these, on a chain without bonds.
    fn reports_in(epoch: u64, reading: &[(u8, u64)], reports: &[Option<Report>]) -> Option<u8> {
        let reading = reading.iter().map(|(who, stake)| (id(*who), entry(*stake)));
        let known = Known {
            epoch: Epoch(epoch),
            rules: ExternalRules { report_epochs: 2 },
            acting: &acting(),
            bonds: &BTreeMap::new(),
            reports,
        };
        match plan(&id(0), &reading.collect(), &known).report? {
            Operation::Report { validator, .. } => Some(validator.0[0]),
            other => panic!("{other:?}"),
        }
    }

    fn reports(reading: &[(u8, u64)], reports: &[Option<Report>]) -> Option<u8> {
        reports_in(5, reading, reports)
    }

    #[test]
    fn whatever_others_report_the_choice_is_the_readings_and_the_epochs() {
        assert_eq!(reports(&[], &[None; 4]), None);
        let reading = [(60, 1), (120, 1), (180, 1), (240, 1)];
        let mut chosen = BTreeSet::new();
        for epoch in 0..50 {
            let choice = reports_in(epoch, &reading, &[None; 4]);
            chosen.extend(choice);
            for liars in [60, 120, 180, 240] {
                let say = |reporter| said(reporter, liars, 1, epoch);
                let others = [None, say(1), say(2), say(3)];
                assert_eq!(reports_in(epoch, &reading, &others), choice);
            }
            // A difference that nobody else sees is chosen instead in some epochs only.
            let more = reports_in(epoch, &[&reading[..], &[(90, 1)]].concat(), &[None; 4]);
            assert!(more == choice || more == Some(90));
        }
        assert_eq!(chosen.len(), 4, "each has its turn");
    }

    #[test]
    fn a_standing_report_is_not_repeated_until_it_is_too_old() {
        let of = |epoch| [said(0, 8, 1, epoch), None, None, None];
        assert_eq!(reports(&[(8, 1)], &of(5)), None);
        assert_eq!(reports(&[(8, 1)], &of(3)), None);
        assert_eq!(reports(&[(8, 1)], &of(2)), Some(8));
        // Another reading, and one that is over.
        assert_eq!(reports(&[(8, 2)], &of(5)), Some(8));
        assert_eq!(reports(&[], &of(5)), Some(8));
        // A place that was another's before.
        assert_eq!(
            reports(&[(8, 1)], &[said(7, 8, 1, 5), None, None, None]),
            Some(8)
        );
    }

    #[test]
    fn who_has_no_seat_sees_differences_and_reports_none() {
        let known = Known {
            epoch: Epoch(5),
            rules: ExternalRules { report_epochs: 2 },
            acting: &acting(),
            bonds: &BTreeMap::new(),
            reports: &[None, said(1, 8, 1, 5), None, said(3, 8, 1, 5)],
        };
        let reading = [(id(8), entry(1))].into();
        let plan = plan(&id(7), &reading, &known);
        assert_eq!(plan.report, None);
        let expected = Difference {
            validator: id(8),
            kind: DifferenceKind::Missing,
            reporters: 2,
        };
        assert_eq!(plan.differences, [expected]);
    }
}
