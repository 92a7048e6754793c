"""Files and environment become one configuration, or one sentence that says what is wrong where."""

from __future__ import annotations

import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcode_exec import config
from mcode_exec.config import Config, values
from mcode_exec.config.lines import key_lines
from mcode_exec.errors import ConfigError

WHOLE = """\
model = "anthropic/claude-sonnet-4-5"
instructions = ["docs/agent.md", "~/mine.md", "/etc/agent.md"]
[providers.acme]
api = "openai-completions"
base_url = "https://llm.acme.example/v1"
api_key = "${ACME_KEY}"
headers = { "x-team" = "ci" }
query = { version = "1" }
auth = "x-api-key"
[providers.acme.models."big-1"]
context = 200_000
output = 16_384
cost = { input = 3, output = 15.0, cache_read = 0.3, cache_write = 3.75 }
[providers.here]
api = "local"
path = "models/x.gguf"
[retry]
max_retries = 0
base_delay = "1.5s"
max_delay = "20s"
budget = "1m"
[timeouts]
connect = "1s"
first_byte = "2s"
idle = "3s"
command = "4s"
command_max = "5s"
[permission]
read = "allow"
[permission.edit]
"*" = "allow"
"*.lock" = "deny"
[agents.reviewer]
model = "acme/big-1#fast"
prompt_file = "reviewer.md"
permission = { edit = "deny" }
tools = ["read", "grep"]
[limits]
max_steps = 50
max_cost = 1.5
max_tokens = 1_000
timeout = "1h"
[env]
pass = ["JAVA_TOOL_OPTIONS"]
[catalogue]
file = "models.json"
url = "https://mirror.example/api.json?v=1"
"""


