"""End to end on the starter weights: the official client, the real backbone and encoder, two days."""

from pathlib import Path

import httpx
import pytest
from openai import OpenAI

from localmem.config import load_settings
from localmem.runtime import Runtime
from tests.server.conftest import Clock, running

MODEL = "smollm2-135m-instruct"


@pytest.mark.usefixtures("starter_llm_dir", "starter_encoder_dir")
def test_one_days_words_are_recalled_on_the_next(tmp_path: Path) -> None:
    clock = Clock()
    settings = load_settings(
        None, {"data": tmp_path, "server": {"port": 0}, "llm": {"backend": "transformers"}, "chat": {"reader": "none"}}
    )
    with (
        Runtime(settings) as runtime,
        running(runtime, clock) as (server, url),
        OpenAI(base_url=f"{url}/v1", api_key="none", timeout=240) as client,
    ):
        assert server.services.warm.wait(240)
        text_of_day_one = "My sister Ines lives in Porto and builds boats."
        client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": text_of_day_one}], max_tokens=12
        )
        ended_ids = client.post("/sessions/end", cast_to=httpx.Response, body={}).json()["ended"]
        assert len(ended_ids) == 1
        assert runtime.remember_all("me") in (0, 1)
        clock.advance(days=1)
        stream = client.chat.completions.create(
            model=MODEL,
            messages=[{"role": "user", "content": "Where does my sister live?"}],
            max_tokens=40,
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text.strip()
        assert chunks[-1].usage is not None
        assert chunks[-1].usage.prompt_tokens > 20
        extra = chunks[-2].model_extra
        assert extra is not None
        assert "Porto" in extra["localmem"]["recalled"][0]["text"]
        assert 0 < extra["localmem"]["recalled"][0]["score"] <= 1
        embeddings = client.embeddings.create(model="minilm-l6-v2", input=["a boat", "a ship"])
        assert embeddings.usage.prompt_tokens == 8
        first, second = (item.embedding for item in embeddings.data)
        assert 0.5 < sum(a * b for a, b in zip(first, second, strict=True)) < 1
