//! Trained tensors of operators.

use super::tensor::{Dim, DimName, Extent};

/// A trained tensor of an operator.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Parameter {
    /// Name within the operator: `weight`, `bias`.
    pub name: String,
    /// Dimensions of the tensor. A bias has only the output dimensions.
    pub dims: Vec<Dim>,
    /// The operator of the chain that owns this parameter, where the two are tied.
    pub tied_to: Option<String>,
}

impl Parameter {
    /// The dimensions along which the parameter is sharded; the expert dimension only if `is_expert`.
    pub fn cut(&self, is_expert: bool) -> Cut {
        let find = |wanted: &dyn Fn(DimName) -> bool| self.dims.iter().position(|d| wanted(d.name));
        Cut {
            tensor: find(&DimName::is_tensor_sharded),
            expert: if is_expert { find(&|name| name == DimName::Experts) } else { None },
        }
    }

    /// Number of neighbouring tensor-parallel ranks, of `ranks`, that hold the same shard along `dim`: more than one
    /// where there are fewer key-value heads than ranks.
    pub fn num_copies(&self, dim: usize, ranks: u32) -> u32 {
        match self.dims[dim] {
            Dim { name: DimName::KvHeads, extent: Extent::Fixed(heads) } => {
                let copies = u64::from(ranks).checked_div(heads).unwrap_or(1);
                u32::try_from(copies).unwrap_or(1).max(1)
            }
            _ => 1,
        }
    }

    /// Sizes of the parameter's dimensions, outermost first. Every dimension of a parameter is fixed.
    pub fn sizes(&self) -> impl Iterator<Item = u64> {
        let fixed = self.dims.iter().map(|dim| dim.extent.fixed());
        fixed.map(|size| size.expect("a parameter depends on neither batch nor sequence"))
    }

    /// Number of elements.
    pub fn num_elements(&self) -> u64 {
        self.sizes().product()
    }
}

/// The dimensions along which a parameter is sharded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cut {
    /// Index of the dimension that tensor parallelism shards.
    pub tensor: Option<usize>,
    /// Index of the dimension that expert parallelism shards.
    pub expert: Option<usize>,
}
