//! `--topology`: which nodes are near each other, and how the GPUs of a node are linked.

use std::fs;

use serde_json::Value;
use tempfile::TempDir;

use crate::cli::{Run, planner};

const TREE: &str = "\
# Four leaves of four nodes.
SwitchName=leaf1 Nodes=node[01-04]
SwitchName=leaf2 Nodes=node[05-08] LinkSpeed=400
SwitchName=leaf3 Nodes=node[09-11],node12
SwitchName=leaf4 Nodes=node[13-16]
SwitchName=spine1 Switches=leaf[1-2]
SwitchName=spine2 Switches=leaf[3-4]
SwitchName=core Switches=spine1,spine2
";

const BLOCKS: &str = "\
BlockName=b1 Nodes=n[001-018]
BlockName=b2 \\
  Nodes=n[019-036]
BlockSizes=18,36
";

/// Eight GPUs that share four network interfaces.
const MATRIX: [&str; 12] = [
    "\tGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\tNIC0\tNIC1\tNIC2\tNIC3\tCPU Affinity\tNUMA Affinity",
    "GPU0\t X \tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\tPXB\tNODE\tSYS\tSYS\t0-55\t0",
    "GPU1\tNV18\t X \tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\tPXB\tNODE\tSYS\tSYS\t0-55\t0",
    "GPU2\tNV18\tNV18\t X \tNV18\tNV18\tNV18\tNV18\tNV18\tNODE\tPXB\tSYS\tSYS\t0-55\t0",
    "GPU3\tNV18\tNV18\tNV18\t X \tNV18\tNV18\tNV18\tNV18\tNODE\tPXB\tSYS\tSYS\t0-55\t0",
    "GPU4\tNV18\tNV18\tNV18\tNV18\t X \tNV18\tNV18\tNV18\tSYS\tSYS\tPXB\tNODE\t56-111\t1",
    "GPU5\tNV18\tNV18\tNV18\tNV18\tNV18\t X \tNV18\tNV18\tSYS\tSYS\tPXB\tNODE\t56-111\t1",
    "GPU6\tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\t X \tNV18\tSYS\tSYS\tNODE\tPXB\t56-111\t1",
    "GPU7\tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\t X \tSYS\tSYS\tNODE\tPXB\t56-111\t1",
    "NIC0\tPXB\tPXB\tNODE\tNODE\tSYS\tSYS\tSYS\tSYS\t X \tNODE\tSYS\tSYS\t\t",
    "",
    "NIC Legend:\n\n  NIC0: mlx5_0",
];

/// As NCCL dumps it: two GPUs of four NVLinks to each other, an interface of 200 Gb/s.
const DUMPED: &str = r#"<system version="1">
  <cpu numaid="0" arch="x86_64">
    <pci busid="0000:01:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
      <gpu dev="0" sm="80" rank="0" gdr="1"><nvlink target="0000:02:00.0" count="4" tclass="0x030200"/></gpu>
    </pci>
    <pci busid="0000:02:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
      <gpu dev="1" sm="80" rank="1" gdr="1"><nvlink target="0000:01:00.0" count="4" tclass="0x030200"/></gpu>
    </pci>
    <pci busid="0000:03:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16">
      <nic><net name="mlx5_0" dev="0" speed="200000" port="1" gdr="1"/></nic>
    </pci>
  </cpu>
</system>"#;

fn run(topology: &str, args: &[&str]) -> (Run, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let [file, plan] =
        ["topology", "plan.json"].map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    fs::write(&file, topology).unwrap();
    let all = [&["search", "llama-3.1-8b", "--topology", &file, "-o", &plan, "-q"], args].concat();
    (planner(&all), folder)
}

fn plan(topology: &str, args: &[&str]) -> Value {
    let (run, folder) = run(topology, args);
    assert_eq!(run.code, Some(0), "{run:?}");
    serde_json::from_str(&fs::read_to_string(folder.path().join("plan.json")).unwrap()).unwrap()
}

fn hosts(plan: &Value) -> Vec<&str> {
    plan["hosts"].as_array().unwrap().iter().map(|host| host.as_str().unwrap()).collect()
}

