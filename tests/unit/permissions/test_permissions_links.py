"""Links that a script makes and then uses: they are not on the disk when it is judged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.permissions.conftest import Ground, bash

LEADING_OUT = [
    "ln -s {out} e && echo x > e/f",
    "ln -s {out} e; touch e/f",
    "ln -s {out}/f e && echo x >> e",
    "ln -sfn {up} e && cp a e/",
    "ln -s ../{up} sub/e && cp a sub/e/f",
    "ln -s {out}/deep; echo x > deep/f",
    "ln -s -t sub {out} && echo x > sub/{name}/f",
    "cp -s {out}/f g && tee g < a",
    "ln {out}/f g && truncate -s 0 g",
    "ln -s {out} e && cd e && touch f",
    "ln -s {out} e && rm -rf e/",
    "ln -s {out} e && rm e/f",
    "ln -s {out} e && ln -s e g && touch g/f",
    "ln -s {out}/deep e && touch e/../f",
    "ln -s {out} e && mv e g && touch g/f",
    "rmdir sub; ln -s {out} sub; touch sub/f",
    "bash -c 'ln -s {out} e'; touch e/f",
    "env A=1 ln -s {out} e && touch $PWD/e/f",
]

STAYING = [
    "ln -s {out} e",
    "ln -s {out} e && cat e/f",
    "ln -s {out} e && rm e",
    "rm -rf e; ln -s {out} e",
    "mv e e.old && ln -s {out} e",
    "touch e/f; rm -r e; ln -s {out} e",
    "ln -sfn {out} e && touch f",
    "ln -s {out} sub && touch sub/f",
    "ln -s sub e && touch e/f && rm -rf e/x",
    "ln -s ../a sub/b && echo x > sub/b",
    "ln -s {tmp} t && touch t/f",
    "cp -a sub copy && touch copy/f",
]


@pytest.mark.parametrize("script", LEADING_OUT)
def test_a_link_made_in_the_script_leads_out(script: str, ground: Ground) -> None:
    assert bash(ground.judge(), _leading_to(ground.root / "outside", script, ground)).verdict == "ask"


@pytest.mark.parametrize("script", LEADING_OUT)
def test_a_link_made_in_the_script_leads_below_the_floor(script: str, ground: Ground) -> None:
    decision = bash(ground.judge("full"), _leading_to(ground.data_dir, script, ground))
    assert (decision.verdict, decision.origin) == ("deny", "floor")


def _leading_to(directory: Path, script: str, ground: Ground) -> str:
    up = os.path.relpath(directory, ground.workspace)
    return script.format(out=directory, up=up, name=directory.name)


@pytest.mark.parametrize("script", STAYING)
def test_making_a_link_and_what_stays_inside_is_not_asked(script: str, ground: Ground) -> None:
    script = script.format(out=ground.root / "outside", tmp=ground.temp_dir)
    assert bash(ground.judge(), script).verdict == "allow"


def test_rules_over_files_hold_behind_links_that_the_script_makes(ground: Ground) -> None:
    judge = ground.judge("full", deny=["edit:*.lock", "read:*.pem"])
    for script in ("ln -s b.lock l && echo x > l", "ln b.lock l; tee l < a", "ln -s a.pem k; cat ./k"):
        assert bash(judge, script).verdict == "deny"
    assert bash(judge, "ln -s b.txt l && echo x > l").verdict == "allow"
    assert bash(ground.judge(), "ln -s ~/.ssh/id_rsa k && cat k").verdict == "ask"


def test_a_link_is_followed_behind_many_others_and_a_circle_ends(ground: Ground) -> None:
    others = "; ".join(f"ln -s sub o{n}" for n in range(300))
    assert bash(ground.judge(), f"{others}; ln -s {ground.root}/outside e; touch e/f").verdict == "ask"
    chain = "; ".join(f"ln -s e{n + 1} e{n}" for n in range(30))
    assert bash(ground.judge(), f"{chain}; ln -s {ground.root}/outside e30; touch e0/f").verdict == "ask"
    assert bash(ground.judge(), "ln -s e/e e; ln -s e f; ln -s f e; touch e/e/e").verdict == "allow"


def test_a_bind_mount_leads_to_the_floor(ground: Ground) -> None:
    for mount in ("mount --bind", "sudo mount -o bind,ro", "mount -B"):
        script = f"{mount} {ground.data_dir} sub && touch sub/f"
        assert bash(ground.judge("full"), script).origin == "floor"
