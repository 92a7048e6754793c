"""Rules, presets and the judge that says allow, ask or deny.  docs/contract.md §7.

This room runs nothing: it is given what a tool call needs and answers.  Rules
are a guard against accidents; only the sandbox is a boundary.

The door is `judge.Judge` over `rules.layer(…)` and a `places.Scope`.
"""
