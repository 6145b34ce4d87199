"""A dict that is filled when somebody first looks at it, or writes to it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any


class LateDict(ABC, dict[str, Any]):
    """Holds what `content` gives, made when it is first asked for anything."""

    def __init__(self) -> None:
        super().__init__()
        self.is_filled = False

    @abstractmethod
    def content(self) -> Mapping[str, Any]:
        """What it is to hold; called once."""

    def fill(self) -> None:
        """Be the dict that was asked for."""
        if not self.is_filled:
            self.is_filled = True
            dict.update(self, self.content())


def _once_filled(name: str) -> Callable[..., Any]:
    """A method of dict that fills it first."""
    method: Callable[..., Any] = getattr(dict, name)

    def call(self: LateDict, *arguments: Any, **named: Any) -> Any:
        self.fill()
        return method(self, *arguments, **named)

    return call


# All that reads or writes a dict. With an `__iter__` of its own, `dict(late)` and `**late` come here too.
for _name in (
    *("__contains__", "__delitem__", "__eq__", "__getitem__", "__ior__", "__iter__", "__len__", "__ne__"),
    *("__or__", "__repr__", "__reversed__", "__ror__", "__setitem__", "clear", "copy", "get", "items"),
    *("keys", "pop", "popitem", "setdefault", "update", "values"),
):
    setattr(LateDict, _name, _once_filled(_name))
