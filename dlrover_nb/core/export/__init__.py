"""Documents for other systems: per kind one pure function of a job and a plan, and its inverse.

`exporters` lists the kinds. Files are written on request alone (`write`).
"""

from dlrover_nb.core.export.exporters import Exporter
from dlrover_nb.core.export.nodes import Options
from dlrover_nb.core.export.provenance import Provenance

__all__ = ["Exporter", "Options", "Provenance"]
