"""Log-in with a key: who sees what, the cookie, and the forms' token."""

import pytest
from fastapi import Request

from localmem.server.page.visitors import COOKIE, LoginRequired, Visitors
from tests.server.conftest import LiveServer
from tests.server.page.conftest import Visit


def test_each_key_opens_its_own_users_memory(live_with_keys: LiveServer) -> None:
    ann, ben = Visit(live_with_keys.http()), Visit(live_with_keys.http())
    assert ann.http.get("/memory").headers["location"] == "/login"
    for visit, key in ((ann, "key-of-ann-1"), (ben, "key-of-ben-1")):
        assert visit.send("/login", key=key).status_code == 200
    name = ann.add("I have a boat.")
    assert "boat" in ann.get("/memory")
    assert "boat" not in ben.get("/memory")
    assert ben.http.get(f"/memory/{name}").status_code == 404
    assert ben.send(f"/memory/{name}/erase").status_code == 404
    ann.send("/logout")
    assert ann.http.get("/memory").status_code == 303


def test_a_wrong_key_is_refused(live_with_keys: LiveServer) -> None:
    visit = Visit(live_with_keys.http())
    response = visit.send("/login", key="key-of-nobody")
    assert response.status_code == 401
    assert "unknown, expired or revoked API key" in response.text
    assert visit.http.get("/").status_code == 303
    token = visit.token()
    del visit.http.cookies["localmem-page"]
    assert visit.http.post("/login", data={"token": token, "key": "key-of-ann-1"}).status_code == 403


def test_no_script_and_no_other_site_gets_the_cookie(live_with_keys: LiveServer) -> None:
    visit = Visit(live_with_keys.http())
    response = visit.http.post("/login", data={"token": visit.token(), "key": "key-of-ann-1"})
    cookie = response.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie


def test_a_log_in_is_valid_in_every_process_of_its_start_and_in_no_other(live_with_keys: LiveServer) -> None:
    def request(cookie: str) -> Request:
        headers = [(b"cookie", f"{COOKIE}={cookie}".encode())]
        return Request({"type": "http", "method": "GET", "path": "/", "headers": headers, "state": {}})

    auth = live_with_keys.services.auth
    first, second, later = Visitors(auth, "token"), Visitors(auth, "token"), Visitors(auth, "another")
    cookie = first.log_in("key-of-ann-1")
    assert second.find(request(cookie)).user == "ann"
    second.check_token(request(cookie), first.form_token(request(cookie)))
    login = cookie.rpartition(".")[0]
    forged = f"{login}.{first.form_token(request(login))}"
    for visitors, text in ((later, cookie), (first, forged), (first, login), (first, f"{cookie}0"), (first, "")):
        with pytest.raises(LoginRequired):
            visitors.find(request(text))
    first.log_out(request(cookie))
    with pytest.raises(LoginRequired):
        first.find(request(cookie))


def test_without_keys_nobody_is_asked_for_one(live: LiveServer) -> None:
    assert live.http().get("/login").headers["location"] == "/"


def test_without_keys_only_this_machine_is_served(live: LiveServer) -> None:
    assert live.http().get("/memory", headers={"host": "rebound.example"}).status_code == 403
    assert live.http().get("/memory").status_code == 200
