"""What single values of the configuration must be.

Each function takes what tomllib read and returns our own form of it, or raises
WrongValueError with the rest of a sentence that begins with the key.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from mcode_exec.config.authority import WrongAuthorityError, host_and_port
from mcode_exec.durations import parse_duration
from mcode_exec.errors import ConfigError

#: docs/contract.md §7; further names are patterns
PERMISSIONS = (
    "read",
    "edit",
    "glob",
    "grep",
    "list",
    "bash",
    "external_directory",
    "doom_loop",
)
VERDICTS = ("allow", "ask", "deny")
APIS = ("anthropic-messages", "openai-completions", "openai-responses", "local", "replay")

#: no price and no token count of this world is larger; keeps arithmetic exact
_MAX_AMOUNT = 10**12

_BARE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


class WrongValueError(Exception):
    """A value that cannot stay: the end of a sentence; `below` leads from the checked key to the faulty one."""

    def __init__(self, sentence: str, below: tuple[str, ...] = ()) -> None:
        super().__init__(sentence)
        self.below = below

    def __str__(self) -> str:
        text = str(self.args[0])
        return text if text.endswith("?") else f"{text}."


def kind(value: object) -> str:
    """What a person calls the type of `value`."""
    names = {
        bool: "a boolean",
        str: "a string",
        int: "a number",
        Decimal: "a number",
        list: "a list",
        dict: "a table",
        type(None): "null",
    }
    return names.get(type(value), "a date or time")


def is_bare(key: str) -> bool:
    return bool(key) and _BARE.issuperset(key)


def text(value: object) -> str:
    if not isinstance(value, str):
        raise WrongValueError(f"must be a string, not {kind(value)}")
    if not value.strip():
        raise WrongValueError("must not be empty")
    if "\0" in value:
        raise WrongValueError("must not contain a NUL character")
    return value


def texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise WrongValueError(f'must be a list of strings, such as ["a", "b"], not {kind(value)}')
    for item in value:
        if not isinstance(item, str) or not item.strip() or "\0" in item:
            raise WrongValueError("must be a list of strings that are not empty")
    return tuple(value)


def names(value: object) -> tuple[str, ...]:
    return texts(value)


def argv(value: object) -> tuple[str, ...]:
    items = texts(value)
    if not items:
        raise WrongValueError('must name a program, such as ["pass", "show", "acme"]')
    return items


def name(value: object) -> str:
    """A name that may stand in front of `/` and in a dotted key."""
    if not isinstance(value, str) or not value or not _BARE.union(".").issuperset(value):
        raise WrongValueError("must be made of letters, digits, '-', '_' and '.'")
    return value


def variable_names(value: object) -> tuple[str, ...]:
    items = texts(value)
    for item in items:
        if not is_variable_name(item):
            raise WrongValueError(f"has {item!r}, which is no name of an environment variable")
    return items


def is_variable_name(value: str) -> bool:
    return bool(value) and value.isascii() and value.replace("_", "a").isalnum() and not value[0].isdigit()


def one_of(*allowed: str) -> Callable[[object], str]:
    def check(value: object) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise WrongValueError(f"must be one of {', '.join(allowed)}, not {_shown(value)}")
        return value

    return check


def api(value: object) -> str:
    return one_of(*APIS)(value)


def model(value: object) -> str:
    provider, _, rest = text(value).partition("/")
    if not provider or not rest or rest.startswith("#"):
        raise WrongValueError(f'must be "provider/model" or "provider/model#variant", not {_shown(value)}')
    return text(value)


def base_url(value: object) -> str:
    url = _http_address(value, "https://llm.example/v1")
    rest = url.partition("://")[2]
    if "@" in rest.partition("/")[0]:
        raise WrongValueError('holds a user name or password; send them as a header instead ("headers")')
    _check_ascii_host(rest)
    if not url.isascii() or not url.isprintable() or " " in url or "?" in rest or "#" in rest:
        raise WrongValueError(
            'must be a plain URL: no blanks, no "?" and no "#" (query parameters go to "query")'
        )
    return url


def catalogue_url(value: object) -> str:
    url = _http_address(value, "https://models.dev/api.json")
    _check_ascii_host(url.partition("://")[2])
    if not url.isascii() or not url.isprintable() or " " in url or "#" in url or "@" in url:
        raise WrongValueError('must be a plain URL: no blanks, no user name or password, and no "#"')
    return url


def _http_address(value: object, example: str) -> str:
    url = text(value)
    scheme, separator, rest = url.partition("://")
    scheme = scheme.lower()  # source: RFC 3986 §3.1
    if scheme not in ("http", "https") or not separator or not rest.split("/")[0]:
        shown = "" if "@" in url else f", not {_shown(value)}"  # a name and password may stand before an @
        raise WrongValueError(f"must be a URL such as {example}{shown}")
    authority = rest.partition("/")[0].partition("?")[0].rpartition("@")[2]
    try:
        host, _ = host_and_port(authority)
    except WrongAuthorityError as wrong:
        raise WrongValueError(str(wrong)) from None
    if not host:
        raise WrongValueError(
            f"must be a URL with a host, such as {example}; an IPv6 address stands in brackets: http://[::1]:8080"
        )
    return f"{scheme}://{rest}"


def _check_ascii_host(rest: str) -> None:
    """Refuse a host in other letters with its form in DNS; `rest` stands behind the scheme."""
    host = rest.partition("/")[0]
    if host.isascii() or not host.isprintable():
        return
    try:
        meant = f" (such as {host.encode('idna').decode()})"
    except UnicodeError:
        meant = ""
    raise WrongValueError(
        f"names its host in letters that DNS does not have; write it in its xn-- form{meant}"
    )


def key_reference(value: object) -> str:
    """The variable's name out of `${NAME}`."""
    reference = text(value)
    variable = reference[2:-1]
    if reference.startswith("${") and reference.endswith("}") and is_variable_name(variable):
        return variable
    # the value may be a key: it is not shown
    raise WrongValueError(
        'must be "${NAME}" and nothing else: a key is not written into the file but into a variable '
        "(or use api_key_file or api_key_command)"
    )


