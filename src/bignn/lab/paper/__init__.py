"""The paper's tables and figures, ours beside them."""
