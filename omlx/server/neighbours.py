"""Who may ask: programs on this machine, and web pages only where the settings name them.

A server on the loopback address is within reach of every web page that the person opens, for the browser runs on the
same machine. Two headers, which a page cannot set, tell such requests apart:

    Origin   the page a request comes from. Programs send none. A page may post to any address without asking first,
             as long as the body claims to be plain text, so a server that reads any body has to look.
    Host     the name the request was sent to. A page's own name can be made to lead to 127.0.0.1 once the page is
             loaded (DNS rebinding); the browser then takes both for one site, and the page may read every answer.

An address in digits cannot be rebound, but only a server that listens on every address answers to all of them.
"""

import ipaddress
from typing import Any
from urllib.parse import urlsplit

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.types import Guard

from omlx.config.settings import ServerSettings
from omlx.errors import ForbiddenError

_EVERYWHERE = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared, not bound


def neighbour_guard(settings: ServerSettings) -> Guard:
    """Return a guard that refuses requests for foreign names and from foreign pages."""

    def guard(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        host, origin = connection.headers.get("host", ""), connection.headers.get("origin")
        if not is_own_name(host, settings):
            raise ForbiddenError(
                f"this server does not answer to the name {host!r}",
                code="host_not_allowed",
                hint="add the name to allowed_hosts under [server], or use the server's address",
            )
        if origin is not None and not is_known_page(origin, host, settings):
            raise ForbiddenError(
                f"pages of {origin!r} may not ask this server",
                code="origin_not_allowed",
                hint="add it to allowed_origins under [server]",
            )

    return guard


def is_own_name(host: str, settings: ServerSettings) -> bool:
    """Tell whether a Host header names this server. Browsers always send one; without it, nobody is misled."""
    if not host or "*" in settings.allowed_hosts:
        return True
    name = _name(host)
    own = {settings.host.lower(), *(known.lower() for known in settings.allowed_hosts)}
    return name in own or _is_loopback(name) or (settings.host in _EVERYWHERE and _address(name) is not None)


def is_known_page(origin: str, host: str, settings: ServerSettings) -> bool:
    """Tell whether an Origin header is one of the settings', or the server's own address."""
    known = {each.lower().rstrip("/") for each in settings.allowed_origins}
    asked = origin.lower()
    return "*" in known or asked in known or (bool(host) and asked in {f"http://{host}", f"https://{host}"})


def _name(host: str) -> str:
    """Return the name in a Host header, without port, brackets and the dot that ends a full name."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_loopback(name: str) -> bool:
    address = _address(name)
    if address is not None:
        return address.is_loopback
    return name == "localhost" or name.endswith(".localhost")


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
