//! Full distributions: merged by addition, with percentiles read from the sum.
//!
//! The text form is base64 of an `HdrHistogram` in its format V2, plain or deflated, so reports of
//! the load generator can be included unchanged.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use flate2::read::ZlibDecoder;
use hdrhistogram::{
    Histogram,
    serialization::{Deserializer, Serializer as _, V2DeflateSerializer},
};
use serde::{Deserialize, Serialize};
use std::io::Read as _;

/// The longest accepted text, in bytes.
pub const MAX_TEXT_BYTES: usize = 2 << 20;

/// The largest histogram in its plain form, in bytes. Deflated bytes could expand to any size.
const MAX_PLAIN_BYTES: usize = 4 << 20;

/// The format's first four bytes: V2, and V2 deflated.
const PLAIN: [u8; 4] = [0x1c, 0x84, 0x93, 0x13];
const DEFLATED: [u8; 4] = [0x1c, 0x84, 0x93, 0x14];

/// Cookie, length, offset, digits (four bytes each), lowest, highest, ratio (eight each).
const HEADER_BYTES: usize = 40;

/// More significant digits than this are a mistake: five of them take 50 MB.
const MAX_DIGITS: u8 = 4;

/// A distribution as stored in a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    /// The values' unit.
    pub unit: String,
    /// The histogram's text form.
    pub v2: String,
}

/// Why histograms cannot be read or merged.
#[derive(Debug, thiserror::Error)]
pub enum HistogramError {
    /// A text is too long, before or after inflating.
    #[error("it is larger than {most} bytes")]
    Large {
        /// The limit in bytes.
        most: usize,
    },
    /// A text is not a histogram.
    #[error("it is not a histogram in the format V2, in base64: {reason}")]
    Foreign { reason: String },
    /// Histograms of different units cannot be merged.
    #[error("one is in {one:?} and the other in {other:?}")]
    Units {
        /// The unit of the first.
        one: String,
        /// The unit of another.
        other: String,
    },
}

/// The sum of distributions.
#[derive(Clone, Debug)]
pub struct Merged {
    unit: String,
    histogram: Histogram<u64>,
}

impl Saved {
    /// Stores a histogram.
    pub fn new(unit: &str, histogram: &Histogram<u64>) -> Self {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(histogram, &mut bytes)
            .expect("writing to memory never fails");
        Self {
            unit: unit.to_owned(),
            v2: BASE64_STANDARD.encode(bytes),
        }
    }

    /// Decodes the histogram.
    ///
    /// # Errors
    ///
    /// If the text is not a histogram, or too large.
    pub fn read(&self) -> Result<Histogram<u64>, HistogramError> {
        if self.v2.len() > MAX_TEXT_BYTES {
            return Err(HistogramError::Large {
                most: MAX_TEXT_BYTES,
            });
        }
        let bytes = BASE64_STANDARD.decode(&self.v2).map_err(foreign)?;
        let plain = match bytes.first_chunk() {
            Some(&DEFLATED) => inflated(&bytes)?,
            _ => bytes,
        };
        check_header(&plain)?;
        let histogram = Deserializer::new()
            .deserialize(&mut plain.as_slice())
            .map_err(foreign)?;
        Ok(histogram)
    }
}

fn foreign(reason: impl ToString) -> HistogramError {
    HistogramError::Foreign {
        reason: reason.to_string(),
    }
}

fn inflated(bytes: &[u8]) -> Result<Vec<u8>, HistogramError> {
    // The length follows the cookie; it is skipped, since the deflate stream marks its own end.
    let stream = bytes.get(8..).unwrap_or_default();
    let mut plain = Vec::new();
    ZlibDecoder::new(stream)
        .take(MAX_PLAIN_BYTES as u64 + 1)
        .read_to_end(&mut plain)
        .map_err(foreign)?;
    match plain.len() <= MAX_PLAIN_BYTES {
        true => Ok(plain),
        false => Err(HistogramError::Large {
            most: MAX_PLAIN_BYTES,
        }),
    }
}

/// Checks the header, since the library allocates what the header requests before it reads the
/// rest.
fn check_header(plain: &[u8]) -> Result<(), HistogramError> {
    let four = |at: usize| plain.get(at..at + 4)?.first_chunk::<4>().copied();
    if plain.len() < HEADER_BYTES || four(0) != Some(PLAIN) {
        return Err(foreign("it begins with something else"));
    }
    let number = |at| four(at).map_or(u32::MAX, u32::from_be_bytes) as usize;
    if number(4) != plain.len() - HEADER_BYTES {
        return Err(foreign("its length is not what it says"));
    }
    if number(12) > usize::from(MAX_DIGITS) {
        return Err(foreign(format!("it has more than {MAX_DIGITS} digits")));
    }
    Ok(())
}

impl Merged {
    /// The sum of all; `None` if there are none.
    ///
    /// # Errors
    ///
    /// If one cannot be read, or has another unit.
    pub fn of<'a>(
        parts: impl IntoIterator<Item = &'a Saved>,
    ) -> Result<Option<Self>, HistogramError> {
        let mut sum: Option<Self> = None;
        for part in parts {
            let mut histogram = part.read()?;
            let Some(sum) = &mut sum else {
                // It resizes when another one has larger values.
                histogram.auto(true);
                sum = Some(Self {
                    unit: part.unit.clone(),
                    histogram,
                });
                continue;
            };
            if sum.unit != part.unit {
                return Err(HistogramError::Units {
                    one: sum.unit.clone(),
                    other: part.unit.clone(),
                });
            }
            sum.histogram.add(&histogram).map_err(foreign)?;
        }
        Ok(sum)
    }

    /// The number of values.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The values' unit.
    pub fn unit(&self) -> &str {
        &self.unit
    }

    /// The quantile at `part`, from 0 to 1; `None` if there are no values.
    pub fn quantile(&self, part: f64) -> Option<f64> {
        let value = self.histogram.value_at_quantile(part);
        (self.count() > 0).then_some(value as f64)
    }

    /// The sum as stored in a record.
    pub fn saved(&self) -> Saved {
        Saved::new(&self.unit, &self.histogram)
    }
}

#[cfg(test)]
#[path = "histograms_tests.rs"]
mod tests;
