"""`mcode models`: limits, prices and their age; fetched data and the user's own word are what runs go by."""

from __future__ import annotations

import gzip
import http.server
import json
import os
import threading
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.support.mcode import Mcode
from tests.support.peer import Peer
from tests.support.steps import Answer, say

JSONL = ("--output-format", "jsonl")
SONNET = "anthropic/claude-sonnet-4-5"
KEY = {"ANTHROPIC_API_KEY": "sk-ant-test-0123456789"}


def entry(model_id: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": model_id,
        "name": model_id.title(),
        "limit": {"context": 77_000, "output": 7_000},
        "cost": {"input": 7, "output": 8},
        "last_updated": "2026-12-01",
        **fields,
    }


def catalogue(*models: dict[str, Any]) -> bytes:
    named = {one["id"]: one for one in (*models, entry("claude-sonnet-4-5"))}
    return json.dumps({"anthropic": {"id": "anthropic", "models": named}}).encode()


class Site:
    """A web server that answers every GET with the same."""

    def __init__(self) -> None:
        self.body = catalogue()
        self.status = 200
        self.headers: dict[str, str] = {}
        self.asked: list[dict[str, str]] = []
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append({name.lower(): value for name, value in self.headers.items()})
                self.send_response(site.status)
                for name, value in {"content-length": str(len(site.body)), **site.headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(site.body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/api.json"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def env(self) -> dict[str, str]:
        return {"MCODE_CATALOGUE_URL": self.url}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def site() -> Iterator[Site]:
    server = Site()
    yield server
    server.close()


def rows(mcode: Mcode, *args: str) -> dict[str, dict[str, Any]]:
    out = mcode.run("models", *args, *JSONL).check().out
    return {row["model"]: row for row in map(json.loads, out.splitlines())}


def dry(mcode: Mcode, model: str) -> dict[str, Any]:
    run = mcode.exec("hi", "--dry-run", "--model", model, "--output-format", "json", env=KEY).check()
    found: dict[str, Any] = json.loads(run.out)["model"]
    return found


def kept(mcode: Mcode) -> Path:
    return mcode.data / "catalogue.json.gz"


def kept_names(mcode: Mcode) -> list[str]:
    return [path.name for path in mcode.data.glob("catalogue*")]


def test_a_provider_is_an_argument_or_an_option_but_not_two(mcode: Mcode) -> None:
    by_argument = rows(mcode, "gemini")
    assert by_argument == rows(mcode, "--provider", "gemini") == rows(mcode, "gemini", "--provider", "gemini")
    assert all(name.startswith("gemini/") for name in by_argument)
    run = mcode.run("models", "gemini", "--provider", "openai").check(2)
    assert "'gemini'" in run.err
    assert "'openai'" in run.err
    assert "(MODEL_UNKNOWN)" in mcode.run("models", "--provider", "nobody").check(3).err


def test_prices_of_long_prompts_are_for_programs_and_the_base_price_for_people(mcode: Mcode) -> None:
    row = rows(mcode, "gemini")["gemini/gemini-2.5-pro"]
    assert (row["input"], row["outputPrice"]) == ("1.25", "10")
    (tier,) = row["tiers"]
    prices = {"input": "2.5", "outputPrice": "15", "cacheRead": "0.25", "cacheWrite": None}
    assert tier == {"aboveTokens": 200_000, **prices}
    (line,) = [
        line.split()
        for line in mcode.run("models", "gemini").check().out.splitlines()
        if line.startswith("gemini/gemini-2.5-pro ")
    ]
    assert line == ["gemini/gemini-2.5-pro", "1048576", "65536", "1.25", "10", "missing"]
    assert rows(mcode, "fake")["fake/big-1"]["tiers"] == []


def test_the_age_of_the_data_is_said_to_people_and_is_a_field_for_programs(mcode: Mcode) -> None:
    run = mcode.run("models", "anthropic").check()
    assert run.err.startswith("mcode: limits and prices of 20")
    assert "from the packaged catalogue" in run.err
    assert "old, from" in run.err
    for output_format in ("json", "jsonl", "csv"):
        assert mcode.run("models", "anthropic", "--output-format", output_format).check().err == ""
    row = rows(mcode, "anthropic")[SONNET]
    assert row["source"] == "catalogue"
    assert row["dataDate"] in run.err
    assert row["dataDate"] in mcode.run("doctor").check().out
    mine = rows(mcode, "fake")["fake/big-1"]
    assert (mine["source"], mine["dataDate"]) == ("config", None)


def test_nothing_goes_over_the_network_without_refresh(mcode: Mcode, site: Site) -> None:
    for args in (("models",), ("models", "--all"), ("doctor",), ("exec", "hi"), ("exec", "hi", "--dry-run")):
        mcode.run(*args, env=site.env).check()
    assert site.asked == []
    assert not kept(mcode).exists()


def test_refreshed_data_are_what_everything_goes_by(mcode: Mcode, site: Site) -> None:
    run = mcode.run("models", "anthropic", "--refresh", *JSONL, env={**site.env, **KEY}).check()
    (row,) = map(json.loads, run.out.splitlines())
    assert (row["model"], row["context"], row["input"]) == (SONNET, 77_000, "7")
    assert (row["source"], row["dataDate"]) == ("refreshed", "2026-12-01")
    assert run.err.startswith("mcode: fetched 1 model of 1 provider, as of 2026-12-01: 0 new, ")
    assert len(site.asked) == 1
    assert not any("sk-ant" in value for value in site.asked[0].values())
    assert kept(mcode).stat().st_mode & 0o777 == 0o600

    assert rows(mcode, "anthropic")[SONNET] == {**row, "key": "missing"}
    found = dry(mcode, SONNET)
    assert (found["contextTokens"], found["outputTokens"], found["limitsFrom"]) == (
        77_000,
        7_000,
        "refreshed",
    )
    assert found["priceUsdPerMillion"] == {"input": "7", "output": "8"}
    doctor = mcode.run("doctor", "--model", SONNET, env=KEY).check().out
    assert f"fetched today from {site.url}" in doctor
    assert "(refreshed), 7/8 USD" in doctor
    assert f"fetched today from {site.url}" in mcode.run("models").check().err


def test_a_run_is_charged_by_refreshed_prices(mcode: Mcode, peer: Peer, site: Site) -> None:
    mcode.run("models", "--refresh", env=site.env).check()
    peer.script(say("a") + Answer(usage={"input": 1000, "output": 100}))
    env = {**KEY, "ANTHROPIC_BASE_URL": peer.url}
    run = mcode.exec("hi", "--model", SONNET, "--output-format", "json", env=env).check()
    assert Decimal(str(run.result["costUsd"])) == Decimal("0.0078")
    total = json.loads(mcode.run("usage", "--output-format", "json").check().out)["total"]
    assert Decimal(str(total["costUsd"])) == Decimal("0.0078")


def test_an_ephemeral_run_goes_by_what_came_with_mcode(mcode: Mcode, site: Site) -> None:
    mcode.run("models", "--refresh", env=site.env).check()
    args = ("hi", "--ephemeral", "--dry-run", "--model", SONNET, "--output-format", "json")
    assert json.loads(mcode.exec(*args, env=KEY).check().out)["model"]["limitsFrom"] == "catalogue"


def test_a_second_refresh_says_what_has_changed(mcode: Mcode, site: Site) -> None:
    mcode.run("models", "--refresh", env=site.env).check()
    site.body = gzip.compress(catalogue(entry("new-1"), entry("new-2")))
    site.headers = {"content-encoding": "gzip"}
    run = mcode.run("models", "--refresh", env=site.env).check()
    assert (
        "fetched 3 models of 1 provider, as of 2026-12-01: 2 new, 0 gone, 0 with other limits or prices"
        in run.err
    )
    site.body = catalogue(entry("new-1", limit={"context": 1, "output": 1}))
    site.headers = {}
    run = mcode.run("models", "--refresh", env=site.env).check()
    assert (
        "fetched 2 models of 1 provider, as of 2026-12-01: 0 new, 1 gone, 1 with other limits or prices"
        in run.err
    )


def test_a_refresh_names_the_first_of_what_it_did_not_understand(mcode: Mcode, site: Site) -> None:
    good = [entry(f"good-{number}") for number in range(90)]
    site.body = catalogue(*good, *(entry(f"odd-{number}", limit=3) for number in range(7)))
    run = mcode.run("models", "--refresh", env=site.env).check()
    names = ", ".join(f"anthropic/odd-{number}" for number in range(5))
    assert f"; not understood, and left out: 7 ({names} and 2 more)" in run.err
    site.body = catalogue(*good, entry("dear", cost={"input": -1, "output": 1}))
    run = mcode.run("models", "--refresh", env=site.env).check()
    assert "; with a price that is none, so that it is unknown: 1 (anthropic/dear)" in run.err
    assert "left out" not in run.err


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("status", "body", "headers", "code"),
    [
        (404, b"no such page", {}, 3),
        (503, b"", {}, 69),
        (302, b"", {"location": "http://elsewhere.example/api.json"}, 3),
        (200, b"<html><body>Log in</body></html>", {"content-type": "text/html"}, 3),
        (200, b"{}", {}, 3),
        (200, b"", {}, 3),
        (200, b'{"models": [{"id": "a"}]}', {}, 3),
        (200, catalogue()[:-20], {}, 3),
        (200, catalogue()[:-20], {"content-length": str(len(catalogue()))}, 69),
        (200, b"\x1f\x8b nonsense", {"content-encoding": "gzip"}, 69),
    ],
)
def test_what_cannot_be_used_is_one_sentence_and_the_data_stay(
    mcode: Mcode, site: Site, status: int, body: bytes, headers: dict[str, str], code: int
) -> None:
    mcode.run("models", "--refresh", env=site.env).check()
    before = kept(mcode).read_bytes()
    site.status, site.body, site.headers = status, body, {"connection": "close", **headers}
    run = mcode.run("models", "--refresh", *JSONL, env=site.env).check(code)
    assert run.out == ""
    assert len(run.err.splitlines()) == 1
    assert run.err.startswith("mcode: error: ")
    assert kept(mcode).read_bytes() == before
    assert kept_names(mcode) == ["catalogue.json.gz"]
    assert len(site.asked) == 2


def test_a_server_that_is_not_there_is_69(mcode: Mcode) -> None:
    run = mcode.run("models", "--refresh", env={"MCODE_CATALOGUE_URL": "http://127.0.0.1:9/api.json"})
    assert "cannot connect to 127.0.0.1:9" in run.check(69).err


@pytest.mark.parametrize(
    "url", ["models.dev", "ftp://h/a", "http://", "http://u:hidden@h/a", "http://h:0/a", "http://h/a#b"]
)
def test_an_address_that_is_none_is_3_and_says_which_setting_it_is(mcode: Mcode, url: str) -> None:
    run = mcode.run("models", "--refresh", env={"MCODE_CATALOGUE_URL": url}).check(3)
    assert "MCODE_CATALOGUE_URL" in run.err or "the address of the catalogue" in run.err
    assert "hidden" not in run.err
    mcode.configure(tables=f'[catalogue]\nurl = "{url}"\n')
    run = mcode.run("models", "--refresh").check(3)
    assert "catalogue.url" in run.err or "the address of the catalogue" in run.err


def test_the_address_is_the_variables_then_the_configurations(mcode: Mcode, site: Site) -> None:
    mcode.configure(tables=f'[catalogue]\nurl = "{site.url}"\n')
    mcode.run("models", "--refresh").check()
    assert len(site.asked) == 1
    mcode.run("models", "--refresh", env={"MCODE_CATALOGUE_URL": "http://127.0.0.1:9/"}).check(69)


def test_a_workspace_sets_neither_address_nor_file_even_trusted(mcode: Mcode, site: Site) -> None:
    (mcode.workspace / "models.json").write_text(catalogue().decode())
    own = mcode.workspace / ".mcode" / "config.toml"
    own.parent.mkdir()
    for line in (f'url = "{site.url}"', 'file = "../models.json"'):
        own.write_text(f"[catalogue]\n{line}\n")
        run = mcode.run("models", "--refresh", env=site.env).check(3)
        assert '"catalogue' in run.err
        run = mcode.run("models", "--refresh", env={**site.env, "MCODE_TRUST_WORKSPACE": "1"}).check(3)
        assert "belongs into your own config file only" in run.err
    assert site.asked == []


def test_refreshes_at_once_leave_one_whole_file(mcode: Mcode, site: Site) -> None:
    runs = [mcode.start("models", "--refresh", *JSONL, env=site.env) for _ in range(4)]
    for run in runs:
        run.finish(40).check()
    assert rows(mcode, "anthropic")[SONNET]["source"] == "refreshed"
    assert kept_names(mcode) == ["catalogue.json.gz"]


def test_a_data_directory_that_is_none_is_74_before_anything_is_fetched(mcode: Mcode, site: Site) -> None:
    mcode.data.write_text("a file")
    run = mcode.run("models", "--refresh", env=site.env).check(74)
    assert str(mcode.data) in run.err
    assert site.asked == []


def test_a_file_that_cannot_be_written_to_its_end_is_74_and_the_old_data_stay(
    mcode: Mcode, site: Site
) -> None:
    mcode.run("models", "--refresh", env=site.env).check()
    before = kept(mcode).read_bytes()
    site.body = catalogue(*[entry(f"m-{os.urandom(8).hex()}") for _ in range(400)])
    # what a full disk does: writing stops in the middle
    mcode.command = ["prlimit", "--fsize=2048", *mcode.command]
    run = mcode.run("models", "--refresh", env=site.env).check(74)
    assert "catalogue.json.gz cannot be written" in run.err
    assert kept(mcode).read_bytes() == before
    assert kept_names(mcode) == ["catalogue.json.gz"]


def test_a_directory_in_the_datas_place_is_74_and_named_before_anything_is_fetched(
    mcode: Mcode, site: Site
) -> None:
    (mcode.data / "catalogue.json.gz").mkdir(parents=True)
    run = mcode.run("models", "--refresh", env=site.env).check(74)
    assert f"{mcode.data}/catalogue.json.gz is a directory" in run.err
    assert site.asked == []


def test_what_a_killed_refresh_left_is_removed_once_it_is_nobodys(mcode: Mcode, site: Site) -> None:
    mcode.run("models", "--refresh", env=site.env).check()
    old, new = (mcode.data / f"catalogue.json.gz.{number}.tmp" for number in (1, 2))
    for left in (old, new):
        left.write_bytes(b"half")
    os.utime(old, (1, 1))
    mcode.run("models", "--refresh", env=site.env).check()
    assert (old.exists(), new.exists()) == (False, True)


def test_kept_data_that_are_damaged_or_old_are_not_used_and_that_is_said(mcode: Mcode, site: Site) -> None:
    mcode.run("models", "--refresh", env=site.env).check()
    whole = kept(mcode).read_bytes()
    kept(mcode).write_bytes(whole[: len(whole) // 2])
    assert dry(mcode, SONNET)["limitsFrom"] == "catalogue"
    run = mcode.run("models", "anthropic", *JSONL).check()
    assert "mcode: fetched data are not used: " in run.err
    assert "is damaged" in run.err
    assert "fetched data are not used" in mcode.run("doctor").check().out
    site.body = catalogue().replace(b"2026-12-01", b"2020-12-01")
    run = mcode.run("models", "anthropic", "--refresh", env=site.env).check(3)
    assert "is as of 2020-12-01, older than the data here" in run.err
    assert dry(mcode, SONNET)["limitsFrom"] == "catalogue"


def test_old_data_advise_a_refresh(mcode: Mcode, site: Site) -> None:
    mcode.run("models", "--refresh", env=site.env).check()
    document = json.loads(gzip.decompress(kept(mcode).read_bytes()))
    for days, is_told in ((80, False), (100, True)):
        old = {**document, "fetchedMs": document["fetchedMs"] - days * 86_400_000}
        kept(mcode).write_bytes(gzip.compress(json.dumps(old).encode()))
        err = mcode.run("models").check().err
        assert " days ago from " in err
        assert ("newer ones: mcode models --refresh" in err) == is_told


def test_the_users_file_wins_over_data_and_loses_to_the_configuration(mcode: Mcode, site: Site) -> None:
    mine = mcode.config.parent / "models.json"
    said = {
        "claude-sonnet-4-5": {"cost": {"input": 0.5, "output": 0.6}},
        "own-1": {"limit": {"context": 5000}},
    }
    mine.write_text(json.dumps({"anthropic": {"models": said}, "fake": {"models": said}}))
    table = '[catalogue]\nfile = "models.json"\n'
    mcode.configure(tables=table)
    for is_refreshed in (False, True):
        if is_refreshed:
            mcode.run("models", "--refresh", env=site.env).check()
        found = rows(mcode, "anthropic")
        row = found[SONNET]
        assert (row["input"], row["outputPrice"], row["source"]) == ("0.5", "0.6", "override")
        assert row["context"] == (77_000 if is_refreshed else 200_000)
        assert row["dataDate"] is not None
        own = found["anthropic/own-1"]
        assert (own["context"], own["output"], own["input"], own["dataDate"]) == (5000, 5000, None, None)
    assert rows(mcode, "fake")["fake/own-1"]["source"] == "override"
    assert dry(mcode, SONNET)["limitsFrom"] == "override"
    assert f"4 models in {mine}" in mcode.run("doctor").check().out
    mcode.configure(
        tables=table + '[providers.anthropic.models."claude-sonnet-4-5"]\ncost = { input = 9.0 }\n'
    )
    row = rows(mcode, "anthropic")[SONNET]
    assert (row["input"], row["outputPrice"], row["source"]) == ("9.0", "0.6", "config")


def test_a_users_file_that_is_wrong_is_3_with_file_and_field(mcode: Mcode, peer: Peer) -> None:
    mine = mcode.config.parent / "models.json"
    mcode.configure(tables='[catalogue]\nfile = "models.json"\n')
    for content, said in (
        (
            '{"anthropic": {"models": {"a": {"limit": {"context": "b"}}}}}',
            "'anthropic.models.a.limit.context'",
        ),
        ('{"anthropic": {"models": {"a": {"cost": {"output": -2}}}}}', "'anthropic.models.a.cost.output'"),
        ("nonsense", "no JSON object"),
        (None, "cannot be read"),
    ):
        mine.unlink(missing_ok=True)
        if content is not None:
            mine.write_text(content)
        for args in (("models",), ("exec", "hi", "--output-format", "json"), ("exec", "hi", "--dry-run")):
            run = mcode.run(*args).check(3)
            for words in (str(mine), said, "CONFIG_INVALID"):
                assert words in run.err + run.out
        assert "FAIL" in mcode.run("doctor").check(4).out
    assert peer.calls == []


def test_a_model_that_nobody_describes_is_tried_with_the_stated_defaults(mcode: Mcode, peer: Peer) -> None:
    found = dry(mcode, "fake/never-heard-of")
    assert (found["contextTokens"], found["outputTokens"], found["limitsFrom"]) == (128_000, 8_192, "default")
    assert found["priceUsdPerMillion"] is None
    run = mcode.exec("hi", "--model", "fake/never-heard-of", "--output-format", "json").check()
    assert run.result["costUsd"] is None
    assert peer.last.json["model"] == "never-heard-of"
    assert "(PRICE_UNKNOWN)" in mcode.exec("hi", "--model", "fake/other", "--max-cost", "1").check(3).err
    mcode.configure(tables='[providers.fake.models."plain"]\nimages = false\n')
    row = rows(mcode, "fake")["fake/plain"]
    assert (row["context"], row["output"], row["input"], row["images"]) == (128_000, 8_192, None, False)


def test_help_shows_both_forms_and_the_defaults(mcode: Mcode) -> None:
    text = mcode.run("models", "--help").check().out
    for words in (
        "mcode models --provider anthropic",
        "mcode models --refresh",
        "128,000",
        "8,192",
        "[catalogue]",
    ):
        assert words in text


def test_kept_data_are_no_target_of_a_run(mcode: Mcode, site: Site) -> None:
    mcode.run("models", "--refresh", env=site.env).check()
    mcode.exec("hi", "-o", kept(mcode)).check(74)
    assert rows(mcode, "anthropic")[SONNET]["source"] == "refreshed"


def test_half_a_price_that_nobody_completes_is_3_with_file_and_line(mcode: Mcode, peer: Peer) -> None:
    mine = mcode.config.parent / "models.json"
    for half, missing in (("input = 3.0", "output"), ("output = 3.0", "input"), ("cache_read = 1", "input")):
        mcode.configure(cost=f"cost = {{ {half} }}")
        lines = mcode.config.read_text().splitlines()
        line = next(number for number, text in enumerate(lines, 1) if text.startswith("cost ="))
        for args in (
            ("models", "fake"),
            ("exec", "hi", "--output-format", "json"),
            ("exec", "hi", "--dry-run"),
        ):
            run = mcode.run(*args).check(3)
            assert f"{mcode.config}:{line}: " in run.err
            assert f'.cost.{missing}" is missing, and nobody else says it' in run.err
        mcode.run("models", "anthropic").check()
    mcode.configure(cost="cost = { input = 3.0 }", tables='[catalogue]\nfile = "models.json"\n')
    mine.write_text(json.dumps({"fake": {"models": {"big-1": {"cost": {"input": 1, "output": 7}}}}}))
    (row,) = rows(mcode, "fake").values()
    assert (row["input"], row["outputPrice"]) == ("3.0", "7")
    assert peer.calls == []


def test_the_age_of_data_is_told_where_a_row_is_from_them(mcode: Mcode, peer: Peer) -> None:
    assert " days old" not in mcode.run("models", "fake").check().err
    assert "limits and prices of " in mcode.run("models", "anthropic").check().err
