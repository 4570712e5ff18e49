//! Lists that are read in parts: the worst rows first, a page at a time, or only those whose name has a text in it.
//!
//! **Guarantee.** Every row is on one of the pages, wherever its name sorts, and totals are of all rows. **Limit.** A row
//! whose state changes while one pages on moves with it: it may be seen twice, or only by its name.

use std::collections::BTreeMap;

use minijinja::context;
use minijinja::value::Value as Context;
use serde_json::Value;

use crate::store::dashboard::{LIST_PAGE, Part};

/// Longer than any name.
const NAME_CHARS_MAX: usize = 300;

/// What an address asks for.
pub(super) fn parse(fields: &BTreeMap<String, String>) -> Part {
    let name = fields.get("name").map(|name| name.chars().filter(|c| *c != '\0').take(NAME_CHARS_MAX).collect());
    // A place that cannot be read is the beginning.
    Part { name, after: fields.get("after").and_then(|place| serde_json::from_str(place).ok()) }
}

/// Its address.
pub(super) fn address(path: &str, part: &Part) -> String {
    let after = part.after.as_ref().map(|place| serde_json::json!([place.0, place.1, place.2, place.3]));
    with(path, part.name.as_deref(), after.as_ref())
}

/// Keeps a page's rows; the place of the last one says where the next page begins, if there is one.
pub(super) fn cut(found: &mut Value, rows: &str) {
    let Some(all) = found[rows].as_array_mut() else { return };
    if all.len() > LIST_PAGE {
        all.truncate(LIST_PAGE);
        let next = all.last().map_or(Value::Null, |last| last["place"].clone());
        found["next"] = next;
    }
}

/// For the search field and the links below a list.
pub(super) fn context(path: &str, part: &Part, found: &Value) -> Context {
    let next = Some(&found["next"]).filter(|next| next.is_array());
    let more = next.map(|next| with(path, part.name.as_deref(), Some(next)));
    context! {
        list => context! {
            path, name => part.name.clone(), more, is_later => part.after.is_some(),
            first => with(path, part.name.as_deref(), None),
        }
    }
}

fn with(path: &str, name: Option<&str>, after: Option<&Value>) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(name.map(|name| ("name", name)));
    query.extend_pairs(after.map(|after| ("after", after.to_string())));
    match query.finish() {
        query if query.is_empty() => path.to_owned(),
        query => format!("{path}?{query}"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_full_page_leads_to_the_next_and_the_last_one_nowhere() {
        let rows = |n: usize| (0..n).map(|at| json!({"place": [1, at, 0, format!("t&{at}")]})).collect::<Vec<_>>();
        let mut found = json!({"topics": rows(LIST_PAGE + 1)});
        cut(&mut found, "topics");
        assert_eq!(found["topics"].as_array().map(Vec::len), Some(LIST_PAGE));
        let asked = Part { name: Some("t&".to_owned()), after: None };
        let list = context("/topics", &asked, &found).get_attr("list").unwrap();
        let more = list.get_attr("more").unwrap().to_string();
        let fields = url::form_urlencoded::parse(more.split_once('?').unwrap().1.as_bytes()).into_owned().collect();
        let next = parse(&fields);
        assert_eq!(next.name, asked.name);
        assert_eq!(next.after.as_ref().map(|place| &*place.3), Some(&*format!("t&{}", LIST_PAGE - 1)));
        assert_eq!(address("/topics", &next), more);
        let mut last = json!({"topics": rows(LIST_PAGE)});
        cut(&mut last, "topics");
        assert!(context("/topics", &next, &last).get_attr("list").unwrap().get_attr("more").unwrap().is_none());
    }

    #[test]
    fn a_place_that_is_none_is_the_beginning() {
        for after in ["x", "[]", "[1,2,3]", "{}", "[1,2,3,4]"] {
            assert_eq!(parse(&[("after".to_owned(), after.to_owned())].into()).after, None, "{after}");
        }
    }
}
