//! Tools of the server: commands whose options are arguments with types, derived from the command line's declarations.

use std::any::TypeId;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use clap::builder::ValueParser;
use clap::{Arg, ArgAction, Command, CommandFactory as _};
use rmcp::model::{JsonObject, Tool};
use serde_json::{Value, json};

use super::super::args::Cli;
use planner::names::nearest;

/// Commands that are tools.
const TOOLS: [&str; 6] = ["search", "evaluate", "explain", "compare", "lint", "export"];

/// Options that are not arguments: those about printing, and those that the server sets.
const NOT_ARGUMENTS: [&str; 5] = ["help", "version", "format", "quiet", "threads"];

/// Type of an argument's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueType {
    Switch,
    /// `true` or `false`, which is left open without the option.
    Boolean,
    Integer,
    Number,
    Text,
}

/// A command as a tool.
pub(super) struct ToolCommand {
    pub(super) name: &'static str,
    command: Command,
}

impl ToolCommand {
    /// The tool called `name`.
    pub(super) fn named(name: &str) -> anyhow::Result<Self> {
        let known = TOOLS
            .into_iter()
            .find(|it| *it == name)
            .with_context(|| format!("no tool is called `{name}`\nhint: {}", TOOLS.join(", ")))?;
        let mut cli = Cli::command();
        cli.build();
        let command = cli.find_subcommand(known).expect("tools are commands").clone();
        Ok(Self { name: known, command })
    }

    /// All tools.
    pub(super) fn all() -> impl Iterator<Item = Self> {
        TOOLS.into_iter().filter_map(|name| Self::named(name).ok())
    }

    fn arguments(&self) -> impl Iterator<Item = &Arg> {
        let is_argument =
            |arg: &&Arg| !NOT_ARGUMENTS.contains(&arg.get_id().as_str()) && !arg.is_hide_set();
        self.command.get_arguments().filter(is_argument)
    }

    /// True if the command has an option.
    pub(super) fn has(&self, option: &str) -> bool {
        self.command.get_arguments().any(|arg| arg.get_long() == Some(option))
    }

    /// The tool as described in the protocol, with a JSON Schema of its arguments.
    pub(super) fn tool(&self) -> Tool {
        let required: Vec<String> =
            self.arguments().filter(|arg| arg.is_required_set()).map(property).collect();
        let properties: JsonObject =
            self.arguments().map(|arg| (property(arg), schema(arg))).collect();
        let schema = json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        });
        let about = self.command.get_about().map(ToString::to_string).unwrap_or_default();
        let Value::Object(schema) = schema else { unreachable!("an object is stated above") };
        Tool::new(self.name, about, schema)
    }

    /// The words of the command line for a call. Contents that are given instead of a path are written to files in
    /// `folder`.
    pub(super) fn words(&self, given: &JsonObject, folder: &Path) -> anyhow::Result<Vec<OsString>> {
        if let Some(name) =
            given.keys().find(|name| !self.arguments().any(|arg| property(arg) == **name))
        {
            let known: Vec<String> = self.arguments().map(property).collect();
            let similar = nearest(name, known.iter().map(String::as_str));
            let hint = if similar.is_empty() {
                "`tools/list` states its arguments".to_owned()
            } else {
                format!("`{}`", similar.join("`, `"))
            };
            bail!("{} has no argument `{name}`\nhint: {hint}", self.name);
        }
        let mut options: Vec<OsString> = vec![self.name.into()];
        let mut positional = Vec::new();
        for arg in self.arguments() {
            let name = property(arg);
            let Some(value) = given.get(&name).filter(|value| !value.is_null()) else {
                if arg.is_required_set() {
                    bail!("{} needs `{name}`", self.name);
                }
                continue;
            };
            if value_type(arg) == ValueType::Switch {
                match (value, arg.get_long()) {
                    (Value::Bool(true), Some(long)) => options.push(format!("--{long}").into()),
                    (Value::Bool(false), _) => {}
                    _ => return Err(wrong(&name, "true or false", value)),
                }
                continue;
            }
            let word = word(arg, &name, value, folder)?;
            match arg.get_long() {
                Some(long) => {
                    let mut option = OsString::from(format!("--{long}="));
                    option.push(word);
                    options.push(option);
                }
                None => positional.push(word),
            }
        }
        options.push("--".into());
        options.append(&mut positional);
        Ok(options)
    }
}

