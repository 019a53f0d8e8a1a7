//! Options as the keys of a file: each name is a path of keys with dots between them.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::argument::Argument;

/// Column where comments with reasons start, unless the setting is longer.
const REASONS: usize = 52;

/// Keys, each with a value or with nested keys, in the order of their first occurrence.
#[derive(Debug, Default)]
struct Keys<'a>(Vec<(&'a str, Node<'a>)>);

#[derive(Debug)]
enum Node<'a> {
    Value(&'a Argument),
    Keys(Keys<'a>),
}

impl<'a> Keys<'a> {
    fn of(arguments: impl IntoIterator<Item = &'a Argument>) -> Self {
        let mut keys = Self::default();
        for argument in arguments {
            keys.insert(&argument.name, argument);
        }
        keys
    }

    fn insert(&mut self, path: &'a str, argument: &'a Argument) {
        let Some((first, rest)) = path.split_once('.') else {
            self.0.push((path, Node::Value(argument)));
            return;
        };
        let place = self.0.iter().position(|(key, _)| *key == first).unwrap_or_else(|| {
            self.0.push((first, Node::Keys(Self::default())));
            self.0.len() - 1
        });
        if let Node::Keys(below) = &mut self.0[place].1 {
            below.insert(rest, argument);
        }
    }

    fn yaml(&self, indent: usize, text: &mut String) {
        for (key, node) in &self.0 {
            match node {
                Node::Keys(below) => {
                    let _ = writeln!(text, "{:indent$}{key}:", "");
                    below.yaml(indent + 2, text);
                }
                Node::Value(argument) => {
                    let setting = format!("{:indent$}{key}: {}", "", argument.values.join(" "));
                    let _ = match argument.why.as_str() {
                        "" => writeln!(text, "{setting}"),
                        why => writeln!(text, "{setting:REASONS$} # {why}"),
                    };
                }
            }
        }
    }

    fn json(&self) -> Value {
        let value = |node: &Node<'_>| match node {
            Node::Keys(below) => below.json(),
            Node::Value(argument) => literal(&argument.values.join(" ")),
        };
        let all: Map<String, Value> =
            self.0.iter().map(|(key, node)| ((*key).to_owned(), value(node))).collect();
        Value::Object(all)
    }
}

/// JSON literal of a text: a number or a boolean if it is one, else a string.
pub(super) fn literal(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(value @ (Value::Number(_) | Value::Bool(_))) => value,
        _ => text.into(),
    }
}

/// YAML, with the reason for each value as a comment.
pub(super) fn yaml<'a>(arguments: impl IntoIterator<Item = &'a Argument>) -> String {
    let mut text = String::new();
    Keys::of(arguments).yaml(0, &mut text);
    text
}

/// JSON, which has no comments for reasons.
pub(super) fn json<'a>(arguments: impl IntoIterator<Item = &'a Argument>) -> String {
    serde_json::to_string_pretty(&Keys::of(arguments).json()).unwrap_or_default() + "\n"
}
