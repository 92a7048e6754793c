"""On which line of a TOML text each key stands.

Only errors ask, so speed does not matter.  The text has already been read by
tomllib, so it is valid TOML and this scanner need not judge it; it only has to
step over values without losing its place.
"""

from __future__ import annotations

import tomllib

KeyPath = tuple[str, ...]


class Index(str):
    """The number of a table in an array of tables; a step of a path, but nothing that stands in the file."""

    __slots__ = ()


def key_lines(text: str) -> dict[KeyPath, int]:
    """Every key path of the valid TOML `text` → the line it first stands on, from 1.

    The tables of an array (`[[tasks]]`) are numbered from 0: `("tasks", "0", "id")`.
    """
    scanner = _Scanner(text.replace("\r\n", "\n"))
    scanner.document()
    return scanner.lines


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[KeyPath, int] = {}
        #: number of the newest table of each array of tables
        self._newest: dict[KeyPath, int] = {}
        self._counted = (0, 1)

    def document(self) -> None:
        table: KeyPath = ()
        while self._skip_blank():
            if self.text[self.at] == "[":
                depth = 2 if self.text.startswith("[[", self.at) else 1
                line = self._line()
                self.at += depth
                table = self._key(())
                self.at = self.text.index("]", self.at) + depth
                if depth == 2:
                    self._newest[table] = self._newest.get(table, -1) + 1
                    table = (*table, str(self._newest[table]))
                    self.lines[table] = line
            else:
                self._assignment(table)

    def _assignment(self, table: KeyPath) -> None:
        key = self._key(table)
        self.at = self.text.index("=", self.at) + 1
        self._value(key)

    def _key(self, prefix: KeyPath) -> KeyPath:
        """Read a dotted key and note each of its steps; leaves the place behind it."""
        while True:
            self._skip_spaces()
            line = self._line()
            prefix = (*prefix, self._key_part())
            self.lines.setdefault(prefix, line)
            self._skip_spaces()
            if not self.text.startswith(".", self.at):
                return prefix
            if prefix in self._newest:  # a table below the newest one of an array
                prefix = (*prefix, str(self._newest[prefix]))
            self.at += 1

    def _key_part(self) -> str:
        start = self.at
        if self.text[start] in "\"'":
            self._string()
            return str(tomllib.loads(f"k = {self.text[start : self.at]}")["k"])
        while self.at < len(self.text) and self.text[self.at] not in ".=] \t\n":
            self.at += 1
        return self.text[start : self.at]

    def _line(self) -> int:
        to, line = self._counted
        line += self.text.count("\n", to, self.at)
        self._counted = (self.at, line)
        return line

    def _value(self, key: KeyPath) -> None:
        self._skip_blank()
        first = self.text[self.at]
        if first in "\"'":
            self._string()
        elif first == "[":
            self._list(key)
        elif first == "{":
            self._inline_table(key)
        else:
            while self.at < len(self.text) and self.text[self.at] not in ",]}\n#":
                self.at += 1

    def _list(self, key: KeyPath) -> None:
        self.at += 1
        while self._skip_blank() and self.text[self.at] != "]":
            if self.text[self.at] == ",":
                self.at += 1
            else:
                self._value(key)
        self.at += 1

    def _inline_table(self, key: KeyPath) -> None:
        self.at += 1
        while self._skip_blank() and self.text[self.at] != "}":
            if self.text[self.at] == ",":
                self.at += 1
            else:
                self._assignment(key)
        self.at += 1

    def _string(self) -> None:
        quote = self.text[self.at]
        if self.text.startswith(quote * 3, self.at):
            self._find_end(quote * 3)
            # up to two more quotes belong to the text of a long string
            while self.text.startswith(quote, self.at):
                self.at += 1
        else:
            self._find_end(quote)

    def _find_end(self, end: str) -> None:
        self.at += len(end)
        while not self.text.startswith(end, self.at):
            self.at += 2 if self.text[self.at] == "\\" and end[0] == '"' else 1
        self.at += len(end)

    def _skip_spaces(self) -> None:
        while self.at < len(self.text) and self.text[self.at] in " \t":
            self.at += 1

    def _skip_blank(self) -> bool:
        """Step over white space and comments; whether anything is left."""
        while self.at < len(self.text):
            if self.text[self.at] == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif self.text[self.at] not in " \t\n":
                return True
            else:
                self.at += 1
        return False
