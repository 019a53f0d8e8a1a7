//! Blocks before and after the layers: embeddings, prediction modules, the head.

use super::{CarriedTensors, CarriedValues, Lowering, TOKEN_TABLE, linear};
use crate::graph::{
    Activation, Block, BlockBuilder, Dim, DimName, ElementType, EmbeddedRows, Extent, GraphError,
    Learning, OpKind, Tensor, Value, WeightFormat, Window2d,
};
use crate::model::transformer::{
    Embedding, Encoder, Head, HeadTransform, Layer, Norm, Transformer,
};

/// Epsilon of a prediction module's norms where the model has no final norm.
const MTP_EPSILON: f64 = 1e-6;

/// Weight of the mean loss of the prediction modules.
///
/// # Source
///
/// DeepSeek-AI 2024, *DeepSeek-V3* (arXiv 2412.19437), section 4.2: for the first 10 T of 14.8 T tokens.
const MTP_LOSS_WEIGHT: f64 = 0.3;

/// Name of the head's linear layer, to which prediction modules tie theirs.
const HEAD: &str = "head";

impl Lowering {
    /// First block: from input data to the residual stream, which later layers read again if it is carried.
    pub(super) fn embedding(
        &self,
        name: &str,
        embedding: &Embedding,
        is_carried: bool,
    ) -> Result<Block, GraphError> {
        let mut block = BlockBuilder::new(name);
        let x = match embedding {
            Embedding::Tokens { .. } => {
                let tokens = block.input("tokens", self.tokens());
                self.embed_tokens(&mut block, name, embedding, tokens)?
            }
            Embedding::Patches { image_size, patch_size, num_channels } => {
                let pixels = Tensor::new([
                    Dim::BATCH,
                    Dim::fixed(DimName::Channels, *num_channels),
                    Dim::fixed(DimName::Height, *image_size),
                    Dim::fixed(DimName::Width, *image_size),
                ]);
                let pixels = block.input("pixels", pixels);
                self.embed_patches(&mut block, name, *patch_size, pixels)?
            }
        };
        let x = self.copied_to_streams(&mut block, x)?;
        Ok(block.finish(if is_carried { vec![x, x] } else { vec![x] }))
    }

    /// First block of an encoder: of tokens, or of sound.
    pub(super) fn encoder_embedding(
        &self,
        encoder: &Encoder,
        embedding: &Embedding,
    ) -> Result<Block, GraphError> {
        let Some(sound) = encoder.sound else {
            return self.embedding("embedding", embedding, false);
        };
        let mut block = BlockBuilder::new("encoder_embedding");
        let spectrogram = Tensor::new([
            Dim::BATCH,
            Dim::fixed(DimName::Channels, sound.num_mel_bins),
            Dim::fixed(DimName::Height, 1),
            Dim::fixed(DimName::Width, sound.max_source_positions.saturating_mul(2)),
        ]);
        let mut x = block.input("sound", spectrogram);
        for (index, stride) in [(1, 1), (2, 2)] {
            let name = format!("encoder_embedding.convolution{index}");
            let window = Window2d {
                kernel: [1, 3],
                stride: [1, stride],
                padding: [0, 1],
                dilation: [1, 1],
                rounds_up: false,
            };
            x = self.convolved(&mut block, &name, window, x)?;
            let activation = OpKind::Activation(sound.activation);
            x = block.push(format!("{name}.activation"), activation, &[x])?;
        }
        let name = "encoder_embedding";
        let x = block.push(format!("{name}.sequence"), OpKind::PatchesToSequence, &[x])?;
        let dims = vec![self.sequence, self.hidden];
        let x = block.push(format!("{name}.positions"), OpKind::AddParameter { dims }, &[x])?;
        block.set_learning(x, Learning::Frozen(WeightFormat::Plain));
        let x = Self::dropout(&mut block, &format!("{name}.dropout"), self.dropout.embedding, x)?;
        Ok(block.finish([x]))
    }

    /// Block between encoder and decoder: the final norm of the encoder, whose output has the shape of `given`, and
    /// the decoder's embedding, which shares the encoder's table if there is one.
    pub(super) fn decoder_embedding(
        &self,
        encoder: &Encoder,
        embedding: &Embedding,
        given: &Tensor,
    ) -> Result<Block, GraphError> {
        let mut block = BlockBuilder::new("decoder_embedding");
        let x = block.input("x", given.clone());
        let tokens = block.input("decoder_tokens", self.tokens());
        let output = self.final_norm(&mut block, "encoder.norm", encoder.final_norm, x)?;
        let output = Self::dropout(&mut block, "encoder.dropout", self.dropout.final_norm, output)?;
        let name = if encoder.sound.is_some() { "embedding" } else { "decoder_embedding" };
        let x = self.embed_tokens(&mut block, name, embedding, tokens)?;
        Ok(block.finish([x, output]))
    }

