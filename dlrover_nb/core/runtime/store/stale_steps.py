"""How a step follows the age of its gradient: plain, or normalised by it.

A gradient that missed many updates points where the parameters were, so a full step along it overshoots. A
normalised step is shorter the older its gradient is. It is a factor of the learning rate, which applies after
the optimizer's state: in Adagrad and Adam a shorter gradient would change the state instead, and Adam, which
divides by the size of gradients, would take the same step as before.

Only steps of the dense part are made shorter. The age counts updates of the whole slice, all of which
change every dense parameter; a row is seldom touched by another worker in that time, so its gradient is as
good as new, and a shorter step would only train it slower.

Factors are those of the classes of `gradient_ages`, so that there are few of them: a kernel takes a step of a
class from a table. Both kernels take the same numbers from it, and so give the same bits.

It pays where the learning rate is the best one for a single worker, and costs where that is low: then all
steps are too short. For 16 workers of which four are five times as slow, one pass over 48,000 rows of Criteo
and wide & deep, the change of the held-out AUC against one worker is, over five seeds: Adagrad at 0.2 -.0044
(plain -.0103), Adam at 0.002 -.0170 (plain -.0206), Adagrad at 0.05 -.0095 (plain -.0017).

Rejected: shorter steps for what is older than usual only, by (1 + usual age) / (1 + age), which lost as much
as plain steps. And delay compensation, g + lambda g^2 (w_now - w_read) (Zheng et al., ICML 2017, arXiv
1609.08326): in these runs and with SGD, for lambda 1, 10 and 100, for the dense part and with rows too, AUC
and loss changed within their errors or for the worse, as the square of such gradients is tiny beside them.
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
    eta(age) = eta / (1 + age)^p. Zhang et al. (IJCAI 2016, arXiv 1511.05950) divide the learning rate by the
    age, p = 1; Liu and Zhao (AAAI 2021, doi 10.1609/aaai.v35i1.16108) normalise by staleness in a CTR model
    with up to 3,000 workers. We take p = 1/2: with p = 1 the dense part hardly trained in short runs.
    """
    return float((1 + least_age(class_of(age))) ** -POWER)


def normalised_factors() -> tuple[float, ...]:
    """Return the factor of each class of age."""
    return tuple(normalised_factor(least_age(number)) for number in range(N_CLASS))
