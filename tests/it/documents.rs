//! The pages: their links lead somewhere, and the commands they show exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use clap::CommandFactory;
use outboxd::cli::Cli;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every page for readers, by its path from the root.
fn pages() -> Vec<String> {
    let below = |dir: &str| {
        let entries = fs::read_dir(root().join(dir)).unwrap().map(|entry| entry.unwrap().file_name());
        let names = entries.map(|name| name.into_string().unwrap()).filter(|name| name.ends_with(".md"));
        names.map(|name| if dir == "." { name } else { format!("{dir}/{name}") }).collect::<Vec<_>>()
    };
    let mut pages = [below("."), below("docs"), below("bench")].concat();
    pages.sort();
    pages
}

fn read(page: &str) -> String {
    fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// The lines outside of fences.
fn prose(text: &str) -> Vec<&str> {
    let mut is_fenced = false;
    let outside = |line: &&str| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        !is_fenced && !is_fence
    };
    text.lines().filter(outside).collect()
}

/// The targets of `[text](target)`, which may stand over two lines.
fn links(text: &str) -> Vec<String> {
    let text = prose(text).join("\n");
    text.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0.to_owned())).collect()
}

/// The anchor of a heading, as forges make it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).into_iter().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#'))).collect()
}

#[test]
fn links_of_the_pages_lead_to_files_and_headings_that_exist() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = read(&page);
        for link in links(&text).iter().filter(|link| !link.contains("://") && !link.starts_with("mailto:")) {
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { root().join(&page) } else { folder(&page).join(path) };
            let has_heading = || fs::read_to_string(&target).is_ok_and(|text| anchors(&text).contains(heading));
            if !target.exists() || (!heading.is_empty() && !has_heading()) {
                broken.push(format!("{page}: {link}"));
            }
        }
    }
    assert_eq!(broken, [""; 0]);
}

fn folder(page: &str) -> PathBuf {
    root().join(Path::new(page).parent().unwrap())
}

#[test]
fn every_picture_of_the_dashboard_is_on_a_page() {
    let shown: String = pages().iter().map(|page| read(page)).collect();
    for entry in fs::read_dir(root().join("docs/dashboard")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(shown.contains(&format!("dashboard/{name}")), "{name} is on no page");
    }
}

#[test]
fn every_page_can_be_reached_from_the_readme() {
    let (mut seen, mut next) = (BTreeSet::new(), vec!["README.md".to_owned()]);
    while let Some(page) = next.pop() {
        if !seen.insert(page.clone()) {
            continue;
        }
        for link in links(&read(&page)) {
            let path = folder(&page).join(link.split('#').next().unwrap_or_default());
            if let Some(inside) = path.canonicalize().ok().filter(|path| path.extension().is_some_and(|e| e == "md")) {
                next.push(inside.strip_prefix(root().canonicalize().unwrap()).unwrap().display().to_string());
            }
        }
    }
    let lost: Vec<String> =
        pages().into_iter().filter(|page| page.starts_with("docs/") && !seen.contains(page)).collect();
    assert_eq!(lost, [""; 0], "no link leads there");
}

/// What stands in backticks, in fences of shells and of plain text, and in indented blocks: line by line.
fn code(text: &str) -> Vec<String> {
    let (mut found, mut fence) = (Vec::new(), None);
    for line in text.lines() {
        match (line.trim_start().strip_prefix("```"), fence) {
            (Some(_), Some(_)) => fence = None,
            (Some(info), None) => fence = Some(info),
            (None, Some(info)) if info.is_empty() || info.starts_with("sh") => found.push(line.to_owned()),
            (None, Some(_)) => {}
            (None, None) if line.starts_with("    ") => found.push(line.to_owned()),
            (None, None) => found.extend(line.split('`').skip(1).step_by(2).map(str::to_owned)),
        }
    }
    found
}

/// The words after `outboxd` where it begins a command: first, or after a prompt, a variable, a pipe, `;` or `&&`.
fn commands(code: &str) -> Vec<Vec<String>> {
    let words: Vec<&str> = code.split_whitespace().collect();
    let mut found = Vec::new();
    for (at, _) in words.iter().enumerate().filter(|(_, word)| **word == "outboxd") {
        let is_first = match at.checked_sub(1).map(|before| words[before]) {
            None => true,
            Some(before) => matches!(before, "$" | "|" | "&&") || before.ends_with(';') || before.contains('='),
        };
        let rest = words[at + 1..].iter().take_while(|word| !matches!(**word, "|" | "&&" | "#"));
        let rest: Vec<String> = rest.map(|word| word.trim_end_matches([';', ',', '.', ')']).to_owned()).collect();
        let is_command = |word: &String| word.starts_with('-') || word.chars().all(|c| c.is_ascii_lowercase());
        if is_first && rest.first().is_some_and(is_command) {
            found.push(rest);
        }
    }
    found
}

