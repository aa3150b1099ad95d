"""Documents for other systems: per kind one pure function of a job and a plan, and its inverse.

`exporters` lists the kinds. Files are written on request alone (`write`).
"""

from dlrover_nb.core.disk.files import write
from dlrover_nb.core.export.exporters import EXPORTERS, Exporter, find_exporter
from dlrover_nb.core.export.gathering import documents_in
from dlrover_nb.core.export.imported import Imported, read_export
from dlrover_nb.core.export.nodes import Options
from dlrover_nb.core.export.provenance import Provenance, provenance_of
from dlrover_nb.core.export.schemas import check
from dlrover_nb.core.yamltext import to_yaml

__all__ = [
    "EXPORTERS",
    "Exporter",
    "Imported",
    "Options",
    "Provenance",
    "check",
    "documents_in",
    "find_exporter",
    "provenance_of",
    "read_export",
    "to_yaml",
    "write",
]
