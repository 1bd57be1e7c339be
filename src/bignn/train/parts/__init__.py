"""Several processes, each with a part of one graph: halos exchanged, predictions and training."""
