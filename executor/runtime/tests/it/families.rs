//! One rank computes what Hugging Face transformers computes, for every family that runs: values made once by
//! `tests/reference/families.py`, with weights and tokens that both make of the same hash.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn_flex::{Flex, FlexDevice};
use executor_communicators::{Communicator, local};
use executor_kernels::array::Element;
use executor_runtime::batches::Source;
use executor_runtime::checkpoint::{Naming, PieceKind, Shard, Weights, WeightsWriter};
use executor_runtime::parameters::LocalParameter;
use executor_runtime::program::Program;
use executor_runtime::rank::{Rank, RunError};
use executor_runtime::settings::{LearningRate, OptimizerSettings, Settings};
use ir::graph::{DimName, OpKind, Sizes};
use ir::model::{GraphOptions, Model};
use ir::plan::Optimizer;
use safetensors::tensor::{Dtype, TensorView};
use safetensors::{SafeTensors, serialize_to_file};
use serde_json::Value;

use super::reference::{alone, settings_of};

const BATCH: u32 = 2;
const LENGTH: usize = 16;
const NUM_STEPS: usize = 20;

/// Of a gradient taken from the step that it makes: a power of two, so that nothing is rounded.
const LARGE_RATE: f64 = 1024.0;

/// A number from 0 to 1 for each element of a tensor called `name`.
pub(super) fn hashed(name: &str, index: u64) -> f64 {
    let of_name = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let x = of_name.wrapping_add((index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let z = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 * 2f64.powi(-53)
}

/// An element of a tensor, as the reference has it.
fn element(name: &str, shape: &[usize], index: u64) -> f32 {
    let (centre, scale) = match shape {
        [_] if name.ends_with("weight") => (1.0, 0.2),
        [_] => (0.0, 0.2),
        _ => (0.0, 0.35),
    };
    (centre + scale * (2.0 * hashed(name, index) - 1.0)) as f32
}

fn folder() -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "reference", "families"].iter().collect()
}

fn numbers(value: &Value) -> Vec<usize> {
    value.as_array().unwrap().iter().map(|it| it.as_u64().unwrap() as usize).collect()
}

/// The configurations of all families, by the names of their references.
pub(super) fn configurations() -> Vec<(String, Value)> {
    let configuration = |name: &str| {
        let text = std::fs::read_to_string(folder().join(format!("{name}.json"))).unwrap();
        let recorded: Value = serde_json::from_str(&text).unwrap();
        (name.to_owned(), recorded["config"].clone())
    };
    NAMES.iter().map(|name| configuration(name)).collect()
}

/// A family's model with its weights in a file, and what transformers made of it.
struct Family {
    name: String,
    recorded: Value,
    files: tempfile::TempDir,
}

impl Family {
    fn new(folder: &Path, name: &str) -> Self {
        let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
        let recorded: Value = serde_json::from_str(&text).unwrap();
        let files = tempfile::tempdir().unwrap();
        let tensors = recorded["tensors"].as_object().unwrap();
        let bytes: BTreeMap<&String, (Vec<usize>, Vec<u8>)> = tensors
            .iter()
            .map(|(name, shape)| {
                let shape = numbers(shape);
                let count = shape.iter().product::<usize>() as u64;
                let values = (0..count).flat_map(|it| element(name, &shape, it).to_le_bytes());
                let bytes = values.collect();
                (name, (shape, bytes))
            })
            .collect();
        let views = bytes.iter().map(|(name, (shape, bytes))| {
            (*name, TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap())
        });
        serialize_to_file(views, None, &files.path().join("model.safetensors")).unwrap();
        Self { name: name.to_owned(), recorded, files }
    }

    fn settings(optimizer: Optimizer, element: Element) -> Settings {
        let is_adamw = optimizer == Optimizer::AdamW;
        let rate = if is_adamw { 1e-3 } else { LARGE_RATE };
        Settings {
            optimizer: OptimizerSettings {
                kind: optimizer,
                beta1: if is_adamw { 0.9 } else { 0.0 },
                beta2: 0.95,
                epsilon: 1e-8,
                weight_decay: if is_adamw { 0.1 } else { 0.0 },
            },
            max_gradient_norm: None,
            schedule: LearningRate::constant(rate),
            ..settings_of(element)
        }
    }

    fn program(&self, optimizer: Optimizer, element: Element) -> Program {
        let description = self.recorded["config"].to_string();
        let settings = Self::settings(optimizer, element);
        alone(description, &self.name, BATCH, LENGTH as u64, settings)
    }

