"""Features of models that cannot be are refused."""

import pytest

from dlrover_nb.core.deadline.model_features import ModelFeatures
from dlrover_nb.core.errors import InvalidValueError


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"n_param": 0}, {"flops": 0}])
def test_features_that_cannot_be_are_refused(wrong):
    with pytest.raises(InvalidValueError, match="must be >= 1"):
        ModelFeatures(**({"batch_size": 1, "n_param": 1, "flops": 1} | wrong))
