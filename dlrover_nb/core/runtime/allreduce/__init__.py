"""All-reduce jobs of our own models: each worker holds all parameters, and gradients are summed over workers."""
