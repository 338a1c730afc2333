"""TextTiling over sentence vectors: cuts stand where the talk turns to something else."""

import numpy as np

from localmem.segmentation.texttiling import TextTiling, depths
from localmem.types import Session
from tests.fakes import WordEncoder, session

CATS = ("my cat sleeps", "cat and cat food", "the cat purrs", "a cat again")
CARS = ("the car broke down", "a new car costs", "car repairs are dear", "the car is red")


def test_a_new_topic_begins_a_segment() -> None:
    (segments,) = TextTiling(WordEncoder()).segment([session(*CATS, *CARS)])
    assert segments == [range(2), range(2, 4)]  # a user's turn and its answer are one exchange


def test_sessions_are_encoded_together_and_come_back_apart() -> None:
    encoder = WordEncoder()
    sessions = [
        session(*CATS, *CARS),
        Session("s2"),
        session("hello there", name="s3"),
        session(*CARS, *CATS, name="s4"),
    ]
    segments = TextTiling(encoder).segment(sessions)
    assert [len(segments) for segments in segments] == [2, 0, 1, 2]
    assert len(encoder.encoded) == 9


def test_one_topic_is_one_segment() -> None:
    (segments,) = TextTiling(WordEncoder()).segment([session(*["tea with milk"] * 8)])
    assert segments == [range(4)]


def test_a_gap_is_as_deep_as_its_peaks_are_high() -> None:
    deep = depths(np.array([0.9, 0.1, 0.5, 0.4, 0.8]))
    np.testing.assert_allclose(deep, [0.0, 0.6, 0.0, 0.25, 0.0])


def test_a_higher_cut_cuts_less() -> None:
    talk = session(*CATS, *CARS, *CATS, *CARS)
    counts = [len(TextTiling(WordEncoder(), cut=cut).segment([talk])[0]) for cut in (-1.0, 0.5, 3.0)]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[-1] == 1
