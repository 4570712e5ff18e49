//! `${VAR}` in the strings of the file, and `…_FILE`: secrets that live elsewhere.
//!
//! **Guarantee.** What is filled in is not read again: a secret may hold `${`. **Limit.** There are no defaults and no
//! nesting as in a shell: a variable that is missing is an error.

use std::collections::BTreeMap;

/// The environment a configuration is read in; never the process's own behind the caller's back.
pub type Env = BTreeMap<String, String>;

/// Fills in `${VAR}`: the variable, else the contents of the file that `VAR_FILE` names. `$${` stands for `${`.
/// None when there was nothing to fill in.
pub(super) fn expand(text: &str, env: &Env) -> Result<Option<String>, String> {
    if !text.contains("${") {
        return Ok(None);
    }
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if let Some(before) = rest[..at].strip_suffix('$') {
            filled.push_str(before);
            filled.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        filled.push_str(&rest[..at]);
        let end = rest[at..].find('}').ok_or("has a ${ without its }; write $${ for a plain ${")?;
        filled.push_str(&variable(&rest[at + 2..at + end], env)?);
        rest = &rest[at + end + 1..];
    }
    filled.push_str(rest);
    Ok(Some(filled))
}

fn variable(name: &str, env: &Env) -> Result<String, String> {
    let valid = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !valid {
        return Err(format!("names ${{{name}}}, which is no environment variable; write $${{ for a plain ${{"));
    }
    if let Some(value) = env.get(name) {
        return Ok(value.clone());
    }
    match env.get(&format!("{name}_FILE")) {
        Some(path) => read_secret(path),
        None => Err(format!("needs the environment variable {name} (or {name}_FILE), which is not set")),
    }
}

/// The contents of a secret's file, without the newline that editors and `echo` add.
pub(super) fn read_secret(path: &str) -> Result<String, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("could not be read from {path}: {error}"))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Env, expand};

    #[test]
    fn variables_are_filled_in_and_a_doubled_dollar_escapes() {
        let env = Env::from([("A".into(), "1".into()), ("B_2".into(), "${A}".into())]);
        for (text, filled) in [
            ("plain $5", Ok(None)),
            ("${A}", Ok(Some("1"))),
            ("x${A}y${B_2}z", Ok(Some("x1y${A}z"))),
            ("$${A}", Ok(Some("${A}"))),
            ("$$${A}", Ok(Some("$${A}"))),
            ("${A", Err("has a ${ without its }; write $${ for a plain ${")),
            ("${NO}", Err("needs the environment variable NO (or NO_FILE), which is not set")),
        ] {
            let wanted = filled.map(|some| some.map(str::to_owned)).map_err(str::to_owned);
            assert_eq!(expand(text, &env), wanted, "{text}");
        }
    }
}
