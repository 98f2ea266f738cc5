"""A web page of another site neither asks nor reads; programs on this machine and named pages do."""

import pytest

from omlx.config.settings import ServerSettings
from omlx.server.neighbours import is_known_page, is_own_name

CHAT = "/v1/chat/completions"
BODY = b'{"messages": [{"role": "user", "content": "hi"}]}'

OWN = [
    "127.0.0.1:8321",
    "localhost",
    "LOCALHOST:1",
    "[::1]:8321",
    "omlx.localhost:80",
    "127.9.9.9",
    "localhost.",
]
FOREIGN = [
    "evil.example",
    "evil.example:8321",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "192.168.1.5",
    "[",
]


@pytest.mark.parametrize("host", OWN)
def test_names_of_this_machine(host):
    """Names and addresses of loopback are the server's own, whatever their case and port."""
    assert is_own_name(host, ServerSettings())


@pytest.mark.parametrize("host", FOREIGN)
def test_other_names(host):
    """Any other name is not, nor an address on which the server does not listen."""
    assert not is_own_name(host, ServerSettings())


def test_names_in_the_settings():
    """Names in the settings, the host that is listened on, and any address in digits where all are listened on."""
    settings = ServerSettings(host="box.local", allowed_hosts=("Mac.lan",))
    assert [True, True, False] == [
        is_own_name(name, settings) for name in ("mac.lan:1", "box.local", "a.lan")
    ]
    everywhere = ServerSettings(host="0.0.0.0")
    assert [True, True, False] == [
        is_own_name(name, everywhere) for name in ("10.0.0.7:1", "[fd00::1]", "a.lan")
    ]
    assert is_own_name("a.lan", ServerSettings(allowed_hosts=("*",)))
    assert is_own_name("host.docker.internal:8321", ServerSettings())


def test_pages():
    """The server's own page and those in the settings are known; others are not, a null origin neither."""
    host, settings = "localhost:8321", ServerSettings(allowed_origins=("http://localhost:3000/",))
    known = ["http://localhost:8321", "http://localhost:3000"]
    foreign = ["null", "https://evil.example", "http://localhost:3001", "http://localhost"]
    assert all(is_known_page(origin, host, settings) for origin in known)
    assert not any(is_known_page(origin, host, settings) for origin in foreign)
    assert is_known_page("null", host, ServerSettings(allowed_origins=("*",)))


@pytest.mark.parametrize("path", [CHAT, "/v1/models", "/health", "/", "/v1/trace"])
def test_a_rebound_name_is_refused_everywhere(served, path):
    """A request for a foreign name is a 403 that names the setting, on every path, and reaches no model."""
    method = "POST" if path == CHAT else "GET"
    headers = {"host": "evil.example:8321", "x-forwarded-host": "localhost", "x-forwarded-for": "127.0.0.1"}
    response = served.http.request(method, path, content=BODY, headers=headers)
    error = response.json()["error"]
    assert (403, "host_not_allowed", "permission_error") == (
        response.status_code,
        error["code"],
        error["type"],
    )
    assert "evil.example:8321" in error["message"]
    assert "allowed_hosts under [server]" in error["message"]
    assert [] == served.backend.tickets


def test_a_page_of_another_site_cannot_post(served):
    """A page's post that needs no leave of the server beforehand is a 403 and reaches no model."""
    headers = {"origin": "https://evil.example", "content-type": "text/plain"}
    response = served.http.post(CHAT, content=BODY, headers=headers)
    assert (403, "origin_not_allowed") == (response.status_code, response.json()["error"]["code"])
    assert "access-control-allow-origin" not in response.headers
    assert [] == served.backend.tickets


def test_programs_and_own_pages_may_ask(served):
    """A client without an origin is answered, and so is a page of the server itself."""
    assert 200 == served.http.post(CHAT, content=BODY).status_code
    own = {"origin": f"http://{served.http.base_url.netloc.decode()}"}
    assert 200 == served.http.post(CHAT, content=BODY, headers=own).status_code


def test_a_named_page_may_ask_and_read(serve):
    """A page in the settings is let in beforehand, is answered, and may read; others still are not."""
    served = serve(allowed_origins=("http://localhost:3000",))
    page = {"origin": "http://localhost:3000"}
    asks = {**page, "access-control-request-method": "POST", "access-control-request-headers": "content-type"}
    before = served.http.options(CHAT, headers=asks)
    after = served.http.post(CHAT, content=BODY, headers=page)
    assert [204, 200] == [before.status_code, after.status_code]
    assert ["http://localhost:3000"] * 2 == [
        response.headers["access-control-allow-origin"] for response in (before, after)
    ]
    assert 403 == served.http.post(CHAT, content=BODY, headers={"origin": "http://a.example"}).status_code
