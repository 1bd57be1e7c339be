"""Training runs of experiments as data, and the ledger of those that are finished."""
