"""What a model asks of a machine before it ran: batch size, floating-point operations, parameters.

Qore-DL reads these three from the job instead of asking its owner.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlrover_nb.core.structs import _check


@dataclass(frozen=True, slots=True)
class ModelFeatures:
    """The features of a job by which Qore-DL predicts its requirements.

    Parameters
    ----------
    batch_size
        Samples of one worker's iteration.
    n_param
        Trainable parameters, those of embedding tables included.
    flops
        Operations of the forward pass of one batch; None: not known.
    """

    batch_size: int
    n_param: int
    flops: int | None

    def __post_init__(self) -> None:
        _check.at_least("batch_size", self.batch_size, 1)
        _check.at_least("n_param", self.n_param, 1)
        if self.flops is not None:
            _check.at_least("flops", self.flops, 1, hint="leave it out where it is not known")