class Place:
    """A home with a user config, and a workspace with its own."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.workspace = root / "ws"
        self.user_file = self.home / ".config/mcode/config.toml"
        self.workspace_file = self.workspace / ".mcode/config.toml"
        self.user_file.parent.mkdir(parents=True)
        self.workspace_file.parent.mkdir(parents=True)
        self.env = {"HOME": str(self.home)}

    def load(self, *, flag: str | None = None, trust: bool = False, **env: str) -> Config:
        return config.load(
            flag_file=flag, env={**self.env, **env}, workspace=str(self.workspace), trust_flag=trust
        )

    def fault(self, **kwargs: Any) -> str:
        with pytest.raises(ConfigError) as caught:
            self.load(**kwargs)
        assert caught.value.exit_code == 3
        assert "\n" not in caught.value.message
        return caught.value.message


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_every_documented_key_is_read(place: Place) -> None:
    place.user_file.write_text(WHOLE)
    read = place.load()
    acme = read.providers["acme"]
    assert read.model == "anthropic/claude-sonnet-4-5"
    assert [(f.path, f.is_project) for f in read.instructions] == [
        (f"{place.workspace}/docs/agent.md", True),
        (f"{place.home}/mine.md", False),
        ("/etc/agent.md", False),
    ]
    assert (acme.api, acme.base_url, acme.auth) == (
        "openai-completions",
        "https://llm.acme.example/v1",
        "x-api-key",
    )
    assert (acme.headers, acme.query, acme.api_key_env) == ({"x-team": "ci"}, {"version": "1"}, "ACME_KEY")
    big = acme.models["big-1"]
    assert (big.context_tokens, big.output_tokens) == (200_000, 16_384)
    assert big.cost == config.CostConfig(
        input=Decimal(3), output=Decimal("15.0"), cache_read=Decimal("0.3"), cache_write=Decimal("3.75")
    )
    assert read.providers["here"].path == str(place.user_file.parent / "models/x.gguf")
    assert read.retry == config.RetryConfig(max_retries=0, base_delay_s=1.5, max_delay_s=20.0, budget_s=60.0)
    assert read.timeouts == config.TimeoutConfig(
        connect_s=1.0, first_byte_s=2.0, idle_s=3.0, command_s=4.0, command_max_s=5.0
    )
    (rules,) = read.permission
    assert list(rules.table["edit"].items()) == [("*", "allow"), ("*.lock", "deny")]
    reviewer = read.agents["reviewer"]
    assert (reviewer.model, reviewer.tools) == ("acme/big-1#fast", ("read", "grep"))
    assert reviewer.prompt_file == str(place.user_file.parent / "reviewer.md")
    assert reviewer.permission is not None
    assert reviewer.permission.table == {"edit": "deny"}
    assert read.limits == config.LimitConfig(
        max_steps=50, max_cost_usd=Decimal("1.5"), max_tokens=1000, timeout_s=3600.0
    )
    assert read.env_pass == ("JAVA_TOOL_OPTIONS",)
    assert read.catalogue == config.CatalogueConfig(
        file=str(place.user_file.parent / "models.json"), url="https://mirror.example/api.json?v=1"
    )
    assert config.source_of(read, "catalogue.file") == str(place.user_file)
    assert read.secret_env_names == {"ACME_KEY"}
    assert config.source_of(read, "retry.budget") == str(place.user_file)
    assert config.source_of(read, "timeouts.nothing") == "built-in"


def test_without_any_file_the_built_in_values_hold(place: Place) -> None:
    assert place.load() == Config()


def test_without_any_file_nothing_of_toml_is_imported(place: Place) -> None:
    code = (
        "import sys\nfrom mcode_exec import config\n"
        f"config.load(flag_file=None, env={{'HOME': {str(place.home)!r}}}, workspace={str(place.workspace)!r},"
        " trust_flag=False)\n"
        "loaded = {'tomllib', 'difflib', 'subprocess', 'pathlib', 'mcode_exec.config.schema'} & set(sys.modules)\n"
        "sys.exit(f'loaded: {loaded}' if loaded else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{code}"], check=False
    )
    assert done.returncode == 0


def test_the_environment_wins_over_files_and_names_itself(place: Place) -> None:
    place.user_file.write_text('model = "a/b"')
    read = place.load(MCODE_MODEL="c/d")
    assert (read.model, read.sources["model"]) == ("c/d", "MCODE_MODEL")
    assert place.load(MCODE_MODEL="").model == "a/b"
    assert "MCODE_MODEL" in place.fault(MCODE_MODEL="nonsense")


def test_a_named_file_takes_the_place_of_the_default_one(place: Place) -> None:
    place.user_file.write_text('model = "a/b"')
    other = place.home / "other file.toml"
    other.write_text('model = "c/d"')
    assert place.load(flag=str(other)).model == "c/d"
    assert place.load(MCODE_CONFIG=str(other)).model == "c/d"
    assert place.load(flag="/dev/null").model is None


def test_a_named_file_must_exist(place: Place) -> None:
    assert "/no/such.toml" in place.fault(flag="/no/such.toml")
    assert "/no/such.toml" in place.fault(MCODE_CONFIG="/no/such.toml")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", ":1: the file is empty"),
        ("\n \n", ":1: the file is empty"),
        ('model = "a/b"\nx = \n', ":2: not valid TOML"),
        ('model = "a/b', ":1: not valid TOML"),
        ("a = 1\na = 2\n", ":2: not valid TOML"),
        ('\nmodl = "a/b"', ':2: unknown key "modl"; did you mean "model"?'),
        ("[retry]\nmax_retry = 1", ':2: unknown key "retry.max_retry"; did you mean "retry.max_retries"?'),
        ("[retry]\nzzz = 1", "known here: max_retries, base_delay, max_delay, budget"),
        (
            "[providers.x]\n\nbaseurl = 'u'",
            ':3: unknown key "providers.x.baseurl"; did you mean "providers.x.base_url"?',
        ),
        ("[providers.x.models.'y.z']\ncontxt = 1", "providers.x.models.'y.z'.context"),
        ("retry = 5", '"retry" must be a table, not a number'),
        ("model = 5", '"model" must be a string, not a number'),
        ('model = "gpt"', 'must be "provider/model"'),
        ("[retry]\nbudget = 5", 'must be a duration in quotes, such as "5s"'),
        ('[retry]\nbudget = "5"', "write 5s or 5m"),
        ("[retry]\nmax_retries = true", "must be a whole number from 0 up, not true"),
        ("[retry]\nmax_retries = 1.0", "must be a whole number"),
        ("[retry]\nmax_retries = -1", "must be a whole number"),
        ("[limits]\nmax_steps = 0", "must be a whole number from 1 up"),
        ("[limits]\nmax_cost = nan", "must be a number above 0 (USD), not NaN"),
        ("[limits]\nmax_cost = inf", "must be a number above 0"),
        ('[timeouts]\nidle = "0s"', "must be longer than nothing"),
        ('[timeouts]\ncommand = "2h"\ncommand_max = "1h"', ':2: "timeouts.command" is longer'),
        ("[providers.x.models.y]\ncost = { input = -1 }", "providers.x.models.y.cost.input"),
        (
            "[providers.x.models.y]\ncontext = 10\noutput = 20",
            ":3: model 'y': output (20) is larger than context",
        ),
        ("[providers.'a/b']\napi = 'local'", "must be made of letters"),
        ('[providers.x]\napi = "grpc"', "must be one of anthropic-messages, openai-completions"),
        ('[providers.x]\napi = "replay"', ":2: provider 'x' replays nothing: set path"),
        (
            '[providers.x]\napi = "replay"\npath = "r"\nbase_url = "http://x"',
            ":4: provider 'x' replays a recording: it takes path, tools and strict only",
        ),
        ('[providers.x]\napi = "local"\nstrict = true', ':3: "strict" belongs to a provider whose api is'),
        ('[providers.x]\napi = "replay"\npath = "r"\ntools = "no"', "must be one of recorded, live"),
        ("[providers.x]\nbase_url = 'llm.example'", "must be a URL such as"),
        ("[catalogue]\nurl = 'models.dev'", '"catalogue.url" must be a URL such as'),
        ("[catalogue]\nurl = 'https://u:p@h/a'", '"catalogue.url" must be a plain URL'),
        ("[catalogue]\nfile = ''", '"catalogue.file" must not be empty'),
        ("[catalogue]\nfiles = 'a'", 'did you mean "catalogue.file"?'),
        (
            "[providers.x]\nbase_url = 'http://h:99999/v1'",
            ':2: "providers.x.base_url" has a port that is no port',
        ),
        (
            "[providers.x]\nbase_url = 'http://[::1]:0/v1'",
            ':2: "providers.x.base_url" has a port that is no port',
        ),
        (
            "[providers.x]\nbase_url = 'http://h:a/v1'",
            ':2: "providers.x.base_url" has a port that is no port',
        ),
        (
            "[providers.x]\nbase_url = 'http://[::1/v1'",
            ':2: "providers.x.base_url" has a "[" without its "]"; an IPv6 address stands in brackets',
        ),
        (
            "[providers.x]\nbase_url = 'http://::1]:80/v1'",
            ':2: "providers.x.base_url" has a bracket that does not stand around the host',
        ),
        (
            "[providers.x]\nbase_url = 'http://[]:80/v1'",
            ':2: "providers.x.base_url" has brackets around what is no IPv6 address',
        ),
        (
            "[providers.x]\nbase_url = 'http://[::1]80/v1'",
            ':2: "providers.x.base_url" has more than a port behind its "]"',
        ),
        (
            "[providers.x]\nbase_url = 'http://fd00::1:80/v1'",
            ':2: "providers.x.base_url" has more than one colon in its host and port',
        ),
        ("[catalogue]\nurl = 'https://[::1/a?x=]'", ':2: "catalogue.url" has a "[" without its "]"'),
        (
            "[providers.x]\nbase_url = 'http://::1:80/v1'",
            ':2: "providers.x.base_url" must be a URL with a host',
        ),
        (
            "[providers.x]\nbase_url = 'http://u:p@h/v1'",
            ':2: "providers.x.base_url" holds a user name or password',
        ),
        ("[catalogue]\nurl = 'https://h:70000/a'", ':2: "catalogue.url" has a port that is no port'),
        (
            "[providers.x.models.y]\ncost = { input = 1, output = 2, over_200k = { input = 2 } }",
            ':2: "providers.x.models.y.cost.over_200k.output" is missing: a price has input and output.',
        ),
        ("[providers.x]\nbase_url = 'file:///etc'", "must be a URL such as"),
        ("[providers.x]\nbase_url = 'http://bücher.example/v1'", "(such as xn--bcher-kva.example)"),
        ("[providers.x]\napi_key_command = 'pass show x'", 'must be a list of strings, such as ["a", "b"]'),
        (
            "[providers.x]\napi_key = '${A}'\napi_key_file = 'f'",
            ":3: provider 'x' has api_key and api_key_file",
        ),
        ('[providers.x]\nheaders = { a = "b\\nc: d" }', "must be printable ASCII"),
        ("[providers.x]\nheaders = { 'a b' = 'c' }", "is no name of an HTTP header"),
        ("[providers.x]\nheaders = { Host = 'c' }", "is a header that mcode sets itself"),
        ("[providers.x]\nheaders = { transfer-encoding = 'chunked' }", "is a header that mcode sets itself"),
        ("[providers.x]\nheaders = { a = '${KEY}' }", "is sent as it stands"),
        ("[permission]\nraed = 'allow'", 'did you mean "read"?'),
        ("[permission]\nread = 'yes'", 'must be "allow", "ask" or "deny"'),
        ("[permission.edit]\n'*.lock' = 1", ":2: "),
        ("[agents.x]\nprompt = 'a'\nprompt_file = 'b'", ":3: agent 'x' has prompt and prompt_file"),
        ("[env]\npass = ['A B']", "which is no name of an environment variable"),
        ("[mcp.servers.x]\ncommand = ['y']", '"mcp" is not available in this version'),
        ("[store]\nurl = 'x'", '"store" is not available in this version'),
        ("x = " + "[" * 9000, "nested too deeply"),
        ("[retry]\nmax_retries = " + "9" * 5000, ""),
    ],
)
def test_a_fault_names_file_line_and_what_is_right(place: Place, text: str, said: str) -> None:
    place.user_file.write_text(text)
    message = place.fault()
    assert message.startswith(str(place.user_file))
    assert said in message
    assert place.user_file.read_text() == text


def test_a_literal_key_is_refused_and_not_shown(place: Place) -> None:
    for literal in ("sk-1234567890", "prefix-${NAME}", "${NAME", "$NAME", "${A B}"):
        place.user_file.write_text(f"[providers.x]\napi_key = '{literal}'")
        message = place.fault()
        assert '"${NAME}" and nothing else' in message
        assert "sk-1234" not in message


def test_files_that_are_no_text_files_are_refused(place: Place) -> None:
    place.user_file.write_bytes(b'a = 1\nb = "\xff"')
    assert f"{place.user_file}:2: the file is not UTF-8" in place.fault()
    place.user_file.unlink()
    os.mkfifo(place.user_file)
    assert "no regular file" in place.fault()
    place.user_file.unlink()
    place.user_file.mkdir()
    assert "no regular file" in place.fault()
    place.user_file.rmdir()
    place.user_file.write_bytes(b"#" * (1024 * 1024 + 1))
    assert "larger than 1 MiB" in place.fault()


def test_a_byte_order_mark_and_windows_line_ends_are_fine(place: Place) -> None:
    place.user_file.write_bytes(b'\xef\xbb\xbfmodel = "a/b"\r\n[retry]\r\nmax_retries = 1\r\n')
    assert place.load().model == "a/b"
    place.user_file.write_bytes(b'model = "a/b"\r\n[retry]\r\nmx = 1\r\n')
    assert f"{place.user_file}:3:" in place.fault()


def test_the_line_of_a_key_is_found_through_every_form_of_value() -> None:
    text = (
        'a = """\nx = 1\n\\"""\n""""\n'
        "b = '''\n[z]\n'''\n"
        "c = [ # ]\n  { d = 1 }, [2,\n 3]\n]\n"
        "e = { f = { 'g.h' = 1 },\"i\\u0041\" = 2 }\n"
        "j.k . l = 1979-05-27 07:32:00\n"
        '[m."n]o"]\np = 1 # q\n[[r]]\ns = 1\n[r.t]\nu = 1\n[[r]]\n"s" = 2\n'
    )
    lines = key_lines(text)
    assert lines[("a",)] == 1
    assert lines[("b",)] == 5
    assert lines[("c",)] == 8
    assert lines[("c", "d")] == 9
    assert lines[("e", "f", "g.h")] == lines[("e", "iA")] == 12
    assert lines[("j", "k", "l")] == 13
    assert lines[("m", "n]o", "p")] == 15
    assert (lines[("r",)], lines[("r", "0")], lines[("r", "0", "s")]) == (16, 16, 17)
    assert lines[("r", "0", "t", "u")] == 19
    assert (lines[("r", "1")], lines[("r", "1", "s")]) == (20, 21)
    assert ("z",) not in lines
    assert ("x",) not in lines


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.one_of(
        st.binary(max_size=200),
        st.lists(
            st.sampled_from(
                [
                    *WHOLE.splitlines(keepends=True),
                    "[",
                    "]",
                    '"',
                    "'",
                    "=",
                    "\\",
                    "{",
                    "}",
                    "#",
                    "\n",
                    "é",
                    "1",
                ]
            ),
            max_size=12,
        ).map(lambda lines: "".join(lines).encode()),
        st.tuples(st.integers(0, len(WHOLE)), st.binary(max_size=3)).map(
            lambda cut: WHOLE.encode()[: cut[0]] + cut[1] + WHOLE.encode()[cut[0] + 1 :]
        ),
    )
)
def test_no_bytes_raise_anything_but_a_config_error(place: Place, data: bytes) -> None:
    place.user_file.write_bytes(data)
    for trust in (False, True):
        try:
            assert isinstance(place.load(trust=trust), Config)
        except ConfigError:
            pass
    place.workspace_file.write_bytes(data)
    place.user_file.unlink()
    for trust in (False, True):
        try:
            assert isinstance(place.load(trust=trust), Config)
        except ConfigError:
            pass
    place.workspace_file.unlink()


