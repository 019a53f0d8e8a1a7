//! Clusters that ship, by the names that people give GPUs and machines of them.

use cost_models::clusters;

use super::{folded, folded_without};

/// Words that makers and clouds put beside a GPU's name. A memory's size is none: some GPUs come with several.
const BESIDE: &[&str] = &[
    "amd",
    "aws",
    "cloud",
    "core",
    "dgx",
    "geforce",
    "google",
    "gpu",
    "gpus",
    "habana",
    "hgx",
    "instinct",
    "intel",
    "nvidia",
    "oam",
    "pod",
    "superchip",
    "sxm",
    "sxm2",
    "sxm3",
    "sxm4",
    "sxm5",
    "sxm6",
    "system",
    "tensor",
    "tesla",
];

/// The same where no blank follows them: `dgxh100`.
const BEFORE: [&str; 4] = ["nvidia", "dgx", "hgx", "amd"];

/// Other names of presets, folded, without the words above.
const ALSO: &[(&str, &str)] = &[
    ("v10032gb", "v100"),
    ("a10080gb", "a100"),
    ("a100pcie80gb", "a100-pcie"),
    ("a10080gbpcie", "a100-pcie"),
    ("h10080gb", "h100"),
    ("h10080gbhbm3", "h100"),
    ("h100pcie80gb", "h100-pcie"),
    ("h10080gbpcie", "h100-pcie"),
    ("h200141gb", "h200"),
    ("b200180gb", "b200"),
    ("b200192gb", "b200"),
    ("b300288gb", "b300"),
    ("gb200", "gb200-nvl72"),
    ("gb300", "gb300-nvl72"),
    ("mi300x192gb", "mi300x"),
    ("mi325x256gb", "mi325x"),
    ("mi355x288gb", "mi355x"),
    ("4090", "rtx-4090"),
    ("v4", "tpu-v4"),
    ("v5e", "tpu-v5e"),
    ("tpuv5litepod", "tpu-v5e"),
    ("v5p", "tpu-v5p"),
    ("v6e", "tpu-v6e"),
    ("trillium", "tpu-v6e"),
    ("trn2", "trainium2"),
];

/// The name of the preset that is called `given`, in any writing and with what makers put beside it:
/// `DGX H100` and `NVIDIA H100 SXM5 80GB` are `h100`.
pub fn cluster(given: &str) -> Option<&'static str> {
    let folded_name = folded_without(given, BESIDE);
    let bare =
        BEFORE.iter().find_map(|word| folded_name.strip_prefix(word)).unwrap_or(&folded_name);
    let same = clusters::names().find(|name| folded(name) == bare);
    same.or_else(|| ALSO.iter().find(|(also, _)| *also == bare).map(|(_, name)| *name))
}
