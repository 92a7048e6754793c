"""A bar chart for people, drawn by plotext (the `[plots]` extra).

Nothing of it depends on colour, so that it can be read in a log too.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from mcode_exec.errors import ConfigError
from mcode_exec.output.escape import escape

_LABEL_CHARS = 32


def bars(labels: Sequence[str], values: Sequence[Decimal | int], *, title: str, width: int) -> str:
    """One horizontal bar a label from zero on, the first on top, as lines of plain text.

    Raises: ConfigError where plotext is not installed.
    """
    try:
        import plotext
    except ImportError:
        raise ConfigError("a chart needs plotext: pip install 'mcode-exec[plots]'") from None
    figure = plotext.figure
    figure.clear()
    figure.theme("clear")
    figure.title(title)
    shown = [_label(label) for label in reversed(labels)]
    figure.draw(
        figure.bar(shown, [float(value) for value in reversed(values)], orientation="horizontal", width=0.5)
    )
    figure.ruler("x").lim(0, float(max(values)) or 1.0)
    figure.plot_size(width, 2 * len(labels) + 4)
    lines = plotext.uncolorize(figure.build().string()).splitlines()
    return "\n".join(line.rstrip() for line in lines).strip("\n") + "\n"


def _label(text: str) -> str:
    text = escape(text)
    return text if len(text) <= _LABEL_CHARS else text[: _LABEL_CHARS - 1] + "…"