fn levels(plan: &Value) -> Vec<(Option<u64>, f64)> {
    let levels = plan["cluster"]["levels"].as_array().unwrap().iter();
    levels
        .map(|it| (it["ranks"].as_u64(), it["bandwidth_bytes_per_second"].as_f64().unwrap() / 1e9))
        .collect()
}

#[test]
fn nodes_of_one_leaf_stand_together_and_leaves_of_one_spine() {
    let two_leaves = plan(TREE, &["--gpus", "64"]);
    let expected: Vec<String> = (1..=8).map(|node| format!("node{node:02}")).collect();
    assert_eq!(hosts(&two_leaves), expected);
    let ranks: Vec<Option<u64>> = levels(&two_leaves).into_iter().map(|level| level.0).collect();
    assert_eq!(ranks, [Some(8), Some(32), None]);
    // Six nodes are three of each of two leaves.
    let six = plan(TREE, &["--gpus", "48"]);
    assert_eq!(hosts(&six), ["node01", "node02", "node03", "node05", "node06", "node07"]);
    assert_eq!(levels(&six)[1].0, Some(24));
}

#[test]
fn a_job_within_one_leaf_has_no_level_of_leaves() {
    let one = plan(TREE, &["--gpus", "32"]);
    assert_eq!(hosts(&one), ["node01", "node02", "node03", "node04"]);
    assert_eq!(levels(&one).len(), 2);
}

/// The same tree as Slurm's `topology.yaml` has it, whose default it is, and as topograph models it.
#[test]
fn a_tree_in_yaml_is_the_same_tree() {
    let slurm = "\
---
- topology: plain
  flat: true
- topology: racks
  cluster_default: true
  tree:
    switches:
      - {switch: core, children: 'spine1,spine2'}
      - {switch: spine1, children: 'leaf[1-2]'}
      - {switch: spine2, children: 'leaf[3-4]'}
      - {switch: leaf1, nodes: 'node[01-04]'}
      - {switch: leaf2, nodes: 'node[05-08]'}
      - {switch: leaf3, nodes: 'node[09-12]'}
      - {switch: leaf4, nodes: 'node[13-16]'}
";
    let topograph = "\
switches:
  core:
    switches: [spine1, spine2]
  spine1:
    switches: [leaf1, leaf2, empty]
  spine2:
    switches: [leaf3, leaf4]
  leaf3:
    nodes: [node09, node10, node11, node12]
blocks:
- switch: leaf1
  nodes: ['node[01-04]']
- switch: leaf2
  nodes: ['node[05-08]']
- switch: leaf4
  nodes: ['node[13-16]']
";
    let gpus = ["--gpus", "64"];
    let expected = plan(TREE, &gpus);
    for text in [slurm, topograph] {
        let read = plan(text, &gpus);
        assert_eq!(hosts(&read), hosts(&expected));
        assert_eq!(levels(&read), levels(&expected));
    }
}

/// 24 nodes of four GPUs are 12 of each of two racks, whose NVLink then joins 48.
#[test]
fn a_block_bounds_the_domain_of_nvlink() {
    let plan = plan(BLOCKS, &["--gpus", "96", "--cluster", "gb200-nvl72"]);
    assert_eq!(levels(&plan)[0].0, Some(48));
    assert_eq!(hosts(&plan)[..2], ["n001", "n002"]);
    assert_eq!(hosts(&plan)[12..14], ["n019", "n020"]);
}

#[test]
fn gpus_that_share_an_interface_share_its_bandwidth() {
    let [own, shared] =
        [plan(TREE, &["--gpus", "16"]), plan(&MATRIX.join("\n"), &["--gpus", "16"])];
    assert_eq!(levels(&own)[0], levels(&shared)[0]);
    assert!(shared.get("hosts").is_none());
    let [own, shared] = [own, shared].map(|plan| levels(&plan)[1].1);
    assert!((own - 2.0 * shared).abs() < 1e-9, "{own} {shared}");
}

