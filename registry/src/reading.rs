//! What a source says, parsed and checked.

use crate::evm::abi::Listed;
use quorate_crypto::{Digest, Identity, bls::AggregateMember, sha256};
use quorate_types::{
    BondAddress, BondName, ExternalEntry, VoteKey,
    limits::{MAX_BONDS, MIN_REGISTERED_VALIDATORS},
    registry::{entry_digest, is_reserved},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Most bytes that a source may say.
pub const MAX_SOURCE_BYTES: u64 = 1 << 20;

/// Most entries of a source.
pub const MAX_ENTRIES: usize = MAX_BONDS as usize;

/// Words of a source that a message may show. What else a parser quotes may be anything: whoever names the
/// wrong file must not publish a key.
const SHOWN_WORDS: [&str; 7] = [
    "validators",
    "identity",
    "stake",
    "vote_key",
    "possession",
    "address",
    "name",
];

/// The longest word of a message that is shown.
const MAX_WORD_CHARACTERS: usize = 32;

/// What readings are checked with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The chain's name, which proofs of possession are bound to.
    pub chain_name: String,
    /// The least stake that counts. Entries with less are read as if they were not there.
    pub min_stake: u64,
}

/// How a source is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Toml,
    Json,
}

/// A source's entries, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Those whose stake suffices.
    pub entries: BTreeMap<Identity, ExternalEntry>,
    /// The stakes of the others, which count as if they were not there: for operators only, and no part of the
    /// digest.
    pub too_small: BTreeMap<Identity, u64>,
    /// What readings are compared by.
    pub digest: Digest,
    /// Entries of a contract that do not count, and why. Files and servers have none.
    pub left_out: BTreeMap<Identity, Flaw>,
}

/// Which proofs of possession hold, of those in a contract's newest list. Without it, entries that somebody has bonded
/// with wrong proofs would cost all validators a check at each reading.
#[derive(Default)]
pub(crate) struct Proofs(BTreeMap<Digest, bool>);

/// The shape of a source.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    validators: Vec<Row>,
}

/// [`ExternalEntry`] with its identity. Written out, since serde cannot flatten and refuse unknown fields.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    identity: Identity,
    stake: u64,
    vote_key: VoteKey,
    possession: quorate_types::Possession,
    address: BondAddress,
    #[serde(default)]
    name: BondName,
}

/// Why a source's words are no reading.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    #[error("it is empty")]
    Empty,
    #[error("not a list of validators: {0}")]
    Syntax(String),
    #[error("it lists {0} validators, and at most {MAX_ENTRIES} are read")]
    TooMany(usize),
    #[error(
        "only {0} of its validators have the least stake, {1}; fewer than {MIN_REGISTERED_VALIDATORS} change nothing"
    )]
    TooFew(usize, u64),
    #[error("validator {0} is there twice")]
    Doubled(Identity),
    #[error("validators {0} and {1} have the same vote key")]
    SameKey(Identity, Identity),
    #[error("{0} is no validator's identity: it is not a key that somebody has the secret of")]
    NoIdentity(Identity),
    #[error("validator {0}: its address or name is not printable ASCII")]
    Text(Identity),
    #[error("validator {identity}: the address {address:?} is not host:port")]
    Address { identity: Identity, address: String },
    #[error(
        "validator {0}: the proof of possession is not one of its vote key for this chain's name and its identity \
         (`quorate registry entry` makes one)"
    )]
    Possession(Identity),
}

/// A list of validators as a source has it.
///
/// # Errors
///
/// If a stake is 2^63 or more, which TOML has no numbers for.
pub fn to_toml(entries: &BTreeMap<Identity, ExternalEntry>) -> Result<String, toml::ser::Error> {
    let rows = entries.iter().map(|(identity, entry)| Row {
        identity: *identity,
        stake: entry.stake,
        vote_key: entry.vote_key,
        possession: entry.possession,
        address: entry.address.clone(),
        name: entry.name.clone(),
    });
    let document = Document {
        validators: rows.collect(),
    };
    toml::to_string(&document)
}

