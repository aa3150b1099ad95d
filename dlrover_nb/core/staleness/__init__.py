"""What old gradients cost a model: their age in a plan, and curves of held-out quality against it."""
