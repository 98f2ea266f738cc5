"""A registry: names to implementations, with errors that list the options."""

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import Generic, TypeVar

T = TypeVar("T")


class Registry(Generic[T]):
    """Map names to values of one kind; adding the same name twice is an error."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that stores its argument under `name`."""

        def add(value: T) -> T:
            self.add(name, value)
            return value

        return add

    def add(self, name: str, value: T) -> None:
        """Store `value` under `name`. Raises ValueError when the name is taken by another value."""
        if self._entries.setdefault(name, value) is not value:
            raise ValueError(f"{self.kind} {name!r} is registered twice")

    def get(self, name: str) -> T | None:
        """Return the value, or None when there is none of that name."""
        return self._entries.get(name)

    def names(self) -> list[str]:
        """Return all names, in the order of registration."""
        return list(self._entries)

    def __iter__(self) -> Iterator[tuple[str, T]]:
        return iter(self._entries.items())


def nearest(name: str, options: list[str]) -> str | None:
    """Return the option most like `name`, or None when none is near."""
    found = get_close_matches(name, options, n=1, cutoff=0.5)
    return found[0] if found else None