impl Reading {
    /// Parses and checks what a source says. `known` is an earlier reading, whose proofs were verified.
    ///
    /// # Errors
    ///
    /// The first [`Flaw`] that is found.
    pub fn parse(
        text: &str,
        format: Format,
        terms: &Terms,
        known: Option<&Self>,
    ) -> Result<Self, Flaw> {
        let document: Document = match format {
            _ if text.trim().is_empty() => return Err(Flaw::Empty),
            Format::Toml => toml::from_str(text).map_err(|error| {
                let before = text.get(..error.span().map_or(0, |span| span.start));
                let line = before.unwrap_or("").matches('\n').count() + 1;
                syntax(&format!("{} at line {line}", error.message()))
            })?,
            Format::Json => {
                serde_json::from_str(text).map_err(|error| syntax(&error.to_string()))?
            }
        };
        if document.validators.len() > MAX_ENTRIES {
            return Err(Flaw::TooMany(document.validators.len()));
        }
        let mut entries = BTreeMap::new();
        let mut keys: BTreeMap<VoteKey, Identity> = BTreeMap::new();
        for row in document.validators {
            let identity = row.identity;
            if identity.is_small_order() || is_reserved(&identity) {
                return Err(Flaw::NoIdentity(identity));
            }
            if let Some(other) = keys.insert(row.vote_key, identity)
                && other != identity
            {
                return Err(Flaw::SameKey(other, identity));
            }
            if !row.address.is_host_and_port() {
                let address = row.address.to_string();
                return Err(Flaw::Address { identity, address });
            }
            let entry = ExternalEntry {
                stake: row.stake,
                vote_key: row.vote_key,
                possession: row.possession,
                address: row.address,
                name: row.name,
            };
            if entries.insert(identity, entry).is_some() {
                return Err(Flaw::Doubled(identity));
            }
        }
        // The expensive part comes last, and only for what is new.
        for (identity, entry) in &entries {
            let before = known.and_then(|known| known.entries.get(identity));
            let is_proven = before.is_some_and(|before| {
                (before.vote_key, before.possession) == (entry.vote_key, entry.possession)
            });
            if !is_proven && !proves(identity, entry, &terms.chain_name) {
                return Err(Flaw::Possession(*identity));
            }
        }
        let (entries, too_small): (BTreeMap<_, _>, BTreeMap<_, _>) = entries
            .into_iter()
            .partition(|(_, entry)| entry.stake >= terms.min_stake.max(1));
        let too_small = too_small.into_iter();
        Ok(Self {
            too_small: too_small.map(|(who, entry)| (who, entry.stake)).collect(),
            ..Self::of_entries(entries, terms)?
        })
    }

    /// Checks the list of a contract, in which anybody can put an entry: one whose owner has put nonsense there is left
    /// out, and does not spoil the others.
    ///
    /// - Entries with less than the least stake are not even looked at, so that a check costs its author that stake.
    /// - Of two entries with the same vote key, both proven, the one counts that has had it longer: who brings a key
    ///   that is in use already displaces nobody.
    ///
    /// # Errors
    ///
    /// If too few entries are left.
    pub(crate) fn of_contract(
        listed: &[Listed],
        terms: &Terms,
        proofs: &mut Proofs,
    ) -> Result<Self, Flaw> {
        let mut left_out = BTreeMap::new();
        let mut too_small = BTreeMap::new();
        let mut holders: BTreeMap<VoteKey, (u64, Identity)> = BTreeMap::new();
        let mut entries = BTreeMap::new();
        let mut proven = BTreeMap::new();
        for one in listed {
            if one.stake < terms.min_stake.max(1) {
                too_small.insert(one.identity, one.stake);
                continue;
            }
            let checked = listed_entry(one).and_then(|entry| {
                let subject = [&one.identity.0, &entry.vote_key.0[..], &entry.possession.0];
                let subject = sha256(&subject);
                let is_proven = match proofs.0.get(&subject) {
                    Some(is_proven) => *is_proven,
                    None => proves(&one.identity, &entry, &terms.chain_name),
                };
                proven.insert(subject, is_proven);
                let entry = is_proven.then_some(entry);
                entry.ok_or(Flaw::Possession(one.identity))
            });
            let entry = match checked {
                Ok(entry) => entry,
                Err(flaw) => {
                    left_out.insert(one.identity, flaw);
                    continue;
                }
            };
            let own = (one.key_serial, one.identity);
            let holder = holders.entry(entry.vote_key).or_insert(own);
            let later = own.max(*holder);
            *holder = own.min(*holder);
            if later != *holder {
                left_out.insert(later.1, Flaw::SameKey(holder.1, later.1));
            }
            entries.insert(one.identity, entry);
        }
        proofs.0 = proven;
        entries.retain(|identity, _| !left_out.contains_key(identity));
        let reading = Self::of_entries(entries, terms)?;
        Ok(Self {
            left_out,
            too_small,
            ..reading
        })
    }

