//! A tool as data: its names, its table of options, and the functions that read and write its settings.

use std::collections::BTreeMap;

use ir::layout::LayoutSpec;
use ir::plan::Training;

use super::argument::Argument;
use super::error::{ImportError, Lack};
use super::file::File;
use super::imported::Imported;
use super::launch::Program;
use super::shell::Word;
use super::source::Source;
use super::table::Table;
use super::target::Target;
use super::tree::Tree;
use super::view::ExportView;

/// Reader of settings.
type Read = fn(&Source<'_>) -> Result<Imported, ImportError>;

/// Detector of a program in a command, with the files that settings name.
type Starts = fn(&[Word], usize, &BTreeMap<String, String>) -> Option<usize>;

/// A tool that runs training. [`Tool::new`] has the defaults of all fields.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct Tool {
    /// Name, version and framework.
    pub(crate) target: Target,
    /// Tables of the options that a plan decides; none if the tool reads the plan itself.
    pub(crate) tables: &'static [&'static Table],
    /// Keys of the tool's own settings for an option of its tables.
    pub(crate) own_keys: fn(&str) -> Vec<OwnKey>,
    /// Returns whether a key of the tool's own may be used in settings with the given text.
    pub(crate) takes_key: fn(&str, &str) -> bool,
    /// Option of its tables for a key of the tool's own settings, or the key itself.
    pub(crate) option_of: fn(&str) -> String,
    /// Reader of settings; none if they cannot be imported.
    pub(super) read: Option<Read>,
    /// Index of the first of the tool's own words, if its program starts at or after the given index.
    pub(super) starts: Starts,
    /// Returns whether the keys of a file are the tool's.
    pub(super) has_keys: fn(&Tree) -> bool,
    /// Prefixes of options by which a list of arguments without a program is recognised.
    pub(super) own_options: &'static [&'static str],
    /// Program to start, and the files that it reads; the file of the plan is an input.
    pub(super) program: fn(&ExportView<'_>, &File) -> Program,
    /// Parts of a plan, apart from its model, that the tool cannot run, in addition to those of its framework.
    pub(super) lacks: fn(&ExportView<'_>) -> Vec<Lack>,
    /// Parts of a plan's model that the tool cannot express.
    pub(super) lacks_of_model: fn(&ExportView<'_>) -> Vec<Lack>,
    /// Arguments that describe a plan's model.
    pub(super) model_arguments: fn(&ExportView<'_>) -> Vec<Argument>,
    /// Changes training to the nearest one that the tool has options for.
    pub(super) nearest_training: fn(&mut Training, &LayoutSpec),
    /// Options next to which lint inserts new ones: most runs have them, and the training program reads them.
    pub(crate) anchors: &'static [&'static str],
    /// True if a rank that sees several GPUs spreads the layers over them.
    pub(super) spreads_layers: bool,
    /// True if its program starts the ranks itself; `NPROC_PER_NODE` and `NNODES` set their number.
    pub(super) starts_ranks: bool,
    /// True if Ray starts its ranks; the tool's own settings state their number.
    pub(super) is_by_ray: bool,
    /// True if it starts programs of any kind, not only training.
    pub(super) starts_any: bool,
    /// True if its files are Python with Megatron-Bridge's settings instead of the options in the table.
    pub(crate) is_python: bool,
    /// True if plans are exported to it.
    pub(crate) is_written: bool,
    /// True if its files state how the loss is computed.
    pub(super) states_loss: bool,
    /// True if training in bf16 accumulates gradients in fp32 unless an option says otherwise.
    pub(crate) has_fp32_gradients: bool,
}

impl Tool {
    /// A tool that writes one program and whose settings are neither recognised nor read.
    pub(super) const fn new(
        target: Target,
        program: fn(&ExportView<'_>, &File) -> Program,
    ) -> Self {
        Self {
            target,
            tables: &[],
            own_keys: |option| vec![OwnKey { name: option.to_owned(), ..OwnKey::default() }],
            takes_key: |_, _| true,
            option_of: str::to_owned,
            read: None,
            starts: |_, _, _| None,
            has_keys: |_| false,
            own_options: &[],
            program,
            lacks: |_| Vec::new(),
            lacks_of_model: |_| Vec::new(),
            model_arguments: |_| Vec::new(),
            nearest_training: |_, _| {},
            anchors: &[],
            spreads_layers: false,
            starts_ranks: false,
            is_by_ray: false,
            starts_any: false,
            is_python: false,
            is_written: true,
            states_loss: false,
            has_fp32_gradients: false,
        }
    }
}

/// A key of a tool's own settings for an option of its tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnKey {
    /// Name of the key in a file.
    pub(crate) name: String,
    /// The key's own words for values, each with the option's value; an empty value if the word removes the option.
    pub(crate) words: Vec<(&'static str, &'static str)>,
    /// Value of the option where the key is left out, if it has one.
    pub(crate) left_out: Option<&'static str>,
    /// True if the key is written with dashes, as an option, in scripts, and has a value even if the option is a
    /// switch.
    pub(crate) is_flag: bool,
    /// True if the key is a switch even if the option has a value.
    pub(crate) is_switch: bool,
}

impl OwnKey {
    /// Word for a value of the option. A key with the option's own name has the same values.
    pub(crate) fn word(&self, option: &str, value: &str) -> String {
        let last = |name: &str| {
            let name = name.trim_start_matches("--").rsplit('.').next().unwrap_or_default();
            name.replace('-', "_")
        };
        let is_changed = self.words.iter().any(|(word, _)| *word == value);
        if last(&self.name) == last(option) && !is_changed {
            return value.to_owned();
        }
        let word = self.words.iter().find(|(_, of)| *of == value).map(|it| it.0);
        word.unwrap_or(value).to_owned()
    }

    /// Word that removes the option; `None` if leaving out the key removes it.
    pub(crate) fn off(&self) -> Option<&'static str> {
        let word = self.words.iter().find(|(_, value)| value.is_empty()).map(|it| it.0);
        word.or((self.left_out == Some("true")).then_some("false"))
    }
}
