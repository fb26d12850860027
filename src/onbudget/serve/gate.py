"""The door of the fast path: who is refused when only the head has been read, and at what price.

Rules of this file. At overload nearly everybody is refused for the same reason as the one before, and each refusal's
microseconds are taken from answers. So a refusal is remembered and given again while it must still be right, without
asking the policy: it is formed once, with its words and its bytes, and the callers of one moment share it. A batch that
comes back ends that moment: it may have taken less time than was predicted, and what runs cost is known anew.
"""

from __future__ import annotations

import math
import time

from onbudget.core.errors import RequestError, Shed
from onbudget.serve.exchange import EMPTY, Head, Refusal
from onbudget.serve.live import Live
from onbudget.serve.models import Model

clock = time.monotonic
CALM = 1.0  # seconds without a refusal


class _Last:
    """The last refusal of a class for lateness: of how many items, behind how many, and until when it holds.

    Who arrived at `since` would have been late by nothing at all: whoever arrived before it would have been late too.
    """

    __slots__ = ("items", "refusal", "since", "waiting")

    def __init__(self, refusal: Refusal, items: int, waiting: int, since: float) -> None:
        self.refusal = refusal
        self.items = items
        self.waiting = waiting
        self.since = since


class Gate:
    """One model's door; `live` is told of every refusal by its reason."""

    def __init__(self, model: Model, live: Live) -> None:
        self._model = model
        self._live = live
        self._max_items = model.settings.max_items
        self._budget = model.settings.p95
        self._wire_bytes = model.contract.wire_bytes
        self._last: dict[int, _Last] = {}  # by class: more urgent ones have fewer before them
        self.refused = -math.inf  # when somebody was last, here or with the body

    def ask(self, length: int, age: float, head: Head = EMPTY) -> Refusal | None:
        """The refusal of a request whose head was read, by its declared length in bytes; None lets it in for now."""
        if head.fault:  # it is told with its body, like everything that is wrong with a request
            return None
        model = self._model
        items = min(max(1, length // self._wire_bytes), self._max_items) if self._wire_bytes else 1
        now = clock()
        within, priority = head.within(self._budget), head.priority
        waiting, last = model.queue.ahead(priority), self._last.get(priority)
        if last is not None and within is None and self._holds(last, items, waiting, now - age):
            self._live.refuse(last.refusal.error.reason)
            self.refused = now
            return last.refusal
        try:
            model.policy.admit(model.queue, model.lanes.running(now), items, age, now, within, priority, look=True)
        except Shed as error:
            refusal = Refusal(error.with_traceback(None))  # it would keep this frame, and all that is in it
            self._live.refuse(error.reason)  # whoever asked counts the request when it ends
            self.refused = now
            self._last.pop(priority, None)
            mixed = within is not None or model.queue.own  # who comes later may have more time than others
            if not mixed and error.reason == "late" and error.retry_after_s is not None:
                self._last[priority] = _Last(refusal, items, waiting, now - age + error.retry_after_s)
            return refusal
        except RequestError:  # an estimate is not enough to say never
            return None
        return None

    def calm(self, now: float) -> bool:
        """Whether nobody was refused lately: then who is there with its body is better judged once, with it."""
        return now - self.refused > CALM

    def forget(self) -> None:
        """A batch is back: the next refusal of each class is the policy's own."""
        self._last.clear()

    def _holds(self, last: _Last, items: int, waiting: int, arrived: float) -> bool:
        """Whether who arrived then is late as well. A moment later all lanes are a moment nearer to free, at the most.

        With at least as many before it, so that no lane has taken any, and in as many batches: the last one of more may
        be short and end sooner. Not with nobody before it: an idle lane runs whoever is alone. One more is doomed then,
        which is told to whoever sends some to the background.
        """
        if not (items == last.items and waiting >= last.waiting > 0 and arrived < last.since):
            return False
        most = self._model.policy.max_batch
        if (waiting + items - 1) // most != (last.waiting + items - 1) // most:
            return False
        spare = self._model.spare
        if spare is None:
            return True
        if spare.takes(items, self._model.queue.behind):
            return False
        spare.count(late=False)
        return True
