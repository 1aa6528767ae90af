"""Who of the ranks on a circle is at fault, as far as what they did before tells."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from diagd.daemon.detectors import history, rounds, words
from diagd.daemon.detectors.astray import ASTRAY, astray, strayed, waited_in
from diagd.daemon.detectors.history import RECV, SEND
from diagd.daemon.detectors.position import Wait
from diagd.daemon.detectors.scene import Scene

Waits = Mapping[int, Wait]


class Odd(NamedTuple):
    """The ranks, and what they have done in words; no ranks where nothing tells, `said` then is of what hides it."""

    ranks: tuple[int, ...]
    said: str
    key: str = ""  # of a cause of its own


def odd_on(scene: Scene, waits: Waits, *, unmatched: bool) -> Odd:
    """The first of the rules that knows.

    Args:
        unmatched: A send or recv waits for a rank in a collective of the same group, or all are in sends and recvs.
    """
    left = left_alone(waits) if unmatched else ()
    before = tuple(stray for stray in strayed(scene.state) if stray.rank in waits)
    if strays := before or astray(scene, waited_in(waits)):
        ranks = tuple(stray.rank for stray in strays)
        return Odd(ranks, f"{words.verb(ranks, 'has', 'have')} {strays[0].said}", ASTRAY)
    if more := history.sends_more(scene, waits):
        return Odd((), f"{words.ranks_text(more)} {words.verb(more, 'sends', 'send')} {_MORE}")
    for rule, one, several in _RULES:
        if ranks := rule(scene, waits, left):
            return Odd(ranks, words.verb(ranks, one, several), ASTRAY if rule is _alone else "")
    return Odd((), "")


def left_alone(waits: Waits) -> tuple[int, ...]:
    """The ranks that should be in a send or recv with another one on the circle, and are in a collective."""
    wanted = {wait.op.peer for wait in waits.values() if wait.kind == "p2p"}
    return tuple(sorted(r for r, wait in waits.items() if r in wanted and wait.kind == "collective"))


def out_of_order(ranks: tuple[int, ...], waits: Waits) -> str:
    """In words, what those have done of whom no more is known than that they stand elsewhere."""
    left = set(ranks) <= set(left_alone(waits))
    return f"{words.verb(ranks, 'is', 'are')} {_NOT_THERE if left else 'out of order'}"


def _strayed(scene: Scene, waits: Waits, left: tuple[int, ...]) -> tuple[int, ...]:
    """The order that all have kept until now outweighs a vote: a server that waits for its workers stands alone too."""
    return history.first_time(scene, waits)


def _alone(scene: Scene, waits: Waits, left: tuple[int, ...]) -> tuple[int, ...]:
    return history.alone_there(scene, waits)


def _left_the_round(scene: Scene, waits: Waits, left: tuple[int, ...]) -> tuple[int, ...]:
    return rounds.left_out(scene, waits)


def _kept_on(scene: Scene, waits: Waits, left: tuple[int, ...]) -> tuple[int, ...]:
    return rounds.kept_on(scene, waits)


def _to_a_stranger(scene: Scene, waits: Waits, left: tuple[int, ...]) -> tuple[int, ...]:
    """Who waits in a send or recv for a rank that went to a collective, and with which it never had one before."""
    wanted = {rank for rank, wait in waits.items() if wait.kind == "p2p" and wait.op.peer in left}
    strange = set(history.new_partner(scene, waits))
    return tuple(sorted(wanted)) if wanted and wanted <= strange else ()


def _to_who_is_done(scene: Scene, waits: Waits, left: tuple[int, ...]) -> tuple[int, ...]:
    """Who waits in a send or recv for a rank that has done all of its own in this step, with others."""
    wanted = {r: RECV if w.op.name == SEND else SEND for r, w in waits.items() if w.kind == "p2p" and w.op.peer in left}
    if not wanted or not all(history.has_done_its_share(scene, waits[r].op.peer, name) for r, name in wanted.items()):
        return ()
    return tuple(sorted(wanted))


def _went_early(scene: Scene, waits: Waits, left: tuple[int, ...]) -> tuple[int, ...]:
    """Who is in a collective while another one waits for a send or recv with it, of which it did more until now."""
    gone = set(left_alone(waits))
    wanted = {w.op.peer: RECV if w.op.name == SEND else SEND for w in waits.values() if w.kind == "p2p"}
    early = {r for r, name in wanted.items() if r in gone and history.has_left_some_out(scene, r, name)}
    return tuple(sorted(early)) if early == gone else ()


def _left_out(scene: Scene, waits: Waits, left: tuple[int, ...]) -> tuple[int, ...]:
    return history.left_one_out(scene, waits)


def _is_left(scene: Scene, waits: Waits, left: tuple[int, ...]) -> tuple[int, ...]:
    return left


def _kept_partner(scene: Scene, waits: Waits, left: tuple[int, ...]) -> tuple[int, ...]:
    return history.kept_partner(scene, waits)


def _new_partner(scene: Scene, waits: Waits, left: tuple[int, ...]) -> tuple[int, ...]:
    return history.new_partner(scene, waits)


def _stopped(scene: Scene, waits: Waits, left: tuple[int, ...]) -> tuple[int, ...]:
    return history.stopped_sending(scene, waits)


Rule = Callable[[Scene, Waits, tuple[int, ...]], tuple[int, ...]]

_NOT_THERE = "not in the send or recv that others wait for"
_NEW = "turned to a partner that it never sent to or received from before"
_ALONE = "come alone to an operation that no rank came to before, while the others go on as ever"
_SHORT = "left out a send or receive that was in each of its rounds before"
_LONGER = "gone on with its sends and receives as ever, where all others have made fewer in this round"
_DONE = "turned to a partner that has done its sends and receives of this step with others"
_EARLY = "gone to a collective with fewer sends or receives than in the steps before"
_OUT = "gone on without the send or receive that all others have called there"
_KEPT = "gone on with the same partners, while most ranks have turned to others"
_WITHOUT = "gone on without a send that went before each receive until now"
_MORE = "more in this step than in those before, so which of them should have received first is not known"
# What is known, who is at fault by that, and it in words of one rank and of several; empty: no more than the order.
_RULES: tuple[tuple[Rule, str, str], ...] = (
    (_left_out, f"has {_OUT}", f"have {_OUT}"),
    (_strayed, "", ""),
    (_alone, f"has {_ALONE}", f"have {_ALONE}"),
    (_to_a_stranger, f"has {_NEW}", f"have {_NEW}"),
    (_to_who_is_done, f"has {_DONE}", f"have {_DONE}"),
    (_went_early, f"has {_EARLY}", f"have {_EARLY}"),
    (_is_left, "", ""),
    (_kept_partner, f"has {_KEPT}", f"have {_KEPT}"),
    (_new_partner, f"has {_NEW}", f"have {_NEW}"),
    (_stopped, f"has {_WITHOUT}", f"have {_WITHOUT}"),
    (_left_the_round, f"has {_SHORT}", f"have {_SHORT}"),
    (_kept_on, f"has {_LONGER}", f"have {_LONGER}"),
)
