"""What a person at the terminal is told while a server starts."""

from localmem.factory import parts


def test_a_stage_is_told_when_it_begins_and_now_and_then_while_it_lasts() -> None:
    told: list[str] = []
    stages = parts._Stages(told.append)
    for tick in range(100):
        stages("loading" if tick < 60 else "compiling", tick / 4)
    stages("ready", 25.0)
    assert told == [
        "vLLM: loading (0 s)",
        "vLLM: loading (10 s)",
        "vLLM: compiling (15 s)",
        "vLLM: compiling (20 s)",
        "vLLM: ready (25 s)",
    ]
