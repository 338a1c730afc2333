"""Progress lines while a server starts."""

from localmem.factory import parts


def test_a_stage_is_reported_when_it_begins_and_every_ten_seconds() -> None:
    lines: list[str] = []
    stages = parts._StartProgress(lines.append)
    for tick in range(100):
        stages("loading" if tick < 60 else "compiling", tick / 4)
    stages("ready", 25.0)
    assert lines == [
        "vLLM: loading (0 s)",
        "vLLM: loading (10 s)",
        "vLLM: compiling (15 s)",
        "vLLM: compiling (20 s)",
        "vLLM: ready (25 s)",
    ]
