"""How a step follows the age of its gradient: plain, or normalised by it.

A gradient that missed many updates points where the parameters were, so a full step along it overshoots. A
normalised step is shorter the older its gradient is. It is a factor of the learning rate, which the optimizer
applies after its own state: in Adagrad and Adam a gradient that is made shorter instead would change the state
too, and Adam, which divides by the size of gradients, would take the same step as before.

Only steps of the dense part are made shorter. The age counts updates of the whole slice, all of which
change every dense parameter; a row is seldom touched by another worker in that time, so its gradient is as
good as new, and a shorter step would only train it slower.

Factors are those of the classes of `gradient_ages`, so that there are few of them: a kernel takes a step of a
class from a table. Both kernels take the same numbers from it, and so give the same bits.
"""

from __future__ import annotations

from dlrover_nb.core.structs.training.gradient_ages import N_CLASS, class_of, least_age

POWER = 0.5  # of 1 + age


def normalised_factor(age: int) -> float:
    """Return the factor of the learning rate for a dense gradient of an age.

    Parameters
    ----------
    age
        Updates by other workers between reading the parameters and the step, as `GradientAges` counts.

    Returns
    -------
    float
        In (0, 1]; 1 at age 0. Never rises with the age.

    Notes
    -----
    eta(age) = eta / (1 + age)^p. Zhang et al. (IJCAI 2016, arXiv 1511.05950, section 3) divide by the age, p =
    1, for ages near the number of workers; Liu and Zhao (AAAI 2021, doi 10.1609/aaai.v35i1.16108) normalise
    by staleness up to 3,000 workers. We take p = 1/2, as the noise of that many gradients in flight adds up
    like its root, and p = 1 left the dense part of short runs nearly untrained.
    """
    return float((1 + least_age(class_of(age))) ** -POWER)


def normalised_factors() -> tuple[float, ...]:
    """Return the factor of each class of age."""
    return tuple(normalised_factor(least_age(number)) for number in range(N_CLASS))
