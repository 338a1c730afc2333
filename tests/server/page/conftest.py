"""A person at the page, as plain HTTP: reads forms' tokens and sends them back."""

import re
from dataclasses import dataclass
from html import unescape

import httpx
import pytest

from tests.server.conftest import LiveServer


@dataclass
class Visit:
    """A browser without scripts."""

    http: httpx.Client

    def get(self, address: str) -> str:
        response = self.http.get(address, follow_redirects=True)
        assert response.status_code == 200, response.text
        return unescape(response.text)

    def token(self, address: str = "/login") -> str:
        match = re.search(r'name="token" value="(\w+)"', self.http.get(address, follow_redirects=True).text)
        assert match
        return match[1]

    def send(self, address: str, **fields: str) -> httpx.Response:
        """Sends a form, and follows to the page after it."""
        data = {"token": self.token(), **fields}
        return self.http.post(address, data=data, follow_redirects=True)

    def add(self, text: str) -> str:
        """Writes a memory by hand and returns its id."""
        response = self.send("/memory", text=text)
        assert response.status_code == 200, response.text
        return response.url.path.removeprefix("/memory/")


@pytest.fixture
def visit(live: LiveServer) -> Visit:
    return Visit(live.http())
