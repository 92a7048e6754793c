"""Which files hold credentials, and which commands print them."""

from __future__ import annotations

from collections.abc import Iterable

from mcode_exec.permissions.options import operands
from mcode_exec.permissions.script import Simple
from mcode_exec.permissions.vocabulary import names

_DIRECTORIES = frozenset({".ssh", ".aws", ".gnupg", ".azure", ".password-store", ".oci"})
_IN_HOME = names(
    ".netrc .npmrc .yarnrc .pypirc .git-credentials .pgpass .my.cnf .kube/config .docker/config.json "
    ".config/gcloud .config/gh .config/hub .config/git/credentials .config/glab-cli "
    ".cargo/credentials .cargo/credentials.toml .gem/credentials .m2/settings.xml "
    ".gradle/gradle.properties .terraformrc .terraform.d .config/op .local/share/keyrings "
    ".config/rclone .config/containers/auth.json .vault-token .bash_history .zsh_history "
    ".claude/.credentials.json .codex/auth.json .config/google-chrome .mozilla"
)
_ANYWHERE = frozenset(
    {
        ".netrc",
        ".pypirc",
        ".git-credentials",
        ".pgpass",
        ".vault-token",
        "id_rsa",
        "id_ed25519",
        "id_ecdsa",
        "id_dsa",
    }
)
_SYSTEM = (
    "/etc/shadow",
    "/etc/gshadow",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssl/private",
    "/var/run/secrets",
    "/run/secrets",
)

_ENV_SAMPLES = frozenset({".env.example", ".env.sample", ".env.template", ".env.dist", ".envrc.example"})

#: commands that print a credential, by their first words
_PRINTING = tuple(
    tuple(phrase.split())
    for phrase in (
        "git credential",
        "gh auth token",
        "glab auth token",
        "gcloud auth print-access-token",
        "gcloud auth print-identity-token",
        "aws configure get",
        "aws configure export-credentials",
        "aws sts",
        "aws secretsmanager",
        "aws ssm",
        "az account get-access-token",
        "pass",
        "op",
        "vault",
        "security find-generic-password",
        "security find-internet-password",
        "secret-tool",
        "gpg --export-secret-keys",
        "kubectl get secret",
        "kubectl get secrets",
        "heroku auth:token",
    )
)


def is_env_file(path: str) -> bool:
    """`.env`, `.env.local`, `.envrc` … but not the samples that are meant to be read."""
    base = path.rpartition("/")[2].lower()
    return base.startswith(".env") and base not in _ENV_SAMPLES


def is_credential_file(path: str, homes: Iterable[str]) -> bool:
    """Keys, tokens and passwords; public keys are none."""
    base = path.rpartition("/")[2]
    if base.endswith(".pub"):
        return False
    if base in _ANYWHERE or not _DIRECTORIES.isdisjoint(path.split("/")):
        return True
    if any(path == file or path.startswith(file + "/") for file in _SYSTEM):
        return True
    if path.startswith("/etc/ssh/") and base.endswith("_key"):
        return True
    if path.startswith("/proc/") and base == "environ":
        return True
    for home in homes:
        if path.startswith(home + "/"):
            below = path[len(home) + 1 :]
            if any(below == file or below.startswith(file + "/") for file in _IN_HOME):
                return True
    return False


def prints_credential(command: Simple) -> bool:
    given = [command.name, *(w.text for w in operands(command.words))]
    flagged = [command.name, *(w.text for w in command.words[1:2])]
    return any(tuple(given[: len(p)]) == p or tuple(flagged[: len(p)]) == p for p in _PRINTING)
