//! Style kept by a failing test: who imports whom, names, sizes, every SQL file used and valid, the schema as
//! checked in.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support::sql::Sql;
use crate::support::{golden, postgres};

/// Lowest first. A module imports only from lines above its own; modules of one line do not know each other.
const LAYERS: &[&[&str]] = &[
    &["tls", "failpoint", "printable"],
    &["config"],
    &["telemetry"],
    &["notification", "retry"],
    &["queue", "channel"],
    &["store"],
    &["producer", "relay", "worker", "upkeep", "schedule", "events", "server"],
    &["service"],
    &["cli"],
];

/// The daemon and the programs beside it.
const SOURCES: [&str; 6] = ["src", "bench/load/src", "bench/soak/src", "demo/src", "demo/throwaway/src", "model/src"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// "relay/reserve_fresh" for sql/queries/relay/reserve_fresh.sql.
fn stems(dir: &str) -> BTreeSet<String> {
    let dir = root().join(dir);
    let stem = |file: &PathBuf| file.strip_prefix(&dir).unwrap().with_extension("").to_str().unwrap().to_string();
    files(&dir, "sql").iter().map(stem).collect()
}

/// The shipped lines of a source file: no comments, nothing from its `#[cfg(test)]` module on, which comes last.
fn shipped(path: &Path) -> String {
    if path.file_stem().is_some_and(|stem| stem == "tests") {
        return String::new();
    }
    let text = fs::read_to_string(path).unwrap();
    let end = text.find("#[cfg(test)]\nmod tests {").unwrap_or(text.len());
    let code = text[..end].lines().filter(|line| !line.trim_start().starts_with("//"));
    code.collect::<Vec<_>>().join("\n")
}

/// "src/queue/memory.rs" belongs to "queue".
fn module(path: &Path) -> String {
    let inside = path.strip_prefix(root().join("src")).unwrap();
    inside.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs").to_string()
}

/// What `crate::` paths name, two steps deep: "store::Store", "queue".
fn imports(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        for path in expand(rest) {
            found.insert(path.split("::").take(2).collect::<Vec<_>>().join("::"));
        }
    }
    found
}

/// "a::{b, c::d}" → "a::b", "a::c::d"; "{a, b::c}" → "a", "b::c".
fn expand(path: &str) -> Vec<String> {
    let head: String = path.chars().take_while(|c| c.is_alphanumeric() || *c == '_' || *c == ':').collect();
    let rest = &path[head.len()..];
    if !rest.starts_with('{') {
        return vec![head.trim_end_matches("::").to_string()];
    }
    let (mut depth, mut parts, mut part) = (0, Vec::new(), String::new());
    for c in rest.chars() {
        match c {
            '{' if depth == 0 => depth = 1,
            '}' if depth == 1 => break,
            ',' if depth == 1 => parts.push(std::mem::take(&mut part)),
            _ => {
                depth += i32::from(c == '{') - i32::from(c == '}');
                part.push(c);
            }
        }
    }
    parts.push(part);
    let parts = parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty());
    parts.flat_map(expand).map(|part| format!("{head}{part}")).collect()
}

fn layer(module: &str) -> usize {
    let layer = LAYERS.iter().position(|modules| modules.contains(&module));
    layer.unwrap_or_else(|| panic!("give the module `{module}` its place in LAYERS (tests/it/tidy.rs)"))
}

#[test]
fn modules_import_only_downward() {
    let mut wrong = Vec::new();
    for path in files(&root().join("src"), "rs") {
        let from = module(&path);
        if from == "main" || from == "lib" {
            continue;
        }
        for import in imports(&shipped(&path)) {
            let to = import.split("::").next().unwrap();
            // Macros and items of the crate's root have no place in the order.
            if to == from || to.is_empty() || !root().join(format!("src/{to}.rs")).exists() {
                continue;
            }
            if layer(to) >= layer(&from) {
                wrong.push(format!("{}: {import}", path.strip_prefix(root()).unwrap().display()));
            }
        }
    }
    assert_eq!(wrong, [""; 0], "imports that do not point downward (LAYERS in tests/it/tidy.rs)");
}

#[test]
fn pure_modules_know_no_runtime_no_sql_and_no_clock() {
    for file in ["notification.rs", "retry.rs"] {
        let code = shipped(&root().join("src").join(file));
        for word in ["tokio", "postgres", "SystemTime", "Instant", "Utc::now", "store", "redis", "rand::rng"] {
            assert!(!code.contains(word), "src/{file} speaks of {word}");
        }
    }
}

