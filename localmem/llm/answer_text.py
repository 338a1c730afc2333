"""The text of one answer while it is made: cut at the first stop string, given out only as far as it is sure.

Knows no tokens. What streams and what is returned at once come from here, so they are the same.
"""

from collections.abc import Sequence


class AnswerText:
    """Collects pieces. `sure` characters are final: no stop string can still begin before them."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._longest = max(map(len, self._stops), default=0)
        self._given = 0
        self.text = ""
        self.sure = 0
        self.stopped = False

    def add(self, piece: str) -> None:
        """Joins a piece; sets `stopped` when a stop string is complete. What follows it is dropped."""
        if self.stopped or not piece:
            return
        start = max(0, len(self.text) - self._longest)
        text = self.text + piece
        found = [place for place in (text.find(stop, start) for stop in self._stops) if place >= 0]
        self.text = text[: min(found)] if found else text
        self.stopped = bool(found)
        # Another thread reads up to `sure`, so it moves last.
        self.sure = len(self.text) if self.stopped else len(self.text) - self._held()

    def finish(self) -> None:
        """No piece follows: all is sure."""
        self.sure = len(self.text)

    @property
    def news(self) -> bool:
        return self.sure > self._given

    def take(self) -> str:
        """What became sure since the last call."""
        start, self._given = self._given, self.sure
        return self.text[start : self._given]

    def _held(self) -> int:
        """Length of the longest end of the text that a stop string begins with."""
        for length in range(min(self._longest, len(self.text)), 0, -1):
            if any(stop.startswith(self.text[-length:]) for stop in self._stops):
                return length
        return 0
