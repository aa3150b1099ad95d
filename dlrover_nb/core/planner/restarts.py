"""Which programs of others a change of plan restarts: what their framework needs, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.external import Framework

if TYPE_CHECKING:
    from dlrover_nb.core.structs.job import JobSpec
    from dlrover_nb.core.structs.resources import ScalePlan


def restart_words(spec: JobSpec, scale: ScalePlan) -> str:
    """Say what of an external job a change restarts; empty: nothing, or a job of ours."""
    external = spec.foreign
    if external is None or not scale:
        return ""
    is_resized = any(change.replaces_nodes for change in scale.changes)
    in_place = " where nodes cannot be resized in place" if is_resized else ""
    if external.framework is Framework.DDP:
        return f"Workers are replaced one at a time{in_place}; the others go on." if is_resized else ""
    is_recounted = any(change.added for change in scale.changes)
    return f"All programs restart{'' if is_recounted else in_place}, as {external.framework} needs."
