"""Commands that publish, push, upload or change systems elsewhere."""

from __future__ import annotations

import re

from mcode_exec.permissions.effects import GIT_VALUED, is_remote
from mcode_exec.permissions.options import has_option, operands, subcommand, values
from mcode_exec.permissions.script import Simple, Word
from mcode_exec.permissions.vocabulary import names

#: program → subcommands that publish; an empty set: all of them
_PUBLISHING: dict[str, frozenset[str]] = {
    "npm": names("publish unpublish deprecate dist-tag access owner login adduser token"),
    "pnpm": names("publish login"),
    "yarn": names("publish"),
    "bun": frozenset({"publish"}),
    "lerna": frozenset({"publish"}),
    "cargo": names("publish yank owner login"),
    "twine": frozenset({"upload", "register"}),
    "poetry": frozenset({"publish"}),
    "flit": frozenset({"publish"}),
    "hatch": frozenset({"publish"}),
    "pdm": frozenset({"publish"}),
    "uv": frozenset({"publish"}),
    "maturin": frozenset({"publish", "upload"}),
    "gem": names("push yank owner signin"),
    "mvn": frozenset({"deploy", "release:perform"}),
    "gradle": frozenset({"publish"}),
    "docker": frozenset({"push", "login"}),
    "podman": frozenset({"push", "login"}),
    "buildah": frozenset({"push", "login"}),
    "skopeo": frozenset({"copy", "sync", "delete", "login"}),
    "crane": frozenset({"push", "copy", "delete"}),
    "helm": names("push install upgrade uninstall rollback"),
    "kubectl": names(
        "apply create delete edit patch replace scale rollout drain cordon exec cp run set label"
    ),
    "terraform": names("apply destroy import taint"),
    "tofu": names("apply destroy import taint"),
    "pulumi": names("up destroy"),
    "vercel": frozenset(),
    "netlify": frozenset({"deploy"}),
    "fly": frozenset({"deploy", "launch"}),
    "flyctl": frozenset({"deploy", "launch"}),
    "heroku": frozenset(),
    "wrangler": frozenset({"deploy", "publish"}),
    "firebase": frozenset({"deploy"}),
    "serverless": frozenset({"deploy", "remove"}),
    "ansible-playbook": frozenset(),
    "ansible": frozenset(),
    "eas": frozenset({"submit", "update"}),
    "vsce": frozenset({"publish"}),
    "ovsx": frozenset({"publish"}),
    "conda": frozenset({"upload"}),
    "anaconda": frozenset({"upload"}),
}
_GH_LOOKING = names("view list status diff checks checkout clone watch download browse search verify")
_CLOUDS = frozenset({"aws", "gcloud", "gsutil", "az", "s3cmd", "s5cmd", "mc", "rclone", "doctl", "oci"})
_CLOUD_LOOKING = re.compile(
    r"^(ls|list.*|describe.*|get.*|head.*|show|info|du|cat|lsd|lsf|size|version|help|config|check)$"
)
_SENDING = frozenset(
    {"scp", "sftp", "ftp", "tftp", "lftp", "ncftpput", "socat", "mail", "sendmail", "mutt", "telnet"}
)
_LOOPBACK = re.compile(
    r"(?i)^(?:[a-z]+://)?(?:[^/@]*@)?(?:localhost|127(?:\.\d+){3}|0\.0\.0\.0|\[::1\])(?::\d+)?(?:[/?#]|$)"
)
_VALUED = (
    "--registry --prefix -C --cwd --dir --manifest-path -n --namespace --context --host -H --profile --region "
    "-R --repo"
)


def publishes(command: Simple) -> str | None:
    """A reason, if the command publishes, pushes or changes something elsewhere."""
    name, words = command.name, command.words
    if name == "git":
        sub, rest = subcommand(words, GIT_VALUED)
        if sub in ("push", "send-email", "send-pack", "http-push") or (
            sub in ("svn", "p4", "lfs", "subtree") and _pushes(rest)
        ):
            return "it pushes"
        return None
    subcommands = _PUBLISHING.get(name)
    if subcommands is not None:
        given = {w.text for w in operands(words, _VALUED)[:3]}
        first = subcommand(words, _VALUED)[0]
        if name in ("docker", "podman") and {"image", "buildx", "compose", "manifest"} & {first}:
            return "it publishes" if "push" in given or has_option(words, "", "--push") else None
        if not subcommands or first in subcommands or (name in ("mvn", "gradle") and given & subcommands):
            return "it publishes"
        return None
    if name in ("gh", "glab", "hub"):
        return _forge(words)
    if name in _CLOUDS:
        return _cloud(name, words)
    return None


def _pushes(rest: tuple[Word, ...]) -> bool:
    return any(w.text in ("dcommit", "submit", "push") for w in rest[1:3])


