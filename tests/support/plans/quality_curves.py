"""Curves of quality against age, made by hand for tests."""

from __future__ import annotations

from dlrover_nb.core.structs.training.quality import CurveOrigin, QualityCurve, QualityPoint


def curve(
    auc_per_update: float = -1e-3,
    *,
    way: str = "asp",
    error: float = 1e-4,
    base_auc: float = 0.78,
    origin: CurveOrigin = CurveOrigin.REHEARSAL,
) -> QualityCurve:
    """Return a curve whose AUC falls in proportion to the age, and whose loss rises twice as much."""
    points = tuple(
        QualityPoint(age, -2 * auc_per_update * age, auc_per_update * age, 2 * error, error, 5)
        for age in (2.0, 6.0, 14.0, 30.0)
    )
    return QualityCurve(way, origin, 512, 40_000, 1, 0.01, "adam", 0.45, base_auc, points)
