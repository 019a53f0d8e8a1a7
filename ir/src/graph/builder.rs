//! Building a block operator by operator.

use super::block::{Block, GraphError, OpId};
use super::infer;
use super::op::{Learning, Op, OpKind};
use super::parameter::Parameter;
use super::recomputable::Recomputable;
use super::tensor::Tensor;

/// The output of an operator that has been added to a block.
pub type Value = OpId;

/// A block under construction. Each operator's output shape and parameters are inferred from its kind and its inputs.
///
/// ```
/// use ir::graph::{BlockBuilder, Dim, DimName, OpKind, Tensor};
///
/// let hidden = Dim::fixed(DimName::Hidden, 10);
/// let mut block = BlockBuilder::new("mlp");
/// let x = block.input("x", Tensor::new([Dim::BATCH, hidden]));
/// let produced = vec![Dim::fixed(DimName::Intermediate, 5)];
/// let linear = OpKind::Linear { contracted: vec![DimName::Hidden], produced, bias: true };
/// let y = block.push("up", linear, &[x])?;
/// let block = block.finish([y]);
/// assert_eq!(block.num_parameters(), 55);
/// # Ok::<(), ir::graph::GraphError>(())
/// ```
#[derive(Debug)]
pub struct BlockBuilder {
    name: String,
    /// Prefix of the names of operators.
    prefix: String,
    ops: Vec<(Op, Vec<OpId>)>,
}

impl BlockBuilder {
    /// An empty block called `name`.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), prefix: String::new(), ops: Vec::new() }
    }

    /// Adds an input tensor of the block.
    pub fn input(&mut self, name: impl Into<String>, tensor: Tensor) -> Value {
        let op = Op {
            name: name.into(),
            kind: OpKind::Input,
            parameters: Vec::new(),
            learning: Learning::default(),
            output: tensor,
            recomputable: Recomputable::No,
        };
        self.copy(op, &[])
    }

    /// Adds an operator.
    ///
    /// # Errors
    ///
    /// [`GraphError::Operator`] where the operator does not accept `inputs`.
    pub fn push(
        &mut self,
        name: impl Into<String>,
        kind: OpKind,
        inputs: &[Value],
    ) -> Result<Value, GraphError> {
        let name = format!("{}{}", self.prefix, name.into());
        let tensors: Vec<&Tensor> = inputs.iter().map(|id| &self.ops[id.0].0.output).collect();
        let output = infer::output(&kind, &tensors)
            .map_err(|problem| GraphError::Operator { op: name.clone(), problem })?;
        let parameters = infer::parameters(&kind, &tensors);
        let learning = Learning::default();
        let op = Op { name, kind, parameters, learning, output, recomputable: Recomputable::No };
        Ok(self.copy(op, inputs))
    }

    /// Adds a copy of another block's operator, with inputs of the same shapes.
    pub(super) fn copy(&mut self, op: Op, inputs: &[Value]) -> Value {
        self.ops.push((op, inputs.to_vec()));
        OpId(self.ops.len() - 1)
    }

    /// Prepends `prefix` to the names of operators that are added from now on.
    pub fn set_prefix(&mut self, prefix: impl Into<String>) {
        self.prefix = prefix.into();
    }

    /// Sets the treatment of the parameters of `value` in training.
    pub fn set_learning(&mut self, value: Value, learning: Learning) {
        self.ops[value.0].0.learning = learning;
    }

    /// Shape and element type of `value`.
    pub fn tensor(&self, value: Value) -> &Tensor {
        &self.ops[value.0].0.output
    }

    /// Parameters of the operator of `value`.
    pub fn parameters(&self, value: Value) -> &[Parameter] {
        &self.ops[value.0].0.parameters
    }

    /// Lets selective recompute drop the output of `value` and recompute it.
    pub fn recompute_selectively(&mut self, value: Value) {
        self.ops[value.0].0.recomputable = Recomputable::Selective;
    }

    /// Makes `value` the end of a region that selective recompute runs again: its output is saved.
    pub fn end_selective_region(&mut self, value: Value) {
        self.ops[value.0].0.recomputable = Recomputable::SelectiveEnd;
    }

    /// Gives the operator of `value` a trained tensor in addition to those that follow from its kind.
    pub fn add_parameter(&mut self, value: Value, parameter: Parameter) {
        self.ops[value.0].0.parameters.push(parameter);
    }

    /// Ties all parameters of the operators from the `first` on, except operators with `kept` names. Each parameter is
    /// tied to that of the operator with the same name, but with `prefix` in place of the builder's prefix.
    pub fn tie_since(&mut self, first: usize, prefix: &str, kept: impl Fn(&str) -> bool) {
        for (op, _) in self.ops.iter_mut().skip(first).filter(|(op, _)| !kept(&op.name)) {
            let rest = op.name.strip_prefix(&self.prefix).unwrap_or(&op.name);
            let target = format!("{prefix}{rest}");
            op.parameters.iter_mut().for_each(|it| it.tied_to = Some(target.clone()));
        }
    }

    /// Number of operators so far.
    pub fn num_ops(&self) -> usize {
        self.ops.len()
    }

    /// Ties the weight of `value` to that of the operator called `target`.
    pub fn tie_weight(&mut self, value: Value, target: impl Into<String>) {
        self.tie(value, "weight", target);
    }

    /// Ties a parameter of `value` to the same parameter of the operator called `target`.
    ///
    /// # Panics
    ///
    /// If the operator has no parameter of that name.
    pub fn tie(&mut self, value: Value, name: &str, target: impl Into<String>) {
        let parameter = self.ops[value.0].0.parameters.iter_mut().find(|p| p.name == name);
        parameter.expect("only what an operator has is tied").tied_to = Some(target.into());
    }

    /// Name of the block.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The finished block, with `outputs` as its outputs.
    pub fn finish(self, outputs: impl Into<Vec<Value>>) -> Block {
        Block::new(self.name, self.ops, outputs.into())
    }
}
