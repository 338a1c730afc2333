"""Log-in with a key, and log-out."""

import asyncio

from fastapi import Request
from fastapi.responses import Response

from localmem.server.errors import ApiError
from localmem.server.page.rendering import new_router, redirect, render, set_cookie
from localmem.server.page.visitors import COOKIE, Form, visitors_of

_PAUSE = 0.5  # seconds after a wrong key: guessing takes longer

router = new_router()


@router.get("/login")
def show_login(request: Request) -> Response:
    """The form that asks for the key, where there are keys."""
    if not visitors_of(request).has_keys:
        return redirect("/")
    return render("login.html", None, token=visitors_of(request).form_token(request), problem="")


@router.post("/login")
async def log_in(request: Request, form: Form) -> Response:
    """Set the cookie for the key's user, or ask again."""
    visitors = visitors_of(request)
    try:
        cookie = visitors.log_in(form.get("key", ""))
    except ApiError as error:
        await asyncio.sleep(_PAUSE)
        token = visitors.form_token(request)
        return render("login.html", None, status=401, token=token, problem=error.message)
    response = redirect("/")
    set_cookie(request, response, cookie)
    return response


@router.post("/logout")
def log_out(request: Request, form: Form) -> Response:  # noqa: ARG001  # the form's token is checked
    """Drop the cookie."""
    visitors_of(request).log_out(request)
    response = redirect("/login")
    response.delete_cookie(COOKIE)
    return response
