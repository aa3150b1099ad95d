"""A local copy of the cluster's objects, kept current by one list and then a watch.

Readers act on the state of the copy (level-triggered), never on single events: events may be missed when a
connection breaks, state is not. A watch that ends or breaks continues from the last version received. Where
the server no longer has that version (410: it restarted, or was unreachable for long) all is listed again.
All is also listed periodically, so that a store restored to an older state is noticed.

Without changes that is one request in five minutes: the server pushes changes. Rejected: polling lists, since
ten requests a minute per job would still leave changes unnoticed for six seconds.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.client.api_errors import Gone, Unreachable
from dlrover_nb.core.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.backends.kubernetes.client.api import Api, Watch
    from dlrover_nb.core.manifests.kinds import Doc, Kind

logger = logging.getLogger(__name__)

WATCH_S = 300.0  # of one watch, before jitter: not all jobs reconnect at the same moment
RELIST_S = 1800.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0  # before a retry of a server that does not answer
REFUSED_PAUSE_S = 30.0  # longest pause after a refusal: a starting server may not know all rights yet
END_WAIT_S = 2.0


class Cache:
    """The objects as last received, by name; across namespaces by ``NAMESPACE/NAME``.

    Parameters
    ----------
    spans
        Whether the objects lie in several namespaces.
    """

    def __init__(self, *, spans: bool = False) -> None:
        self._spans = spans
        self.docs: dict[str, Doc] = {}
        self.version = ""

    def replace(self, docs: list[Doc], version: str) -> bool:
        """Apply a list; return whether it differs from the known state."""
        new = {self._key(doc): _slim(doc) for doc in docs}
        is_other = _versions(new) != _versions(self.docs)
        self.docs, self.version = new, version
        return is_other

    def apply(self, event: Doc) -> bool:
        """Apply one event; return whether an object changed."""
        doc = event["object"]
        self.version = doc["metadata"]["resourceVersion"]
        match event["type"]:
            case "ADDED" | "MODIFIED":
                self.docs = self.docs | {self._key(doc): _slim(doc)}
            case "DELETED":
                self.docs = {key: old for key, old in self.docs.items() if key != self._key(doc)}
            case _:  # a bookmark, or an event of later versions: only the version counts
                return False
        return True

    def _key(self, doc: Doc) -> str:
        meta = doc["metadata"]
        return f"{meta.get('namespace', '')}/{meta['name']}" if self._spans else str(meta["name"])


class Informer:
    """Follows all objects of a kind that match a selector, in a thread of its own until `close`.

    Parameters
    ----------
    api
        At the namespace to watch; an empty one: all of them.
    kind, selector
        Which objects; labels as in ``kubectl -l``.
    clock, chance
        For tests.

    Attributes
    ----------
    changed
        Set at each change, and after the first list; a waiting reader clears it before reading.
    """

    def __init__(
        self,
        api: Api,
        kind: Kind,
        selector: str = "",
        *,
        clock: Callable[[], float] = time.monotonic,
        chance: random.Random | None = None,
    ) -> None:
        self._api, self._kind, self._selector = api, kind, selector
        self._clock = clock
        self._chance = chance or random.Random()  # noqa: S311 - spreads requests, hides nothing
        self._copy = Cache(spans=kind.namespaced and not api.namespace)
        self._closed, self._lock = threading.Event(), threading.Lock()
        self._watch: Watch | None = None
        self._current_s: float | None = None
        self._error: BackendError | None = None
        self._listed_s = 0.0
        self._synced = threading.Event()
        self.changed = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"informer-{kind.plural}", daemon=True)
        self._thread.start()

    @property
    def is_synced(self) -> bool:
        """Whether all objects were listed at least once."""
        return self._synced.is_set()

    @property
    def age_s(self) -> float:
        """Seconds since the copy was last known to be current; 0 while the watch is open."""
        if self._watch is not None:
            return 0.0
        return float("inf") if self._current_s is None else max(0.0, self._clock() - self._current_s)

    @property
    def error(self) -> BackendError | None:
        """Why the copy is not kept current now; None while it is."""
        return self._error

    def items(self) -> dict[str, Doc]:
        """Return the objects by name: a copy of the table; the objects in it are not to be changed."""
        return dict(self._copy.docs)

    def wait(self, timeout_s: float) -> dict[str, Doc]:
        """Return the objects once all were listed.

        Raises
        ------
        BackendError
            When that did not happen in time: why not.
        """
        if not self._synced.wait(timeout_s):
            raise self._error or BackendError(
                f"{self._kind.plural} were not listed within {timeout_s:g} s; try again"
            )
        return self.items()

    def close(self) -> None:
        """End the thread without waiting for a pending request."""
        with self._lock:
            self._closed.set()
            if self._watch is not None:
                self._watch.close()
        self._thread.join(END_WAIT_S)

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while not self._closed.is_set():
            began_s, refused = self._clock(), False
            try:
                self._follow()
            except Gone:
                self._copy.version = ""
            except BackendError as error:
                refused = not isinstance(error, Unreachable)
                self._fail(error)
            except Exception as error:  # an unforeseen answer must not end the watch
                logger.exception("%s cannot be watched", self._kind.plural)
                self._copy.version, refused = "", True
                self._error = BackendError(f"{self._kind.plural} cannot be watched: {error!r}; see the log")
            if self._clock() - began_s > LONGEST_PAUSE_S:
                pause_s = FIRST_PAUSE_S
            self._closed.wait(pause_s * self._chance.uniform(0.5, 1.0))
            pause_s = min(REFUSED_PAUSE_S if refused else LONGEST_PAUSE_S, 2 * pause_s)

    def _fail(self, error: BackendError) -> None:
        if self._error is None and not self._closed.is_set():
            logger.warning("%s are not watched now: %s", self._kind.plural, error)
        self._error = error

    def _follow(self) -> None:
        """List where no version is known, then watch until the server ends it."""
        if not self._copy.version or self._clock() - self._listed_s > RELIST_S:
            listing = self._api.list(self._kind, selector=self._selector)
            self._listed_s = self._clock()
            self._tell(is_other=self._copy.replace(*listing) or not self.is_synced)
            self._synced.set()
        watch = self._api.watch(
            self._kind,
            selector=self._selector,
            resource_version=self._copy.version,
            timeout_s=WATCH_S * self._chance.uniform(1.0, 1.2),
        )
        try:
            self._hold(watch)
            for event in watch:
                self._tell(is_other=self._copy.apply(event))
        finally:
            self._hold(None)
            watch.close()

    def _hold(self, watch: Watch | None) -> None:
        with self._lock:
            if self._watch is not None:
                self._current_s = self._clock()
            self._watch = watch
            if watch is not None:
                self._error = None
                if self._closed.is_set():
                    watch.close()

    def _tell(self, *, is_other: bool) -> None:
        self._current_s = self._clock()
        if is_other:
            self.changed.set()


def _slim(doc: Doc) -> Doc:
    """Drop managedFields: unused, and half of an object."""
    doc["metadata"].pop("managedFields", None)
    return doc


def _versions(docs: dict[str, Doc]) -> dict[str, str]:
    return {key: doc["metadata"]["resourceVersion"] for key, doc in docs.items()}