    fn windows(&self) -> Vec<Vec<u32>> {
        let vocab_size = self.recorded["config"]["vocab_size"].as_u64().unwrap() as f64;
        let width = LENGTH as u64 + 1;
        let token = |index: u64| (hashed("tokens", index) * vocab_size) as u32;
        let rows = 0..NUM_STEPS as u64 * u64::from(BATCH);
        rows.map(|row| (row * width..(row + 1) * width).map(token).collect()).collect()
    }

    fn source(&self) -> Source {
        let config = &self.recorded["config"];
        let number = |name: &str| config[name].as_u64().unwrap();
        if config["model_type"] != "vit" {
            return Source::Windows(self.windows());
        }
        let count = number("num_channels") * number("image_size").pow(2);
        let num_labels = config["id2label"].as_object().map_or(2, serde_json::Map::len) as f64;
        let pixel = |index: u64| 2.0 * hashed("pixels", index) - 1.0;
        let sample = |sample: u64| {
            let pixels = (sample * count..(sample + 1) * count).map(pixel).collect();
            (pixels, (hashed("labels", sample) * num_labels) as u32)
        };
        Source::Samples((0..NUM_STEPS as u64 * u64::from(BATCH)).map(sample).collect())
    }

    fn naming(&self, program: &Program) -> Naming {
        let text = self.recorded["config"].to_string();
        let architecture = Model::from_json(&text, &self.name).unwrap().architecture;
        let naming = Naming::of(&architecture, &program.parameters());
        assert!(naming.class().is_some(), "{}: no names of transformers", self.name);
        naming
    }

    /// The losses of some steps, and the parameters after them, as files have them.
    fn train(&self, optimizer: Optimizer, element: Element, steps: usize) -> (Vec<f64>, Tensors) {
        let program = self.program(optimizer, element);
        let (parameters, naming) = (program.parameters(), self.naming(&program));
        let weights = Weights::open(self.files.path(), &naming, &parameters).unwrap();
        let (program, source) = (Arc::new(program), Arc::new(self.source()));
        let run = |communicator: Arc<dyn Communicator<Flex>>| -> Result<_, RunError> {
            let values = |p: &LocalParameter| Ok::<_, RunError>(weights.read(&p.id, &p.part)?);
            let (program, source) = (Arc::clone(&program), Arc::clone(&source));
            let mut rank = Rank::new(program, source, communicator, FlexDevice, values)?;
            let losses = (0..steps).map(|_| Ok::<_, RunError>(rank.step()?.loss));
            let losses = losses.collect::<Result<Vec<_>, _>>()?;
            Ok((losses, rank.pieces()))
        };
        let ranks = local::run(1, &[FlexDevice], run);
        let (losses, pieces) = ranks.unwrap_or_else(|failure| panic!("{failure}")).remove(0);
        let path = self.files.path().join("trained.safetensors");
        let mut writer =
            WeightsWriter::create(&path, |it| naming.stored(it), &parameters, Element::F64)
                .unwrap();
        let mut written = BTreeSet::new();
        for (piece, values) in pieces.into_iter().filter(|(it, _)| it.kind == PieceKind::Weight) {
            writer.write(&piece.parameter, &values).unwrap();
            written.insert(piece.parameter);
        }
        for parameter in parameters.iter().filter(|it| !written.contains(&it.id)) {
            let whole = Shard::whole(&parameter.shape).part;
            writer.write(&parameter.id, &weights.read(&parameter.id, &whole).unwrap()).unwrap();
        }
        writer.finish().unwrap();
        (losses, contents(&path))
    }

    /// What was made, in addition to what transformers made, of every tensor.
    fn compare(&self, what: &str, made: &Tensors, bound: Bound, wrong: &mut Vec<String>) {
        let expected = self.recorded[what].as_object().unwrap();
        for (name, expected) in expected {
            let Some((_, made)) = made.get(name) else {
                wrong.push(format!("no {what} of `{name}`"));
                continue;
            };
            let number = |name: &str| expected[name].as_f64();
            let norm = number("norm").unwrap();
            let own = made.iter().map(|it| it * it).sum::<f64>().sqrt();
            let pairs = [
                (number("norm"), own),
                (number("sum"), made.iter().sum()),
                (number("first"), made[0]),
                (number("last"), made[made.len() - 1]),
            ];
            for (expected, made) in pairs {
                let Some(expected) = expected else { continue };
                if (made - expected).abs() > bound.share * norm.max(bound.least_norm) {
                    wrong.push(format!("{what} of `{name}`: {made} instead of {expected}"));
                    break;
                }
            }
        }
    }
}

