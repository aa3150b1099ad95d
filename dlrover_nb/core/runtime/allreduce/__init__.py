"""All-reduce jobs of our own models: each worker holds all parameters, and all of them sum their gradients."""
