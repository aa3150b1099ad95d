"""Worlds for nodes: kernels, slabs, and real nodes in threads."""