    /// Module that predicts one token further (DeepSeek-V3, arXiv 2412.19437, section 2.2): combines the hidden state
    /// of the module before it with the embedding of a later token, and applies a layer.
    ///
    /// It also passes on the inputs of the head: the outputs of the last layer and of all modules so far.
    pub(super) fn mtp_module(
        &self,
        transformer: &Transformer,
        index: usize,
        layer: &Layer,
    ) -> Result<Block, GraphError> {
        let mut block = BlockBuilder::new("mtp");
        let mut handed_on: Vec<Value> =
            (0..=index).map(|i| block.input(format!("x{i}"), self.residual())).collect();
        let tokens = block.input("tokens", self.tokens());
        let embedded = match &transformer.embedding {
            Embedding::Tokens { vocab_size, .. } => {
                let entries = Dim::fixed(DimName::Vocabulary, *vocab_size);
                let (width, ahead) = (self.hidden, index as u64 + 1);
                let rows = EmbeddedRows::Tokens { ahead };
                let kind = OpKind::Embedding { entries, width, rows };
                let embedded = block.push("mtp.tokens", kind, &[tokens])?;
                block.tie_weight(embedded, TOKEN_TABLE);
                embedded
            }
            Embedding::Patches { .. } => tokens,
        };
        let hidden = [DimName::Hidden];
        let last = handed_on[index];
        let norm = transformer.final_norm.unwrap_or(Norm::rms(MTP_EPSILON));
        let last = self.norm(&mut block, "mtp.hidden_norm", norm, &hidden, last)?;
        let embedded = self.norm(&mut block, "mtp.embedding_norm", norm, &hidden, embedded)?;
        let joined = OpKind::Concat { over: DimName::Hidden };
        let joined = block.push("mtp.joined", joined, &[embedded, last])?;
        let x = linear(&mut block, "mtp.projection", &hidden, &[self.hidden], false, joined)?;
        handed_on.push(self.layer(&mut block, layer, x, &mut CarriedValues::new())?);
        Ok(block.finish(handed_on))
    }

    /// Last block: from the residual streams after the last layer and the prediction modules to the losses.
    pub(super) fn head(
        &self,
        transformer: &Transformer,
        num_modules: usize,
        carried: &CarriedTensors,
    ) -> Result<Block, GraphError> {
        let mut block = BlockBuilder::new(HEAD);
        let x = block.input("x", self.residual());
        // The inputs have the order of the preceding block's outputs, in which those of the modules come first.
        let modules: Vec<Value> = (1..=num_modules)
            .map(|module| block.input(format!("x{module}"), self.residual()))
            .collect();
        for (it, tensor) in carried {
            block.input(it.name(), tensor.clone());
        }
        let head = &transformer.head;
        let x = self.sum_of_streams(&mut block, HEAD, x)?;
        let x = self.final_norm(&mut block, "head.norm", transformer.final_norm, x)?;
        let x = Self::dropout(&mut block, "head.dropout", self.dropout.final_norm, x)?;
        let tie = head.tied.then_some(TOKEN_TABLE);
        let logits = self.logits(&mut block, "", head, tie, x)?;
        let over = DimName::Vocabulary;
        let next = if head.is_missing {
            OpKind::MeanSquaredError
        } else {
            OpKind::CrossEntropy { over, ahead: 0, weight: 1.0.into() }
        };
        let mut losses = vec![block.push("loss", next, &[logits])?];
        for (ahead, x) in (1..).zip(modules) {
            let prefix = format!("mtp{ahead}.");
            let x = self.sum_of_streams(&mut block, &format!("{prefix}{HEAD}"), x)?;
            let norm = format!("{prefix}norm");
            let x = self.final_norm(&mut block, &norm, transformer.final_norm, x)?;
            let logits = self.logits(&mut block, &prefix, head, tie.or(Some(HEAD)), x)?;
            let weight = (MTP_LOSS_WEIGHT / num_modules as f64).into();
            let further = OpKind::CrossEntropy { over, ahead, weight };
            losses.push(block.push(format!("{prefix}loss"), further, &[logits])?);
        }
        Ok(block.finish(losses))
    }

    /// Logits of `x`; without a head, the tensor that a head would read. Operators have the given prefix.
    fn logits(
        &self,
        block: &mut BlockBuilder,
        prefix: &str,
        head: &Head,
        tie: Option<&str>,
        x: Value,
    ) -> Result<Value, GraphError> {
        let x = if head.first_token_only {
            block.push("head.first_token", OpKind::FirstToken, &[x])?
        } else {
            x
        };
        let x = match &head.transform {
            Some(transform) => self.transform(block, transform, x)?,
            None => x,
        };
        let (x, contracted) = match head.projected_to {
            Some(width) => {
                let width = [Dim::fixed(DimName::Latent, width)];
                let contracted = [DimName::Hidden];
                let x = linear(block, "head.projection", &contracted, &width, false, x)?;
                (x, DimName::Latent)
            }
            None => (x, DimName::Hidden),
        };
        if head.is_missing {
            return Ok(x);
        }
        // The head's input is scaled instead of the logits, since it is the smaller tensor.
        let x = Self::scaled(block, &format!("{prefix}head.scale"), self.scales.logits, x)?;
        let classes = Dim::fixed(DimName::Vocabulary, head.num_classes);
        let name = format!("{prefix}{HEAD}");
        let logits = linear(block, &name, &[contracted], &[classes], head.bias, x)?;
        if let Some(target) = tie {
            block.tie_weight(logits, target);
        }
        match self.scales.logit_soft_cap {
            Some(cap) => {
                block.push(format!("{prefix}head.soft_cap"), OpKind::SoftCap { cap }, &[logits])
            }
            None => Ok(logits),
        }
    }

