"""Tool schemas for providers that refuse a request over a JSON Schema keyword they do not know.

What is left out only says less to the model: arguments are checked against the
whole schema before anything runs.
"""

from __future__ import annotations

from typing import Any

#: the keywords of Gemini's function declarations (ai.google.dev, `Schema`)
GEMINI = frozenset(
    {
        "type",
        "format",
        "title",
        "description",
        "nullable",
        "enum",
        "items",
        "minItems",
        "maxItems",
        "properties",
        "required",
        "minProperties",
        "maxProperties",
        "minLength",
        "maxLength",
        "pattern",
        "anyOf",
        "default",
        "minimum",
        "maximum",
    }
)


def narrowed(schema: dict[str, Any], keywords: frozenset[str]) -> dict[str, Any]:
    """`schema` with only these keywords, at every depth."""
    kept: dict[str, Any] = {}
    for keyword, value in schema.items():
        if keyword not in keywords:
            continue
        if keyword == "properties":
            kept[keyword] = {name: narrowed(inner, keywords) for name, inner in value.items()}
        elif isinstance(value, dict) and keyword == "items":
            kept[keyword] = narrowed(value, keywords)
        elif keyword == "anyOf":
            kept[keyword] = [narrowed(inner, keywords) for inner in value]
        else:
            kept[keyword] = value
    return kept