/// Four interfaces of 100 Gb/s are what the cluster of these nodes has already.
#[test]
fn interfaces_that_a_cluster_counts_are_not_shared_twice() {
    let matrix = MATRIX.join("\n").replace("NV18", "NV12");
    let args = ["--gpus", "16", "--cluster", "p4d", "--offload", "optimizer"];
    assert_eq!(levels(&plan(&matrix, &args))[1], (None, 6.25));
}

#[test]
fn what_nccl_dumped_is_read() {
    let plan = plan(DUMPED, &["--gpus", "4", "--cluster", "a100", "--offload", "optimizer"]);
    assert_eq!(plan["cluster"]["gpus_per_node"], 2);
    assert_eq!(levels(&plan), [(Some(2), 100.0), (None, 12.5)]);
}

#[test]
fn a_plan_with_hosts_is_read_again_and_exported_with_them() {
    let (run, folder) = run(TREE, &["--gpus", "64"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let [plan, job] =
        ["plan.json", "job"].map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    assert_eq!(planner(&["explain", &plan]).code, Some(0));
    let exported =
        planner(&["export", &plan, "--to", "megatron", "--launcher", "slurm", "-o", &job]);
    assert_eq!(exported.code, Some(0), "{exported:?}");
    let read = |name: &str| fs::read_to_string(folder.path().join("job").join(name)).unwrap();
    assert!(read("hostfile").starts_with("node01\nnode02\n"));
    let scripts = fs::read_dir(folder.path().join("job")).unwrap();
    let script = scripts
        .map(|it| it.unwrap().path())
        .find(|it| it.extension().is_some_and(|it| it == "sbatch"));
    let script = fs::read_to_string(script.unwrap()).unwrap();
    for part in [
        "#SBATCH --nodelist=node01,",
        "MASTER_ADDR=node01\n",
        "SLURM_HOSTFILE=",
        "--distribution=arbitrary",
    ] {
        assert!(script.contains(part), "{part}\n{script}");
    }
    // Under `set -u` a variable is set before it is used.
    let [set, used] = ["HERE=", "$HERE/hostfile"].map(|part| script.find(part));
    assert!(set.is_some() && set < used, "{script}");
}

#[test]
fn mistakes_are_named() {
    for (topology, said) in [
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a\n", "the tree has a cycle"),
        (
            "SwitchName=r Switches=a\nSwitchName=a Switches=b\nSwitchName=b Switches=a\n",
            "the tree has a cycle",
        ),
        ("SwitchName=a Switches=b\n", "switch `b` is below `a`, but has no line of its own"),
        ("SwitchName=a Nodes=n1\nSwitchName=b Nodes=n[1-2]\n", "`n1` is below `a` and below `b`"),
        (
            "SwitchName=r Switches=a,b\nSwitchName=a Switches=c\nSwitchName=b Switches=c\nSwitchName=c Nodes=n1\n",
            "`c` is below `a` and below `b`",
        ),
        ("SwitchName=a Nodes=n[1-\n", "ends within brackets"),
        ("blocks:\n- nodes: [a]\n", "an entry has no `switch`"),
        ("switches:\n  a: {switches: [b]}\n  b: {switches: [a]}\n", "the tree has a cycle"),
        ("SwitchName=a Nodes=n[2-1]\n", "is no range of numbers"),
        ("SwitchName=a Nodes=n1 Speed=9\n", "line 1: `Speed` is not known"),
        ("SwitchName=a Nodes=n1\n", "it has 1 nodes of 8 GPUs, but 16 GPUs need 2"),
        (&DUMPED[..400], "not whole as XML"),
        ("<system version=\"1\"></system>", "it names no GPU"),
        ("<html></html>", "no topology that is known"),
        (&MATRIX[..5].join("\n"), "4 of 8 rows of GPUs are there"),
        ("nodes: [a, b]", "no topology that is known"),
        ("", "no topology that is known"),
    ] {
        let (run, _folder) = run(topology, &["--gpus", "16"]);
        assert_eq!(run.code, Some(2), "{topology} {run:?}");
        assert!(run.stderr.contains(said), "{topology} {run:?}");
    }
}
