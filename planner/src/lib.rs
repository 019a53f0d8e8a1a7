//! Search, evaluation and explanation of parallel layouts.
