"""The text of one answer while it is decoded: cut at the first stop string, and released as far as it is final.

Does not depend on tokens. Streamed and complete answers both come from here, so they are the same.
"""

from collections.abc import Sequence


class AnswerText:
    """Collects pieces. The first `final` characters cannot change: no stop string can begin before them any more."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._longest = max(map(len, self._stops), default=0)
        self._released = 0
        self.text = ""
        self.final = 0
        self.stopped = False

    def add(self, piece: str) -> None:
        """Appends a piece; at a complete stop string drops it and what follows, and sets `stopped`."""
        if self.stopped or not piece:
            return
        start = max(0, len(self.text) - self._longest)
        text = self.text + piece
        places = [place for place in (text.find(stop, start) for stop in self._stops) if place >= 0]
        self.text = text[: min(places)] if places else text
        self.stopped = bool(places)
        # Another thread reads up to `final`, so it is set last.
        self.final = len(self.text) if self.stopped else len(self.text) - self._possible_stop()

    def finish(self) -> None:
        """All text is final: no piece follows."""
        self.final = len(self.text)

    @property
    def has_news(self) -> bool:
        """Whether there is final text that `take` has not returned yet."""
        return self.final > self._released

    def take(self) -> str:
        """The text that became final since the last call."""
        start, self._released = self._released, self.final
        return self.text[start : self._released]

    def _possible_stop(self) -> int:
        """Length of the longest end of the text that is the beginning of a stop string."""
        for length in range(min(self._longest, len(self.text)), 0, -1):
            if any(stop.startswith(self.text[-length:]) for stop in self._stops):
                return length
        return 0
