"""How people write steps."""


def since_text(first: int, last: int) -> str:
    """When what is looked at now and then began: "since step 7", "since a step from 97 to 128".

    Args:
        first: The first step in which it can have begun, the one after the last look that did not show it.
        last: The step at which it was seen first.
    """
    return f"since a step from {first} to {last}" if first < last else f"since step {last}"
