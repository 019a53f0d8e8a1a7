//! Tests of the executor: what it computes, against definitions, other libraries and itself on one rank.

mod array;
mod collectives;
mod ops;
mod parity;