    /// A reading of entries that are checked.
    fn of_entries(entries: BTreeMap<Identity, ExternalEntry>, terms: &Terms) -> Result<Self, Flaw> {
        if entries.len() < MIN_REGISTERED_VALIDATORS {
            return Err(Flaw::TooFew(entries.len(), terms.min_stake));
        }
        let digests: Vec<u8> = entries
            .iter()
            .flat_map(|(identity, entry)| entry_digest(identity, Some(entry)).0)
            .collect();
        Ok(Self {
            entries,
            too_small: BTreeMap::new(),
            digest: sha256(&[b"quorate/external-reading/1", &digests]),
            left_out: BTreeMap::new(),
        })
    }
}

/// An entry of a contract, without its proof.
fn listed_entry(listed: &Listed) -> Result<ExternalEntry, Flaw> {
    let identity = listed.identity;
    if identity.is_small_order() || is_reserved(&identity) {
        return Err(Flaw::NoIdentity(identity));
    }
    let text = |bytes| std::str::from_utf8(bytes).map_err(|_| Flaw::Text(identity));
    let address = text(&listed.address)?;
    let address: BondAddress = address.parse().map_err(|_| Flaw::Text(identity))?;
    let name = text(&listed.name)?;
    let name: BondName = name.parse().map_err(|_| Flaw::Text(identity))?;
    if !address.is_host_and_port() {
        let address = address.to_string();
        return Err(Flaw::Address { identity, address });
    }
    Ok(ExternalEntry {
        stake: listed.stake,
        vote_key: listed.vote_key,
        possession: listed.possession,
        address,
        name,
    })
}

fn proves(identity: &Identity, entry: &ExternalEntry, chain_name: &str) -> bool {
    let member = AggregateMember {
        identity: identity.0,
        key: entry.vote_key.0,
        possession: entry.possession.0,
    };
    member.is_proven(chain_name)
}

/// A parser's message without what it quotes of the source.
fn syntax(message: &str) -> Flaw {
    const QUOTES: [char; 3] = ['`', '"', '\''];
    let plain = |text: &str| {
        let words = text.split(' ').map(|word| {
            let is_long = word.chars().count() > MAX_WORD_CHARACTERS;
            if is_long { "…" } else { word }
        });
        words.collect::<Vec<_>>().join(" ")
    };
    // From the first quote to the last, since what is quoted may hold quotes.
    let shown = match (message.find(QUOTES), message.rfind(QUOTES)) {
        (Some(first), Some(last)) if first < last => {
            let (before, quoted) = (&message[..first], &message[first + 1..last]);
            let is_known = SHOWN_WORDS.contains(&quoted);
            let quoted = if is_known { quoted } else { "…" };
            format!("{}`{quoted}`{}", plain(before), plain(&message[last + 1..]))
        }
        _ => plain(message),
    };
    Flaw::Syntax(quorate_http::client::shown(&shown))
}