#[test]
fn no_source_file_is_over_400_lines_and_none_unwraps() {
    for path in SOURCES.iter().flat_map(|dir| files(&root().join(dir), "rs")) {
        let lines = fs::read_to_string(&path).unwrap().lines().count();
        assert!(lines <= 400, "{} has {lines} lines: look for the second noun in it", path.display());
        assert!(!shipped(&path).contains(".unwrap()"), "{} unwraps: state the invariant in an expect", path.display());
    }
}

#[test]
fn names_of_tests_are_sentences_of_at_most_80_characters() {
    let mut long = Vec::new();
    for dir in ["src", "tests", "bench", "demo", "model"] {
        for path in files(&root().join(dir), "rs") {
            let code = fs::read_to_string(&path).unwrap();
            let names = code.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
            long.extend(names.filter(|name| name.len() > 80 && !name.contains(' ')).map(str::to_string));
        }
    }
    assert_eq!(long, [""; 0], "say it shorter");
}

/// Words for several after a figure that may be one.
#[test]
fn figures_stand_beside_words_that_fit_one_as_well() {
    let root = root();
    let mut texts = files(&root.join("src/server/dashboard/templates"), "html");
    texts.extend(files(&root.join("sql/views"), "sql"));
    texts.push(root.join("deploy/prometheus/outboxd.rules.yml"));
    for path in texts {
        let text = std::fs::read_to_string(&path).unwrap();
        for figure in ["%s ", "}} "] {
            for rest in text.split(figure).skip(1) {
                let word = rest.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
                let is_for_several = ["are", "were", "wait", "have", "go"].contains(&word);
                assert!(!is_for_several, "{}: …{figure}{}", path.display(), rest.chars().take(60).collect::<String>());
            }
        }
    }
}

#[test]
fn values_of_rows_are_read_without_a_panic() {
    for path in files(&root().join("src/store"), "rs").iter().filter(|path| !path.ends_with("migrate.rs")) {
        let code = shipped(path);
        let panics = code.contains("row.get(") || code.contains("row.get::<");
        assert!(!panics, "{}: what a row holds is somebody else's; read it with Values::value", path.display());
    }
}

#[test]
fn migrations_are_numbered_without_gaps_and_named_in_words() {
    for (n, path) in (1..).zip(files(&root().join("migrations"), "sql")) {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let words = name.strip_prefix(&format!("V{n:04}__")).unwrap_or_else(|| panic!("{name} is not V{n:04}__…"));
        assert!(words.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'), "{name}");
    }
}

#[test]
fn every_function_and_view_file_is_installed() {
    for (dir, listed) in [("functions", outboxd::store::migrate::FUNCTIONS), ("views", outboxd::store::migrate::VIEWS)]
    {
        let listed: BTreeSet<String> = listed
            .iter()
            .map(|(name, _)| name.trim_start_matches(&format!("{dir}/")).trim_end_matches(".sql").to_string())
            .collect();
        assert_eq!(listed, stems(&format!("sql/{dir}")), "sql/{dir} and the list in src/store/migrate.rs");
    }
}

/// The parameters of a statement: 1, 2, … as far as `$n` goes.
fn parameters(sql: &str) -> usize {
    (1..100).take_while(|n| sql.contains(&format!("${n}"))).count()
}

#[tokio::test]
async fn every_query_is_used_explained_and_valid_on_the_migrated_schema() {
    let client = postgres::database().await.connect().await;
    let source: String =
        files(&root().join("src"), "rs").iter().map(|path| fs::read_to_string(path).unwrap()).collect();
    let mut wrong = Vec::new();
    for stem in stems("sql/queries") {
        let text = fs::read_to_string(root().join(format!("sql/queries/{stem}.sql"))).unwrap();
        let (header, body): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with("--"));
        let (header, body) = (header.join("\n"), body.join("\n"));
        if !source.contains(&format!("\"{stem}\"")) && !source.contains(&format!("/{stem}.sql")) {
            wrong.push(format!("{stem}: nobody runs it"));
        }
        if !text.starts_with("-- ") {
            wrong.push(format!("{stem}: its header must say what it is for"));
        }
        let writes = ["INSERT INTO", "UPDATE outboxd", "DELETE FROM"].iter().any(|verb| body.contains(verb));
        let parts = [("Locks", true), ("ndex", true), ("Interleavings:", writes)];
        for (part, _) in parts.iter().filter(|(part, is_wanted)| *is_wanted && !header.contains(part)) {
            wrong.push(format!("{stem}: its header does not say \"{part}\""));
        }
        for n in 1..=parameters(&body) {
            if !header.contains(&format!("${n} ")) {
                wrong.push(format!("{stem}: its header does not explain ${n}"));
            }
        }
        if let Err(error) = client.prepare(&text).await {
            wrong.push(format!("{stem}: {:?}", error.as_db_error().map(|db| db.message().to_string())));
        }
    }
    assert_eq!(wrong, [""; 0]);
}

