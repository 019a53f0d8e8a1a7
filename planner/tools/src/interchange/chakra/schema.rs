//! Protobuf messages of execution traces.
//!
//! # Source
//!
//! MLCommons Chakra 1.0.0, `schema/protobuf/et_def.proto`: the fields and values that are written here. Attributes have
//! the types that its C++ feeder reads them as (`src/feeder/et_feeder_node.cpp`).

use prost::{Enumeration, Message, Oneof};

/// The version of the schema.
pub(super) const VERSION: &str = "1.0.0";

/// First message of a file.
#[derive(Clone, PartialEq, Message)]
pub(super) struct GlobalMetadata {
    #[prost(string, tag = "1")]
    pub(super) version: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) attributes: Vec<Attribute>,
}

/// A node of the trace's graph: a task.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Node {
    #[prost(uint64, tag = "1")]
    pub(super) id: u64,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    #[prost(enumeration = "NodeType", tag = "3")]
    pub(super) kind: i32,
    #[prost(uint64, repeated, tag = "4")]
    pub(super) control_dependencies: Vec<u64>,
    #[prost(uint64, repeated, tag = "5")]
    pub(super) data_dependencies: Vec<u64>,
    #[prost(uint64, tag = "7")]
    pub(super) duration_micros: u64,
    #[prost(message, repeated, tag = "10")]
    pub(super) attributes: Vec<Attribute>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Enumeration)]
#[repr(i32)]
pub(super) enum NodeType {
    Invalid = 0,
    MemoryLoad = 2,
    MemoryStore = 3,
    Compute = 4,
    Send = 5,
    Receive = 6,
    Collective = 7,
}

/// Value of the attribute `comm_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CollectiveType {
    AllReduce = 0,
    AllGather = 2,
    Broadcast = 5,
    AllToAll = 6,
    ReduceScatter = 7,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Attribute {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(oneof = "Value", tags = "7, 9, 13, 27, 29")]
    pub(super) value: Option<Value>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Value {
    #[prost(int32, tag = "7")]
    Int32(i32),
    #[prost(int64, tag = "9")]
    Int64(i64),
    #[prost(uint64, tag = "13")]
    Uint64(u64),
    #[prost(bool, tag = "27")]
    Bool(bool),
    #[prost(string, tag = "29")]
    String(String),
}

impl Attribute {
    pub(super) fn new(name: &str, value: Value) -> Self {
        Self { name: name.to_owned(), value: Some(value) }
    }
}
