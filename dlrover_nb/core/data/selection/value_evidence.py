"""What the values of a column look like: whole numbers, times, ids, row numbers, numbers in a local form."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dlrover_nb.core.data.encode import items_of
from dlrover_nb.core.data.kinds import is_text
from dlrover_nb.core.data.types.agreement import value_type
from dlrover_nb.core.data.types.number_text import forms_of, is_mark
from dlrover_nb.core.data.types.trained_types import MOST_EXACT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.structs.data.features import SequenceSpec

N_ENOUGH = 1000  # rows from which distinct values say something
NEARLY = 0.95
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_ID_WORDS = {"id", "ids", "uid", "uuid", "code", "zip", "zipcode", "postcode", "hash", "key", "sku"}
_THINGS = {  # a column of this name alone holds their ids, also with "id" behind it in one word
    "account", "ad", "advertiser", "article", "artist", "campaign", "client", "creative", "customer",
    "device", "item", "member", "merchant", "movie", "product", "publisher", "seller", "session", "shop",
    "song", "user", "visitor",
}  # fmt: skip
_COUNTS = {"n", "num", "number", "no", "nr", "count", "cnt", "total", "sum", "mean", "avg", "max", "min"}
_TIME_WORDS = {"time", "timestamp", "date", "datetime", "ts", "at", "when"}
_INDEX = re.compile(r"Unnamed: \d+(_level_\d+)?|__index_level_\d+__|level_\d+")  # as pandas names its own
_INDEX_NAMES = {"index", "idx", "row", "rowid", "rownum", "rownumber", "rowindex", "recordnumber"}
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?"
_DATE = re.compile(
    r"(19|20)\d\d[-/]\d\d?([-/]\d\d?([T ].*)?)?|\d{1,2}[./-]\d{1,2}[./-]\d{4}.*|"
    rf"\d{{1,2}}[.]? ?{_MONTH} ?\d{{4}}.*|{_MONTH} \d{{1,2}},? \d{{4}}.*"
)
_LIST = re.compile(r"[^|\s]+(\|[^|\s]+)+")
_PLAIN_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
_EPOCH_S = (7.8e8, 2.2e9)  # 1994 to 2039
_N_TEXT, _N_NUMBER = 20, 1000  # distinct values of a text column that are looked at, for dates and numbers


@dataclass(frozen=True)
class ColumnValues:
    """The values of one column that were looked at."""

    name: str
    values: pa.ChunkedArray
    sequence: SequenceSpec | None = None

    @property
    def type(self) -> pa.DataType:
        """Type of the values, however they are stored."""
        return value_type(self.values.type)

    @property
    def words(self) -> list[str]:
        """The words of its name."""
        return [word.lower() for word in _WORDS.findall(self.name)]

    @cached_property
    def absent(self) -> int:
        """Number of missing values; of a sequence, of empty lists."""
        if self.sequence is not None:
            return int((items_of(self.values, self.sequence)[1] == 0).sum())
        return int(pc.sum(pc.is_null(self.values, nan_is_null=True)).as_py() or 0)

    @cached_property
    def n_distinct(self) -> int:
        """Number of distinct values; of a sequence, of distinct items."""
        values = self.values if self.sequence is None else items_of(self.values, self.sequence)[0]
        return len(pc.unique(pc.drop_null(values)))

    @property
    def n_there(self) -> int:
        """Number of values that are there."""
        return len(self.values) - self.absent

    @cached_property
    def n_infinite(self) -> int:
        """Number of infinite values, which are taken for missing."""
        if not pa.types.is_floating(self.type):
            return 0
        return int(pc.sum(pc.is_inf(self._plain_values())).as_py() or 0)

    @cached_property
    def _numbers(self) -> NDArray[np.float64]:
        """The values that are there, as floats; none of what is no number."""
        if not (pa.types.is_integer(self.type) or pa.types.is_floating(self.type)) or not self.n_there:
            return np.empty(0)
        x = np.asarray(pc.drop_null(self._plain_values()).cast(pa.float64(), safe=False).combine_chunks())
        return np.asarray(x[~np.isnan(x)], np.float64)

    def _plain_values(self) -> pa.ChunkedArray:
        is_stored = pa.types.is_dictionary(self.values.type)
        return self.values.cast(self.type) if is_stored else self.values

    @cached_property
    def whole(self) -> tuple[float, float] | None:
        """Return the bounds of whole numbers; None for all other values."""
        x = self._numbers
        is_whole = x.size and bool(np.isfinite(x).all()) and np.array_equal(x, np.floor(x))
        return (float(x.min()), float(x.max())) if is_whole else None

    @property
    def is_time(self) -> bool:
        """Whether values are moments: dates, timestamps, or whole numbers that stand for them."""
        if pa.types.is_timestamp(self.type) or pa.types.is_date(self.type):
            return True
        if self.whole is None or not (_TIME_WORDS | {"day"}) & set(self.words):
            return False
        return self._is_epoch or self._is_calendar

    @property
    def _is_epoch(self) -> bool:
        assert self.whole is not None
        low, high = self.whole
        return any(_EPOCH_S[0] * unit <= low and high <= _EPOCH_S[1] * unit for unit in (1, 1e3, 1e6, 1e9))

    @property
    def _is_calendar(self) -> bool:
        """Whether whole numbers are days such as 20240131."""
        assert self.whole is not None
        if not (self.whole[0] > 19e6 and self.whole[1] < 21e6):
            return False
        month, day = self._numbers // 100 % 100, self._numbers % 100
        return bool(((month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)).all())

    @property
    def is_time_as_text(self) -> bool:
        """Whether values are texts of dates."""
        texts = self.texts[:_N_TEXT]
        return bool(texts) and all(_DATE.fullmatch(text) for text in texts)

    @cached_property
    def texts(self) -> list[str]:
        """Some distinct values of a column of text."""
        if not is_text(self.type):
            return []
        return [each.as_py().strip() for each in pc.unique(pc.drop_null(self._plain_values()))[:_N_NUMBER]]

    @property
    def list_as_text(self) -> str:
        """Return a value of a column of lists that are written as text; empty: it is none."""
        texts = self.texts[:_N_TEXT]
        lists = [text for text in texts if _LIST.fullmatch(text)]
        return lists[0] if 2 * len(lists) > len(texts) else ""

    @cached_property
    def local_number(self) -> str:
        """Return a value of a column of numbers that are written in a local form; empty: it is none."""
        odd = [text for text in self.texts if not _PLAIN_NUMBER.fullmatch(text) and not is_mark(text)]
        return odd[0] if odd and forms_of(self.texts) else ""

    @cached_property
    def number_mark(self) -> str | None:
        """Return what stands for a missing value among numbers of a column of text; None: nothing does."""
        marks = [text for text in self.texts if is_mark(text)]
        is_one = marks and len(self.texts) > _N_TEXT and not self.local_number
        return marks[0] if is_one and forms_of(self.texts) else None

    @property
    def is_named_as_ids(self) -> bool:
        """Whether whole numbers have a name of ids, such as user_id, itemID, zip or user."""
        if self.whole is None or self.n_distinct <= 2 or _COUNTS & set(self.words[:1]):
            return False
        name = "".join(self.words)
        is_thing = name in _THINGS or name.removesuffix("id") in _THINGS
        return is_thing or bool(_ID_WORDS & set(self.words[-1:]))

    @property
    def counts(self) -> bool:
        """Whether each row's number is that of the row before and one."""
        if self.whole is None or self.absent or self.n_there < N_ENOUGH:
            return False
        return bool((np.diff(self._numbers) == 1).all())

    def is_row_index(self, n_row: int | None) -> bool:
        """Whether values number the rows, in any order, under a name of such a column or of ids."""
        if self.whole is None or self.absent:
            return False
        if _INDEX.fullmatch(self.name):
            return self.whole[0] >= 0
        is_named = "".join(self.words) in _INDEX_NAMES or self.name == "column_1" or self.is_named_as_ids
        return (is_named and self.is_permutation(n_row)) or self.counts

    def is_permutation(self, n_row: int | None) -> bool:
        """Whether values are those of 0 to `n_row` - 1, or of 1 to `n_row`, each once, as far as is seen."""
        if self.whole is None or n_row is None or self.absent or self.n_distinct < len(self.values):
            return False
        low, high = self.whole
        if len(self.values) == n_row:
            return low in {0, 1} and high == low + n_row - 1 and n_row > 1
        is_counted = bool((np.diff(self._numbers) == 1).all())
        return low >= 0 and (is_counted or n_row / 2 < high <= n_row)

    @property
    def is_rounded(self) -> bool:
        """Whether whole numbers are too large for each to be a float of its own."""
        return self.whole is not None and max(map(abs, self.whole)) >= MOST_EXACT

    @property
    def is_ever_new(self) -> bool:
        """Whether nearly every row has another whole number."""
        if self.whole is None or self.n_there < N_ENOUGH or _TIME_WORDS & set(self.words):
            return False
        return self.n_distinct > NEARLY * self.n_there
