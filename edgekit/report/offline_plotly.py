"""The one door to plotly: its JavaScript as text, and figures as the JSON that it draws. plotly ships no types; here
they begin.
"""

from __future__ import annotations

import importlib
import json
from typing import Any, Protocol, cast

from edgekit.report.plots import Figure


class _Offline(Protocol):
    def get_plotlyjs(self) -> str: ...


class _GraphObjects(Protocol):
    def Figure(self, data: Any, layout: Any) -> Any: ...


def plotly_js() -> str:
    """The whole of plotly.js, for embedding once in a page that works without a network."""
    text = cast(_Offline, importlib.import_module("plotly.offline")).get_plotlyjs()
    if "</script" in text.lower():
        # Inside a script element the sequence would end it; within JavaScript strings the escaped form means the same.
        text = text.replace("</script", "<\\/script").replace("</SCRIPT", "<\\/SCRIPT")
    return text


def figure_json(figure: Figure) -> str:
    """``{"data", "layout"}`` safe to stand inside a script element, whatever the names in it are."""
    text = json.dumps(
        {"data": list(figure.data), "layout": dict(figure.layout)}, separators=(",", ":"), allow_nan=False
    )
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def validate(figure: Figure) -> None:
    """Raises ValueError when plotly does not know an attribute of ``figure`` or one of its values. Slow: for tests."""
    cast(_GraphObjects, importlib.import_module("plotly.graph_objects")).Figure(figure.data, figure.layout)
