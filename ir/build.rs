//! Lists the model families that are read: each file of `families/` is one.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=families");
    let mut model_types = Vec::new();
    for file in fs::read_dir("families")? {
        let path = file?.path();
        model_types.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
    }
    model_types.sort();
    let row = |model_type: &String| {
        let path =
            format!("concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/families/{model_type}.json\")");
        format!("({model_type:?}, include_str!({path})),\n")
    };
    let rows: String = model_types.iter().map(row).collect();
    let out = env::var_os("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("families.rs"), format!("[\n{rows}]"))
}
