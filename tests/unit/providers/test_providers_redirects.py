"""A redirect is not followed; its sentence says where it led, without secrets, and what to set."""

from __future__ import annotations

import pytest

from tests.unit.providers.byte_peer import BytePeer, http, run


def redirected(location: str | None, status: str = "307 Moved") -> tuple[str, BytePeer]:
    extra = "" if location is None else f"location: {location}\r\n"
    error, peer, _ = run([[http(b"", status=status, extra=extra)]])
    assert (error.code, error.exit_code, error.is_retried) == ("LLM_BAD_RESPONSE", 3, False)
    assert len(peer.requests) == 1
    return error.message, peer


@pytest.mark.parametrize(
    ("location", "place", "base"),
    [
        ("https://a.example:8443/v2/chat/completions", None, "https://a.example:8443/v2"),
        ("https://a.example/v1/chat/completions/", None, "https://a.example/v1"),
        ("//a.example:81/v1/chat/completions", "http://a.example:81/v1/chat/completions", "http://a.example:81/v1"),
        ("/v2/chat/completions", "http://HERE/v2/chat/completions", "http://HERE/v2"),
        ("../../v2/chat/completions", "http://HERE/v2/chat/completions", "http://HERE/v2"),
        ("http://[::1]:8080/chat/completions", None, "http://[::1]:8080"),
        (
            "https://user:pw@a.example/v1/chat/completions?token=secret#secret",
            "https://a.example/v1/chat/completions",
            "https://a.example/v1",
        ),
    ],
)  # fmt: skip
def test_an_address_that_moved_is_said_with_the_line_to_set(
    location: str, place: str | None, base: str
) -> None:
    message, peer = redirected(location)
    here = f"127.0.0.1:{peer.port}"
    place = (place or location).replace("HERE", here)
    assert f"answered 307, a redirect to {place}, which is not followed" in message
    assert message.endswith(f"set base_url of the provider 'acme' to {base.replace('HERE', here)}")
    assert "secret" not in message
    assert "pw" not in message


@pytest.mark.parametrize(
    ("location", "place"),
    [
        ("/login?next=secret", "http://HERE/login"),
        ("https://a.example", "https://a.example/"),
        ("/v1/chat/completions/", "http://HERE/v1/chat/completions/"),
        ("?again=secret", "http://HERE/v1/chat/completions"),
        ("/café", "http://HERE/caf%C3%A9"),
    ],
)
def test_an_address_of_something_else_is_said_without_a_line_to_set(location: str, place: str) -> None:
    message, peer = redirected(location)
    assert place.replace("HERE", f"127.0.0.1:{peer.port}") + ", which is not followed" in message
    assert message.endswith("; is the base URL right?")
    assert "secret" not in message


@pytest.mark.parametrize("location", ["http://[bad", "mailto:a@b", "http://h:99999/x", "ftp://h/x"])
def test_an_address_that_is_none_is_said_to_be_none(location: str) -> None:
    message, _ = redirected(location)
    assert "a redirect to an address that is none for http" in message


@pytest.mark.parametrize("status", [300, 301, 302, 303, 304, 305, 306, 307, 308])
@pytest.mark.parametrize("location", [None, ""])
def test_every_status_of_its_class_is_one_even_without_an_address(status: int, location: str | None) -> None:
    message, _ = redirected(location, f"{status} Elsewhere")
    assert message == (
        f"the provider answered {status} without an address to go on to; is the base URL right?"
    )
