"""Data sets of a few lines, in the published formats."""

import json
from pathlib import Path
from typing import Any

Records = list[dict[str, Any]]

LOCOMO: Records = [
    {
        "sample_id": "conv-1",
        "conversation": {
            "speaker_a": "Ana",
            "speaker_b": "Ben",
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [
                {"speaker": "Ana", "dia_id": "D1:1", "text": "I adopted a grey parrot called Kiko."},
                {"speaker": "Ben", "dia_id": "D1:2", "text": "Does it talk already?"},
                {"speaker": "Ana", "dia_id": "D1:3", "text": "Look at this.", "blip_caption": "a bowl of soup"},
            ],
            "session_2_date_time": "10:02 am on 25 December, 2023",
            "session_2": [
                {"speaker": "Ben", "dia_id": "D2:1", "text": "I moved to Lisbon for a job in a bakery."},
                {"speaker": "Ana", "dia_id": "D2:2", "text": "Lovely, send me some bread."},
            ],
            "session_3_date_time": "9:00 am on 1 January, 2024",
        },
        "qa": [
            {"question": "What bird does Ana have?", "answer": "a parrot", "evidence": ["D1:1"], "category": 4},
            {"question": "Which soup and which city?", "answer": 2022, "evidence": ["D1:3; D2:01"], "category": 1},
            {"question": "Did Ana move?", "adversarial_answer": "Lisbon", "evidence": ["D:2:1"], "category": 5},
            {"question": "Who is rich?", "answer": "nobody", "evidence": ["D9:9"], "category": 3},
            {"question": "Who is poor?", "answer": "nobody", "evidence": [], "category": 3},
        ],
    }
]

EVIDENCE: Records = [
    {
        "question_id": question,
        "question_type": "single-session-user",
        "question": f"What did I say about {topic}?",
        "question_date": "2023/05/30 (Tue) 23:40",
        "answer": answer,
        "evidence_sessions": [
            {"date": "2023/05/20 (Sat) 02:21", "turns": [{"role": "user", "content": f"My {topic} is {answer}."}]}
        ],
    }
    for question, topic, answer in (("q1", "degree", "physics"), ("q2", "car", "red"), ("q3_abs", "boat", "none"))
]

HAYSTACK: Records = [
    {
        "question_id": "h1",
        "question_type": "multi-session",
        "question": "How many plants did I buy?",
        "question_date": "2023/05/30 (Tue) 23:40",
        "answer": 3,
        "answer_session_ids": ["a1"],
        "haystack_dates": ["2023/05/21 (Sun) 10:00", "2023/05/20 (Sat) 02:21"],
        "haystack_session_ids": ["other", "a1"],
        "haystack_sessions": [
            [{"role": "user", "content": "Tell me a joke."}],
            [
                {"role": "user", "content": "I bought three plants.", "has_answer": True},
                {"role": "assistant", "content": "Water them.", "has_answer": False},
            ],
        ],
    }
]


def _mt(name: str, kind: str, *requests: tuple[str, str]) -> dict[str, object]:
    messages: list[dict[str, str]] = []
    for info, text in requests:
        messages += [{"from": "human", "value": text, "turn-info": info}, {"from": "chatbot", "value": ""}]
    return {"id": name, "type": kind, "conversations": messages}


MTBENCHPLUS: Records = [
    _mt(
        "m0",
        "continuation",
        ("stem-1-0", "Explain photosynthesis."),
        ("stem-1-1", "What about a cactus?"),
        ("writing-2-0", "Write a poem."),
        ("stem-1-Q", "Which plant did I ask about?"),
    ),
    _mt(
        "m1",
        "conjunction",
        ("writing-2-0", "Write a poem."),
        ("math-3-0", "Add two and two."),
        ("writing-2-math-3-Q", "Put the sum into the poem."),
    ),
]


def _session(start: str, *texts: str) -> dict[str, object]:
    roles = ("user", "assistant")
    turns = [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]
    return {"started_at": start, "turns": turns}


SCENARIO: dict[str, Any] = {
    "language": "en",
    "sessions": [
        _session("2026-03-01T09:00", "My bicycle is green.", "Noted.", "The shed code is 7316.", "Fine."),
        _session(
            "2026-03-08T09:00", "I painted the bicycle red.", "Lovely.", "My roses have black spots.", "Cut them back."
        ),
    ],
    "probes": [
        {
            "type": "knowledge-update",
            "question": "I painted the bicycle in which colour?",
            "paraphrase": "What hue is the thing that I ride?",
            "answer": "red",
            "reply": "It is red.",
            "must_contain": ["red"],
            "must_not_contain": ["green"],
            "evidence": [[1, 0]],
        },
        {"type": "single-fact", "question": "Was it green?", "must_contain": ["green"], "evidence": [[0, 0]]},
        {"type": "abstention", "question": "Where is my umbrella?", "must_contain": ["never told"]},
        {"type": "forgotten", "question": "The shed code?", "must_not_contain": ["7316"], "evidence": [[0, 2]]},
    ],
    "ordinary": ["What is 12 times 7?"],
}


def write_scenarios(folder: Path, **people: dict[str, Any]) -> Path:
    """A folder of people, by id with "_" for "-"; each is SCENARIO with these fields replaced."""
    target = folder / "scenarios"
    target.mkdir(parents=True)
    for name, changes in people.items():
        text = json.dumps(SCENARIO | changes)
        (target / f"{name.replace('_', '-')}.json").write_text(text, encoding="utf-8")
    return target


def write_records(folder: Path, records: Records, name: str = "data.json", *, lines: bool = False) -> Path:
    """A file of these records, as a JSON list or as JSONL."""
    path = folder / name
    text = "\n".join(map(json.dumps, records)) if lines else json.dumps(records)
    path.write_text(text, encoding="utf-8")
    return path