#[tokio::test]
async fn every_view_every_column_of_one_and_every_public_function_has_a_comment() {
    let client = postgres::database().await.connect().await;
    let silent = "SELECT 'view ' || c.relname FROM pg_class c
                   WHERE c.relnamespace = 'outboxd'::regnamespace AND c.relkind = 'v' AND left(c.relname, 1) <> '_' AND obj_description(c.oid, 'pg_class') IS NULL
                  UNION ALL
                  SELECT 'column ' || c.relname || '.' || a.attname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
                   WHERE c.relnamespace = 'outboxd'::regnamespace AND c.relkind = 'v' AND left(c.relname, 1) <> '_' AND a.attnum > 0 AND NOT a.attisdropped
                     AND col_description(c.oid, a.attnum) IS NULL
                  UNION ALL
                  SELECT 'function ' || p.proname FROM pg_proc p
                   WHERE p.pronamespace = 'outboxd'::regnamespace AND left(p.proname, 1) <> '_' AND obj_description(p.oid, 'pg_proc') IS NULL";
    assert_eq!(client.values::<String>(silent).await, [""; 0]);
}

#[tokio::test]
async fn the_schema_is_the_one_checked_in() {
    let client = postgres::database().await.connect().await;
    // Constants in constraints are shown in the session's time zone.
    client.run("SET timezone = 'UTC'").await;
    let lines: Vec<String> = client.values(include_str!("schema_dump.sql")).await;
    golden::assert_is_current("tests/schema.sql", &format!("{}\n", lines.join("\n")));
}

/// The first column of the tables under a heading, taken apart: "`a`, `b`" are two.
fn named_in(page: &str, heading: &str, quote: char) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let part = text.split(&format!("## {heading}\n")).nth(1).unwrap_or_else(|| panic!("{page} has no {heading}"));
    let part = part.split("\n## ").next().unwrap();
    let cells = part.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    let names = cells.flat_map(|cell| cell.split(", "));
    names.filter_map(|name| Some(name.strip_prefix(quote)?.strip_suffix(quote)?.to_string())).collect()
}

const SECURITY: (&str, &str) = ("docs/security.md", "Whose code runs where");

#[tokio::test]
async fn the_page_on_security_names_every_function_with_the_owners_rights() {
    let client = postgres::database().await.connect().await;
    let functions =
        "SELECT DISTINCT proname::text FROM pg_proc WHERE pronamespace = 'outboxd'::regnamespace AND prosecdef";
    let functions: BTreeSet<String> = client.values(functions).await.into_iter().collect();
    assert_eq!(named_in(SECURITY.0, SECURITY.1, '`'), functions, "look at it as its table asks, and write the verdict");
}

#[test]
fn the_page_on_security_names_every_kind_of_session() {
    let code = shipped(&root().join("src/store/session.rs"));
    let kinds = code.split("pub enum Purpose {").nth(1).and_then(|rest| rest.split('}').next()).unwrap();
    let mut kinds: BTreeSet<String> = kinds.split(',').map(|kind| kind.trim().to_string()).collect();
    kinds.remove("");
    kinds.insert("pooler".to_string());
    assert_eq!(named_in(SECURITY.0, SECURITY.1, '*'), kinds, "look at it as its table asks, and write the verdict");
    // A session has its settings from there; the two that have none of their own are these.
    let bare = files(&root().join("src"), "rs").into_iter().filter(|path| {
        let code = shipped(path);
        ["Target::parse(", ".target.open(", "connect::connect("].iter().any(|opens| code.contains(opens))
    });
    let bare: BTreeSet<String> =
        bare.map(|path| path.strip_prefix(root().join("src")).unwrap().to_str().unwrap().to_string()).collect();
    let known = [
        "cli/migrate.rs",
        "store.rs",
        "store/audience.rs",
        "store/command.rs",
        "store/connect.rs",
        "store/liveness.rs",
        "store/pool.rs",
        "store/pooler.rs",
    ];
    assert_eq!(bare, known.map(String::from).into(), "a session that somebody opens is one of those on the page");
}

#[test]
fn imports_are_read_from_every_form_of_use() {
    let code = "use crate::store::{Store, connect::{Target, Tls}};\nuse crate::{queue, channel::http};\nlet x = crate::retry::next(1);";
    let expected = ["channel::http", "queue", "retry::next", "store::Store", "store::connect"];
    assert_eq!(imports(code), expected.map(String::from).into());
}
