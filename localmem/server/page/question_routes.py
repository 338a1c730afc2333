"""The pages that look behind a recall: why a question finds what it finds, and the links of a memory."""

from typing import Annotated

from fastapi import Query
from fastapi.responses import Response

from localmem.server.dependencies import LocalTime, SharedServices
from localmem.server.page.link_graph import draw_timeline, group_links
from localmem.server.page.question_views import explain
from localmem.server.page.rendering import new_router, render
from localmem.server.page.visitors import CurrentVisitor

_GROUPS = 12  # on one page

router = new_router()


@router.get("/why")
def show_why(services: SharedServices, visitor: CurrentVisitor, now: LocalTime, q: str = "") -> Response:
    """What a question would recall, and how."""
    with services.sessions.current_agent(visitor.user) as agent:
        pass  # the agent with the memory of now; it is read without holding up the user's messages
    explanation = explain(agent, q.strip(), now) if q.strip() else None
    return render("why.html", visitor, explanation=explanation, question=q, system=services.settings.system)


@router.get("/links")
def show_links(services: SharedServices, visitor: CurrentVisitor, page: Annotated[int, Query(ge=1)] = 1) -> Response:
    """The groups of linked memories as timelines, the one changed last first."""
    with services.sessions.current_agent(visitor.user) as agent:
        bank = agent.memory.bank
    groups, start = group_links(bank), (page - 1) * _GROUPS
    timelines = [draw_timeline(units, links, bank) for units, links in groups[start : start + _GROUPS]]
    more = f"/links?page={page + 1}" if len(groups) > start + _GROUPS else ""
    return render(
        "links.html",
        visitor,
        timelines=timelines,
        count=len(groups),
        more=more,
        system=services.settings.system,
    )
