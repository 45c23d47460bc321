//! A registry outside the chain: what validators report about it, and when a report takes effect.
//!
//! Each validator reads the entries from a source of its own (a file, a server) and reports where they
//! differ from the bonds in the state. A report is a transaction, so all execute the same ones in the same order.
//!
//! - *X1*: an entry takes effect in the block in which the latest reports of a quorum (n − f) of the acting
//!   validators say the same about one identity. Among them are f + 1 honest ones, so at most f liars change
//!   nothing; the n − f others are a quorum, so at most f liars block nothing.
//! - *X2*: of each acting validator only the latest report counts, and none that is older than `report_epochs`
//!   epochs. Who has left counts no longer.
//! - *X3*: an entry that takes effect removes all reports about its identity. Otherwise an older value could come
//!   back with the reports of those who had reported it once, and of only one that reads it now.
//! - *X4*: the proof of possession is verified with each report, so an entry that takes effect has a key that its
//!   owner can vote with.
//!
//! A bond that was made this way is like any other for [`super::next`]: it can be chosen from the next epoch on.
//! Its stake is elsewhere, so it is no money of the chain, and nothing here can take any of it.
//!
//! Where the reports are: in an account for each place of the committee ([`report_slot`]). A value of the state tree
//! has at most 255 bytes, so neither the registry's own account nor that of a validator with a bond has room for
//! them; and a report changes one small account instead of a table of all. The accounts are part of the proven state,
//! so they come along with state sync, and there are at most as many as a committee has places. A place whose holder
//! has changed counts for nobody until the new holder reports.

use super::{BondAddress, BondName, Possession, RegistryContext, VoteKey};
use crate::{Account, Bond, Epoch, Failure, ValidatorSet, codec::fixed_codec};
use bytes::BufMut;
use commonware_codec::{
    Buf, Encode as _, EncodeSize, Error, FixedSize, Read, Write, extensions::ReadExt,
};
use quorate_crypto::{Digest, Identity, sha256};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, sync::Arc};

/// How the accounts that hold reports, and the registry's own, begin. They are texts, so nobody has their keys.
pub(super) const RESERVED: &[u8] = b"quorate/registry/";

/// The longest lag of reports that a genesis file may state, in epochs.
pub const MAX_REPORT_EPOCHS: u64 = 1_000;

/// That the registry is outside the chain, in the genesis file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExternalRules {
    /// For how many epochs after its own a report counts: 1 to 1,000.
    pub report_epochs: u64,
}

/// What an external registry says about a validator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExternalEntry {
    /// What it has at stake, in whatever unit the registry counts.
    pub stake: u64,
    pub vote_key: VoteKey,
    /// The proof that its owner knows the vote key's secret, for this chain's name and its identity.
    pub possession: Possession,
    pub address: BondAddress,
    #[serde(default)]
    pub name: BondName,
}

/// An acting validator's latest report.
///
/// Encoded in 104 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Who reported.
    pub reporter: Identity,
    /// About whom.
    pub validator: Identity,
    /// What: [`entry_digest`].
    pub entry: Digest,
    /// In which epoch.
    pub epoch: Epoch,
}

fixed_codec!(Report {
    reporter: Identity,
    validator: Identity,
    entry: Digest,
    epoch: Epoch,
});

/// The account that holds the latest report of the validator at a place of the committee.
pub fn report_slot(place: usize) -> Identity {
    let text = format!("quorate/registry/reports/{place:07}");
    let bytes = text.as_bytes().try_into();
    Identity(bytes.expect("32 characters: a committee has at most 1,024 places"))
}

/// Whether an identity is an account of the registry itself, which stands for no validator.
pub fn is_reserved(identity: &Identity) -> bool {
    identity.0.starts_with(RESERVED)
}