def _forge(words: tuple[Word, ...]) -> str | None:
    given = [w.text for w in operands(words, _VALUED)]
    if not given or given[0] in ("version", "help", "completion", "search", "status"):
        return None
    if given[0] == "api":
        method = [w.text.upper() for w in values(words, "-X", "--method")]
        sends = has_option(words, "fF", "--field", "--raw-field", "--input")
        return (
            "it changes something elsewhere"
            if sends or any(m not in ("GET", "HEAD") for m in method)
            else None
        )
    if len(given) > 1 and given[1] in _GH_LOOKING:
        return None
    return None if len(given) == 1 else "it publishes"


def _cloud(name: str, words: tuple[Word, ...]) -> str | None:
    given = [w.text for w in operands(words, _VALUED)]
    if name in ("aws", "gsutil", "s5cmd", "s3cmd", "mc", "rclone") and {"cp", "sync", "copy", "mv"} & set(
        given
    ):
        remote = re.compile(r"^(s3|gs|[\w-]{2,}:)(://)?" if name != "rclone" else r"^[\w-]+:")
        if given and not remote.match(given[-1]) and "mv" not in given and name != "mc":
            return None
        return "it uploads"
    if not given or any(_CLOUD_LOOKING.match(word) for word in given):
        return None
    return "it changes something elsewhere"


def uploads(command: Simple) -> str | None:
    """A reason, if the command sends data to another host."""
    name, words = command.name, command.words
    if name in _SENDING:
        return "it uploads" if len(words) > 1 else None
    if name in ("nc", "ncat", "netcat"):
        return None if has_option(words, "zlh", "--listen") else "it uploads"
    if name == "rsync":
        found = operands(words, "-e --rsh --exclude --include --exclude-from --include-from -f --filter")
        return (
            "it uploads"
            if found and (is_remote(found[-1]) or found[-1].is_unknown) and len(found) > 1
            else None
        )
    if name == "curl" and _curl_sends(words):
        return None if _is_loopback(_urls(words)) else "it uploads"
    if name in ("wget", "wget2"):
        sends = has_option(words, "", "--post-data", "--post-file", "--body-data", "--body-file")
        method = [w.text.upper() for w in values(words, "--method")]
        if sends or any(m not in ("GET", "HEAD", "OPTIONS") for m in method):
            return None if _is_loopback(_urls(words)) else "it uploads"
    if name in ("http", "https", "xh", "httpie"):
        found = operands(words)
        is_sending = any(w.text in ("POST", "PUT", "PATCH", "DELETE") for w in found[:1]) or any(
            re.match(r"^[\w.-]+(:=@?|=@?|@)", w.text) for w in found[1:]
        )
        urls = [w for w in found if "." in w.text or ":" in w.text]
        return "it uploads" if is_sending and not _is_loopback(urls[:1]) else None
    return None


def _curl_sends(words: tuple[Word, ...]) -> bool:
    if any(
        re.match(r"^-[a-zA-Z#]*[TdF]", w.text)
        and not re.match(r"^-[a-zA-Z#]*[oHAeubXKCcDEmwxyYzQrtU]", w.text)
        for w in words[1:]
    ):
        return True
    if any(re.match(r"^-[sSfLkvigGIjJNOqRa0-9#]*[TdF]", w.text) for w in words[1:]):
        return not has_option(words, "G", "--get")
    long_options = ("--data", "--form", "--json", "--upload-file", "--url-query")
    if any(w.text.startswith(long_options) and not w.text.startswith("--url") for w in words[1:]):
        return not has_option(words, "G", "--get")
    methods = values(words, "-X", "--request")
    methods += [w.tail(w.text.index("X") + 1) for w in words[1:] if re.match(r"^-[sSfLkvi]+X[A-Z]+$", w.text)]
    clustered = [words[at + 1] for at, w in enumerate(words[:-1]) if re.match(r"^-[sSfLkvi]+X$", w.text)]
    return any(m.text.upper() not in ("GET", "HEAD", "OPTIONS") for m in (*methods, *clustered))


_CURL_VALUED = (
    "-X --request -d --data --data-raw --data-binary --data-urlencode --json -F --form -T --upload-file -H --header "
    "-o --output -u --user -A --user-agent -b --cookie -c --cookie-jar -e --referer -m --max-time --connect-timeout "
    "--retry -w --write-out -x --proxy -K --config --cacert --cert --key -D --dump-header --retry-delay "
    "-sX -XS --post-data --post-file --method --body-data --body-file -O -P -sSX -isX -ksX -siX -sd -sSd"
)


def _urls(words: tuple[Word, ...]) -> list[Word]:
    return [*operands(words, _CURL_VALUED), *values(words, "--url")]


def _is_loopback(urls: list[Word]) -> bool:
    return bool(urls) and all(_LOOPBACK.match(w.text) for w in urls)
