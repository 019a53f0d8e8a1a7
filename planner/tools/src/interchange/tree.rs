//! JSON, YAML and TOML as one tree of keys.

use std::collections::BTreeSet;
use std::fmt;

use ir::text::json;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use serde_saphyr::options::DuplicateKeyPolicy;

use super::options::{Leaf, Repeated};

/// A node of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tree {
    /// Null: the key counts as absent.
    Null,
    /// String, number or boolean, as text.
    Value(String),
    /// List.
    List(Vec<Tree>),
    /// Object: keys in the order of the text, without duplicates.
    Keys(Vec<(String, Tree)>),
}

/// Notation of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notation {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// TOML.
    Toml,
}

impl Tree {
    /// Reads a text; the error is a message.
    pub(crate) fn read(text: &str, notation: Notation) -> Result<Self, String> {
        if text.trim().is_empty() {
            return Err("the file is empty".to_owned());
        }
        match notation {
            Notation::Json => serde_json::from_str(text).map(|Read::<true>(tree)| tree).map_err(
                |error: serde_json::Error| {
                    let (line, column) = (error.line(), error.column());
                    let problem = json::problem(text, &error);
                    format!("it is no JSON, line {line}, column {column}: {problem}")
                },
            ),
            Notation::Toml => toml::from_str(text).map(|Read::<true>(tree)| tree).map_err(
                |error: toml::de::Error| {
                    let before =
                        error.span().map_or("", |at| text.get(..at.start).unwrap_or_default());
                    let line = before.matches('\n').count() + 1;
                    format!("it is no TOML, line {line}: {}", error.message())
                },
            ),
            Notation::Yaml => match Self::documents(text)?.as_slice() {
                [one] => Ok(one.clone()),
                [] => Err("the file is empty".to_owned()),
                all => Err(format!(
                    "it holds {} documents of YAML (parted by `---`), not one",
                    all.len()
                )),
            },
        }
    }

    /// Reads all documents of a YAML text; the error is a message. If a key is given twice, the last value counts, as
    /// in PyYAML.
    pub(super) fn documents(text: &str) -> Result<Vec<Self>, String> {
        Self::documents_by(text, DuplicateKeyPolicy::LastWins)
    }

    /// Keys of a YAML text that are given twice with different values. The last value counts.
    pub(super) fn repeated(text: &str) -> Vec<Repeated> {
        let of = |policy| {
            let all = Self::documents_by(text, policy).unwrap_or_default();
            all.iter().flat_map(Self::leaves).collect::<Vec<_>>()
        };
        let last = of(DuplicateKeyPolicy::LastWins);
        let values = |leaf: &Leaf| match leaf {
            Leaf::Values(values) => values.clone(),
            Leaf::Null | Leaf::NoKeys => Vec::new(),
        };
        let repeated = |(option, before): &(String, Leaf)| {
            let last = last.iter().find(|it| it.0 == *option).map(|it| values(&it.1));
            let (option, before, last) = (option.clone(), values(before), last.unwrap_or_default());
            (before != last).then_some(Repeated { option, before, last })
        };
        of(DuplicateKeyPolicy::FirstWins).iter().filter_map(repeated).collect()
    }

    fn documents_by(text: &str, policy: DuplicateKeyPolicy) -> Result<Vec<Self>, String> {
        let options = serde_saphyr::options! { duplicate_keys: policy };
        let all = serde_saphyr::from_multiple_with_options(text, options);
        let trees = all.map(|all| all.into_iter().map(|Read::<false>(tree)| tree).collect());
        trees.map_err(|error| {
            // serde-saphyr's messages end with an excerpt of the text, which is cut off here.
            let message = error.to_string();
            let first = message.lines().next().unwrap_or_default();
            format!("it is no YAML: {}", first.trim_start_matches("error: "))
        })
    }

    /// Keys with their content; empty if the node is not an object.
    pub(crate) fn keys(&self) -> &[(String, Self)] {
        match self {
            Self::Keys(keys) => keys,
            _ => &[],
        }
    }

    /// Items of a list; empty if the node is not a list.
    pub(crate) fn items(&self) -> &[Self] {
        match self {
            Self::List(items) => items,
            _ => &[],
        }
    }

    /// Text of a scalar.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Value(text) => Some(text),
            _ => None,
        }
    }

    /// Value of a scalar that is a non-negative integer.
    pub(super) fn number(&self) -> Option<u64> {
        self.text()?.parse().ok()
    }

    /// Content of a key.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        self.keys().iter().find(|(name, _)| name == key).map(|(_, tree)| tree)
    }

    /// Returns whether a key is present.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// Returns whether one of some keys is present.
    pub(crate) fn has_any(&self, keys: &[&str]) -> bool {
        keys.iter().any(|key| self.has(key))
    }

    /// Every leaf with its path, keys joined by dots.
    pub(super) fn leaves(&self) -> Vec<(String, Leaf)> {
        let mut leaves = Vec::new();
        self.add_leaves("", &mut leaves);
        leaves
    }

    /// The leaves of [`Self::leaves`] that have values.
    pub(super) fn values(&self) -> Vec<(String, Vec<String>)> {
        let values = |(path, leaf): (String, Leaf)| match leaf {
            Leaf::Values(values) => Some((path, values)),
            Leaf::Null | Leaf::NoKeys => None,
        };
        self.leaves().into_iter().filter_map(values).collect()
    }

    fn add_leaves(&self, path: &str, leaves: &mut Vec<(String, Leaf)>) {
        for (key, tree) in self.keys() {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            tree.add_leaves(&path, leaves);
        }
        let leaf = match self {
            Self::Keys(keys) if !keys.is_empty() => return,
            Self::Keys(_) => Leaf::NoKeys,
            Self::Null => Leaf::Null,
            Self::Value(text) => Leaf::value(text),
            Self::List(all) => {
                let text = |tree: &Self| tree.text().unwrap_or_default().to_owned();
                Leaf::Values(all.iter().map(text).collect())
            }
        };
        leaves.push((path.to_owned(), leaf));
    }
}

