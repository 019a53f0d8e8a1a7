//! The JSON Schemas that ship are those of the readers.

use ir::framework::Framework;
use ir::native;
use serde_json::Value;

#[test]
fn the_schema_of_frameworks_is_that_of_the_reader() {
    check("cost-models/frameworks/framework.schema.json", &Framework::schema());
}

#[test]
fn the_schema_of_native_graphs_is_that_of_the_reader() {
    check("models/graph.schema.json", &native::schema());
}

/// With `UPDATE_SCHEMA=1` in the environment, writes the file instead.
fn check(path: &str, schema: &Value) {
    let path = format!("{}/../{path}", env!("CARGO_MANIFEST_DIR"));
    let schema = serde_json::to_string_pretty(schema).unwrap() + "\n";
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(path, schema).unwrap();
    } else {
        let shipped = std::fs::read_to_string(path).unwrap();
        assert!(schema == shipped, "the schema has changed: run this test with UPDATE_SCHEMA=1");
    }
}
