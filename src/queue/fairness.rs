//! Who takes over which entry of a dead consumer: of the alive consumers the one with the smallest
//! `hash(entry, consumer)` (rendezvous hashing). Every consumer comes to the same answer without talking to
//! the others; when one joins or leaves, only its own share moves.

/// Whether `me` is the one of `alive` that takes `entry`. `me` counts as alive.
pub(super) fn is_mine(entry: &str, me: &str, alive: &[String]) -> bool {
    let mine = (weight(entry, me), me);
    alive.iter().all(|other| other == me || mine < (weight(entry, other), other.as_str()))
}

/// FNV-1a over both names, then a finalizer: FNV alone leaves its high bits almost equal for names that
/// differ only at the end. Part of the protocol between versions running side by side: never change it.
fn weight(entry: &str, consumer: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in entry.bytes().chain([0]).chain(consumer.bytes()) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(consumers: &[&str], entries: usize) -> Vec<usize> {
        let alive: Vec<String> = consumers.iter().map(ToString::to_string).collect();
        let entry = |n: usize| format!("17{:011}-{}", n / 7, n % 7);
        alive.iter().map(|me| (0..entries).filter(|n| is_mine(&entry(*n), me, &alive)).count()).collect()
    }

    #[test]
    fn every_entry_has_exactly_one_taker() {
        assert_eq!(shares(&["a-1", "a-2", "a-3"], 3_000).iter().sum::<usize>(), 3_000);
    }

    #[test]
    fn shares_are_even_however_alike_the_names_are() {
        for names in [["w1", "w2", "w3"], ["host-a/1", "host-b/1", "host-c/1"], ["x", "xx", "xxx"]] {
            for share in shares(&names, 30_000) {
                assert!((9_500..=10_500).contains(&share), "{names:?}: {share} of 30,000");
            }
        }
    }

    #[test]
    fn the_hash_stays_the_same_across_versions() {
        assert_eq!(weight("1700000000000-0", "worker-1"), 8_366_324_209_599_029_099);
    }

    #[test]
    fn a_leaving_consumer_moves_only_its_own_entries() {
        let three: Vec<String> = ["a", "b", "c"].map(String::from).into();
        let two: Vec<String> = ["a", "b"].map(String::from).into();
        for n in 0..1_000 {
            let entry = format!("{n}-0");
            if is_mine(&entry, "a", &three) {
                assert!(is_mine(&entry, "a", &two));
            }
        }
    }
}
