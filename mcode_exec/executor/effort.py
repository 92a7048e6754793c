"""How hard the model is to think: `--effort`, the model's variant, or what the session keeps.

A variant is a level of effort that stands with the model's name.  What a person
wrote and no level is ends the run; what a session brings along to a model of
another make is left out.
"""

from __future__ import annotations

from msgspec import Struct, structs

from mcode_exec.errors import ConfigError, InvocationError
from mcode_exec.executor.turn_plan import MODEL_FLAG, OF_SESSION, TurnPlan
from mcode_exec.providers.wire import EFFORTS, Endpoint
from mcode_exec.records.model import ModelInfo, ModelRef, WireFormat

FALLBACK_FLAG = "--fallback-model"


class Effort(Struct, frozen=True, kw_only=True):
    """The level of one turn; None: the provider's own choice."""

    level: str | None = None
    #: (code, message)
    notices: tuple[tuple[str, str], ...] = ()


def effort_of(asked: str | None, plan: TurnPlan, ref: ModelRef, api: WireFormat) -> Effort:
    """The level for `ref`, which is spoken to in `api`; `asked` is `--effort`.

    Raises: InvocationError for a flag's, ConfigError for the configuration's unknown level.
    """
    is_kept = plan.model_source == OF_SESSION
    if asked is not None and asked not in EFFORTS[api]:
        raise InvocationError(f"--effort: {_unknown(asked, ref, api)}")
    if not is_kept:
        check_variant(ref, api, plan.model_source)
    session = plan.origin
    kept = (session.effort or (ref.variant if is_kept else None)) if session is not None else None
    level = asked or (None if is_kept else ref.variant) or kept
    return _known(level, ref, api)


def effort_of_fallback(asked: str | None, ref: ModelRef, api: WireFormat) -> Effort:
    """The level for a `--fallback-model`: its own variant, else the one asked for, if it knows that.

    Raises: InvocationError for an unknown variant.
    """
    check_variant(ref, api, FALLBACK_FLAG)
    level = ref.variant or asked
    return _known(level, ref, api)


def _known(level: str | None, ref: ModelRef, api: WireFormat) -> Effort:
    """The level, or none with a notice where the format has no word for it."""
    if level is None or level in EFFORTS[api]:
        return Effort(level=level)
    return Effort(notices=(("effort.unknown", f"{_unknown(level, ref, api)}; it is left out"),))


def with_room(effort: Effort, info: ModelInfo, endpoint: Endpoint, max_tokens: int | None) -> Effort:
    """`effort`, with a notice where it cannot be asked for.

    The provider has no field for it, or `--max-tokens` or the model's own limit leaves no room to think.
    """
    if effort.level is None:
        return effort
    if endpoint.api == "openai-completions":
        from mcode_exec.providers.chat_dialects import dialect_of

        if dialect_of(endpoint).effort != "none":
            return effort
        said = f"effort {effort.level!r} is left out: {info.ref} cannot be asked for one"
        return structs.replace(effort, notices=(*effort.notices, ("effort.unsupported", said)))
    if endpoint.api != "anthropic-messages":
        return effort
    from mcode_exec.providers.thinking_budget import LEAST_LIMIT, has_room

    limit = info.output_tokens if max_tokens is None else min(info.output_tokens, max_tokens)
    if has_room(info.ref.model_id, effort.level, limit):
        return effort
    cause = "--max-tokens leaves" if limit < info.output_tokens else "the model has"
    said = (
        f"effort {effort.level!r} is left out: {cause} {limit} tokens for an answer of {info.ref}, "
        f"and thinking takes {LEAST_LIMIT}"
    )
    return structs.replace(effort, notices=(*effort.notices, ("effort.no-room", said)))


def check_variant(ref: ModelRef, api: WireFormat, source: str) -> None:
    """Raises: InvocationError if `--model` names a variant that is no level, ConfigError if `source` does."""
    if ref.variant is not None and ref.variant not in EFFORTS[api]:
        error = InvocationError if source in (MODEL_FLAG, FALLBACK_FLAG) else ConfigError
        raise error(f"{source}: {ref}: {_unknown(ref.variant, ref, api)}")


def _unknown(level: str, ref: ModelRef, api: WireFormat) -> str:
    known = ", ".join(EFFORTS[api])
    return f"{level!r} is no effort that {ref.provider_id} knows ({known})"