    fn final_norm(
        &self,
        block: &mut BlockBuilder,
        name: &str,
        norm: Option<Norm>,
        x: Value,
    ) -> Result<Value, GraphError> {
        norm.map_or(Ok(x), |norm| self.norm(block, name, norm, &[DimName::Hidden], x))
    }

    fn transform(
        &self,
        block: &mut BlockBuilder,
        transform: &HeadTransform,
        x: Value,
    ) -> Result<Value, GraphError> {
        let hidden = [DimName::Hidden];
        let x = linear(block, "head.transform", &hidden, &[self.hidden], transform.bias, x)?;
        let function: Activation = transform.activation;
        let x = block.push("head.transform.activation", OpKind::Activation(function), &[x])?;
        self.recompute_if_flash(block, x);
        self.final_norm(block, "head.transform.norm", transform.norm, x)
    }

    /// Embedding of tokens, positions and token types, their sum, scale, norm and dropout.
    fn embed_tokens(
        &self,
        block: &mut BlockBuilder,
        name: &str,
        embedding: &Embedding,
        tokens: Value,
    ) -> Result<Value, GraphError> {
        let Embedding::Tokens { vocab_size, projected_from, positions, token_types, norm } =
            *embedding
        else {
            return Ok(tokens);
        };
        let width = projected_from.map_or(self.hidden, |width| Dim::fixed(DimName::Latent, width));
        let entries = Dim::fixed(DimName::Vocabulary, vocab_size);
        let table = format!("{name}.tokens");
        let kind = OpKind::Embedding { entries, width, rows: EmbeddedRows::Tokens { ahead: 0 } };
        let mut x = block.push(table.as_str(), kind, &[tokens])?;
        if table != TOKEN_TABLE {
            block.tie_weight(x, TOKEN_TABLE);
        }
        if projected_from.is_some() {
            let projection = format!("{name}.projection");
            x = linear(block, &projection, &[DimName::Latent], &[self.hidden], false, x)?;
        }
        let mut summands = vec![x];
        let positions =
            positions.map(|it| ("positions", it.rows, EmbeddedRows::Positions { first: it.first }));
        let token_types = token_types.map(|it| ("token_types", it, EmbeddedRows::TokenTypes));
        for (table, num_rows, rows) in positions.into_iter().chain(token_types) {
            let entries = Dim::fixed(DimName::Features, num_rows);
            let kind = OpKind::Embedding { entries, width: self.hidden, rows };
            summands.push(block.push(format!("{name}.{table}"), kind, &[tokens])?);
        }
        if summands.len() > 1 {
            x = block.push(format!("{name}.sum"), OpKind::Add, &summands)?;
        }
        let x = Self::scaled(block, &format!("{name}.scale"), self.scales.embedding, x)?;
        let x = self.final_norm(block, &format!("{name}.norm"), norm, x)?;
        Self::dropout(block, &format!("{name}.dropout"), self.dropout.embedding, x)
    }

    /// Embedding of image patches as a sequence after a class token, with learned positions.
    fn embed_patches(
        &self,
        block: &mut BlockBuilder,
        name: &str,
        patch_size: u64,
        pixels: Value,
    ) -> Result<Value, GraphError> {
        let side = [patch_size, patch_size];
        let window = Window2d {
            kernel: side,
            stride: side,
            padding: [0, 0],
            dilation: [1, 1],
            rounds_up: false,
        };
        let patches = self.convolved(block, &format!("{name}.patches"), window, pixels)?;
        let x = block.push(format!("{name}.sequence"), OpKind::PatchesToSequence, &[patches])?;
        let x = block.push(format!("{name}.class_token"), OpKind::PrependParameter, &[x])?;
        let dims = vec![self.sequence, self.hidden];
        let x = block.push(format!("{name}.positions"), OpKind::AddParameter { dims }, &[x])?;
        Self::dropout(block, &format!("{name}.dropout"), self.dropout.embedding, x)
    }

    /// A convolution with a bias; its number of output channels is the width of the residual stream.
    fn convolved(
        &self,
        block: &mut BlockBuilder,
        name: &str,
        window: Window2d,
        x: Value,
    ) -> Result<Value, GraphError> {
        let Extent::Fixed(out_channels) = self.hidden.extent else {
            unreachable!("the width of the residual stream is fixed")
        };
        block.push(name, OpKind::Conv2d { window, out_channels, groups: 1, bias: true }, &[x])
    }

    pub(super) fn tokens(&self) -> Tensor {
        Tensor::new([Dim::BATCH, self.sequence]).with_element(ElementType::Index)
    }
}
