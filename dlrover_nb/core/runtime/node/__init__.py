"""The process of a node, whatever its role: ``python -m dlrover_nb.core.runtime.node CONFIG.json``."""
