"""LaTeX in the documentation, as MathML, which browsers render without a script.

Inline: `` `#!math d(s, t)` ``. Displayed: a fenced block with language `math`.
"""

from __future__ import annotations

from typing import Any

from latex2mathml.converter import convert


def format_inline(source: str, *_args: Any, **_options: Any) -> str:
    """Return inline LaTeX as MathML.

    >>> format_inline("d(s, t)")[:5]
    '<math'
    """
    return convert(source)


def format_block(source: str, *_args: Any, **_options: Any) -> str:
    """Return displayed LaTeX as MathML.

    >>> 'display="block"' in format_block("d(s, t)")
    True
    """
    return f'<div class="math">{convert(source, display="block")}</div>'
