"""Load a dump's pickle or JSON without ever running what it holds: dumps come from other people's machines."""

import io
import json
import pickle
import re

_NUMBER = re.compile(r"[-+.eE\d]*")
# Of a flight recorder's pickle nothing else than containers, numbers and text is needed; these are containers too.
_CONTAINERS: dict[tuple[str, str], type] = {("collections", "OrderedDict"): dict}


class NotADump(Exception):
    """A file that cannot be taken as a dump; the message says why, to stand behind the file's name."""


class _Plain(pickle.Unpickler):
    """Builds plain values; the first global that the pickle asks for ends it."""

    def find_class(self, module_name: str, global_name: str) -> type:
        found = _CONTAINERS.get((module_name, global_name))
        if found is None:
            raise NotADump(
                f"is a pickle that wants to use {module_name}.{global_name}, which no flight recorder's dump does: "
                "refused, and nothing of it was run"
            )
        return found

    def persistent_load(self, pid: object) -> object:
        raise NotADump("is a pickle that refers to objects outside itself, which a flight recorder's dump never does")


def load(data: bytes) -> object:
    """The value that the file's bytes stand for.

    Raises:
        NotADump: They are empty, cut off, neither JSON nor pickle, or want to run code.
    """
    if not data:
        raise NotADump("is empty: the rank ended before it had written its dump")
    if data.lstrip()[:1] in (b"{", b"["):
        return _json(data)
    return _pickle(data)


def _json(data: bytes) -> object:
    try:
        return json.loads(data)
    except UnicodeDecodeError as exc:
        raise NotADump(f"is no JSON, though it begins like it: {exc.reason} at byte {exc.start}") from exc
    except json.JSONDecodeError as exc:
        if _ends_too_early(exc):
            raise NotADump(f"is JSON that is cut off after {len(data)} bytes") from exc
        raise NotADump(f"is no JSON, though it begins like it: {exc}") from exc
    except RecursionError as exc:
        raise NotADump("is JSON that is nested too deeply for a dump") from exc


def _ends_too_early(error: json.JSONDecodeError) -> bool:
    """Whether more text could have made it right."""
    rest = error.doc[error.pos :].strip()
    begun = any(word.startswith(rest) for word in ("true", "false", "null")) or _NUMBER.fullmatch(rest) is not None
    return begun or error.msg.startswith("Unterminated string")


def _pickle(data: bytes) -> object:
    try:
        # Buffered, because an unpickler asks a file that cannot be peeked into for every few bytes by themselves.
        return _Plain(io.BufferedReader(io.BytesIO(data), 1 << 20)).load()
    except NotADump:
        raise
    except EOFError as exc:
        raise _cut(data) from exc
    except Exception as exc:  # bytes that are no pickle make the unpickler raise just about anything
        if "truncated" in str(exc) or "ran out of" in str(exc):
            raise _cut(data) from exc
        raise NotADump(f"is no flight recorder's dump: neither JSON nor pickle (it begins with {data[:12]!r})") from exc


def _cut(data: bytes) -> NotADump:
    if data[:1] != b"\x80":
        return NotADump(f"is no flight recorder's dump: neither JSON nor pickle (it begins with {data[:12]!r})")
    return NotADump(f"is a pickle that is cut off after {len(data)} bytes: the rank was ended while it wrote its dump")
