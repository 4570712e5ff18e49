//! Files that are made from the code and checked in.

use std::path::Path;

/// The file, by its path from the root, holds what is wanted; else says where it differs, and how to write it anew:
/// `OUTBOXD_BLESS=1`.
pub fn assert_is_current(file: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("OUTBOXD_BLESS").is_some_and(|bless| bless == "1") {
        std::fs::write(&path, wanted).unwrap_or_else(|error| panic!("{file}: {error}"));
        return;
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    if found != wanted {
        let test = std::thread::current().name().unwrap_or("").to_owned();
        let difference = difference(&found, wanted);
        panic!(
            "{file} is stale:\n{difference}\nOUTBOXD_BLESS=1 scripts/test --test it -- --exact {test} writes it anew"
        );
    }
}

/// From the first line that differs to the last.
fn difference(found: &str, wanted: &str) -> String {
    let (found, wanted): (Vec<&str>, Vec<&str>) = (found.lines().collect(), wanted.lines().collect());
    let before = found.iter().zip(&wanted).take_while(|(found, wanted)| found == wanted).count();
    let (found, wanted) = (&found[before..], &wanted[before..]);
    let after = found.iter().rev().zip(wanted.iter().rev()).take_while(|(found, wanted)| found == wanted).count();
    let removed = found[..found.len() - after].iter().map(|line| format!("- {line}"));
    let added = wanted[..wanted.len() - after].iter().map(|line| format!("+ {line}"));
    let lines: Vec<String> = removed.chain(added).collect();
    format!("from line {}:\n{}", before + 1, lines.join("\n"))
}

#[test]
fn a_difference_is_shown_by_its_lines_even_if_each_stands_elsewhere_too() {
    let shown = |found, wanted| difference(found, wanted);
    assert_eq!(shown("a\nx\nb\nx\n", "a\nx\nb\n"), "from line 4:\n- x");
    assert_eq!(shown("a\nb\nc\n", "a\nB\nC2\nc\n"), "from line 2:\n- b\n+ B\n+ C2");
    assert_eq!(shown("", "a\n"), "from line 1:\n+ a");
}
