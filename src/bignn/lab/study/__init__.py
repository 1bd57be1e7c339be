"""Things one runs on a graph: several seeds, runs in a ledger, float against binary, the demo."""