/// What is wrong with a command line as far as names go: an unknown command, an unknown flag.
fn unknown(words: &[String]) -> Option<String> {
    let cli = Cli::command();
    let (mut command, mut is_named) = (&cli, false);
    for word in words {
        let flag = word.split('=').next().unwrap_or_default();
        if flag.starts_with('-') {
            let is_known = [&cli, command].iter().any(|command| {
                let mut flags = command.get_arguments().flat_map(|arg| {
                    let long = arg.get_long().map(|long| format!("--{long}"));
                    long.into_iter().chain(arg.get_short().map(|short| format!("-{short}")))
                });
                flags.any(|known| known == flag)
            });
            if !is_known && !matches!(flag, "--help" | "--version") {
                return Some(format!("{} has no {flag}", command.get_name()));
            }
        } else if let Some(next) = command.find_subcommand(word) {
            (command, is_named) = (next, true);
        } else if !is_named && command.has_subcommands() {
            return Some(format!("there is no command {word}"));
        }
    }
    None
}

#[test]
fn commands_and_flags_that_the_pages_name_exist() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for page in pages().iter().filter(|page| *page != "CHANGELOG.md") {
        for words in code(&read(page)).iter().flat_map(|code| commands(code)) {
            count += 1;
            wrong.extend(unknown(&words).map(|what| format!("{page}: outboxd {}: {what}", words.join(" "))));
        }
    }
    assert_eq!(wrong, [""; 0]);
    assert!(count > 40, "commands are found: {count}");
}

#[test]
fn a_misspelt_command_flag_or_heading_is_noticed() {
    let words = |text: &str| commands(text).concat();
    assert_eq!(unknown(&words("DATABASE_URL=x outboxd migrate --dry-run | less")), None);
    assert_eq!(unknown(&words("outboxd dead retry 1 --http-status 503 --set worker.lease=1m")), None);
    assert_eq!(unknown(&words("$ outboxd migrat")).unwrap(), "there is no command migrat");
    assert_eq!(unknown(&words("outboxd migrate --dryrun")).unwrap(), "migrate has no --dryrun");
    assert_eq!(unknown(&words("outboxd dead list --yes")).unwrap(), "list has no --yes");
    assert!(commands("CREATE ROLE outboxd LOGIN").is_empty() && commands("schema outboxd at 7").is_empty());
    assert_eq!(anchor(" Behind PgBouncer, `again`"), "behind-pgbouncer-again");
}

#[test]
fn the_pages_name_the_newest_migration() {
    let newest = outboxd::store::migrate::newest().to_string();
    for page in pages() {
        for rest in read(&page).split("at migration ").skip(1) {
            let named: String = rest.chars().take_while(char::is_ascii_digit).collect();
            assert!(named.is_empty() || named == newest, "{page} says migration {named}, the newest is {newest}");
        }
    }
}

/// A promise names the test that keeps it.
#[test]
fn every_test_that_a_page_names_exists() {
    let is_part = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    };
    let mut missing = Vec::new();
    let mut named = 0;
    for page in pages() {
        let text = read(&page);
        for name in text.split(|c: char| c.is_whitespace() || c == '`').filter(|name| name.split("::").all(is_part)) {
            let Some((modules, test)) = name.rsplit_once("::") else { continue };
            let file = |dir: &str| root().join(dir).join(modules.replace("::", "/")).with_extension("rs");
            let sources = ["tests/it", "tests/it/support"].map(|dir| fs::read_to_string(file(dir)));
            // A whole module may be named too.
            let is_module = file("tests/it").with_extension("").join(test).with_extension("rs").exists();
            let sources: Vec<String> = sources.into_iter().flatten().collect();
            named += sources.len();
            let has_it = |source: &String| source.contains(&format!("fn {test}("));
            if !is_module && !sources.is_empty() && !sources.iter().any(has_it) {
                missing.push(format!("{page}: {name}"));
            }
        }
    }
    assert!(named > 30, "{named} names were found");
    assert_eq!(missing, [""; 0]);
}

#[test]
fn the_table_of_versions_has_the_rows_of_the_matrix_in_the_form_that_it_writes() {
    let listed = std::process::Command::new(root().join("scripts/matrix")).arg("--list").output().unwrap();
    let names: Vec<&str> = std::str::from_utf8(&listed.stdout).unwrap().lines().collect();
    let page = read("docs/versions.md");
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.starts_with("| "))
        .map(|line| line.trim_matches(['|', ' ']).split(" | ").collect())
        .collect();
    assert_eq!(rows[0], ["server", "version", "core of the suite", "run on"]);
    assert_eq!(rows[1..].iter().map(|row| row[0]).collect::<Vec<_>>(), names);
    for row in &rows[1..] {
        let [_, version, result, run_on] = row[..] else { panic!("{row:?}") };
        let (passed, failed) = result.split_once(" passed, ").unwrap_or_else(|| panic!("{row:?}"));
        let counts = [passed, failed.strip_suffix(" failed").unwrap_or_default()];
        assert!(counts.iter().all(|count| count.parse::<u32>().is_ok()), "{row:?}");
        assert!(version.contains('.') && run_on.starts_with("20"), "{row:?}");
    }
}
