"""What lies behind a recall, and the links of a memory."""

from datetime import timedelta
from itertools import pairwise

from localmem.bank import Bank
from localmem.server.page.link_graph import draw_timeline, group_links
from localmem.types import AddLink, AddUnit, Change, Link
from tests.fakes import START, session, unit
from tests.server.conftest import LiveServer
from tests.server.page.conftest import Visit


def test_a_question_is_explained_from_the_search_to_the_prompt(live: LiveServer, visit: Visit) -> None:
    live.runtime.agent("me").writer.read([session("My sister Clara lives in Lyon.", "Noted.")])
    page = visit.get("/why?q=Where+does+my+sister+Clara+live%3F")
    for part in ("Vectors of sentences", "Words (BM25)", "Probability that this needs memory", "Lyon", "The prompt"):
        assert part in page
    assert live.log() == [["My sister Clara lives in Lyon.", ">Noted."]]


def test_an_empty_memory_has_nothing_to_rank(visit: Visit) -> None:
    assert "Nothing was found to rank." in visit.get("/why?q=Where+do+I+live%3F")


def test_what_the_floor_hid_is_said(live: LiveServer, visit: Visit) -> None:
    live.runtime.agent("me").writer.read([session("My sister Clara lives in Lyon.", "Noted.")])
    page = visit.get("/why?q=Write+a+poem+about+the+sea.")
    assert "below the floor" in page
    assert "Lyon" in page


def test_linked_memories_are_grouped_and_drawn_in_order_of_time(live: LiveServer, visit: Visit) -> None:
    units = [unit(name, time=START + timedelta(days=day)) for name, day in (("c", 2), ("a", 0), ("b", 1), ("x", 9))]
    links = [Link("a", "b", "cause", 0.8), Link("b", "c", "change")]
    changes: list[Change] = [*(AddUnit(each, START) for each in units), *(AddLink(link, START) for link in links)]
    bank = Bank().apply(changes)
    ((members, edges),) = group_links(bank)
    assert [member.id for member in members] == ["a", "b", "c"]
    timeline = draw_timeline(members, edges, bank)
    assert [node.y for node in timeline.nodes] == sorted(node.y for node in timeline.nodes)
    assert [arc.label for arc in timeline.arcs] == ["cause 0.80", "change"]
    crossing = draw_timeline(members, [Link("a", "b", "change"), Link("a", "c", "change"), Link("b", "a", "x")], bank)
    heights = sorted(arc.y for arc in crossing.arcs)
    assert all(upper + 15 <= lower for upper, lower in pairwise(heights))
    many = draw_timeline(members, [Link("a", "b", f"change:{number}") for number in range(40)], bank)
    assert all(arc.y + 15 <= many.height for arc in many.arcs)
    live.runtime.agent("me").writer.commit("test", changes)
    page = visit.get("/links")
    assert "cause 0.80" in page
    assert 'href="/memory/a"' in page
