"""The process of a node in its pod: ``python -m dlrover_nb.core.runtime.pod``."""