impl Family {
    /// The logits of the last position of each sequence, less the first of them, which is all that a loss tells of
    /// them: by how much it changes with the target.
    fn check_logits(&self, wrong: &mut Vec<String>) {
        let expected: Vec<Vec<f64>> =
            serde_json::from_value(self.recorded["logits"].clone()).unwrap();
        let count = expected[0].len();
        let steps = expected.len() * count;
        let mut program = self.program(Optimizer::Sgd, Element::F64);
        let targets = BATCH as usize * if program.vocab_size().is_some() { LENGTH } else { 1 };
        let (parameters, naming) = (program.parameters(), self.naming(&program));
        let weights = Weights::open(self.files.path(), &naming, &parameters).unwrap();
        let asked = (0..steps).map(|step| (step / count, (step % count) as u32));
        let source = match self.source() {
            Source::Windows(windows) => Source::Windows(
                asked
                    .flat_map(|(sequence, class)| {
                        let mut first = windows[..BATCH as usize].to_vec();
                        first[sequence][LENGTH] = class;
                        first
                    })
                    .collect(),
            ),
            Source::Samples(samples) => Source::Samples(
                asked
                    .flat_map(|(sample, class)| {
                        let mut first = samples[..BATCH as usize].to_vec();
                        first[sample].1 = class;
                        first
                    })
                    .collect(),
            ),
            other => panic!("{other:?}"),
        };
        program.settings.schedule = LearningRate::constant(0.0);
        let (program, source) = (Arc::new(program), Arc::new(source));
        let run = |communicator: Arc<dyn Communicator<Flex>>| -> Result<_, RunError> {
            let values = |p: &LocalParameter| Ok::<_, RunError>(weights.read(&p.id, &p.part)?);
            let (program, source) = (Arc::clone(&program), Arc::clone(&source));
            let mut rank = Rank::new(program, source, communicator, FlexDevice, values)?;
            (0..steps).map(|_| Ok(rank.step()?.loss)).collect::<Result<Vec<_>, _>>()
        };
        let losses = local::run(1, &[FlexDevice], run).unwrap().remove(0);
        for (sequence, expected) in expected.iter().enumerate() {
            let losses = &losses[sequence * count..(sequence + 1) * count];
            for (class, (loss, logit)) in losses.iter().zip(expected).enumerate() {
                let made = (losses[0] - loss) * targets as f64;
                let expected = logit - expected[0];
                if (made - expected).abs() > 1e-8 * expected.abs().max(1.0) {
                    wrong.push(format!("logit {class} of {sequence}: {made}, not {expected}"));
                }
            }
        }
    }
}

/// Bound of the error of a tensor.
#[derive(Clone, Copy)]
struct Bound {
    /// Of its norm.
    share: f64,
    /// Norms below are taken for this: that of a key's bias is zero but for rounding.
    least_norm: f64,
}

impl Bound {
    const DOUBLE: Self = Self { share: 1e-9, least_norm: 1e-3 };
}

/// Tensors of a file: shape and values.
type Tensors = BTreeMap<String, (Vec<usize>, Vec<f64>)>;