/// A tree read from a text. With `ONCE`, a key that is given twice is an error; otherwise its last value counts.
struct Read<const ONCE: bool>(Tree);

impl<'de, const ONCE: bool> Deserialize<'de> for Read<ONCE> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OfTree::<ONCE>).map(Self)
    }
}

struct OfTree<const ONCE: bool>;

/// Floats below 2^53 represent integers exactly; integral ones such as `5e8` are written as integers.
const EXACT: f64 = 9_007_199_254_740_992.0;

impl<'de, const ONCE: bool> Visitor<'de> for OfTree<ONCE> {
    type Value = Tree;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("settings")
    }

    fn visit_unit<E: Error>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Tree, E> {
        Ok(Tree::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Tree, D::Error> {
        Read::<ONCE>::deserialize(deserializer).map(|it| it.0)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Tree, E> {
        Ok(Tree::Value(value.to_string()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Tree, E> {
        Ok(Tree::Value(value.to_string()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Tree, E> {
        Ok(Tree::Value(value.to_string()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Tree, E> {
        let is_whole = value.fract() == 0.0 && value.abs() < EXACT;
        let text = if is_whole { (value as i64).to_string() } else { value.to_string() };
        Ok(Tree::Value(text))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Tree, E> {
        Ok(Tree::Value(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Tree, A::Error> {
        let mut list = Vec::new();
        while let Some(Read::<ONCE>(one)) = all.next_element()? {
            list.push(one);
        }
        Ok(Tree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Tree, A::Error> {
        let mut keys: Vec<(String, Tree)> = Vec::new();
        // Some scripts have a vocabulary next to them, whose words are keys.
        let mut seen = BTreeSet::new();
        // As text: YAML 1.1 takes the key `n`, the number of answers in verl's files, for false, which PyYAML does not.
        while let Some(key) = all.next_key::<String>()? {
            if !seen.insert(key.clone()) {
                if ONCE {
                    return Err(A::Error::custom(format!("`{key}` is given twice")));
                }
                keys.retain(|(known, _)| *known != key);
            }
            keys.push((key, all.next_value::<Read<ONCE>>()?.0));
        }
        Ok(Tree::Keys(keys))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(text: &str, notation: Notation) -> String {
        let tree = Tree::read(text, notation).unwrap();
        let leaf = |(path, leaf): &(String, Leaf)| match leaf {
            Leaf::Values(values) => format!("{path}={}", values.join("+")),
            Leaf::Null => format!("{path}?"),
            Leaf::NoKeys => format!("{path}{{}}"),
        };
        tree.leaves().iter().map(leaf).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn json_and_yaml_are_the_same_keys() {
        let expected = "a.b=1 a.c=true d=x+z e? f{} g=500000000 h=0.1";
        let json = r#"{"a": {"b": 1, "c": true}, "d": ["x", "z"], "e": null, "f": {}, "g": 5e8, "h": 0.1}"#;
        assert_eq!(leaves(json, Notation::Json), expected);
        let yaml = "a:\n  b: 1 # why\n  c: true\nd: [x, z]\ne: null\nf: {}\ng: 5e8\nh: 0.1\n";
        assert_eq!(leaves(yaml, Notation::Yaml), expected);
    }

    #[test]
    fn keys_of_yaml_are_text() {
        assert_eq!(leaves("n: 5\ny: 6\n1: 2\n", Notation::Yaml), "n=5 y=6 1=2");
    }

    #[test]
    fn of_a_key_of_yaml_that_is_given_twice_the_last_counts() {
        let text = "a: {b: 1}\na: {c: 2}\nd: 3\nd: 3\n";
        assert_eq!(leaves(text, Notation::Yaml), "a.c=2 d=3");
        let repeated = Tree::repeated(text);
        assert_eq!(repeated.len(), 1);
        assert_eq!(
            (repeated[0].option.as_str(), &*repeated[0].before),
            ("a.b", &["1".to_owned()][..])
        );
        assert!(repeated[0].last.is_empty());
    }

    /// GPT-2's vocabulary has 50 257 words; with a look at every earlier word for each, it takes a minute.
    #[test]
    fn a_vocabulary_is_read_in_one_pass() {
        let words: Vec<String> = (0..200_000).map(|it| format!("\"{it}\": {it}")).collect();
        let text = format!("{{{}}}", words.join(","));
        assert_eq!(Tree::read(&text, Notation::Json).unwrap().keys().len(), 200_000);
    }

    #[test]
    fn what_is_no_tree_says_where() {
        let json = |text: &str| Tree::read(text, Notation::Json).unwrap_err();
        assert!(json("{\"a\": 1, \"a\": 2}").contains("`a` is given twice"));
        assert!(
            json("{\"a\": 1").contains("line 1, column 7: the file ends here, though an object")
        );
        assert_eq!(json(" \n"), "the file is empty");
        let yaml = |text: &str| Tree::read(text, Notation::Yaml).unwrap_err();
        assert!(yaml("a: [1, 2\n").contains("line"), "{}", yaml("a: [1, 2\n"));
    }
}
