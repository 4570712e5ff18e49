//! A strict reader of the Prometheus text format 0.0.4: whatever a server could stumble over is a panic here.

use std::collections::{BTreeMap, BTreeSet};

/// A metric with all its samples.
#[derive(Debug, Default)]
pub struct Family {
    pub help: Option<String>,
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    pub samples: Vec<Sample>,
}

/// One line with a value.
#[derive(Debug)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

/// All families by name.
#[derive(Debug)]
pub struct Scrape(pub BTreeMap<String, Family>);

impl Scrape {
    /// Reads the text or panics with the line that is wrong.
    pub fn parse(text: &str) -> Scrape {
        assert!(text.ends_with('\n'), "the last line ends");
        let mut families: BTreeMap<String, Family> = BTreeMap::new();
        let mut open = String::new();
        for line in text.lines().filter(|line| !line.is_empty()) {
            if let Some(comment) = line.strip_prefix("# ") {
                let words: Vec<&str> = comment.splitn(3, ' ').collect();
                let [what, name, rest] = words[..] else { panic!("three words: {line}") };
                assert!(is_name(name), "{line}");
                if name != open {
                    assert!(!families.contains_key(name), "a family in two places: {line}");
                    open = name.to_owned();
                }
                let family = families.entry(open.clone()).or_default();
                assert!(family.samples.is_empty(), "comments come first: {line}");
                match what {
                    "HELP" => assert!(family.help.replace(rest.to_owned()).is_none(), "twice: {line}"),
                    "TYPE" => {
                        assert!(family.kind.is_empty(), "twice: {line}");
                        assert!(["counter", "gauge", "histogram"].contains(&rest), "{line}");
                        family.kind = rest.to_owned();
                    }
                    _ => panic!("neither HELP nor TYPE: {line}"),
                }
                continue;
            }
            assert!(!line.starts_with('#'), "{line}");
            let sample = sample(line);
            let family = families.get_mut(&open).unwrap_or_else(|| panic!("a sample before its type: {line}"));
            let suffix = sample.name.strip_prefix(open.as_str()).unwrap_or_else(|| panic!("not of {open}: {line}"));
            let legal: &[&str] = if family.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(legal.contains(&suffix), "{line}");
            family.samples.push(sample);
        }
        let scrape = Scrape(families);
        scrape.0.iter().for_each(|(name, family)| family.check(name));
        scrape
    }

    /// The value of the one series with these labels.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let base = ["_count", "_sum"].iter().find_map(|suffix| name.strip_suffix(suffix));
        let family = self.0.get(name).or_else(|| self.0.get(base?))?;
        let wanted = |sample: &&Sample| {
            sample.name == name
                && labels.iter().all(|(key, value)| sample.labels.get(*key).is_some_and(|given| given == value))
        };
        let mut found = family.samples.iter().filter(wanted);
        let first = found.next()?;
        assert!(found.next().is_none(), "several series of {name} have {labels:?}");
        Some(first.value)
    }
}

impl Family {
    fn check(&self, name: &str) {
        assert!(!self.kind.is_empty(), "{name} has no type");
        let mut seen = BTreeSet::new();
        for sample in &self.samples {
            assert!(seen.insert((&sample.name, &sample.labels)), "twice: {sample:?}");
            assert!(self.kind != "counter" || sample.value >= 0.0, "{sample:?}");
        }
        if self.kind == "histogram" {
            self.check_histogram(name);
        }
    }

    fn check_histogram(&self, name: &str) {
        let mut series: BTreeMap<BTreeMap<String, String>, Vec<(f64, f64)>> = BTreeMap::new();
        for sample in self.samples.iter().filter(|sample| sample.name.ends_with("_bucket")) {
            let mut labels = sample.labels.clone();
            let le = labels.remove("le").unwrap_or_else(|| panic!("no le: {sample:?}"));
            series.entry(labels).or_default().push((le.parse().expect("a number"), sample.value));
        }
        for (labels, buckets) in series {
            assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{name} {labels:?}: {buckets:?}");
            let last = buckets.last().expect("a bucket");
            assert_eq!(last.0, f64::INFINITY, "{name} {labels:?}");
            for suffix in ["_count", "_sum"] {
                let total = self.samples.iter().find(|s| s.name == format!("{name}{suffix}") && s.labels == labels);
                let total = total.unwrap_or_else(|| panic!("{name}{suffix} {labels:?} is missing"));
                assert!(suffix == "_sum" || total.value == last.1, "{name} {labels:?}");
            }
        }
    }
}

fn is_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_' || c == ':')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
}

fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("no value: {line}"));
    let (name, rest) = line.split_at(end);
    assert!(is_name(name), "{line}");
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest, line),
        None => (BTreeMap::new(), rest),
    };
    let value = rest.strip_prefix(' ').unwrap_or_else(|| panic!("one space: {line}"));
    Sample { name: name.to_owned(), labels, value: value.parse().unwrap_or_else(|_| panic!("no number: {line}")) }
}

/// Everything after the opening brace; the labels and what follows the closing one.
fn labels<'a>(mut rest: &'a str, line: &str) -> (BTreeMap<String, String>, &'a str) {
    let mut labels = BTreeMap::new();
    loop {
        let (name, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("no label: {line}"));
        assert!(is_name(name) && !name.contains(':'), "{line}");
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next().unwrap_or_else(|| panic!("an open quote: {line}")) {
                (at, '"') => break at,
                (_, '\\') => match chars.next().map(|(_, c)| c) {
                    Some('n') => value.push('\n'),
                    Some(c @ ('"' | '\\')) => value.push(c),
                    _ => panic!("a bad escape: {line}"),
                },
                (_, c) => value.push(c),
            }
        };
        assert!(labels.insert(name.to_owned(), value).is_none(), "a label twice: {line}");
        rest = &after[end + 1..];
        match rest.strip_prefix(',') {
            Some(more) => rest = more,
            None => return (labels, rest.strip_prefix('}').unwrap_or_else(|| panic!("no end: {line}"))),
        }
    }
}
