//! Lists the clusters that ship: each file of `clusters/` is a preset.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=clusters");
    let mut names = Vec::new();
    for file in fs::read_dir("clusters")? {
        names.push(file?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    let row = |name: &String| {
        format!("include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/clusters/{name}\")),\n")
    };
    let rows: String = names.iter().map(row).collect();
    let out = env::var_os("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("clusters.rs"), format!("[\n{rows}]"))
}
