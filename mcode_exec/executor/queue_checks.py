"""What an item says it runs with, checked when it is queued, in the words of a run.

By the configuration here, which the process that runs the item may have in
another form; its keys are its own, and nobody asks for them.  Where an item
has nothing of its own there is nothing to look up.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import structs

from mcode_exec.executor import settings as resolving
from mcode_exec.executor.effort import effort_of, effort_of_fallback
from mcode_exec.executor.models import Reach, check_distinct, reach
from mcode_exec.executor.prompt import Prompt
from mcode_exec.executor.turn_plan import attached, check_attachments, plan_turn
from mcode_exec.executor.workspaces import RECORDED
from mcode_exec.records.invocation import Invocation
from mcode_exec.sessions import making

if TYPE_CHECKING:
    from mcode_exec.executor.runtime import Runtime

_OF_A_MODEL = ("model", "fallback_models", "effort", "agent", "max_cost_usd")
_OF_A_TURN = (*_OF_A_MODEL, "tools", "permission", "rules")


async def check_runnable(runtime: Runtime, invocation: Invocation, prompt: Prompt) -> None:
    """Refuse what a run with these flags, in the session that `invocation` names, would be refused for.

    Raises: InvocationError, ConfigError, SessionError.
    """
    if not (attached(prompt) or _has_any(invocation, _OF_A_TURN)):
        return
    invocation = structs.replace(invocation, cwd=RECORDED)
    settings, workspace = await runtime.settings(invocation)
    plan = await plan_turn(
        runtime.store,
        runtime.sessions_dir,
        invocation,
        settings,
        workspace=workspace,
        project=making.project_of(workspace, None, runtime.clock.now_ms()),
        is_held=runtime.is_held,
    )
    if not (attached(prompt) or _has_any(invocation, _OF_A_MODEL)):
        return
    texts = (plan.model_text, *invocation.fallback_models)
    catalogue = runtime.catalogue(settings.config)

    def look() -> list[Reach]:
        return [reach(text, settings.config, runtime.env, catalogue, needs_key=False) for text in texts]

    models = await asyncio.to_thread(look)
    for model in models:
        resolving.check_price(settings.limits, model.info)
    first, *fallbacks = models
    check_attachments(prompt, first.info)
    effort_of(invocation.effort, plan, first.info.ref, first.api)
    for fallback in fallbacks:
        effort_of_fallback(invocation.effort, fallback.info.ref, fallback.api)
    check_distinct(models)


def _has_any(invocation: Invocation, names: tuple[str, ...]) -> bool:
    return any(getattr(invocation, name) not in (None, ()) for name in names)
