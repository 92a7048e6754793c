"""`mcode models --refresh`: the published catalogue, fetched, checked, and kept in the data directory.

Invariant: what was kept before stays until the new data are whole and on the disk.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

from mcode_exec import paths
from mcode_exec.clock import SystemClock
from mcode_exec.config import Config, text_variable
from mcode_exec.config.values import WrongValueError, catalogue_url
from mcode_exec.errors import ConfigError, StoreFailedError
from mcode_exec.executor.runtime import check_data_directory
from mcode_exec.plurals import counted
from mcode_exec.providers.catalogue_data import CatalogueData, CatalogueModel, packaged_mark
from mcode_exec.providers.catalogue_refresh import PUBLISHED_URL, Published, fetch, packed, published
from mcode_exec.sessions.files import replace_file

#: names another catalogue than the published one; wins over the configuration's
URL_VARIABLE = "MCODE_CATALOGUE_URL"
#: what a refresh that was killed left is nobody's after so long
_LEFT_S = 3600.0


async def refresh(env: Mapping[str, str], *, config: Config, data_dir: str | None) -> str:
    """Fetch the catalogue and keep it in the data directory; what that changed, as a sentence.

    Raises: ConfigError, ModelCallError, StoreFailedError; what was kept before then stays.
    """
    address = address_of(config, env)
    data = paths.data_dir(data_dir, env)
    check_data_directory(data)
    path = paths.catalogue_file(data)
    if os.path.isdir(path):
        raise StoreFailedError(f"{path} is a directory, where what is fetched would be kept: remove it")
    found = published(await fetch(address, env, connect_s=config.timeouts.connect_s), address)
    before, packaged = CatalogueData(path), CatalogueData()
    if before.date is not None and found.date < before.date:
        raise ConfigError(
            f"what {address} serves is as of {found.date}, older than the data here ({before.date}), which stay"
        )
    body = packed(
        found,
        address=address,
        now_ms=SystemClock().now_ms(),
        mark=packaged_mark(),
        packaged_date=packaged.date,
    )
    changes = _changes(before, found)
    try:
        paths.make_private_dir(data)
        _remove_left(path)
        os.close(replace_file(path, body, durable=True))
    except OSError as error:
        raise StoreFailedError(f"{path} cannot be written: {error.strerror or error}") from error
    return f"fetched {changes}"


def address_of(config: Config, env: Mapping[str, str]) -> str:
    """What is fetched.  Raises: ConfigError."""
    value = text_variable(env, URL_VARIABLE).strip()
    if not value:
        return config.catalogue.url or PUBLISHED_URL
    try:
        return catalogue_url(value)
    except WrongValueError as wrong:
        raise ConfigError(f"{URL_VARIABLE} {wrong}") from None


def _changes(before: CatalogueData, found: Published) -> str:
    old = _flat({provider_id: before.all_models(provider_id) for provider_id in before.providers})
    new = _flat(found.models)
    common = old.keys() & new.keys()
    changed = sum(_told(old[name]) != _told(new[name]) for name in common)
    left_out = _named("not understood, and left out", found.left_out, found.named)
    unpriced = _named(
        "with a price that is none, so that it is unknown", found.unpriced, found.unpriced_named
    )
    return (
        f"{counted(len(new), 'model')} of {counted(len(found.models), 'provider')}, as of {found.date}: "
        f"{len(new) - len(common)} new, {len(old) - len(common)} gone, "
        f"{changed} with other limits or prices{left_out}{unpriced}"
    )


def _named(what: str, count: int, names: tuple[str, ...]) -> str:
    if not count:
        return ""
    more = f" and {count - len(names)} more" if count > len(names) else ""
    return f"; {what}: {count} ({', '.join(names)}{more})"


def _flat(models: Mapping[str, Mapping[str, CatalogueModel]]) -> dict[tuple[str, str], CatalogueModel]:
    return {
        (provider_id, model_id): one for provider_id, own in models.items() for model_id, one in own.items()
    }


def _told(model: CatalogueModel) -> tuple[object, ...]:
    return model.limit, model.cost


def _remove_left(path: str) -> None:
    """Temporary files of refreshes that were killed."""
    begin = os.path.basename(path) + "."
    with os.scandir(os.path.dirname(path)) as entries:
        for entry in entries:
            if not (entry.name.startswith(begin) and entry.name.endswith(".tmp")):
                continue
            try:
                if time.time() - entry.stat(follow_symlinks=False).st_mtime > _LEFT_S:
                    os.unlink(entry.path)
            except OSError:
                pass
