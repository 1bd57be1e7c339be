"""Things one runs to see or reproduce results. The top of the house, below the command line."""
