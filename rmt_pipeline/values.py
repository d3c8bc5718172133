"""`dataclass` for many small classes of which a program uses a few: what a class needs is made with
its first instance. There are some hundred, half a millisecond each, and `rmt sql` is a process for
one statement.

Use it where classes are many and their instances few. They have no slots, and inherit from such
classes alone.
"""

import dataclasses
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(**how: bool) -> Callable[[type], type]:
        how.pop("slots", None)  # another class would have to be made, and this one is known

        def put_off(cls: type) -> type:
            _put_off[cls] = how
            cls.__new__ = _first
            return cls

        return put_off


__all__ = ["dataclass"]

_put_off: dict[type, dict[str, bool]] = {}
_lock = threading.Lock()


def _first(cls: type, *_values: Any, **_named: Any) -> Any:
    """`__new__`, which unpickling and copying call too."""
    if cls in _put_off:
        with _lock:
            for base in reversed(cls.__mro__):
                how = _put_off.get(base)
                if how is not None:
                    dataclasses.dataclass(**how)(base)
                    del _put_off[base]  # the last step: who looks without the lock may go on
    return object.__new__(cls)