_HEADERS_OF_THE_TRANSPORT = frozenset(
    (
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "accept-encoding",
        "te",
        "trailer",
        "upgrade",
    )
)


def header_name(value: object) -> str:
    header = text(value)
    if not _BARE.union("!#$%&'*+.^`|~").issuperset(header):
        raise WrongValueError("is no name of an HTTP header")
    if header.lower() in _HEADERS_OF_THE_TRANSPORT:
        raise WrongValueError("is a header that mcode sets itself: it says how the request is sent")
    return header


def header(value: object) -> str:
    if not isinstance(value, str):
        raise WrongValueError(f"must be a string, not {kind(value)}")
    if not value.isascii() or not value.isprintable():
        raise WrongValueError("must be printable ASCII")
    return _literal(value)


def query_value(value: object) -> str:
    return _literal(text(value))


def _literal(value: str) -> str:
    if "${" in value:
        raise WrongValueError('is sent as it stands; "${NAME}" is read in api_key only')
    return value


def boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise WrongValueError(f"must be true or false, not {_shown(value)}")
    return value


def count(value: object) -> int:
    return _integer(value, least=0)


def positive_integer(value: object) -> int:
    return _integer(value, least=1)


def _integer(value: object, *, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MAX_AMOUNT:
        raise WrongValueError(f"must be a whole number from {least} up, not {_shown(value)}")
    return value


def price(value: object) -> Decimal:
    return _amount(value, "USD per million tokens", allow_zero=True)


def positive_amount(value: object) -> Decimal:
    return _amount(value, "USD", allow_zero=False)


def _amount(value: object, unit: str, *, allow_zero: bool) -> Decimal:
    least = "from 0 up" if allow_zero else "above 0"
    amount = Decimal(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if (
        isinstance(amount, Decimal)
        and amount.is_finite()
        and 0 <= amount <= _MAX_AMOUNT
        and (amount or allow_zero)
    ):
        return amount
    raise WrongValueError(f"must be a number {least} ({unit}), not {_shown(value)}")


def duration(value: object) -> float:
    if not isinstance(value, str):
        shown = f'"{value}s"' if isinstance(value, int) and 0 <= value < _MAX_AMOUNT else '"30s"'
        raise WrongValueError(f"must be a duration in quotes, such as {shown}, not {kind(value)}")
    try:
        return parse_duration(value, name="it")
    except ConfigError as error:
        raise WrongValueError(f"is no duration: {error.message.removeprefix('it: ').rstrip('.')}") from None


def positive_duration(value: object) -> float:
    seconds = duration(value)
    if seconds <= 0:
        raise WrongValueError("must be longer than nothing")
    return seconds


def rule_table(value: object) -> dict[str, Any]:
    """A permission table in file order; only its form is judged here."""
    if not isinstance(value, dict):
        raise WrongValueError(f'must be a table, such as {{ edit = "deny" }}, not {kind(value)}')
    for permission, rules in value.items():
        _permission_name(permission)
        if not isinstance(rules, dict):
            _verdict(rules, (permission,))
            continue
        for pattern, verdict in rules.items():
            if not pattern:
                raise WrongValueError('must be a pattern, such as "*.lock"', (permission, pattern))
            _verdict(verdict, (permission, pattern))
    return value


def _permission_name(permission: str) -> None:
    if permission in PERMISSIONS or "*" in permission or "?" in permission:
        return
    import difflib

    nearest = difflib.get_close_matches(permission, PERMISSIONS, n=1, cutoff=0.5)
    hint = f'did you mean "{nearest[0]}"?' if nearest else f"there are {', '.join(PERMISSIONS)}"
    raise WrongValueError(f"is no permission; {hint}", (permission,))


def _verdict(value: object, below: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in VERDICTS:
        raise WrongValueError(f'must be "allow", "ask" or "deny", not {_shown(value)}', below)


def _shown(value: object) -> str:
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else value[:60] + "…")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal) and not value.is_finite():
        return str(value)
    if isinstance(value, int | Decimal):
        return str(value) if -_MAX_AMOUNT < value < _MAX_AMOUNT else "a number of that size"
    return kind(value)
