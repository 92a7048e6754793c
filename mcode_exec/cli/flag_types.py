"""Values of flags: text, durations, money, counts, labels, session ids.

Each refuses a bad value in one sentence that says what a good one looks like
(exit 2).  Text is UTF-8 whatever the locale; paths stay what the system gave.
click's ParamType takes a type argument only from 8.5 on, so none is given.
"""

from __future__ import annotations

import os
from decimal import Decimal, InvalidOperation
from typing import Any

import click

from mcode_exec.errors import InvocationError


def text_of_argument(value: str, name: str) -> str:
    """An argument's bytes as UTF-8.  Raises: InvocationError with the offset of the first bad byte."""
    raw = os.fsencode(value)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvocationError(
            f"{name} is not valid UTF-8: byte {raw[error.start]:#04x} at offset {error.start}."
            " Other encodings go through --input after conversion."
        ) from None


def _name_of(param: click.Parameter | None) -> str:
    if param is None:
        return "value"
    if isinstance(param, click.Argument):
        return param.human_readable_name
    return max(param.opts, key=len)


class Text(click.ParamType):  # type: ignore[type-arg]
    """Any text that is valid UTF-8."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return text_of_argument(value, _name_of(param))


class Key(Text):
    """What something is known again by: any text but an empty one (an unset variable in a script)."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = super().convert(value, param, ctx)
        if not text.strip():
            raise InvocationError(f"{_name_of(param)} is empty.")
        return text


class Duration(click.ParamType):  # type: ignore[type-arg]
    """A number with its unit, as seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        from mcode_exec.durations import parse_duration

        seconds = parse_duration(value, name=_name_of(param), error=InvocationError)
        if seconds <= 0:
            self.fail("it must be longer than zero.", param, ctx)
        return seconds


def _is_plain(number: str) -> bool:
    """Whether it is written in the digits that people mean: Python's own readers take 1_0, blanks and other scripts."""
    return number.isascii() and "_" not in number and number == number.strip()


class Money(click.ParamType):  # type: ignore[type-arg]
    """US dollars, exact."""

    name = "usd"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Decimal:
        if isinstance(value, Decimal):
            return value
        try:
            amount = Decimal(value if _is_plain(value) else "no number")
        except InvalidOperation:
            self.fail(f"{value!r} is no amount of US dollars such as 0.50.", param, ctx)
        if not amount.is_finite():
            self.fail(f"{value!r} is no amount of US dollars such as 0.50.", param, ctx)
        if amount <= 0:
            self.fail(f"{value!r} is not more than zero.", param, ctx)
        return amount


class Count(click.IntRange):
    """A whole number within bounds."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            int(value if isinstance(value, int) or _is_plain(value) else "no number")
        except ValueError:
            self.fail(f"{value!r} is no whole number.", param, ctx)
        return super().convert(value, param, ctx)


class Label(click.ParamType):  # type: ignore[type-arg]
    """`KEY=VALUE`."""

    name = "key=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, equals, content = text_of_argument(value, _name_of(param)).partition("=")
        if not equals or not key.strip():
            self.fail(f"{value!r} is not KEY=VALUE.", param, ctx)
        from mcode_exec.records.labels import check_label

        check_label(key.strip(), content)
        return key.strip(), content


class SessionId(click.ParamType):  # type: ignore[type-arg]
    """A session id or a prefix of one, ours or that of the program a session was imported from."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from mcode_exec.ids import is_alias, is_session_prefix

        if not is_session_prefix(value) and not is_alias(value):
            self.fail(f"{value!r} is no session id: mvs_ and 8 to 32 hex digits.", param, ctx)
        return str(value)


class ForkSource(click.ParamType):  # type: ignore[type-arg]
    """What a fork begins with: a session, or its part up to a message, or the newest session."""

    name = "id[@msg]|latest"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str | None]:
        if isinstance(value, tuple):
            return value
        from mcode_exec.ids import is_session_prefix
        from mcode_exec.records.invocation import LATEST

        session, at, message = text_of_argument(value, _name_of(param)).partition("@")
        if session == LATEST and not at:
            return session, None
        if not is_session_prefix(session):
            self.fail(
                f"{value!r} is neither a session id (mvs_ and 8 to 32 hex digits) nor latest.", param, ctx
            )
        if at and not message.strip():
            self.fail(f"{value!r} names no message behind the @.", param, ctx)
        return session, message or None


class ItemId(click.ParamType):  # type: ignore[type-arg]
    """The id of a queue item or a prefix of one."""

    name = "item"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from mcode_exec.ids import is_item_prefix

        if not is_item_prefix(value):
            self.fail(f"{value!r} is no queue item: qi_ and 8 to 32 hex digits.", param, ctx)
        return str(value)


class TurnId(click.ParamType):  # type: ignore[type-arg]
    """The id of a turn."""

    name = "turn"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from mcode_exec.ids import is_turn_id

        if not is_turn_id(value):
            self.fail(f"{value!r} is no turn id: turn_ and a UUID.", param, ctx)
        return str(value)


class VariableName(click.ParamType):  # type: ignore[type-arg]
    """The name of an environment variable."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value or "=" in value:
            self.fail(f"{value!r} is no variable name; the value is taken from the environment.", param, ctx)
        return str(value)


class Name(click.ParamType):  # type: ignore[type-arg]
    """What a schedule is called: it stands in ids, tables and shells."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        import re

        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", value):
            self.fail(f"{value!r} is no name: up to 64 letters, digits, '.', '_' and '-'.", param, ctx)
        return str(value)


class Instant(click.ParamType):  # type: ignore[type-arg]
    """An instant: ISO 8601 with its offset, as milliseconds since the epoch."""

    name = "instant"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        from datetime import datetime

        if isinstance(value, int):
            return value
        try:
            instant = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is no time such as 2026-10-25T02:30:00+02:00.", param, ctx)
        if instant.tzinfo is None:
            self.fail(f"{value!r} has no offset, such as Z or +02:00.", param, ctx)
        return round(instant.timestamp() * 1000)


class Producer(click.ParamType):  # type: ignore[type-arg]
    """Who says something: a short name."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        import re

        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", value):
            self.fail(f"{value!r} is no name: up to 64 letters, digits, '.', '_' and '-'.", param, ctx)
        return str(value)


class ToolNames(click.ParamType):  # type: ignore[type-arg]
    """A comma-separated list of tools, or `none`."""

    name = "list|none"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        names = tuple(name.strip() for name in value.split(","))
        if names == ("none",):
            return ()
        if not all(names) or "none" in names:
            self.fail(f"{value!r} is neither a list such as read,grep,bash nor none.", param, ctx)
        return names


TEXT, KEY, DURATION, MONEY, LABEL = Text(), Key(), Duration(), Money(), Label()
SESSION_ID, VARIABLE_NAME, TOOL_NAMES = SessionId(), VariableName(), ToolNames()
PRODUCER, TURN_ID, FORK_SOURCE = Producer(), TurnId(), ForkSource()
