//! What an operator, a byte and a message cost.
