//! "Did you mean …?"
//!
//! **Guarantee.** Only names that exist are suggested. **Limit.** Letters are compared, not meanings.

/// The end of a sentence: `; did you mean "x"?`, or nothing when nothing is near.
pub(super) fn did_you_mean<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(written, known).map(|name| format!("; did you mean {name:?}?")).unwrap_or_default()
}

/// The known name nearest to what was written, if it is near at all.
pub(super) fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let lowered = written.to_lowercase();
    known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&lowered, &name.to_lowercase()), name))
        // A third of the letters wrong is a typo; more is another word.
        .filter(|(distance, name)| *distance <= name.chars().count() / 3)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_typo_finds_its_word_and_another_word_finds_none() {
        let known = ["concurrency", "lease", "heartbeat"];
        assert_eq!(nearest("concurency", known), Some("concurrency"));
        assert_eq!(nearest("Leese", known), Some("lease"));
        assert_eq!(nearest("colour", known), None);
    }
}
