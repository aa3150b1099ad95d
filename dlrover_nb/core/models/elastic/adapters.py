"""Models of other libraries: how they are called, which they say themselves.

Each library is known by the module of one of the classes that a model derives from, and is not imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.models.elastic import deepctr, fuxictr

if TYPE_CHECKING:
    from dlrover_nb.core.models.elastic.net import Face
    from dlrover_nb.core.models.elastic.tables import TakenModule

_FACES = {"deepctr_torch": deepctr.face_of, "fuxictr": fuxictr.face_of}


def face_of(source: TakenModule) -> Face:
    """Return how a module of a known library is called.

    Raises
    ------
    InvalidValueError
        When it is of none.
    """
    libraries = [kind.__module__.partition(".")[0] for kind in type(source.module).__mro__]
    for library in libraries:
        if library in _FACES:
            return _FACES[library](source)
    raise InvalidValueError(
        f"{type(source.module).__name__} is of neither DeepCTR-Torch nor FuxiCTR, so its columns are not "
        'known; name them: dlrover_nb.elastic(module, ids=["user", "item"], numbers=["price"])'
    )
