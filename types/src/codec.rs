//! Helpers for the binary codec.
//!
//! Integers are big-endian and of fixed width. A struct is its fields in order. A list is a
//! `u32` count, checked against the list's own limit before anything is allocated, and its items.
//! Whatever is stored or signed on its own starts with a version byte.

use bytes::BufMut;
use commonware_codec::{Buf, EncodeSize, Error, Read, Write, extensions::ReadExt};

/// Implements the codec for a struct whose fields all have a fixed size, in field order.
macro_rules! fixed_codec {
    ($type:ident { $($field:ident : $kind:ty),+ $(,)? }) => {
        impl commonware_codec::FixedSize for $type {
            const SIZE: usize = 0 $(+ <$kind as commonware_codec::FixedSize>::SIZE)+;
        }
        impl commonware_codec::Write for $type {
            fn write(&self, buffer: &mut impl bytes::BufMut) {
                $(self.$field.write(buffer);)+
            }
        }
        impl commonware_codec::Read for $type {
            type Cfg = ();
            fn read_cfg(
                buffer: &mut impl commonware_codec::Buf,
                _: &(),
            ) -> Result<Self, commonware_codec::Error> {
                Ok(Self { $($field: <$kind as commonware_codec::extensions::ReadExt>::read(buffer)?),+ })
            }
        }
    };
}
pub(crate) use fixed_codec;

/// Defines a number with a meaning: ordered, shown as the bare number, eight bytes on the wire.
/// It has no `From<u64>`, so one kind of number cannot slip in where another is meant.
macro_rules! number {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default,
            serde::Serialize, serde::Deserialize,
        )]
        #[serde(transparent)]
        pub struct $type(pub u64);

        impl $type {
            /// The number after this one; the last number is its own successor, so that a value
            /// from outside can never overflow.
            pub fn next(self) -> Self {
                Self(self.0.saturating_add(1))
            }

            /// The number before this one, or `None` for zero.
            pub fn previous(self) -> Option<Self> {
                self.0.checked_sub(1).map(Self)
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}", self.0)
            }
        }

        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($type), "({})"), self.0)
            }
        }

        impl commonware_codec::FixedSize for $type {
            const SIZE: usize = 8;
        }

        impl commonware_codec::Write for $type {
            fn write(&self, buffer: &mut impl bytes::BufMut) {
                self.0.write(buffer);
            }
        }

        impl commonware_codec::Read for $type {
            type Cfg = ();

            fn read_cfg(
                buffer: &mut impl commonware_codec::Buf,
                _: &(),
            ) -> Result<Self, commonware_codec::Error> {
                Ok(Self(<u64 as commonware_codec::extensions::ReadExt>::read(buffer)?))
            }
        }
    };
}
pub(crate) use number;

/// Reads the version byte and refuses any but `expected`.
pub(crate) fn read_version(
    buffer: &mut impl Buf,
    expected: u8,
    what: &'static str,
) -> Result<(), Error> {
    if u8::read(buffer)? == expected {
        Ok(())
    } else {
        Err(Error::Invalid(what, "unknown version"))
    }
}

/// A list's size without its items.
pub(crate) const LIST_COUNT_BYTES: usize = 4;

/// Writes a list: its `u32` count and its items.
pub(crate) fn write_list<T: Write>(items: &[T], buffer: &mut impl BufMut) {
    let count = u32::try_from(items.len()).expect("lists are far below 2^32 items");
    count.write(buffer);
    for item in items {
        item.write(buffer);
    }
}

/// Encoded size of a list, in bytes.
pub(crate) fn list_size<T: EncodeSize>(items: &[T]) -> usize {
    LIST_COUNT_BYTES + items.iter().map(EncodeSize::encode_size).sum::<usize>()
}

/// Reads a list of at most `limit` items. The count is checked before anything is allocated, and
/// what is allocated ahead never exceeds the bytes that are really there.
pub(crate) fn read_list<T: Read<Cfg = ()>>(
    buffer: &mut impl Buf,
    limit: usize,
) -> Result<Vec<T>, Error> {
    let count = u32::read(buffer)? as usize;
    if count > limit {
        return Err(Error::InvalidLength(count));
    }
    let mut items = Vec::with_capacity(count.min(buffer.remaining() / size_of::<T>().max(1) + 1));
    for _ in 0..count {
        items.push(T::read(buffer)?);
    }
    Ok(items)
}

/// Writes an optional value: one byte, 0 or 1, then the value.
pub(crate) fn write_option<T: Write>(value: Option<&T>, buffer: &mut impl BufMut) {
    value.is_some().write(buffer);
    if let Some(value) = value {
        value.write(buffer);
    }
}

/// Reads an optional value.
pub(crate) fn read_option<T: Read<Cfg = ()>>(buffer: &mut impl Buf) -> Result<Option<T>, Error> {
    bool::read(buffer)?.then(|| T::read(buffer)).transpose()
}
