"""Text that fits a line."""

MAX_LINE = 400


def one_line(text: str) -> str:
    """Without line breaks and control characters: the text may come from the job."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def cut(text: str, limit: int = MAX_LINE) -> str:
    """At a word, where one ends in the second half."""
    if len(text) <= limit:
        return text
    head, blank, _ = text[:limit].rpartition(" ")
    return (head if blank and len(head) >= limit // 2 else text[: limit - 1]).rstrip(" ,;:") + "…"
