"""What commands print for programs: one csv header with rows and without, one head of every JSON document."""

from __future__ import annotations

import csv
import io
import json

import pytest

from tests.promises.test_when_busy import busy_session
from tests.support.mcode import Mcode, Run
from tests.support.peer import Peer

LISTS = (
    ("sessions", "list"),
    ("sessions", "search", "begin"),
    ("sessions", "tree"),
    ("doctor", "--locks"),
    ("queue", "list", "--all"),
    ("usage", "--by", "day"),
    ("usage", "--by", "session"),
)


def header(run: Run) -> list[str]:
    return next(csv.reader(io.StringIO(run.check().out)))


def test_csv_has_the_same_header_with_rows_and_without(mcode: Mcode, peer: Peer) -> None:
    empty = {args: header(mcode.run(*args, "--output-format", "csv")) for args in LISTS}
    session, running, gate = busy_session(mcode, peer)
    mcode.run("queue", "add", session, "later").check()
    for args, fields in empty.items():
        run = mcode.run(*args, "--output-format", "csv")
        assert header(run) == fields, args
        assert len(run.out.splitlines()) > 1 or args[0] == "usage", args
        lines = mcode.run(*args, "--output-format", "jsonl").check().out.splitlines()
        assert all(list(json.loads(line)) == fields for line in lines), args
    gate.open()
    running.finish().check()
    nothing = header(mcode.run("models", "--provider", "acme", "--output-format", "csv", env=acme(mcode)))
    assert header(mcode.run("models", "--output-format", "csv")) == nothing


def acme(mcode: Mcode) -> dict[str, str | None]:
    config = mcode.root / "acme.toml"
    config.write_text('[providers.acme]\napi = "openai-completions"\nbase_url = "http://127.0.0.1:9/v1"\n')
    return {"MCODE_CONFIG": str(config)}


@pytest.mark.sample(8)
@pytest.mark.parametrize(
    "args",
    [
        *LISTS,
        ("sessions", "show", "{}"),
        ("sessions", "history", "{}"),
        ("sessions", "verify", "{}"),
        ("recover",),
        ("abort", "{}"),
        ("queue", "add", "{}", "x"),
        ("doctor",),
        ("models",),
        ("exec", "x", "--dry-run"),
        ("retry", "{}", "--inspect"),
        ("exec", "x"),
        ("sessions", "delete", "{}"),
    ],
)
def test_every_json_document_begins_with_its_version(mcode: Mcode, args: tuple[str, ...]) -> None:
    session = mcode.exec("begin", "--output-format", "json").check().result["sessionId"]
    run = mcode.run(*(arg.format(session) for arg in args), "--output-format", "json")
    (line,) = run.out.splitlines()
    assert next(iter(json.loads(line).items())) == ("schemaVersion", 1), line
