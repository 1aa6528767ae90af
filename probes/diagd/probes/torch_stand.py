"""Where torch's default generator on the CPU stands: a Mersenne twister, as numpy's and Python's are."""

import struct
import sys

from diagd.probes.host_randomness import RESEEDED, WORDS, Stand

# torch's own layout of a state: the seed, words left of the block, whether it was seeded, the next one's place; then
# the block, a word in 8 bytes each.
_HEAD = struct.Struct("<QiiQ")
_BLOCK = slice(_HEAD.size, _HEAD.size + 8 * WORDS)


def stand() -> Stand | None:
    """Now; nothing is drawn. None where it is of another form."""
    generator = getattr(sys.modules.get("torch"), "default_generator", None)
    if generator is None:
        return None
    state = bytes(generator.get_state().numpy().data)
    if len(state) < _BLOCK.stop:
        return None
    _, left, _, place = _HEAD.unpack_from(state)
    if (left, place) == (1, 0):
        place = WORDS  # seeded and not drawn of: what it holds are no numbers yet
    return Stand(state[_BLOCK], int(place)) if 0 <= place <= WORDS else None


def drawn(before: Stand, after: Stand) -> int:
    """How many words lie between the two, at least: further blocks are not counted."""
    if before.key == after.key:
        return after.place - before.place if after.place >= before.place else RESEEDED
    return WORDS - before.place + after.place
