"""Runners of programs that are a project's own, in a container or on another host: `uv run`, `docker exec`, `ssh`.

What they run is not what its name means here, so only rules that forbid look at it.
"""

from __future__ import annotations

from msgspec.structs import replace

from mcode_exec.permissions.options import Options, options, readings
from mcode_exec.permissions.script import Simple

_CONTAINER = options(
    "ditPq detach interactive tty rm privileged publish-all init read-only no-healthcheck quiet replace",
    "acehlmpuvw attach cpu-shares env hostname label memory publish user volume workdir name network net mount "
    "entrypoint env-file gpus platform pull add-host cap-add cap-drop device dns expose ip ipc link log-driver "
    "log-opt memory-swap cpus pid pids-limit restart runtime security-opt shm-size stop-signal tmpfs ulimit "
    "volumes-from userns pod",
)
_RUNNERS: dict[tuple[str, ...], Options] = {
    ("uv", "run"): options(
        "qvmsn isolated no-project no-sync frozen locked all-extras no-dev dev active quiet verbose exact script",
        "pw with python project extra group env-file directory with-requirements with-editable package index",
    ),
    ("uvx",): options(
        "qvn isolated quiet verbose", "pwc from with python with-requirements with-editable index"
    ),
    ("poetry", "run"): options(),
    ("pipenv", "run"): options(),
    ("pdm", "run"): options("s site-packages", "p project"),
    ("hatch", "run"): options(),
    ("bundle", "exec"): options(" keep-file-descriptors"),
    ("npx",): options("yq yes no no-install quiet ignore-existing", "pcw package call workspace"),
    ("bunx",): options(" bun", "p package"),
    ("pnpm", "exec"): options("rc recursive shell-mode parallel no-reporter-hide-prefix", "F filter"),
    ("pnpm", "dlx"): options("cs shell-mode silent", " package"),
    ("yarn", "exec"): options(),
    ("direnv", "exec"): options(),
    ("bun", "x"): options(" bun", "p package"),
    **dict.fromkeys((("npm", "exec"), ("npm", "x")), options("yc yes", "pw package call workspace")),
    ("docker", "exec"): options(
        "dit detach interactive tty privileged", "euw user env workdir env-file detach-keys"
    ),
    ("podman", "exec"): options(
        "dilt detach interactive tty privileged latest",
        "euw user env workdir env-file detach-keys preserve-fds",
    ),
    **dict.fromkeys(
        (("docker", "compose", "exec"), ("docker-compose", "exec"), ("docker", "compose", "run")),
        options(
            "dTit detach no-tty rm no-deps quiet-pull", "euwvp user env workdir index volume publish name"
        ),
    ),
    **dict.fromkeys((("docker", "run"), ("podman", "run")), _CONTAINER),
    ("kubectl", "exec"): options("itq stdin tty quiet", "ncf namespace container filename context"),
    ("ssh",): options("46AaCfGgKkMNnqsTtVvXxYy", "BbcDEeFIiJLlmOoPpQRSWw"),
}
#: of those, how many operands stand before the program
_RUNNER_OPERANDS = {
    ("direnv", "exec"): 1,
    ("docker", "exec"): 1,
    ("podman", "exec"): 1,
    ("docker", "compose", "exec"): 1,
    ("docker", "compose", "run"): 1,
    ("docker-compose", "exec"): 1,
    ("docker", "run"): 1,
    ("podman", "run"): 1,
    ("kubectl", "exec"): 1,
    ("ssh",): 1,
}


def run_by_runner(command: Simple) -> list[Simple]:
    """What a runner of a project's own programs runs, one for each way to read its options."""
    words = command.words
    for length in (3, 2, 1):
        key = (command.name, *(w.text for w in words[1:length]))
        known = _RUNNERS.get(key)
        if known is None or len(key) != length:
            continue
        inner: list[Simple] = []
        for reading in readings(words, known, length):
            at = reading.at + _RUNNER_OPERANDS.get(key, 0)
            rest = words[at + 1 :] if at < len(words) and words[at].text == "--" else words[at:]
            if rest:
                inner.append(replace(command, words=rest, prefix=()))
        return inner
    return []
