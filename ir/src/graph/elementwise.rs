//! Functions of elements, and of all elements along a dimension, with the tensors that PyTorch saves for their
//! backward.

use super::keeps::Keeps;

named_enum! {
    /// An elementwise function for which there is no other operator.
    pub enum Elementwise {
        /// Magnitude.
        Abs = "abs",
        /// Sum of two tensors.
        Add = "add",
        /// Sum of a tensor and a constant.
        AddConstant = "add_constant",
        /// Negative log-likelihood of two classes, from their probability or its logit.
        BinaryCrossEntropy = "binary_cross_entropy",
        /// Truth value of a comparison of two tensors, or of a logical function of two.
        Compare = "compare",
        /// Truth value of a comparison of a tensor and a constant, or of a logical function of them.
        CompareConstant = "compare_constant",
        /// Cosine.
        Cos = "cos",
        /// Quotient of two tensors.
        Divide = "divide",
        /// Exponential linear unit.
        Elu = "elu",
        /// Error function.
        Erf = "erf",
        /// Exponential.
        Exp = "exp",
        /// Piecewise linear logistic function.
        HardSigmoid = "hard_sigmoid",
        /// `x` times its piecewise linear logistic function.
        HardSwish = "hard_swish",
        /// Clamp to a range, such as that of ReLU6.
        HardTanh = "hard_tanh",
        /// Rectified linear unit with a slope below 0.
        LeakyRelu = "leaky_relu",
        /// Logarithm.
        Log = "log",
        /// Replacement of some elements by a constant.
        MaskedFill = "masked_fill",
        /// The larger of two.
        Maximum = "maximum",
        /// The smaller of two.
        Minimum = "minimum",
        /// `x tanh(softplus(x))`.
        Mish = "mish",
        /// Product of two tensors.
        Multiply = "multiply",
        /// Product of a tensor and a constant.
        MultiplyConstant = "multiply_constant",
        /// `-x`.
        Negative = "negative",
        /// A fixed power.
        Power = "power",
        /// `1 / x`.
        Reciprocal = "reciprocal",
        /// `1 / sqrt(x)`.
        Rsqrt = "rsqrt",
        /// Sine.
        Sin = "sin",
        /// `log(1 + exp(x))`.
        Softplus = "softplus",
        /// Square root.
        Sqrt = "sqrt",
        /// Difference of two tensors.
        Subtract = "subtract",
        /// Elements of two tensors, chosen by a condition.
        Where = "where",
    }
}

impl Elementwise {
    /// Number of inputs, and the tensors that autograd saves.
    ///
    /// # Source
    ///
    /// PyTorch, `tools/autograd/derivatives.yaml`.
    const fn row(self) -> (usize, &'static [Keeps]) {
        match self {
            Self::AddConstant | Self::CompareConstant | Self::MultiplyConstant | Self::Negative => {
                (1, &[])
            }
            Self::Exp | Self::Reciprocal | Self::Rsqrt | Self::Sqrt => (1, &[Keeps::Output]),
            Self::MaskedFill => (1, &[Keeps::Mask]),
            Self::Add | Self::Compare | Self::Subtract => (2, &[]),
            Self::Where => (2, &[Keeps::Mask]),
            Self::Divide | Self::Maximum | Self::Minimum | Self::Multiply => {
                (2, &[Keeps::Input(0), Keeps::Input(1)])
            }
            Self::Abs
            | Self::BinaryCrossEntropy
            | Self::Cos
            | Self::Elu
            | Self::Erf
            | Self::HardSigmoid
            | Self::HardSwish
            | Self::HardTanh
            | Self::LeakyRelu
            | Self::Log
            | Self::Mish
            | Self::Power
            | Self::Sin
            | Self::Softplus => (1, &[Keeps::Input(0)]),
        }
    }

    /// Number of inputs.
    pub(super) const fn inputs(self) -> usize {
        self.row().0
    }

    /// Tensors that autograd saves.
    pub(super) const fn keeps(self) -> &'static [Keeps] {
        self.row().1
    }
}

named_enum! {
    /// A function of all elements along a dimension.
    pub enum ReduceFunction {
        /// Their sum.
        Sum = "sum",
        /// Their mean.
        Mean = "mean",
        /// The largest element.
        Max = "max",
        /// The root of the sum of their squares.
        Norm = "norm",
    }
}

impl ReduceFunction {
    /// Tensors that autograd saves (PyTorch, `tools/autograd/derivatives.yaml`).
    pub(super) const fn keeps(self) -> &'static [Keeps] {
        match self {
            Self::Sum | Self::Mean => &[],
            Self::Max | Self::Norm => &[Keeps::Input(0), Keeps::Output],
        }
    }
}

named_enum! {
    /// An interpolation between the rows and columns of an image.
    pub enum Upsampling {
        /// The nearest element.
        Nearest = "nearest",
        /// Between four neighbours, linear in each direction.
        Bilinear = "bilinear",
        /// Between sixteen neighbours, cubic in each direction.
        Bicubic = "bicubic",
    }
}
