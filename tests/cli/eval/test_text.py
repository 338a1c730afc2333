"""`localmem eval text` from outside: over replies that a data set ships, over one's own, and what it refuses."""

import json
from pathlib import Path

import pytest
import sacrebleu
from rouge_score.rouge_scorer import RougeScorer

from tests.cli.conftest import Run

SAID = [
    "How are the bees?",
    "They made a lot of honey this year.",
    "I would love to try some.",
    "You shall have a jar.",
]
REPLIES = ["They made honey this year.", "I love honey.", "You can have a jar.", "Thanks!"]


def _msc_cc(folder: Path) -> Path:
    episode = {
        "episode": "e0",
        "memories": {"s1-m1": "Speaker A keeps bees."},
        "session5_context": [f"Speaker {'BA'[number % 2]}: {text}" for number, text in enumerate(SAID)],
        "generated_turns": [
            {"utter_id": f"t{number}", "n_context": number, "retrieved_memory": [], "response": text}
            for number, text in enumerate(REPLIES, start=1)
        ],
    }
    path = folder / "msc_cc.json"
    path.write_text(json.dumps([episode]), encoding="utf-8")
    return path


def test_shipped_replies_score_as_the_libraries_say(localmem: Run, tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    outcome = localmem("eval", "text", "--dataset", f"msc_cc={_msc_cc(tmp_path)}", "--out", out, "--json")
    assert outcome.returncode == 0, outcome.stderr
    report = json.loads(outcome.stdout)
    texts, golds = REPLIES[:3], SAID[1:]  # nothing follows the last turn
    assert report["replies"] == 3
    for order in (1, 2, 4):
        direct = sacrebleu.BLEU(max_ngram_order=order).corpus_score(texts, [golds]).score
        assert report["measures"][f"BLEU-{order}"] == direct
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"])
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["id"] for row in rows] == ["t1", "t2", "t3"]
    for kind, name in (("rouge1", "ROUGE-1"), ("rouge2", "ROUGE-2"), ("rougeL", "ROUGE-L")):
        scores = [scorer.score(gold, text)[kind].fmeasure for text, gold in zip(texts, golds, strict=True)]
        assert [row[name] for row in rows] == scores
        assert report["measures"][name] == pytest.approx(sum(scores) / 3)
    # they made honey this year / they made lot of honey this year: 2 * 5 / (5 + 7)
    assert rows[0]["F1"] == pytest.approx(10 / 12)
    # they made honey this year, i love honey, you can have jar: 12 words, and honey comes twice
    assert report["measures"]["Distinct-1"] == pytest.approx(11 / 12)


@pytest.mark.slow
def test_ones_own_replies_with_models(localmem: Run, tmp_path: Path, starter_llm_dir: Path) -> None:
    lines = [
        {
            "prediction": f"It is number {number}.",
            "references": [f"This is number {number}.", "nothing"],
            "prompt": [{"role": "user", "content": f"What comes after {number - 1}?"}],
        }
        for number in range(1, 21)
    ]
    path = tmp_path / "replies.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    names = ["--metric", "bertscore", "--metric", "mauve", "--metric", "perplexity"]
    outcome = localmem("eval", "text", "--predictions", path, *names, "--set", "device=cpu", "--json")
    assert outcome.returncode == 0, outcome.stderr
    report = json.loads(outcome.stdout)
    assert (report["encoder"], report["model"]) == ("minilm-l6-v2, layer 6", "smollm2-135m-instruct")
    assert 0.7 < report["measures"]["BERTScore"] < 1
    assert 0 < report["measures"]["MAUVE"] <= 1
    assert report["measures"]["perplexity"] > 1


def test_a_table_for_people(localmem: Run, tmp_path: Path) -> None:
    path = tmp_path / "replies.jsonl"
    path.write_text(json.dumps({"prediction": "a red kite", "reference": "a red kite"}), encoding="utf-8")
    outcome = localmem("eval", "text", "--predictions", path, "--metric", "rouge")
    assert outcome.stdout.splitlines()[0] == "1 replies"
    assert "ROUGE-L" in outcome.stdout
    assert "1.0000" in outcome.stdout


@pytest.mark.parametrize(
    "line, arguments, code, message",
    [
        ({"prediction": "x"}, [], 2, "line 1: there is no reference"),
        ({"reference": "x"}, [], 2, "line 1: prediction: Field required"),
        (None, [], 2, "; give JSON lines with `prediction` and `reference`"),
        ({"prediction": "x", "reference": "y"}, ["--metric", "perplexity"], 2, "reply 1 has no prompt"),
        ({"prediction": "x", "reference": "y"}, ["--dataset", "msc_cc=x.json"], 2, "give either --predictions FILE or"),
    ],
)
def test_what_cannot_be_scored_is_one_line(
    line: object, arguments: list[str], code: int, message: str, localmem: Run, tmp_path: Path
) -> None:
    path = tmp_path / "replies.jsonl"
    if line is not None:
        path.write_text(json.dumps(line), encoding="utf-8")
    outcome = localmem("eval", "text", "--predictions", path, *arguments)
    assert outcome.returncode == code
    assert message in outcome.stderr
    assert "Traceback" not in outcome.stderr
