"""The product without its front ends: decisions in the middle, loops and clients at the edge."""
