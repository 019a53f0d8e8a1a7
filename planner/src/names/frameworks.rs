//! Frameworks that ship, by the names that people give them.

use cost_models::frameworks;
use ir::framework::IDEAL;

use super::folded;

/// Other names, folded: short ones, and of tools that train through a framework that is known.
const ALSO: &[(&str, &str)] = &[
    ("megatron", "megatron-core"),
    ("mcore", "megatron-core"),
    ("nemo", "megatron-core"),
    ("nvidianemo", "megatron-core"),
    ("megatronbridge", "megatron-core"),
    ("nemomegatron", "megatron-core"),
    ("titan", "torchtitan"),
    ("torchfsdp2", "fsdp2"),
    ("pytorchfsdp2", "fsdp2"),
    ("fullyshard", "fsdp2"),
    ("fsdp1", "fsdp"),
    ("torchfsdp", "fsdp"),
    ("pytorchfsdp", "fsdp"),
    ("microsoftdeepspeed", "deepspeed"),
    // Tools that train through FSDP2 by default.
    ("accelerate", "fsdp2"),
    ("huggingfaceaccelerate", "fsdp2"),
    ("trainer", "fsdp2"),
    ("transformers", "fsdp2"),
    ("huggingface", "fsdp2"),
    ("hf", "fsdp2"),
    ("trl", "fsdp2"),
    ("nemoautomodel", "fsdp2"),
    ("automodel", "fsdp2"),
    ("llmfoundry", "fsdp"),
    ("composer", "fsdp"),
    ("jax", "maxtext"),
    ("megatrondeepspeed", "megatron-deepspeed"),
    ("megatronds", "megatron-deepspeed"),
];

/// The name of the framework that is called `given`, in any writing.
pub fn framework(given: &str) -> Option<&'static str> {
    let given = folded(given);
    let same = frameworks::names().chain([IDEAL]).find(|name| folded(name) == given);
    same.or_else(|| ALSO.iter().find(|(also, _)| *also == given).map(|(_, name)| *name))
}
