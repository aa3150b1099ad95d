"""All-reduce jobs of our own models: each worker holds all parameters, and they sum their gradients."""