_SCALARS = st.one_of(
    st.booleans(), st.integers(-5, 5), st.text(max_size=4), st.floats(), st.just([]), st.just(["a"])
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.sampled_from(sorted(WHOLE.splitlines())), value=_SCALARS)
def test_no_value_under_a_known_key_raises_anything_but_a_config_error(
    place: Place, key: str, value: object
) -> None:
    if " = " not in key:
        return
    written = {bool: str(value).lower(), str: "''", list: str(value)}.get(type(value), repr(value))
    place.user_file.write_text(WHOLE.replace(key, f"{key.partition(' = ')[0]} = {written}"))
    try:
        place.load()
    except ConfigError:
        pass


def test_a_store_elsewhere_is_not_silently_ignored(place: Place) -> None:
    assert "MCODE_DATABASE_URL" in place.fault(MCODE_DATABASE_URL="postgresql://x")
    assert place.load(MCODE_DATABASE_URL="") == Config()


def test_keys_that_were_written_into_headers_are_known_to_be_secret(place: Place) -> None:
    place.user_file.write_text(
        "[providers.x]\nheaders = { X-Api-Key = 'k-1', team = 't' }\nquery = { key = 'k-2', v = '1' }"
    )
    assert place.load().secret_literals == ("k-1", "k-2")


def test_an_agents_prompt_is_read_from_its_file(place: Place) -> None:
    place.user_file.write_text("[agents.r]\nprompt_file = 'r.md'\n[agents.s]\nprompt = 'be s'")
    read = place.load()
    with pytest.raises(ConfigError, match=r"agent 'r'.*No such file"):
        config.agent_prompt(read.agents["r"])
    (place.user_file.parent / "r.md").write_bytes(b"be r\xff")
    with pytest.raises(ConfigError, match="not UTF-8"):
        config.agent_prompt(read.agents["r"])
    (place.user_file.parent / "r.md").write_bytes(b"\xef\xbb\xbfbe r")
    assert config.agent_prompt(read.agents["r"]) == "be r"
    assert config.agent_prompt(read.agents["s"]) == "be s"


def test_a_scheme_is_read_in_any_case() -> None:
    assert values.base_url("HTTPS://llm.example/v1") == "https://llm.example/v1"