/// What reports about a validator are compared by. Without the proof of possession: a key has one only, and it is
/// verified with each report.
pub fn entry_digest(validator: &Identity, entry: Option<&ExternalEntry>) -> Digest {
    let mut content = Vec::new();
    if let Some(entry) = entry {
        entry.stake.write(&mut content);
        entry.vote_key.write(&mut content);
        entry.address.write(&mut content);
        entry.name.write(&mut content);
    }
    let is_there = [u8::from(entry.is_some())];
    sha256(&[
        b"quorate/external-entry/1",
        &validator.encode(),
        &is_there,
        &content,
    ])
}

impl ExternalEntry {
    /// Whether a bond says the same.
    pub fn is(&self, bond: &Bond) -> bool {
        (self.stake, &self.vote_key) == (bond.stake, &bond.vote_key)
            && (&self.address, &self.name) == (&bond.address, &bond.name)
    }
}

/// Whether an entry, or that there is none, is what the state says already.
pub fn is_known(entry: Option<&ExternalEntry>, bond: Option<&Bond>) -> bool {
    match (entry, bond) {
        (Some(entry), Some(bond)) => entry.is(bond),
        (None, None) => true,
        _ => false,
    }
}

impl RegistryContext<'_> {
    /// The validators who may report in the block's epoch.
    pub(crate) fn reporters(&self) -> Option<Arc<ValidatorSet>> {
        self.rules?.external?;
        let (_, set) = self.committees?.acting(self.epoch)?;
        Some(set)
    }

    /// Notes what an acting validator says about another, and applies it if it is the one that makes a quorum.
    /// `accounts` holds the validator's account and all [`report_slot`]s of the committee.
    ///
    /// # Errors
    ///
    /// Why the report is refused. The accounts are then as they were.
    pub fn report(
        &self,
        reporter: &Identity,
        (validator, entry): (&Identity, Option<&ExternalEntry>),
        accounts: &mut BTreeMap<Identity, Account>,
    ) -> Result<(), Failure> {
        let rules = self.rules.ok_or(Failure::NoRegistry)?;
        let external = rules.external.ok_or(Failure::WrongRegistry)?;
        let acting = self.reporters().ok_or(Failure::NotActing)?;
        let members = acting.members();
        let place = members.iter().position(|one| one.identity == *reporter);
        let place = place.ok_or(Failure::NotActing)?;
        if is_reserved(validator) || validator.is_small_order() {
            return Err(Failure::BadOperation);
        }
        if let Some(entry) = entry {
            if entry.stake < rules.min_stake {
                return Err(Failure::StakeTooSmall);
            }
            self.verify(validator, &entry.vote_key, &entry.possession)?;
        }
        let bond = accounts.get(validator).and_then(|one| one.bond.clone());
        if is_known(entry, bond.as_deref()) {
            // Nothing is to change, so it only ends what the reporter has said before.
            accounts.entry(report_slot(place)).or_default().report = None;
            return Ok(());
        }
        let digest = entry_digest(validator, entry);
        accounts.entry(report_slot(place)).or_default().report = Some(Report {
            reporter: *reporter,
            validator: *validator,
            entry: digest,
            epoch: self.epoch,
        });
        let counts = |(place, member): (usize, &super::Member)| {
            let report = accounts
                .get(&report_slot(place))
                .and_then(|slot| slot.report);
            report.is_some_and(|report| {
                report.reporter == member.identity
                    && (report.validator, report.entry) == (*validator, digest)
                    && report.counts_in(self.epoch, &external)
            })
        };
        let agreeing = members
            .iter()
            .enumerate()
            .filter(|one| counts(*one))
            .count();
        // n − f, as in [`crate::Committee::quorum`].
        let quorum = members.len() - (members.len() - 1) / 3;
        if agreeing < quorum {
            return Ok(());
        }
        for place in 0..members.len() {
            if let Some(slot) = accounts.get_mut(&report_slot(place)) {
                slot.report = slot.report.filter(|report| report.validator != *validator);
            }
        }
        let since = bond.map_or(self.epoch.next(), |bond| bond.since);
        accounts.entry(*validator).or_default().bond = entry.map(|entry| {
            Box::new(Bond {
                identity: *validator,
                stake: entry.stake,
                leaving: 0,
                leaves_at: Epoch(0),
                since,
                vote_key: entry.vote_key,
                address: entry.address.clone(),
                name: entry.name.clone(),
            })
        });
        Ok(())
    }
}

