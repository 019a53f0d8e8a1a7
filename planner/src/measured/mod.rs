//! What other tools measured, read: nccl-tests' tables.

pub mod kind;
pub mod nccl_tests;