/// Name of an argument: the name of its option with underscores.
fn property(arg: &Arg) -> String {
    arg.get_long().unwrap_or(arg.get_id().as_str()).replace('-', "_")
}

fn value_type(arg: &Arg) -> ValueType {
    let is = |types: &[TypeId]| {
        let id = ValueParser::type_id(arg.get_value_parser());
        types.iter().any(|it| id == *it)
    };
    match arg.get_action() {
        ArgAction::SetTrue | ArgAction::SetFalse => ValueType::Switch,
        _ if is(&[TypeId::of::<bool>()]) => ValueType::Boolean,
        _ if is(&[TypeId::of::<u32>(), TypeId::of::<u64>(), TypeId::of::<usize>()]) => {
            ValueType::Integer
        }
        _ if is(&[TypeId::of::<f64>()]) => ValueType::Number,
        _ => ValueType::Text,
    }
}

/// True if the argument names a file; the call may then give the file's contents instead.
fn is_file(arg: &Arg) -> bool {
    let is_path = ValueParser::type_id(arg.get_value_parser()) == TypeId::of::<PathBuf>();
    let is_output = arg.get_long() == Some("output");
    let names = arg.get_value_names().unwrap_or_default();
    let takes_file = ["FILE", "PLAN", "MODEL"];
    let is_named = names.iter().any(|name| takes_file.iter().any(|it| name.contains(it)));
    (is_path || is_named) && !is_output
}

/// True if the argument takes several values, with commas between them on the command line.
fn is_list(arg: &Arg) -> bool {
    arg.get_value_delimiter().is_some()
}

/// JSON Schema of an argument.
fn schema(arg: &Arg) -> Value {
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let names = arg.get_value_names().unwrap_or_default().join(" ");
    let is_switch = value_type(arg) == ValueType::Switch;
    let form = if is_switch || names.is_empty() { String::new() } else { format!(" ({names})") };
    let mut schema = json!({"description": format!("{help}{form}")});
    let possible: Vec<String> =
        arg.get_possible_values().iter().map(|it| it.get_name().to_owned()).collect();
    schema["type"] = match value_type(arg) {
        ValueType::Switch => json!("boolean"),
        ValueType::Boolean => json!(["boolean", "string"]),
        // Numbers may have units, as in `32k`.
        ValueType::Integer if !is_list(arg) => json!(["integer", "string"]),
        ValueType::Number => json!(["number", "string"]),
        ValueType::Text if is_file(arg) && !is_list(arg) => json!(["string", "object"]),
        ValueType::Text if !possible.is_empty() && !is_list(arg) => json!("string"),
        ValueType::Integer | ValueType::Text => json!(["string", "number", "array"]),
    };
    if value_type(arg) == ValueType::Text && !possible.is_empty() {
        // A client refuses what is not in `enum`: a list of names, or the file of a schedule.
        schema[if is_list(arg) { "examples" } else { "enum" }] = json!(possible);
    }
    if let [default] = arg.get_default_values()
        && !is_switch
    {
        schema["default"] = json!(default.to_string_lossy());
    }
    schema
}

/// The word of a value.
fn word(arg: &Arg, name: &str, value: &Value, folder: &Path) -> anyhow::Result<OsString> {
    let in_file = |ending: &str, contents: &[u8]| {
        let path = folder.join(format!("{name}{ending}"));
        let written = std::fs::write(&path, contents);
        written.map_err(|error| anyhow!("a file for `{name}`: {error}"))?;
        Ok(path.into_os_string())
    };
    let simple = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(flag) if value_type(arg) == ValueType::Boolean => Ok(flag.to_string()),
        other => Err(wrong(name, "text or a number", other)),
    };
    match value {
        Value::Object(_) if is_file(arg) => in_file(".json", value.to_string().as_bytes()),
        Value::String(text) if is_file(arg) && text.contains('\n') => in_file("", text.as_bytes()),
        Value::Array(values) if value_type(arg) == ValueType::Text || is_list(arg) => {
            let values = values.iter().map(simple).collect::<Result<Vec<_>, _>>()?;
            Ok(values.join(",").into())
        }
        value => simple(value).map(OsString::from),
    }
}

fn wrong(name: &str, expected: &str, found: &Value) -> anyhow::Error {
    anyhow!("`{name}` must be {expected}, but is {found}")
}