fn contents(path: &Path) -> Tensors {
    let bytes = std::fs::read(path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tensors = file.iter().map(|(name, tensor)| {
        let (chunks, _) = tensor.data().as_chunks();
        let values = chunks.iter().copied().map(f64::from_le_bytes).collect();
        (name.to_owned(), (tensor.shape().to_vec(), values))
    });
    tensors.collect()
}

impl Family {
    /// The loss of the first step and the gradients of all parameters, which the step's update tells, against those
    /// of transformers in double precision.
    fn check_first_step(&self, element: Element, bound: Bound, wrong: &mut Vec<String>) -> Tensors {
        let (losses, stepped) = self.train(Optimizer::Sgd, element, 1);
        let gradient = |(name, (shape, after)): (&String, &(Vec<usize>, Vec<f64>))| {
            let before = (0..).map(|index| f64::from(self::element(name, shape, index)));
            let values = before.zip(after).map(|(before, after)| (before - after) / LARGE_RATE);
            (name.clone(), (shape.clone(), values.collect()))
        };
        let gradients: Tensors = stepped.iter().map(gradient).collect();
        let loss = self.recorded["loss"].as_f64().unwrap();
        if (losses[0] / loss - 1.0).abs() > bound.share {
            wrong.push(format!("loss {} instead of {loss} in {element:?}", losses[0]));
        }
        self.compare("gradients", &gradients, bound, wrong);
        stepped
    }
}

fn check(name: &str) {
    let wrong = differences(&folder(), name, true);
    assert!(wrong.is_empty(), "{name}:\n{}", wrong.join("\n"));
}

/// What differs from a recorded run, in double precision and, if asked for, in single.
fn differences(folder: &Path, name: &str, in_single: bool) -> Vec<String> {
    let family = Family::new(folder, name);
    let mut wrong = Vec::new();
    // BLOOM's GELU has eight digits of a root.
    let share = if in_single { Bound::DOUBLE.share } else { 1e-8 };
    let bound = Bound { share, ..Bound::DOUBLE };
    let stepped = family.check_first_step(Element::F64, bound, &mut wrong);
    // Every tensor of the file is one of ours, and the other way round, as long and as wide.
    let theirs: BTreeMap<_, _> = family.recorded["tensors"].as_object().unwrap().iter().collect();
    for (tensor, shape) in &theirs {
        match stepped.get(*tensor) {
            None => wrong.push(format!("`{tensor}` is no parameter")),
            Some((own, _)) if *own != numbers(shape) => {
                wrong.push(format!("`{tensor}` is {own:?}, not {shape}"));
            }
            Some(_) => {}
        }
    }
    for tensor in stepped.keys().filter(|it| !theirs.contains_key(*it)) {
        wrong.push(format!("`{tensor}` is no tensor of theirs"));
    }
    // The loss of modules that predict further tokens changes with the last target too, two positions before it.
    if family.recorded["config"]["num_nextn_predict_layers"].as_u64().unwrap_or(0) == 0 {
        family.check_logits(&mut wrong);
    }
    if wrong.is_empty() && in_single {
        // Of some, PyTorch's own gradients in single precision are as much as half of this off: T5's scores are not
        // divided by the root of the features of a head, and Qwen3-Next's norms scale by about 2, which makes large
        // logits.
        let share = match name {
            _ if name.starts_with("t5") => 1e-4,
            "qwen3_next" | "qwen3_5_text" | "qwen3_5_moe_text" => 2e-4,
            _ => 1e-5,
        };
        family.check_first_step(Element::F32, Bound { share, least_norm: 1e-2 }, &mut wrong);
    }
    if wrong.is_empty() {
        let expected = family.recorded["losses"].as_array().unwrap();
        let (losses, trained) = family.train(Optimizer::AdamW, Element::F64, expected.len());
        for (step, (loss, expected)) in losses.iter().zip(expected).enumerate() {
            let expected = expected.as_f64().unwrap();
            if (loss / expected - 1.0).abs() > 1e-6 {
                wrong.push(format!("loss of step {step}: {loss} instead of {expected}"));
            }
        }
        family.compare("final", &trained, Bound { share: 1e-6, ..Bound::DOUBLE }, &mut wrong);
    }
    wrong
}

/// Configurations changed at random by `tests/reference/mutated.py`, where `MUTATED` names its folder.
#[test]
#[expect(clippy::print_stderr, reason = "what is skipped is said")]
fn mutated_configurations() {
    let Some(folder) = std::env::var_os("MUTATED").map(PathBuf::from) else {
        eprintln!("skipped: `MUTATED` names no folder of records");
        return;
    };
    let files = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
    let mut names: Vec<String> =
        files.map(|file| file.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    let mut wrong = Vec::new();
    for name in &names {
        let compared = std::panic::catch_unwind(|| differences(&folder, name, false));
        // Some of what transformers computes by chance is refused.
        let compared = compared.unwrap_or_else(|panic| match panic.downcast_ref::<String>() {
            Some(text) if text.contains("Unsupported") => Vec::new(),
            text => vec![format!("panicked: {text:?}")],
        });
        if let Some(first) = compared.first() {
            wrong.push(format!("{name}: {first}, and {} more", compared.len() - 1));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), names.len(), wrong.join("\n"));
}

/// Training zeroes at random what transformers zeroes: as many tensors of as many elements, each by its own rate.
#[test]
fn dropout_is_where_transformers_has_it() {
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "tests", "reference", "dropout.json"].iter().collect();
    let recorded: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let recorded = recorded.as_object().unwrap();
    assert_eq!(recorded.len(), NAMES.len());
    for (name, mut config) in configurations() {
        let fields = config.as_object_mut().unwrap();
        fields.extend(recorded[&name]["rates"].as_object().unwrap().clone());
        let model = Model::from_json(&config.to_string(), &name).unwrap();
        let options = GraphOptions { dropout: true, ..GraphOptions::default() };
        let graph = model.graph(options).unwrap();
        let sizes = Sizes { micro_batch_size: 1, sequence_length: LENGTH as u64 };
        let mut zeroed = BTreeMap::new();
        for block in graph.blocks() {
            let block = graph.class(block);
            for node in block.nodes() {
                let length = |slot: usize| {
                    let x = &block.op(block.inputs(node.id)[slot]).output;
                    x.dim(DimName::Sequence).unwrap().extent.resolve(sizes)
                };
                let (rate, elements) = match node.op.kind {
                    OpKind::Dropout { rate } => (rate, node.op.output.num_elements(sizes)),
                    OpKind::Attention { dropout, .. } if *dropout > 0.0 => {
                        let heads = node.op.output.dim(DimName::Heads).unwrap();
                        (dropout, heads.extent.resolve(sizes) * length(0) * length(1))
                    }
                    _ => continue,
                };
                *zeroed.entry((rate, elements)).or_insert(0_u64) += 1;
            }
        }
        let calls = recorded[&name]["calls"].as_array().unwrap().iter().map(|call| {
            let count = |at: usize| call[at].as_u64().unwrap();
            ((call[0].as_f64().unwrap().into(), count(1)), count(2))
        });
        assert_eq!(zeroed, calls.collect(), "{name}");
    }
}

macro_rules! families {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name));
        })*

        /// The names of all references.
        const NAMES: &[&str] = &[$(stringify!($name)),*];

        #[test]
        fn every_reference_is_checked() {
            let names: BTreeSet<String> = NAMES.iter().map(|name| (*name).to_owned()).collect();
            let files = std::fs::read_dir(folder()).unwrap();
            let files = files.map(|file| file.unwrap().path());
            let found = files.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned());
            assert_eq!(found.collect::<BTreeSet<_>>(), names);
        }
    };
}