impl Report {
    /// Whether it still counts in an epoch.
    pub fn counts_in(&self, epoch: Epoch, rules: &ExternalRules) -> bool {
        self.epoch.0.saturating_add(rules.report_epochs) >= epoch.0
    }
}

impl EncodeSize for ExternalEntry {
    fn encode_size(&self) -> usize {
        u64::SIZE
            + VoteKey::SIZE
            + Possession::SIZE
            + self.address.encode_size()
            + self.name.encode_size()
    }
}

impl Write for ExternalEntry {
    fn write(&self, buffer: &mut impl BufMut) {
        self.stake.write(buffer);
        self.vote_key.write(buffer);
        self.possession.write(buffer);
        self.address.write(buffer);
        self.name.write(buffer);
    }
}

impl Read for ExternalEntry {
    type Cfg = ();

    fn read_cfg(buffer: &mut impl Buf, _: &()) -> Result<Self, Error> {
        Ok(Self {
            stake: u64::read(buffer)?,
            vote_key: VoteKey::read(buffer)?,
            possession: Possession::read(buffer)?,
            address: BondAddress::read(buffer)?,
            name: BondName::read(buffer)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ChainId, Committees, Phase, RegistryRules,
        registry::{Member, Operation},
    };
    use quorate_crypto::bls::VoteSecret;
    use rand::SeedableRng as _;

    const CHAIN: &str = "test";
    const RULES: RegistryRules = RegistryRules {
        min_stake: 100,
        max_validators: 7,
        unbond_epochs: 2,
        slashing: None,
        external: Some(ExternalRules { report_epochs: 2 }),
        resharing: false,
    };

    type Accounts = BTreeMap<Identity, Account>;

    fn id(number: u8) -> Identity {
        Identity([number + 1; 32])
    }

    fn committees(members: &[u8]) -> Committees {
        let members = members.iter().map(|number| Member {
            identity: id(*number),
            vote_key: VoteKey([*number; 96]),
            address: BondAddress::default(),
            name: BondName::default(),
        });
        Committees::trusting(ValidatorSet::of_members(Epoch(0), members.collect())).expect("some")
    }

    fn context(epoch: u64, committees: &Committees) -> RegistryContext<'_> {
        RegistryContext {
            rules: Some(&RULES),
            chain_name: CHAIN,
            chain: ChainId(Digest([5; 32])),
            epoch: Epoch(epoch),
            phase: Phase::Over,
            committees: Some(committees),
        }
    }

    fn entry(number: u8, stake: u64) -> ExternalEntry {
        let seed = rand::rngs::StdRng::seed_from_u64(u64::from(number));
        let secret = VoteSecret::random(seed);
        ExternalEntry {
            stake,
            vote_key: VoteKey(secret.public_key()),
            possession: Possession(secret.prove_possession(CHAIN, &id(number).0)),
            address: "host:1".parse().expect("short"),
            name: BondName::default(),
        }
    }

    /// The stake in the state.
    fn stake(accounts: &Accounts, number: u8) -> Option<u64> {
        let bond = accounts.get(&id(number))?.bond.as_ref()?;
        Some(bond.stake)
    }

    fn reports(accounts: &Accounts) -> usize {
        accounts.values().filter(|one| one.report.is_some()).count()
    }

    /// Reports of an identity's entry by several.
    fn all_say(
        context: &RegistryContext<'_>,
        reporters: &[u8],
        (about, entry): (u8, Option<&ExternalEntry>),
        accounts: &mut Accounts,
    ) {
        for reporter in reporters {
            let said = context.report(&id(*reporter), (&id(about), entry), accounts);
            said.expect("it is acting");
        }
    }

    #[test]
    fn an_entry_takes_effect_with_the_report_that_makes_a_quorum() {
        let committees = committees(&[0, 1, 2, 3]);
        let now = context(5, &committees);
        let mut accounts = Accounts::new();
        let five = entry(5, 200);
        all_say(&now, &[0, 1], (5, Some(&five)), &mut accounts);
        // One reports often; it counts once.
        all_say(&now, &[1, 1, 1], (5, Some(&five)), &mut accounts);
        assert_eq!((stake(&accounts, 5), reports(&accounts)), (None, 2));
        all_say(&now, &[3], (5, Some(&five)), &mut accounts);
        assert_eq!((stake(&accounts, 5), reports(&accounts)), (Some(200), 0));
        let bond = accounts[&id(5)].bond.clone().expect("bonded");
        assert_eq!((bond.since, bond.leaving), (Epoch(6), 0));
        assert!(five.is(&bond));
        // Who is late changes nothing.
        all_say(&now, &[2], (5, Some(&five)), &mut accounts);
        assert_eq!(reports(&accounts), 0);
        // Another stake keeps the epoch since which it can be chosen; none removes the bond.
        let later = context(9, &committees);
        all_say(&later, &[0, 1, 2], (5, Some(&entry(5, 300))), &mut accounts);
        let bond = accounts[&id(5)].bond.clone().expect("bonded");
        assert_eq!((bond.stake, bond.since), (300, Epoch(6)));
        all_say(&later, &[0, 1, 2], (5, None), &mut accounts);
        assert_eq!(stake(&accounts, 5), None);
    }

    #[test]
    fn f_liars_can_neither_change_nor_block_anything() {
        let committees = committees(&[0, 1, 2, 3, 4, 5, 6]);
        let now = context(5, &committees);
        let mut accounts = Accounts::new();
        let (honest, lie) = (entry(8, 200), entry(8, 999));
        // Two of seven lie, and four honest ones are one too few.
        all_say(&now, &[5, 6], (8, Some(&lie)), &mut accounts);
        all_say(&now, &[0, 1, 2, 3], (8, Some(&honest)), &mut accounts);
        assert_eq!(stake(&accounts, 8), None);
        all_say(&now, &[5, 6], (9, Some(&entry(9, 500))), &mut accounts);
        all_say(&now, &[4], (8, Some(&honest)), &mut accounts);
        assert_eq!(
            (stake(&accounts, 8), stake(&accounts, 9)),
            (Some(200), None)
        );
    }

    #[test]
    fn only_the_latest_report_counts_and_an_old_value_does_not_come_back() {
        let committees = committees(&[0, 1, 2, 3]);
        let now = context(5, &committees);
        let mut accounts = Accounts::new();
        let (old, new) = (entry(8, 200), entry(8, 300));
        all_say(&now, &[0, 1], (8, Some(&old)), &mut accounts);
        // Validator 0 reads something else since.
        all_say(&now, &[0], (8, Some(&new)), &mut accounts);
        all_say(&now, &[2], (8, Some(&old)), &mut accounts);
        assert_eq!(stake(&accounts, 8), None);
        all_say(&now, &[1, 2], (8, Some(&new)), &mut accounts);
        assert_eq!(stake(&accounts, 8), Some(300));
        // X3: the old value needs a quorum that says so after the new one took effect.
        all_say(&now, &[3], (8, Some(&old)), &mut accounts);
        all_say(&now, &[0, 1, 2], (8, Some(&new)), &mut accounts);
        all_say(&now, &[0, 1], (8, Some(&old)), &mut accounts);
        assert_eq!(stake(&accounts, 8), Some(200), "three say so now");
        let mut accounts = Accounts::new();
        all_say(&now, &[3], (8, Some(&old)), &mut accounts);
        all_say(&now, &[0, 1, 2], (8, Some(&new)), &mut accounts);
        assert_eq!(reports(&accounts), 0);
        all_say(&now, &[0, 1], (8, Some(&old)), &mut accounts);
        assert_eq!(stake(&accounts, 8), Some(300), "what 3 said before is over");
    }

    #[test]
    fn old_reports_and_those_of_former_validators_do_not_count() {
        let before = committees(&[0, 1, 2, 3]);
        let mut accounts = Accounts::new();
        let five = entry(5, 200);
        all_say(
            &context(5, &before),
            &[0, 1],
            (5, Some(&five)),
            &mut accounts,
        );
        let mut aged = accounts.clone();
        all_say(&context(8, &before), &[2], (5, Some(&five)), &mut aged);
        assert_eq!(stake(&aged, 5), None, "three epochs are more than the lag");
        let mut young = accounts.clone();
        all_say(&context(7, &before), &[2], (5, Some(&five)), &mut young);
        assert_eq!(stake(&young, 5), Some(200));
        // Validator 0 has left, and its place is another's.
        let after = committees(&[6, 1, 2, 3]);
        let now = context(6, &after);
        all_say(&now, &[2], (5, Some(&five)), &mut accounts);
        assert_eq!(stake(&accounts, 5), None);
        let gone = now.report(&id(0), (&id(5), Some(&five)), &mut accounts);
        assert_eq!(gone, Err(Failure::NotActing));
        all_say(&now, &[6], (5, Some(&five)), &mut accounts);
        assert_eq!(stake(&accounts, 5), Some(200));
    }

    #[test]
    fn each_rule_refuses_a_report_by_its_name() {
        let committees = committees(&[0, 1, 2, 3]);
        let now = context(5, &committees);
        let refused = |context: &RegistryContext<'_>, about: Identity, entry, why| {
            let mut accounts = Accounts::new();
            let said = context.report(&id(0), (&about, entry), &mut accounts);
            assert_eq!((said, accounts), (Err(why), Accounts::new()));
        };
        let (five, small) = (entry(5, 200), entry(5, 99));
        let native = RegistryRules {
            external: None,
            ..RULES
        };
        let none = RegistryContext {
            rules: None,
            ..now.clone()
        };
        refused(&none, id(5), Some(&five), Failure::NoRegistry);
        let other = RegistryContext {
            rules: Some(&native),
            ..now.clone()
        };
        refused(&other, id(5), Some(&five), Failure::WrongRegistry);
        // Another's proof, and a stake that could never be chosen.
        refused(&now, id(6), Some(&five), Failure::BadPossession);
        refused(&now, id(5), Some(&small), Failure::StakeTooSmall);
        for account in [
            crate::REGISTRY,
            crate::SLASHED,
            report_slot(3),
            Identity([0; 32]),
        ] {
            refused(&now, account, None, Failure::BadOperation);
        }
        let mut account = Account::plain(0, 1_000);
        for operation in [Operation::AddStake, Operation::Withdraw] {
            let applied = operation.apply(&now, &id(0), 0, &mut account);
            assert_eq!(applied, Err(Failure::WrongRegistry));
        }
        let report = Operation::Report {
            validator: id(5),
            entry: None,
        };
        let applied = report.apply(&now, &id(0), 0, &mut account);
        assert_eq!(applied, Err(Failure::BadOperation));
    }

    #[test]
    fn a_report_fits_into_the_state_and_its_digest_tells_entries_apart() {
        use commonware_codec::DecodeExt as _;
        let account = Account {
            report: Some(Report {
                reporter: id(1),
                validator: id(2),
                entry: Digest([3; 32]),
                epoch: Epoch(4),
            }),
            ..Account::plain(0, 7)
        };
        let bytes = account.encode();
        assert_eq!(bytes.len(), Account::PLAIN_SIZE + 104);
        assert_eq!(Account::decode(bytes).expect("its own encoding"), account);
        assert_ne!(report_slot(1), report_slot(1_023));
        let one = entry(1, 100);
        let moved = ExternalEntry {
            address: "host:11".parse().expect("short"),
            ..one.clone()
        };
        let named = ExternalEntry {
            name: "1".parse().expect("short"),
            ..one.clone()
        };
        let said = [None, Some(&one), Some(&moved), Some(&named)];
        let digests: std::collections::BTreeSet<_> =
            said.iter().map(|one| entry_digest(&id(1), *one)).collect();
        assert_eq!(digests.len(), 4);
        assert_ne!(entry_digest(&id(1), None), entry_digest(&id(2), None));
    }
}
