"""How good a classifier of operations is: pair by pair, and by the memory that its answers leave behind.

Knows no model. Set F1 (Keep Me Updated, section 5.1.2) compares M' after Algorithm 1 with the gold M'. On labelled
pairs with groups it is made so: each new sentence of a group ends a session of its own, whose memory are all remembered
sentences of the group. All pairs of the two are classified; a pair that nobody labelled counts as APPEND in the gold.
The sentences of both M' are compared by F1 (of two empty ones 1), and the mean over all sessions is told.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from finetune.pairs import LabelledPair
from localmem.errors import BadInput, MissingExtra
from localmem.systems.carecall.operations import remaining, update
from localmem.text.base import OPERATIONS, Operation

Pair = tuple[str, str]
Said = Mapping[Pair, Operation]


@dataclass(frozen=True, slots=True)
class Ending:
    """One session's end: what is remembered, what is new, and the labelled pairs among them."""

    memory: tuple[str, ...]
    new: tuple[str, ...]
    gold: Said

    def pairs(self) -> list[Pair]:
        """Every remembered sentence with every new one."""
        return [(memory, sentence) for memory in self.memory for sentence in self.new]

    def f1(self, said: Said) -> float:
        """Of the memory that `said` leaves against the gold one; a pair that `said` lacks is an APPEND."""
        ours, right = self._left(said), self._left(self.gold)
        return 2 * len(ours & right) / (len(ours) + len(right)) if ours or right else 1.0

    def _left(self, said: Said) -> set[str]:
        old = {f"m{number}": text for number, text in enumerate(self.memory)}  # a sentence may stand on both sides
        new = {f"s{number}": text for number, text in enumerate(self.new)}
        labels = {(m, s): said[old[m], new[s]] for m in old for s in new if (old[m], new[s]) in said}
        texts = old | new
        return {texts[name] for name in remaining(update(list(old), list(new), labels))}


@dataclass(frozen=True, slots=True)
class Verdict:
    """Over labelled pairs: accuracy, F1 of each operation, their mean, the confusion (rows are the truth), set F1."""

    accuracy: float
    f1: dict[str, float]
    macro_f1: float
    confusion: list[list[int]]
    set_f1: float


def endings(pairs: Iterable[LabelledPair]) -> list[Ending]:
    """Each new sentence of each group with all of the group's remembered ones."""
    groups: dict[str, list[LabelledPair]] = {}
    for pair in pairs:
        groups.setdefault(pair.group, []).append(pair)
    found = []
    for group in groups.values():
        memory = tuple(dict.fromkeys(pair.first for pair in group))
        gold = _gold(group)
        found += [Ending(memory, (sentence,), gold) for sentence in dict.fromkeys(pair.second for pair in group)]
    return found


def large_endings(pairs: Sequence[LabelledPair], memories: int, new: int, seed: int) -> list[Ending]:
    """Sessions' ends with a large memory: as many as the pairs give, each of `memories` remembered sentences.

    The memory is of several groups, drawn by seed; the new sentences are of as many different ones of them. What is of
    two groups counts as APPEND in the gold. Raises BadInput where there are too few pairs for one.
    """
    random = Random(seed)  # noqa: S311  # no secret
    groups: dict[str, list[LabelledPair]] = {}
    for pair in pairs:
        groups.setdefault(pair.group, []).append(pair)
    names = sorted(groups)
    random.shuffle(names)
    found, held = [], []
    for name in names:
        held.append(groups[name])
        memory = tuple(dict.fromkeys(pair.first for group in held for pair in group))
        if len(memory) >= memories and len(held) >= new:
            asked = [random.choice(group).second for group in random.sample(held[:-1] or held, min(new, len(held)))]
            found.append(Ending(memory[:memories], tuple(asked), _gold(pair for group in held for pair in group)))
            held = []
    if not found:
        raise BadInput(
            f"{len(pairs)} pairs hold no {memories} remembered sentences; give more data or a smaller memory"
        )
    return found


def to_ask(sessions: Iterable[Ending]) -> list[Pair]:
    """Every pair of the sessions, once."""
    return list(dict.fromkeys(pair for session in sessions for pair in session.pairs()))


def judge(pairs: Sequence[LabelledPair], said: Said) -> Verdict:
    """What was said of the pairs, and of all others that `to_ask(endings(pairs))` names."""
    try:
        from sklearn.metrics import confusion_matrix, f1_score
    except ImportError as error:
        raise MissingExtra("measures need scikit-learn; run `pip install 'localmem[train]'`") from error
    right = [pair.label for pair in pairs]
    ours = [said[pair.first, pair.second] for pair in pairs]
    each = f1_score(right, ours, labels=list(OPERATIONS), average=None, zero_division=0.0).tolist()
    return Verdict(
        accuracy=sum(one == other for one, other in zip(right, ours, strict=True)) / len(pairs),
        f1=dict(zip(OPERATIONS, each, strict=True)),
        macro_f1=sum(each) / len(each),
        confusion=confusion_matrix(right, ours, labels=list(OPERATIONS)).tolist(),
        set_f1=set_f1(endings(pairs), said),
    )


def set_f1(sessions: Sequence[Ending], said: Said) -> float:
    """The mean over the sessions."""
    return sum(session.f1(said) for session in sessions) / len(sessions)


def _gold(pairs: Iterable[LabelledPair]) -> dict[Pair, Operation]:
    return {(pair.first, pair.second): name for pair in pairs for name in OPERATIONS if name == pair.label}
