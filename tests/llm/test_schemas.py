"""Schemas of answers say exactly what may come."""

from localmem.llm.structured_output import answer_format, array, boolean, integer, record, string


def test_an_answer_is_an_object_with_all_its_fields_and_no_other() -> None:
    form = answer_format(names=array(string(9), 2), line=integer(1, 4), sure=boolean(), note=string(5, empty=True))
    assert form.schema == {
        "type": "object",
        "properties": {
            "names": {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 9}, "maxItems": 2},
            "line": {"type": "integer", "minimum": 1, "maximum": 4},
            "sure": {"type": "boolean"},
            "note": {"type": "string", "minLength": 0, "maxLength": 5},
        },
        "required": ["names", "line", "sure", "note"],
        "additionalProperties": False,
    }


def test_records_nest() -> None:
    inner = record(line=integer(1, 2))
    assert array(inner, 3)["items"] == inner
