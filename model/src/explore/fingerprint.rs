//! A state as a number of 64 bits.

use std::hash::{BuildHasher, Hash, Hasher};

const SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;

/// The fingerprint of a state, or of a part of it.
pub(super) fn fingerprint(part: &impl Hash) -> u64 {
    let mut hasher = Folding { folded: SEED, word: 0, bytes: 0 };
    part.hash(&mut hasher);
    hasher.finish()
}

/// Bytes are gathered into words. Every word is multiplied into 128 bits, and both halves are folded into one.
struct Folding {
    folded: u64,
    word: u64,
    bytes: u32,
}

impl Folding {
    fn fold(folded: u64, word: u64) -> u64 {
        let wide = u128::from(folded ^ word) * u128::from(FACTOR);
        (wide as u64 ^ (wide >> 64) as u64).wrapping_add(SEED)
    }
}

impl Hasher for Folding {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u8(*byte);
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.word = self.word << 8 | u64::from(value);
        self.bytes += 1;
        if self.bytes.is_multiple_of(8) {
            self.folded = Folding::fold(self.folded, self.word);
        }
    }

    /// Which variant of an enum: none has more than 256.
    fn write_isize(&mut self, value: isize) {
        self.write_u8(value as u8);
    }

    fn finish(&self) -> u64 {
        Folding::fold(Folding::fold(self.folded, self.word), u64::from(self.bytes))
    }
}

/// Fingerprints are spread already: the map takes them as they are.
#[derive(Default, Clone)]
pub(super) struct Known;

impl BuildHasher for Known {
    type Hasher = AsIs;

    fn build_hasher(&self) -> AsIs {
        AsIs(0)
    }
}

/// A hash of a fingerprint: itself.
pub(super) struct AsIs(u64);

impl Hasher for AsIs {
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0 << 8 | u64::from(*byte);
        }
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