families! {
    afmoe
    arcee
    bamba
    bert
    bloom
    bloom_6_heads
    bloom_post_layernorm
    cohere
    cohere2
    cohere_qk_norm
    deepseek_v2
    deepseek_v2_lite
    deepseek_v3
    deepseek_v3_modules
    dots1
    ernie4_5
    ernie4_5_moe
    exaone4
    exaone_moe
    falcon_11b
    falcon_40b
    falcon_7b
    falcon_rw
    flex_olmo
    gemma
    gemma2
    gemma3_text
    gemma3_text_softcap
    glm
    glm4
    glm4_moe
    glm4_moe_lite
    glm4_moe_options
    gpt2_inverse_layer
    gpt_bigcode
    gpt_bigcode_multi_head
    gpt_neox
    gpt_neox_sequential
    gpt_oss
    gptj
    granite
    granite_swa
    granitemoe
    granitemoe_swa
    granitemoehybrid
    granitemoehybrid_dense
    granitemoeshared
    helium
    internlm3
    jais2
    lfm2
    llama_attention_bias
    llama_dynamic
    llama_linear
    llama_rope_parameters
    llama_yarn
    llama_yarn_options
    mamba2
    minimax_m2
    mistral
    mixtral
    mpt
    mpt_6_heads
    nemotron
    nemotron_h
    nemotron_h_latent
    olmo
    olmo2
    olmo3
    olmoe
    olmoe_normalised
    opt
    opt_350m
    opt_no_bias
    persimmon
    phi
    phi3
    phi3_longrope_long
    phi3_longrope_short
    phi3_partial
    phi3_partial_longrope
    phi_qk_layernorm
    qwen2
    qwen2_moe
    qwen2_moe_options
    qwen3
    qwen3_5_moe_text
    qwen3_5_text
    qwen3_moe
    qwen3_moe_plain
    qwen3_moe_window
    qwen3_next
    qwen3_window
    roberta
    seed_oss
    smollm3
    smollm3_window
    solar_open
    stablelm
    stablelm_parallel
    starcoder2
    t5
    t5_flan
    vit
}
