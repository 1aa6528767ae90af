"""Errors that a person reads: what is wrong, what to do about it, and the exit code that says so to a script."""


class DiagdError(Exception):
    """Something that a person can act on.

    Args:
        message: What is wrong, with the value that is.
        help: What to do next; printed below the message.
        exit_code: 1 a problem, 2 usage, 3 partial, 4 cannot reach, 85 diagd could not start.
    """

    def __init__(self, message: str, *, help: str = "", exit_code: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.help = help
        self.exit_code = exit_code
